"""Maps as rows: windows of a convolution, pooling and groups of channels.

Between layers a map is a row (..., H * W * C), as the units of a dense layer are. What
a layer makes of it is (..., P, C): the channels at each of P = H * W positions.
"""

import jax
import jax.numpy as jnp

from ffjax.model.maps import Shape


def windows(x: jax.Array, shape: Shape, kernel: int) -> jax.Array:
    """What the units at each position see: (..., H * W * C) -> (..., P, k * k * C).

    The window around each position, with zeros beyond the edges. It is k * k shifted
    copies of the map, so that a convolution is one matrix product: XLA's own takes a
    hundred times as long inside of a loop on a CPU.
    """
    lead = x.shape[:-1]
    x = x.reshape(*lead, *shape)
    reach = kernel // 2
    edges = [(0, 0)] * len(lead) + [(reach, reach), (reach, reach), (0, 0)]
    padded = jnp.pad(x, edges)
    copies = [
        padded[..., top : top + shape.height, left : left + shape.width, :]
        for top in range(kernel)
        for left in range(kernel)
    ]
    together = jnp.concatenate(copies, axis=-1)
    return together.reshape(*lead, shape.positions, kernel * kernel * shape.channels)


def pool(h: jax.Array, shape: Shape, factor: int) -> jax.Array:
    """The mean over squares of positions: (..., P, C) -> (..., P / factor^2, C).

    Args:
      h: a map of the given shape.
      shape: whose height and width the factor divides.
      factor: height and width of a square.
    """
    if factor == 1:
        return h
    lead, channels = h.shape[:-2], h.shape[-1]
    height, width = shape.height // factor, shape.width // factor
    squares = h.reshape(*lead, height, factor, width, factor, channels)
    mean = jnp.mean(squares, axis=(-4, -2))
    return mean.reshape(*lead, height * width, channels)


def groups(h: jax.Array, num_groups: int, *, has_positions: bool) -> jax.Array:
    """Units in equal groups: (..., W) -> (..., G, W / G), group after group.

    Of a map (..., P, W), a group has its channels at all positions: (..., G, P W / G).
    """
    split = h.reshape(*h.shape[:-1], num_groups, h.shape[-1] // num_groups)
    if not has_positions:
        return split
    split = jnp.swapaxes(split, -3, -2)
    return split.reshape(*split.shape[:-2], -1)
