"""Halving for many rows at once, in few kernels of a GPU."""

from collections.abc import Callable

import jax

# XLA fuses so many turns into a kernel; its own time grows with the cube of them.
_TURNS_A_KERNEL = 15


def subtract_bits(
    rest: jax.Array,
    is_reached: Callable[[jax.Array, int], jax.Array],
    num_turns: int,
    first_turn: int = 0,
) -> jax.Array:
    """Subtracts from each row the largest threshold that it reaches, bit by bit.

    A turn asks whether a row reaches the next bit, subtracts it if so, and doubles what
    is left: the bit is always 1. Doubling is exact.

    A loop on a GPU is several kernels a turn, and one of unknown length waits for the
    host at every turn. So the turns are written out. XLA makes a single kernel of
    row -> sum -> yes or no -> row, if nothing but the row itself goes from a turn to
    the next, and if the answer is subtracted as it is: with another factor than 1 it is
    not fused. The threshold itself is therefore nowhere; ask the row for it.

    Args:
      rest: (..., d), in units of the first bit.
      is_reached: (rest, turn) -> (..., 1), whether the threshold may grow by 1.
      num_turns: one for each bit.
      first_turn: the number of the first one.

    Returns:
      The rows less their thresholds, in units of the bit after the last.
    """
    for turn in range(first_turn, first_turn + num_turns):
        rest = rest - is_reached(rest, turn).astype(rest.dtype)
        rest = rest + rest
        if (turn + 1) % _TURNS_A_KERNEL == 0:
            rest = jax.lax.optimization_barrier(rest)
    return rest
