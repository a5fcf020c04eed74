r"""Goodness functions: activations -> one number that says how well a layer likes them.

A goodness function is pure and reduces the last axis of h, of width d; every leading
axis is a batch axis. Its keyword arguments are its parameters, and their defaults are
the paper's. Decorating a function with ``register`` is all that it takes to add one,
here or in a file of your own:

    from ffjax.goodness import register

    @register
    def l4_over_l2(h):
        return jnp.mean(h**4, axis=-1) / (jnp.mean(h**2, axis=-1) + 1e-8) ** 2

and then ``--config.goodness=my_module:l4_over_l2``.

Equation and section numbers are those of "Selectivity and Shape in the Design of
Forward-Forward Goodness Functions".
"""

import dataclasses
import difflib
import functools
import importlib
import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, overload

import jax
import jax.numpy as jnp

from ffjax.entmax import entmax as _entmax
from ffjax.errors import UserError
from ffjax.model import normalise

# The running mean of a layer's goodness function, or () for one without.
State = jax.Array | tuple[()]

MOMENTUM = 0.9  # of the running means of functions that keep one


@dataclasses.dataclass(frozen=True)
class Definition:
    """An entry of GOODNESS: a function, and what ``register`` was told about it."""

    name: str
    fn: Callable[..., jax.Array]
    running: Callable[[jax.Array], jax.Array] | None = None
    shifted: Callable[..., jax.Array] | None = None

    @property
    def defaults(self) -> dict[str, Any]:
        """The function's parameters and their defaults."""
        parameters = inspect.signature(self.fn).parameters.values()
        return {p.name: p.default for p in parameters if p.kind == p.KEYWORD_ONLY}

    def __call__(self, *args, **kwargs) -> jax.Array:
        """Calls the plain function, so that a decorated name still works as one."""
        return self.fn(*args, **kwargs)


GOODNESS: dict[str, Definition] = {}


@overload
def register(fn: Callable[..., jax.Array]) -> Definition: ...


@overload
def register(
    *,
    running: Callable[[jax.Array], jax.Array] | None = None,
    shifted: Callable[..., jax.Array] | None = None,
) -> Callable[[Callable[..., jax.Array]], Definition]: ...


def register(fn=None, *, running=None, shifted=None) -> Any:
    """Decorator: enters a function into GOODNESS under its own name.

    Args:
      fn: ``fn(h, *, parameter=default, ...)``; with ``running``,
        ``fn(h, running_mean, *, ...)``.
      running: a function of h whose exponential running mean over the training batches
        is handed to ``fn`` as a constant: the layer's state, like that of batch norm.
      shifted: a faster way to the goodness of h under many shifts, if there is one:
        ``shifted(h, v, *, ...)`` of h (..., d) and v (C, d) equals ``fn(h + v_c)`` for
        each of them, (..., C). For a function without ``running``.
    """
    if fn is None:
        return lambda fn: _register(fn, running, shifted)
    return _register(fn, running, shifted)


def _register(fn: Callable[..., jax.Array], running: Any, shifted: Any) -> Definition:
    _check_signature(fn, num_arrays=1 if running is None else 2)
    definition = Definition(fn.__name__, fn, running, shifted)
    # A user's module may be imported under two names; a built-in may not be replaced.
    existing = GOODNESS.get(fn.__name__)
    if existing is not None and existing.fn.__module__ == __name__:
        raise UserError(
            f"goodness {fn.__name__!r} is a built-in one: choose another name"
        )
    GOODNESS[fn.__name__] = definition
    return definition


def _check_signature(fn: Callable[..., jax.Array], num_arrays: int) -> None:
    """Tells parameters from arrays; ``make(name)`` must know what each one is."""
    parameters = list(inspect.signature(fn).parameters.values())
    for parameter in parameters[num_arrays:]:
        if parameter.kind != parameter.KEYWORD_ONLY or parameter.default is (
            parameter.empty
        ):
            raise UserError(
                f"goodness {fn.__name__!r}: parameter {parameter.name!r} must be "
                f"keyword-only and have a default: ({parameters[0].name}, *, "
                f"{parameter.name}=...)"
            )


@dataclasses.dataclass(frozen=True)
class Goodness:
    """A goodness function with its parameters set: hashable, so jit can tell it apart.

    ``g(h)`` measures h. A function with a running mean also takes the layer's state,
    ``g(h, state)``; without it, its initial value is used. State is an empty tuple for
    the functions that have none.
    """

    definition: Definition
    params: tuple[tuple[str, Any], ...]

    def __call__(self, h: jax.Array, state: Any = ()) -> jax.Array:
        """Goodness of h over its last axis."""
        h = jnp.asarray(h)
        if not jnp.issubdtype(h.dtype, jnp.floating):
            h = h.astype(jnp.float32)
        arrays = [h]
        if self.definition.running is not None:
            mean = state if isinstance(state, jax.Array) else self.init()
            arrays.append(jax.lax.stop_gradient(mean).astype(h.dtype))
        value = self.definition.fn(*arrays, **dict(self.params))
        if jnp.shape(value) != h.shape[:-1]:
            raise UserError(
                f"goodness {self.definition.name!r}: gives {jnp.shape(value)} for "
                f"activations of shape {h.shape}; must reduce the last axis alone"
            )
        return value

    @property
    def shifted(self) -> Callable[[jax.Array, jax.Array], jax.Array] | None:
        """The faster way to the goodness under many shifts; see ``register``."""
        if self.definition.shifted is None:
            return None
        return functools.partial(self.definition.shifted, **dict(self.params))

    def init(self) -> Any:
        """The state of an untrained layer."""
        return () if self.definition.running is None else jnp.zeros((), jnp.float32)

    def update(self, state: Any, h: jax.Array) -> Any:
        """The state after a batch of activations, positive and negative ones alike."""
        if self.definition.running is None:
            return state
        mean = jnp.mean(self.definition.running(jax.lax.stop_gradient(h)))
        return MOMENTUM * state + (1 - MOMENTUM) * mean

    def combine(self, states: list[Any]) -> Any:
        """The state for the concatenation of several layers: the mean of theirs."""
        if self.definition.running is None:
            return ()
        return sum(states[1:], start=states[0]) / len(states)


def make(name: str, **params: Any) -> Goodness:
    """The goodness function called ``name`` with the given parameters.

    Args:
      name: a name in GOODNESS, or "module:function" for a registered one of your own.
      **params: values for the function's keyword arguments; the rest keep the paper's
        defaults. topk, contrast_topk and ln_topk take ``fraction``, entmax takes
        ``alpha``, moment takes ``p``.
    """
    definition = find(name)
    defaults = definition.defaults
    for key, value in params.items():
        if key not in defaults:
            allowed = ", ".join(defaults) or "none"
            raise UserError(
                f"goodness {name!r} has no parameter {key!r} (it has: {allowed})"
            )
        check_param(key, value)
    return Goodness(definition, tuple(sorted({**defaults, **params}.items())))


def find(name: str) -> Definition:
    """Looks a name up in GOODNESS, importing the module of a "module:function" name."""
    if not isinstance(name, str):
        raise UserError(
            f"goodness={name!r}: the name of a goodness function is a string"
        )
    if ":" in name:
        return _find_in_module(name)
    if name not in GOODNESS:
        close = difflib.get_close_matches(name, GOODNESS, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise UserError(
            f"goodness={name!r}: unknown; {hint}known are {', '.join(GOODNESS)}, "
            "and module:function for one of your own"
        )
    return GOODNESS[name]


def _find_in_module(name: str) -> Definition:
    module_name, _, function_name = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except UserError:
        raise
    except Exception as error:  # whatever a user's module does when it is run
        what = " ".join(f"{type(error).__name__}: {error}".split())
        raise UserError(
            f"goodness={name!r}: cannot import module {module_name!r} ({what}); it "
            "must lie in the current folder or on PYTHONPATH"
        ) from None
    definition = getattr(module, function_name, None)
    if not isinstance(definition, Definition):
        raise UserError(
            f"goodness={name!r}: {module_name} has no goodness function "
            f"{function_name!r}; decorate it with ffjax.goodness.register"
        )
    return definition


# What a parameter of a given name may be, for built-in functions and users' own.
_DOMAINS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "fraction": (lambda v: _is_number(v) and 0 < v <= 1, "a number in (0, 1]"),
    "alpha": (lambda v: _is_number(v) and 1 <= v < math.inf, "a number >= 1"),
    "p": (lambda v: type(v) is int and 1 <= v <= 32, "an integer from 1 to 32"),
}


def check_param(name: str, value: Any, *, shown: str | None = None) -> None:
    """Raises a UserError if a parameter of this name cannot have this value."""
    if name in _DOMAINS:
        is_allowed, allowed = _DOMAINS[name]
        if not is_allowed(value):
            raise UserError(f"{shown or name}={value!r}: must be {allowed}")


def allowed_values(name: str) -> str:
    """What a parameter of this name may be, in words."""
    return _DOMAINS[name][1]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


# --- Moments under many shifts -------------------------------------------------------


def _shifted_squares(h: jax.Array, shifts: jax.Array) -> jax.Array:
    r"""Mean square of h + v_y for each y: (mean h^2 + mean v_y^2) + (2/d) h . v_y."""
    return _shifted_power_mean(h, shifts, jnp.ones_like(h[..., :1]), 2)


def _shifted_standard_moment(h: jax.Array, shifts: jax.Array, *, p: int) -> jax.Array:
    """``_standard_moment`` of h + v_y for each row v_y of the shifts."""
    if p <= 2:
        return jnp.zeros((*h.shape[:-1], shifts.shape[0]), h.dtype)
    c, d = normalise.centre(h), normalise.centre(shifts)
    # A standard moment does not depend on a common scale. These, constants to the
    # derivative, keep the powers in range.
    square = jax.lax.stop_gradient(jnp.mean(d * d))
    spread = jnp.mean(c * c, axis=-1, keepdims=True) + square + 1e-8
    scale = jax.lax.stop_gradient(jax.lax.rsqrt(spread))
    unit = jnp.sqrt(square) + 1e-12
    c, d, ratio = scale * c, d / unit, scale * unit
    second = _shifted_power_mean(c, d, ratio, 2) + 1e-8 * scale * scale
    value = _shifted_power_mean(c, d, ratio, p) * second ** (-p / 2)
    return value - _normal_moment(p)


def _shifted_power_mean(c, d, ratio, q: int) -> jax.Array:
    r"""mean_i (c_i + r d_yi)^q for each y: (..., n), (C, n), (..., 1) -> (..., C).

    Multiplied out, it is sum_k binom(q, k) r^(q-k) mean_i c_i^k d_yi^(q-k): thin matrix
    products, with the element-wise work of one vector instead of C.
    """
    power = jax.lax.integer_pow
    total = jnp.sum(power(c, q), axis=-1, keepdims=True)
    ends = jnp.sum(power(d, q), axis=-1).reshape((1,) * (c.ndim - 1) + (-1,))
    total = total + power(ratio, q) * ends
    for k in range(1, q):
        total = total + (math.comb(q, k) * power(ratio, q - k)) * (
            power(c, k) @ power(d, q - k).T
        )
    return total / c.shape[-1]


# --- Dense functions -----------------------------------------------------------------


@register(shifted=_shifted_squares)
def sos(h: jax.Array) -> jax.Array:
    r"""Sum of squares over the width: g = (1/d) sum_i h_i^2 (sections 2 and 4.1)."""
    return jnp.mean(h * h, axis=-1)


@register
def variance(h: jax.Array) -> jax.Array:
    r"""g = (1/d) sum_i (h_i - mu)^2, the biased variance (section 3.4)."""
    return jnp.mean(jnp.square(normalise.centre(h)), axis=-1)


@register
def neg_entropy(h: jax.Array) -> jax.Array:
    r"""g = log d + sum_i p_i log p_i with p = softmax(h) (section 3.4).

    The log d, which the paper does not print, makes a uniform layer 0 and a one-hot one
    log d, so that goodness can cross the threshold; without it accuracy is 22.7 %.
    """
    log_p = jax.nn.log_softmax(h, axis=-1)
    return math.log(h.shape[-1]) + jnp.sum(jnp.exp(log_p) * log_p, axis=-1)


@register(running=sos.fn)
def softmax_energy_margin(
    h: jax.Array,
    running_mean: jax.Array,
    *,
    temperature: float = 1.0,
    margin: float = 0.5,
) -> jax.Array:
    r"""g = g_sos - lambda * mean(g_sos) * log sum_i exp(h_i / T) (appendix A).

    mean(g_sos) is a running mean over the training batches, lambda = 0.5, T = 1.
    """
    energy = -jax.nn.logsumexp(h / temperature, axis=-1)
    return sos.fn(h) + margin * running_mean * energy


@register
def game_theoretic(h: jax.Array) -> jax.Array:
    r"""g = sum_i w_i h_i^2 with w_i = |h_i| / (sum_j |h_j| + eps) (appendix A)."""
    weight = jnp.abs(h)
    total = jnp.sum(weight, axis=-1) + 1e-12
    return jnp.sum(weight * h * h, axis=-1) / total


@register
def game_theoretic_shah(h: jax.Array) -> jax.Array:
    r"""g = (1/d) sum_i h_i^2 (1 + w_i / 10) with w_i as in game_theoretic.

    The formula of the benchmark that the paper cites. It ties with sos, as the paper's
    tables do, while the formula that the paper prints does not.
    """
    weight = jnp.abs(h)
    share = weight / (jnp.sum(weight, axis=-1, keepdims=True) + 1e-12)
    return jnp.mean(h * h * (1 + 0.1 * share), axis=-1)


# --- Selective functions -------------------------------------------------------------


@register
def topk(h: jax.Array, *, fraction: float = 0.02) -> jax.Array:
    r"""g = (1/k) sum of the k largest h_i, k = max(5, floor(fraction * d)) (eq. 3)."""
    return _mean_of_largest(h, _count(fraction, h.shape[-1]))


@register
def contrast_topk(h: jax.Array, *, fraction: float = 0.01) -> jax.Array:
    r"""g = mean of the k largest h_i - mean of the k smallest (section 3.4)."""
    k = _count(fraction, h.shape[-1])
    return _mean_of_largest(h, k) + _mean_of_largest(-h, k)


@register
def ln_topk(h: jax.Array, *, fraction: float = 0.02) -> jax.Array:
    r"""g = g_topk(LN(h)), LN without trainable scale and shift (section 3.4)."""
    return _mean_of_largest(normalise.layer_norm(h), _count(fraction, h.shape[-1]))


@register
def entmax(h: jax.Array, *, alpha: float = 1.5) -> jax.Array:
    r"""g = sum_i pi_i h_i^2 with pi = entmax_alpha(h) (eq. 4)."""
    return jnp.sum(_entmax(h, alpha) * h * h, axis=-1)


# --- Shape-sensitive functions -------------------------------------------------------


@register(shifted=functools.partial(_shifted_standard_moment, p=4))
def burstiness(h: jax.Array) -> jax.Array:
    r"""Excess kurtosis: g = m_4 / m_2^2 - 3, m_q = (1/d) sum_i (h_i - mu)^q (eq. 5)."""
    return _standard_moment(h, 4)


@register
def ln_burstiness(h: jax.Array) -> jax.Array:
    r"""g = g_burst(LN(h)), the same up to the eps in LN (section 4.3, appendix E)."""
    return _standard_moment(normalise.layer_norm(h), 4)


@register(shifted=_shifted_standard_moment)
def moment(h: jax.Array, *, p: int = 6) -> jax.Array:
    r"""g = m_p / m_2^(p/2) - beta_p, beta_p = (p-1)!! for even p, 0 for odd (eq. 6).

    beta_p is the value of a normal distribution. p = 1 and p = 2 are 0 for every h.
    """
    return _standard_moment(h, p)


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def _standard_moment(h: jax.Array, p: int) -> jax.Array:
    if p <= 2:
        # m_1 and m_2 / m_2 - 1: zero by construction, with no gradient. Computed, they
        # would be rounding noise that Adam scales up to full steps.
        return jnp.zeros(h.shape[:-1], h.dtype)
    return _power_mean(h, *_standard(h), p)[..., 0] - _normal_moment(p)


@_standard_moment.defjvp
def _standard_moment_jvp(p, primals, tangents):
    r"""The derivative in closed form: one pass over h, and no step through the moments.

    dg = (p / (sigma d)) sum_i w_i dh_i with s = (h - mu) / sigma and

        w_i = s_i^(p-1) - mean(s^(p-1)) - mean(s^p) s_i.
    """
    (h,), (dh,) = primals, tangents
    if p <= 2:
        value = _standard_moment(h, p)
        return value, jnp.zeros_like(value)
    mean, scale = _standard(h)
    moment = _power_mean(h, mean, scale, p)
    s = scale * (h - mean)
    below = _power_mean(h, mean, scale, p - 1)
    weight = jax.lax.integer_pow(s, p - 1) - below - moment * s
    value = moment[..., 0] - _normal_moment(p)
    return value, p * jnp.mean(scale * weight * dh, axis=-1)


def _normal_moment(p: int) -> float:
    """beta_p, the moment of a standard normal distribution."""
    return float(math.prod(range(p - 1, 0, -2))) if p % 2 == 0 else 0.0


def _standard(h: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The mean, and one over the standard deviation.

    The eps is far below the 1e-4 that the variance has in an untrained layer.
    """
    first = h[..., :1]
    mean = first + jnp.mean(h - first, axis=-1, keepdims=True)
    second = jnp.mean(jnp.square(h - mean), axis=-1, keepdims=True)
    return mean, jax.lax.rsqrt(second + 1e-8)


def _power_mean(h: jax.Array, mean, scale, p: int) -> jax.Array:
    # Powers of the standardised values stay in range where m_p and m_2^(p/2) would not.
    # They are computed from h in every reduction, which XLA fuses; the barrier keeps it
    # from sharing h - mean, which would be written to memory and read again.
    mean = jax.lax.optimization_barrier(mean)
    powers = jax.lax.integer_pow(scale * (h - mean), p)
    return jnp.mean(powers, axis=-1, keepdims=True)


def _count(fraction: float, width: int) -> int:
    # The tiny addend keeps 0.29 * 100 = 28.999... from losing a neuron.
    return min(max(5, math.floor(fraction * width + 1e-9)), width)


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def _mean_of_largest(h: jax.Array, k: int) -> jax.Array:
    return _excess_mean(h, _bracket_largest(h, k).low, k)


@_mean_of_largest.defjvp
def _mean_of_largest_jvp(k, primals, tangents):
    """Weight 1/k for the k largest; those level with the k-th share what is left.

    Ties are treated alike, which makes it the mean of all choices.
    """
    (h,), (dh,) = primals, tangents
    found = _bracket_largest(h, k)
    share = (k - found.above) / jnp.maximum(found.inside - found.above, 1)
    weight = jnp.where(h >= found.high, 1, share.astype(h.dtype)) / k
    weight = weight * (h >= found.low)
    return _excess_mean(h, found.low, k), jnp.sum(weight * dh, axis=-1)


def _excess_mean(h: jax.Array, low: jax.Array, k: int) -> jax.Array:
    """Their mean, if low has k entries above it: low + (1/k) sum_i [h_i - low]_+."""
    # Shared with the comparisons of the derivative, the broadcast bound would be
    # written to memory; the barrier keeps it in the sum.
    bound = jax.lax.optimization_barrier(low)
    return low[..., 0] + jnp.sum(jnp.maximum(h, bound) - bound, axis=-1) / k


class _Bracket(NamedTuple):
    """Where the k-th largest entry lies: low <= it < high."""

    low: jax.Array
    high: jax.Array
    inside: jax.Array  # entries that are >= low, at least k
    above: jax.Array  # entries that are >= high, fewer than k


def _bracket_largest(h: jax.Array, k: int) -> _Bracket:
    """Halves a bracket until k entries are above its lower end, or only ties are left.

    A pass that counts is so much cheaper than a sort that twenty of them take a third
    of the time of XLA's top-k on a CPU. The floats are halved by their place in the
    order of all floats, so that one halving a bit is enough whatever their scale.
    """
    # The largest of each of k groups: there are k entries that reach the least of them.
    groups = h[..., : h.shape[-1] // k * k].reshape(*h.shape[:-1], -1, k).max(axis=-2)
    low = jnp.min(groups, axis=-1, keepdims=True)
    high = jnp.max(h, axis=-1, keepdims=True)

    def is_running(carry):
        step, _, done = carry
        return (step <= jnp.finfo(h.dtype).bits) & ~done

    def halve(carry):
        step, found, _ = carry
        low, high = found.low, found.high
        middle = (low & high) + ((low ^ high) >> 1)  # their mean, with no overflow
        count = _count_from(h, _from_place(middle, h.dtype))
        is_low = count >= k
        found = _Bracket(
            low=jnp.where(is_low, middle, low),
            high=jnp.where(is_low, high, middle),
            inside=jnp.where(is_low, count, found.inside),
            above=jnp.where(is_low, found.above, count),
        )
        # Level means to a few units in the last place: XLA may compute h once more for
        # another comparison and round it otherwise.
        done = (found.inside == k) | (found.high <= found.low + 8)
        return step + 1, found, jnp.all(done)

    start = _Bracket(
        low=_to_place(low),
        high=_to_place(high) + 1,
        inside=_count_from(h, low),
        above=jnp.zeros_like(low, jnp.int32),
    )
    _, found, _ = jax.lax.while_loop(is_running, halve, (0, start, jnp.array(False)))
    return found._replace(
        low=_from_place(found.low, h.dtype), high=_from_place(found.high, h.dtype)
    )


def _to_place(x: jax.Array) -> jax.Array:
    """Integers in the order of the floats: their bits, turned for negative ones."""
    width = jnp.finfo(x.dtype).bits
    bits = jax.lax.bitcast_convert_type(x, jnp.dtype(f"int{width}"))
    return bits ^ ((bits >> (width - 1)) & jnp.iinfo(bits.dtype).max)


def _from_place(place: jax.Array, dtype: Any) -> jax.Array:
    sign = place >> (jnp.finfo(dtype).bits - 1)
    bits = place ^ (sign & jnp.iinfo(place.dtype).max)
    return jax.lax.bitcast_convert_type(bits, dtype)


def _count_from(h: jax.Array, bound: jax.Array) -> jax.Array:
    """How many entries are at least as large as the bound.

    Columns are first added up in slices, which XLA does in one pass over h; a reduction
    of the comparison would first write it to memory.
    """
    width = h.shape[-1]
    size = max(1, width // 20)
    parts = [
        (h[..., start : start + size] >= bound).astype(jnp.int32)
        for start in range(0, width - size + 1, size)
    ]
    rest = (h[..., len(parts) * size :] >= bound).astype(jnp.int32)
    whole = jnp.sum(sum(parts), axis=-1, keepdims=True, dtype=jnp.int32)
    return whole + jnp.sum(rest, axis=-1, keepdims=True, dtype=jnp.int32)


def source_hash(name: str) -> str | None:
    return None
