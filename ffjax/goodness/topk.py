"""The mean of the k largest entries, and what trimming leaves, without a sort.

The k-th largest entry is bracketed by counting: halve the bracket, count the entries
above the middle, keep the half with the k-th. Values are then a sum over the entries
above the bracket's lower end, and the derivative is in closed form.
"""

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from ffjax import halving

# Entries so many units in the last place apart count as tied: XLA may compute h once
# more for another comparison and round it otherwise. A power of two.
_TIED = 8


def count(fraction: float, width: int) -> int:
    """k = max(5, floor(fraction * width)), at most the width (eq. 3)."""
    # The tiny addend keeps 0.29 * 100 = 28.999... from losing a neuron.
    return min(max(5, math.floor(fraction * width + 1e-9)), width)


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def mean_of_largest(h: jax.Array, k: int) -> jax.Array:
    """The mean of the k largest entries over the last axis: (..., d) -> (...)."""
    # XLA would not drop the weights of both from a choice by platform.
    return jax.lax.platform_dependent(
        h,
        cpu=lambda h: _by_bracket(h, k=k)[0],
        default=lambda h: _by_bits(h, k=k)[0],
    )


@mean_of_largest.defjvp
def _mean_of_largest_jvp(
    k: int, primals: tuple[jax.Array], tangents: tuple[jax.Array]
) -> tuple[jax.Array, jax.Array]:
    """Weight 1/k for the k largest; those tied with the k-th share what is left.

    Ties are treated alike, which makes it the mean of all choices.
    """
    (h,), (dh,) = primals, tangents
    value, weight = _value_and_weight(h, k)
    return value, jnp.sum(weight * dh, axis=-1)


def contrast_of_extremes(h: jax.Array, k: int) -> jax.Array:
    """The mean of the k largest entries less that of the k smallest."""
    return jax.lax.platform_dependent(
        h,
        cpu=lambda h: mean_of_largest(h, k) + mean_of_largest(-h, k),
        default=functools.partial(_contrast_at_once, k=k),
    )


def _contrast_at_once(h: jax.Array, *, k: int) -> jax.Array:
    """Both ends in the same kernels: h and -h as one array."""
    # A product, not a stack, is computed where it is used.
    sign = jnp.asarray([1, -1], h.dtype).reshape(2, *(1 for _ in h.shape))
    return mean_of_largest(sign * h[None], k).sum(axis=0)


def trimmed_sum(x: jax.Array, k: int) -> jax.Array:
    """The sum without the k smallest and the k largest entries: (..., d) -> (...).

    Entries that are tied with the last to go share what is left of them.
    """
    left = _left(jax.lax.stop_gradient(x), k)
    # Outliers do not enter the sum, so that they leave no rounding behind.
    return jnp.sum(jnp.where(left > 0, left * x, 0), axis=-1)


def _left(x: jax.Array, k: int) -> jax.Array:
    """The share of each entry that trimming leaves, (..., d)."""
    if k == 0:
        return jnp.ones_like(x)
    taken = k * (_value_and_weight(x, k)[1] + _value_and_weight(-x, k)[1])
    # A share of 1 may be rounded; the least share of a tied entry is 1/d.
    return jnp.where(taken < 1 - 0.5 / x.shape[-1], 1 - taken, 0)


def _value_and_weight(h: jax.Array, k: int) -> tuple[jax.Array, jax.Array]:
    """The mean, (...), and the weight of each entry in it, (..., d)."""
    return jax.lax.platform_dependent(
        h,
        cpu=functools.partial(_by_bracket, k=k),
        default=functools.partial(_by_bits, k=k),
    )


# --- On a CPU: halving until all rows are done ----------------------------------------


def _by_bracket(h: jax.Array, *, k: int) -> tuple[jax.Array, jax.Array]:
    bracket = _bracket_largest(h, k)
    share = (k - bracket.above) / jnp.maximum(bracket.inside - bracket.above, 1)
    weight = jnp.where(h >= bracket.high, 1, share.astype(h.dtype)) / k
    weight = weight * (h >= bracket.low)
    return _excess_mean(h, bracket.low, k), weight


def _excess_mean(h: jax.Array, low: jax.Array, k: int) -> jax.Array:
    """Their mean, if low has k entries above it: low + (1/k) sum_i [h_i - low]_+."""
    # Shared with the comparisons of the derivative, the broadcast bound would be
    # written to memory; the barrier keeps it in the sum.
    bound = jax.lax.optimization_barrier(low)
    return low[..., 0] + jnp.sum(jnp.maximum(h, bound) - bound, axis=-1) / k


class _Bracket(NamedTuple):
    """Where the k-th largest entry lies: low <= it < high. All are (..., 1)."""

    low: jax.Array
    high: jax.Array
    inside: jax.Array  # number of entries >= low, at least k
    above: jax.Array  # number of entries >= high, fewer than k


def _bracket_largest(h: jax.Array, k: int) -> _Bracket:
    """Narrows a bracket until k entries are above its lower end, or only ties are left.

    A pass that counts is so much cheaper than a sort that twenty of them take a third
    of the time of XLA's top-k on a CPU. The floats are halved by their place in the
    order of all floats, so that a halving per bit is enough whatever their scale.
    """
    # The largest of each of k groups: there are k entries that reach the least of them.
    groups = h[..., : h.shape[-1] // k * k].reshape(*h.shape[:-1], -1, k).max(axis=-2)
    low = jnp.min(groups, axis=-1, keepdims=True)
    high = jnp.max(h, axis=-1, keepdims=True)
    start = _Bracket(
        low=_to_place(low),
        high=_to_place(high) + 1,
        inside=_count_from(h, low),
        above=jnp.zeros_like(low, jnp.int32),
    )
    bracket = _halve_until_done(h, start, k)
    return bracket._replace(
        low=_from_place(bracket.low, h.dtype), high=_from_place(bracket.high, h.dtype)
    )


def _is_done(bracket: _Bracket, k: int) -> jax.Array:
    return (bracket.inside == k) | (bracket.high <= bracket.low + _TIED)


_Carry = tuple[int | jax.Array, _Bracket, jax.Array]  # step, bracket, is it done


def _halve_until_done(h: jax.Array, start: _Bracket, k: int) -> _Bracket:
    """Counts above the middle, turn by turn, while any row is not done."""

    def is_running(carry: _Carry) -> jax.Array:
        step, _, done = carry
        return (step <= jnp.finfo(h.dtype).bits) & ~done

    def halve(carry: _Carry) -> _Carry:
        step, bracket, _ = carry
        low, high = bracket.low, bracket.high
        middle = (low & high) + ((low ^ high) >> 1)  # their mean, with no overflow
        reached = _count_from(h, _from_place(middle, h.dtype))
        is_low = reached >= k
        bracket = _Bracket(
            low=jnp.where(is_low, middle, low),
            high=jnp.where(is_low, high, middle),
            inside=jnp.where(is_low, reached, bracket.inside),
            above=jnp.where(is_low, bracket.above, reached),
        )
        return step + 1, bracket, jnp.all(_is_done(bracket, k))

    _, bracket, _ = jax.lax.while_loop(is_running, halve, (0, start, jnp.array(False)))
    return bracket


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


# --- On a GPU: a turn for every bit, in few kernels -----------------------------------


def _by_bits(h: jax.Array, *, k: int) -> tuple[jax.Array, jax.Array]:
    """The same by ``halving``: the place of the k-th largest entry, bit by bit.

    Places do not fit a float, so their low bits are added when the high ones are
    known; what is far above the threshold by then may be rounded.
    """
    dtype = jnp.promote_types(h.dtype, jnp.float32)
    place, num_bits = _to_place(h), jnp.finfo(h.dtype).bits
    num_low = max(0, num_bits - jnp.finfo(dtype).nmant - 1)
    num_high, num_tied = num_bits - num_low, _TIED.bit_length() - 1

    def is_reached(rest: jax.Array, turn: int) -> jax.Array:
        del turn
        return jnp.sum((rest >= 1).astype(dtype), axis=-1, keepdims=True) >= k

    # In units of the highest bit; the lowest place becomes 0.
    rest = (place >> num_low).astype(dtype) * 2.0 ** (1 - num_high) + 1
    num_turns = min(num_high, num_bits - num_tied)
    rest = halving.subtract_bits(rest, is_reached, num_turns)
    if num_low:
        low_bits = place & (2**num_low - 1)
        rest = rest + low_bits.astype(dtype) * 2.0 ** (1 - num_low)
        rest = halving.subtract_bits(
            rest, is_reached, num_bits - num_tied - num_turns, num_turns
        )
    # In units of half of what is tied: those from 0 are as large as the k-th or tied
    # with it, those from 2 are larger. Between barriers all reductions are one kernel;
    # XLA would else repeat the last turns for each of them. No comparison is there
    # twice: one that is shared would be written to memory by a kernel of its own.
    rest = jax.lax.optimization_barrier(rest)
    over_row = {"axis": -1, "keepdims": True}
    above, inside, mean_above, least, rest = jax.lax.optimization_barrier(
        (
            jnp.sum((rest >= 2).astype(dtype), **over_row),
            jnp.sum((rest >= 0).astype(dtype), **over_row),
            jnp.sum(jnp.where(rest < 2, 0, h.astype(dtype) / k), **over_row),
            jnp.min(jnp.where(rest < 0, jnp.inf, h), **over_row).astype(dtype),
            rest,
        )
    )
    value = (mean_above + (k - above) / k * least)[..., 0]
    share = (k - above) / (inside - above)
    weight = jnp.where(rest >= 2, 1, jnp.where(rest >= 0, share, 0)) / k
    return value.astype(h.dtype), weight.astype(h.dtype)


# --- The order of floats --------------------------------------------------------------


def _to_place(x: jax.Array) -> jax.Array:
    """Integers in the order of the floats: their bits, turned for negative ones.

    Zero, its negative and what is too small for a normal float share a place: a CPU
    takes them for equal in a comparison.
    """
    width = jnp.finfo(x.dtype).bits
    bits = jax.lax.bitcast_convert_type(x, jnp.dtype(f"int{width}"))
    place = bits ^ ((bits >> (width - 1)) & jnp.iinfo(bits.dtype).max)
    return jnp.where(jnp.abs(x) < jnp.finfo(x.dtype).tiny, 0, place)


def _from_place(place: jax.Array, dtype: DTypeLike) -> jax.Array:
    """The float at a place, or the next normal one: the inverse of ``_to_place``."""
    info = jnp.finfo(dtype)
    first_normal = 1 << info.nmant
    place = jnp.where((place > 0) & (place < first_normal), first_normal, place)
    sign = place >> (info.bits - 1)
    bits = place ^ (sign & jnp.iinfo(place.dtype).max)
    return jax.lax.bitcast_convert_type(bits, dtype)
