"""What XLA fuses on a CPU."""

import jax


def unshared(*arrays: jax.Array) -> tuple[jax.Array, ...]:
    """The same small arrays, but to XLA on a CPU they are others.

    Every reduction over a row can compute what it adds up from the row, which XLA
    fuses. What two reductions share, such as h - mean or even a row of zeros, it would
    write to memory and read again instead. So each gets numbers of its own.
    """
    return jax.lax.platform_dependent(
        *arrays,
        cpu=lambda *own: jax.lax.optimization_barrier(own),
        default=lambda *own: own,
    )
