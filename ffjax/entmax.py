r"""alpha-entmax by bisection, with its derivative in closed form.

alpha-entmax maps scores to sparse probabilities (Peters, Niculae and Martins, 2019):

    p_i = [(alpha - 1) x_i - tau]_+ ^ (1 / (alpha - 1)),   tau such that sum_i p_i = 1.

alpha = 1 is the limit softmax, alpha = 2 is sparsemax.
"""

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from ffjax import fusion, halving
from ffjax.errors import UserError

_MAX_STEPS = 200  # never reached: a guard against inputs that are not numbers


def entmax(x: jax.Array, alpha: float) -> jax.Array:
    r"""alpha-entmax of ``x`` over its last axis.

    Differentiable in forward and reverse mode, under ``jit`` and ``vmap``, by the rule

        dp = s * (dx - sum_i s_i dx_i / sum_i s_i),  s_i = p_i^(2 - alpha) if p_i > 0,

    which follows from differentiating sum_i p_i(x, tau(x)) = 1. Gradients never run
    through the search for tau, where they would be wrong.

    Args:
      x: scores, of any shape (..., d); integers are taken as float32.
      alpha: a Python number >= 1, fixed at compile time.

    Returns:
      Probabilities of the same shape: non-negative, with sum 1 over the last axis.
    """
    if isinstance(alpha, bool) or not isinstance(alpha, int | float) or not alpha >= 1:
        raise UserError(f"alpha={alpha!r}: entmax needs a number >= 1")
    x = jnp.asarray(x)
    dtype = jnp.promote_types(x.dtype, jnp.float32)
    result_dtype = x.dtype if jnp.issubdtype(x.dtype, jnp.floating) else dtype
    if alpha == 1:
        return jax.nn.softmax(x.astype(dtype), axis=-1).astype(result_dtype)
    return _entmax(x.astype(dtype), float(alpha)).astype(result_dtype)


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def _entmax(x: jax.Array, alpha: float) -> jax.Array:
    z = _scale(x, alpha)
    if alpha > 2:
        return _bisect_peak(z, alpha)
    # Near alpha = 1 the exponent is large and tau is near -1. There tau + 1 is searched
    # for, so that the small difference to -1 keeps all its digits.
    near_softmax = alpha < 1.1
    tau = _find_threshold(z, alpha, near_softmax)
    p = _power(z - tau, 1 / (alpha - 1), near_softmax)
    return p / jnp.sum(p, axis=-1, keepdims=True)


@_entmax.defjvp
def _entmax_jvp(
    alpha: float, primals: tuple[jax.Array], tangents: tuple[jax.Array]
) -> tuple[jax.Array, jax.Array]:
    (x,), (dx,) = primals, tangents
    p = _entmax(x, alpha)
    inside = p > 0
    # The argument is guarded too: 0 ** negative would poison the gradient of this rule.
    s = jnp.where(inside, jnp.where(inside, p, 1) ** (2 - alpha), 0)
    if alpha > 2:
        # The slope is infinite at the edge of the support; a large finite value keeps
        # products with zero at zero.
        s = jnp.minimum(s, float(jnp.finfo(p.dtype).max) ** 0.75)
    mean = jnp.sum(s * dx, axis=-1, keepdims=True) / jnp.sum(s, axis=-1, keepdims=True)
    return p, s * (dx - mean)


def energy(x: jax.Array, alpha: float) -> jax.Array:
    r"""sum_i p_i x_i^2 with p = entmax(x), over the last axis: (..., d) -> (...).

    Where 1 / (alpha - 1) is an integer, as for 1.5, a product makes p of tau. There p
    is computed wherever it is needed and never in memory.
    """
    is_product = 1.1 <= alpha <= 2 and (1 / (alpha - 1)).is_integer()
    if not is_product:
        return jnp.sum(entmax(x, alpha) * x * x, axis=-1)
    dtype = jnp.promote_types(x.dtype, jnp.float32)
    return _energy(x.astype(dtype), float(alpha)).astype(x.dtype)


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def _energy(x: jax.Array, alpha: float) -> jax.Array:
    weight, _ = _weights(x, alpha)
    total = jnp.sum(weight(), axis=-1)
    return jnp.sum(weight() * x * x, axis=-1) / total


@_energy.defjvp
def _energy_jvp(
    alpha: float, primals: tuple[jax.Array], tangents: tuple[jax.Array]
) -> tuple[jax.Array, jax.Array]:
    r"""The rule of ``entmax``, put into the sum.

    dg = sum_i (2 p_i x_i + s_i (x_i^2 - sum_j s_j x_j^2 / sum_j s_j)) dx_i.
    """
    (x,), (dx,) = primals, tangents
    weight, slope = _weights(x, alpha)
    total = jnp.sum(weight(), axis=-1, keepdims=True)
    value = jnp.sum(weight() * x * x, axis=-1, keepdims=True) / total
    mean = jnp.sum(slope() * x * x, axis=-1, keepdims=True)
    mean = mean / jnp.sum(slope(), axis=-1, keepdims=True)
    change = 2 * (weight() / total) * x + slope() * (x * x - mean)
    return value[..., 0], jnp.sum(change * dx, axis=-1)


def _weights(
    x: jax.Array, alpha: float
) -> tuple[Callable[[], jax.Array], Callable[[], jax.Array]]:
    """p but for rounding of its sum, and s of the rule: computed anew at every call."""
    z = _scale(x, alpha)
    tau = _threshold(z, alpha)

    def power(exponent: float) -> jax.Array:
        nonlocal tau
        tau, zero = fusion.unshared(tau, jnp.zeros((), tau.dtype))
        return _power(z - tau, exponent, False, zero)

    q = 1 / (alpha - 1)
    return functools.partial(power, q), functools.partial(power, q - 1)


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def _threshold(z: jax.Array, alpha: float) -> jax.Array:
    return _find_threshold(z, alpha, near_softmax=False)


@_threshold.defjvp
def _threshold_jvp(
    alpha: float, primals: tuple[jax.Array], tangents: tuple[jax.Array]
) -> tuple[jax.Array, jax.Array]:
    # Only second derivatives of an energy need it.
    (z,), (dz,) = primals, tangents
    tau = _threshold(z, alpha)
    s = _power(z - tau, 1 / (alpha - 1) - 1, near_softmax=False)
    mean = jnp.sum(s * dz, axis=-1, keepdims=True) / jnp.sum(s, axis=-1, keepdims=True)
    return tau, mean


def _scale(x: jax.Array, alpha: float) -> jax.Array:
    """Scores whose largest is 0: so tau lies in [-1, 0], whatever the scale of x."""
    largest = jax.lax.stop_gradient(jnp.max(x, axis=-1, keepdims=True))
    return (alpha - 1) * (x - largest)


def _find_threshold(z: jax.Array, alpha: float, near_softmax: bool) -> jax.Array:
    """The tau in [-1, 0] with sum_i [z_i - tau]_+^q = 1, q = 1/(alpha - 1), max z = 0.

    Bisection of a bracket [low, high], with a Newton step in place of the midpoint
    where that stays inside. For alpha <= 2 the q-norm of [z - tau]_+ is convex in tau
    and close to linear, so Newton's method on (norm - 1) climbs from -1 without
    overshooting: five steps are typical where halving needs 24.

    With near_softmax, tau + 1 is returned.
    """
    fixed = {"alpha": alpha, "near_softmax": near_softmax}
    return jax.lax.platform_dependent(
        z,
        cpu=functools.partial(_search_until_settled, **fixed),
        default=functools.partial(_search_at_fixed_length, **fixed),
    )


class _Bracket(NamedTuple):
    """Where tau lies, and the best guess so far. All are (..., 1)."""

    low: jax.Array
    high: jax.Array
    tau: jax.Array


def _first_bracket(z: jax.Array, alpha: float, near_softmax: bool) -> _Bracket:
    """From -1, or from a bound that is closer where the scores are, up to 0.

    [z - tau]_+^q is convex in z: its mean is at least that of the mean score. So there
    is mass enough at mean(z) - d^(1 - alpha).
    """
    shift = 1.0 if near_softmax else 0.0
    bound = jnp.mean(z, axis=-1, keepdims=True) - z.shape[-1] ** (1 - alpha)
    low = jnp.maximum(bound, -1) + shift
    return _Bracket(low, jnp.full_like(low, shift), low)


def _newton(
    z: jax.Array, tau: jax.Array, alpha: float, near_softmax: bool
) -> tuple[jax.Array, jax.Array]:
    """The mass under tau, and where Newton's method goes from there."""
    q = 1 / (alpha - 1)
    mass = jnp.sum(_power(z - tau, q, near_softmax), axis=-1, keepdims=True)
    own, zero = fusion.unshared(tau, jnp.zeros((), tau.dtype))
    power = _power(z - own, q - 1, near_softmax, zero)
    slope = jnp.sum(power, axis=-1, keepdims=True)
    return mass, tau + (mass - mass ** (2 - alpha)) / slope


def _narrow(
    z: jax.Array, bracket: _Bracket, alpha: float, near_softmax: bool
) -> _Bracket:
    """A Newton step, or half the bracket."""
    low, high, tau = bracket
    mass, newton = _newton(z, tau, alpha, near_softmax)
    low = jnp.where(mass >= 1, tau, low)
    high = jnp.where(mass >= 1, high, tau)
    middle = (low + high) / 2
    inside = (newton >= low) & (newton <= high)
    return _Bracket(low, high, jnp.where(inside, newton, middle))


_Carry = tuple[int | jax.Array, _Bracket, jax.Array]  # step, bracket, is it done


def _search_until_settled(
    z: jax.Array, *, alpha: float, near_softmax: bool
) -> jax.Array:
    """Steps while the tau of any row still moves."""
    tolerance = _tolerance(z, alpha, near_softmax)
    shift = 1.0 if near_softmax else 0.0

    def is_running(carry: _Carry) -> jax.Array:
        step, _, done = carry
        return (step < _MAX_STEPS) & ~done

    def search(carry: _Carry) -> _Carry:
        step, before, _ = carry
        after = _narrow(z, before, alpha, near_softmax)
        scale = jnp.abs(after.tau - shift)
        done = jnp.all(jnp.abs(after.tau - before.tau) <= tolerance * scale)
        return step + 1, after, done

    start: _Carry = (0, _first_bracket(z, alpha, near_softmax), jnp.array(False))
    return jax.lax.while_loop(is_running, search, start)[1].tau


def _tolerance(z: jax.Array, alpha: float, near_softmax: bool) -> float:
    """The length of a last step of Newton's method, in units of tau.

    Its square is left as the error, so that the tolerance can stay above the rounding
    error of a sum over a wide layer. For q >= 2, (q - 1) d / 2 squares are the most
    that is left: the norm's second derivative is at most (q - 1) d, and its slope at
    least 1 / |tau|. They may be two units in the last place.
    """
    eps, q = float(jnp.finfo(z.dtype).eps), 1 / (alpha - 1)
    if q < 2 or near_softmax:
        return 32 * eps
    return max(32 * eps, math.sqrt(4 * eps / ((q - 1) * z.shape[-1])))


def _search_at_fixed_length(
    z: jax.Array, *, alpha: float, near_softmax: bool
) -> jax.Array:
    """Plain halving for a GPU, as ``halving`` has it, and a Newton step at the end.

    A bit of z - tau for each of the type's; near tau = 0 it has digits beyond them,
    which Newton's method, this close, finds in one step.
    """
    num_bits = jnp.finfo(z.dtype).nmant + 1

    def is_reached(rest: jax.Array, turn: int) -> jax.Array:
        p = _power(2.0 ** -(turn + 1) * (rest - 1), 1 / (alpha - 1), near_softmax)
        return jnp.sum(p, axis=-1, keepdims=True) >= 1

    # z - tau for the lowest tau, in units of the first bit, a half.
    rest = 2 * z if near_softmax else 2 * (z + 1)
    rest = halving.subtract_bits(rest, is_reached, num_bits)
    # The largest z is 0, so the largest rest is -tau.
    tau = -jnp.max(2.0 ** -(num_bits + 1) * rest, axis=-1, keepdims=True)
    return _newton(z, tau, alpha, near_softmax)[1]


def _bisect_peak(z: jax.Array, alpha: float) -> jax.Array:
    """alpha-entmax for alpha > 2, where max z = 0.

    There the mass is not convex in tau, and tau = -p_max^(alpha - 1) may be too small
    for a float. So the largest probability itself, which lies in [1/d, 1], is searched
    for by plain halving: p_i = [p_max^(alpha - 1) + z_i]_+^(1 / (alpha - 1)).
    """

    def probabilities(peak: jax.Array) -> jax.Array:
        p = _power(peak ** (alpha - 1) + z, 1 / (alpha - 1), near_softmax=False)
        return jnp.where(z == 0, peak, p)

    def halve(
        _: jax.Array, bracket: tuple[jax.Array, jax.Array]
    ) -> tuple[jax.Array, jax.Array]:
        low, high = bracket
        middle = (low + high) / 2
        mass = jnp.sum(probabilities(middle), axis=-1, keepdims=True)
        return jnp.where(mass >= 1, low, middle), jnp.where(mass >= 1, middle, high)

    width = z.shape[-1]
    start = jnp.full_like(z[..., :1], 1 / width), jnp.ones_like(z[..., :1])
    # A halving for each bit of the result, and of its smallest value.
    num_steps = jnp.finfo(z.dtype).nmant + 2 + math.ceil(math.log2(width + 1))
    low, high = jax.lax.fori_loop(0, num_steps, halve, start)
    p = probabilities((low + high) / 2)
    return p / jnp.sum(p, axis=-1, keepdims=True)


def _power(
    v: jax.Array,
    exponent: float,
    near_softmax: bool,
    zero: jax.Array | float = 0.0,
) -> jax.Array:
    """[u]_+ ** exponent, where u is v, or 1 + v near softmax; 0 where u <= 0."""
    if near_softmax:
        return jnp.exp(exponent * jnp.log1p(jnp.maximum(v, -1)))
    if exponent == 0:
        return (v > 0).astype(v.dtype)
    if exponent == int(exponent):
        return jax.lax.integer_pow(jnp.maximum(v, zero), int(exponent))
    return jnp.where(v > 0, jnp.maximum(v, 0) ** exponent, 0)
