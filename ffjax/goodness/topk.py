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


def count(fraction: float, width: int) -> int:
    """k = max(5, floor(fraction * width)), at most the width (eq. 3)."""
    # The tiny addend keeps 0.29 * 100 = 28.999... from losing a neuron.
    return min(max(5, math.floor(fraction * width + 1e-9)), width)


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def mean_of_largest(h: jax.Array, k: int) -> jax.Array:
    """The mean of the k largest entries over the last axis: (..., d) -> (...)."""
    return _excess_mean(h, _bracket_largest(h, k).low, k)


@mean_of_largest.defjvp
def _mean_of_largest_jvp(
    k: int, primals: tuple[jax.Array], tangents: tuple[jax.Array]
) -> tuple[jax.Array, jax.Array]:
    """Weight 1/k for the k largest; those tied with the k-th share what is left.

    Ties are treated alike, which makes it the mean of all choices.
    """
    (h,), (dh,) = primals, tangents
    bracket = _bracket_largest(h, k)
    weight = _share(h, bracket, k) / k * (h >= bracket.low)
    return _excess_mean(h, bracket.low, k), jnp.sum(weight * dh, axis=-1)


def _share(h: jax.Array, bracket: "_Bracket", k: int) -> jax.Array:
    """How much of each entry inside the bracket is among the k largest."""
    share = (k - bracket.above) / jnp.maximum(bracket.inside - bracket.above, 1)
    return jnp.where(h >= bracket.high, 1, share.astype(h.dtype))


def trimmed_sum(x: jax.Array, k: int) -> jax.Array:
    """The sum without the k smallest and the k largest entries: (..., d) -> (...).

    What is left are the d - k largest without the k largest. Entries that are tied with
    the last to go share what is left of them.
    """
    if k == 0:
        return jnp.sum(x, axis=-1)
    fixed = jax.lax.stop_gradient(x)
    kept = _among_largest(fixed, x.shape[-1] - k) - _among_largest(fixed, k)
    return jnp.sum(kept * x, axis=-1)


def _among_largest(h: jax.Array, k: int) -> jax.Array:
    """1 for the k largest entries, 0 for the others, and between for ties."""
    bracket = _bracket_largest(h, k)
    return _share(h, bracket, k) * (h >= bracket.low)


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
    bracket = jax.lax.platform_dependent(
        h,
        start,
        cpu=functools.partial(_halve_until_done, k=k),
        default=functools.partial(_split_at_fixed_length, k=k),
    )
    return bracket._replace(
        low=_from_place(bracket.low, h.dtype), high=_from_place(bracket.high, h.dtype)
    )


def _is_done(bracket: _Bracket, k: int) -> jax.Array:
    # Tied means to a few units in the last place: XLA may compute h once more for
    # another comparison and round it otherwise.
    return (bracket.inside == k) | (bracket.high <= bracket.low + 8)


_Carry = tuple[int | jax.Array, _Bracket, jax.Array]  # step, bracket, is it done


def _halve_until_done(h: jax.Array, start: _Bracket, *, k: int) -> _Bracket:
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


def _split_at_fixed_length(h: jax.Array, start: _Bracket, *, k: int) -> _Bracket:
    """Counts above seven bounds at once, for a number of turns that is known before.

    A GPU would copy the condition of a loop of unknown length to the host at every
    turn, and wait. Counting is cheap for it, but a turn is not: so each takes three
    bits. A bracket of s places becomes at most s / 8 + 7, and at the end 8.
    """
    parts = (
        jax.lax.broadcasted_iota(start.low.dtype, (*h.shape[:-1], 7), h.ndim - 1) + 1
    )

    def split(_: jax.Array, bracket: _Bracket) -> _Bracket:
        low, high = bracket.low, bracket.high
        # Without a sign, the length of a bracket cannot overflow.
        length = (high - low).view(f"u{low.dtype.name}") >> 3
        bounds = low + length.view(low.dtype) * parts
        values = _from_place(bounds, h.dtype)
        reached = jnp.sum(
            h[..., None, :] >= values[..., None], axis=-1, dtype=jnp.int32
        )
        is_low = reached >= k

        def pick(narrowest, chosen, new, old):
            return narrowest(jnp.where(chosen, new, old), axis=-1, keepdims=True)

        narrower = _Bracket(
            low=pick(jnp.max, is_low, bounds, low),
            high=pick(jnp.min, ~is_low, bounds, high),
            inside=pick(jnp.min, is_low, reached, bracket.inside),
            above=pick(jnp.max, ~is_low, reached, bracket.above),
        )
        done = _is_done(bracket, k)
        return jax.tree.map(lambda a, b: jnp.where(done, a, b), bracket, narrower)

    num_turns = -(-jnp.finfo(h.dtype).bits // 3)
    return jax.lax.fori_loop(0, num_turns, split, start)


def _to_place(x: jax.Array) -> jax.Array:
    """Integers in the order of the floats: their bits, turned for negative ones."""
    width = jnp.finfo(x.dtype).bits
    bits = jax.lax.bitcast_convert_type(x, jnp.dtype(f"int{width}"))
    return bits ^ ((bits >> (width - 1)) & jnp.iinfo(bits.dtype).max)


def _from_place(place: jax.Array, dtype: DTypeLike) -> jax.Array:
    """The float at a place: the inverse of ``_to_place``."""
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
