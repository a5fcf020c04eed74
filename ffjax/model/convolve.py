"""Maps as rows: windows of a convolution, pooling and groups of channels.

Between layers a map is a row (..., H * W * C), as the units of a dense layer are. What
a layer makes of it is (..., P, C): the channels at each of P = H * W positions.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from ffjax.model import product
from ffjax.model.maps import Shape


@functools.partial(jax.custom_vjp, nondiff_argnums=(1, 2))
def windows(x: jax.Array, shape: Shape, kernel: int) -> jax.Array:
    """What the units at each position see: (..., H * W * C) -> (..., P, k * k * C).

    The window around each position, with zeros beyond the edges. It is k * k shifted
    copies of the map, so that a convolution is one matrix product: XLA's own takes a
    hundred times as long inside of a loop on a CPU.
    """

    def copy_apart(x: jax.Array) -> jax.Array:
        # A CPU copies whole runs of channels where each step is a kernel of its own,
        # and computes what is copied once. Fused, it would take twice as long.
        apart = jax.lax.optimization_barrier
        return product.unpack(_shifted(product.pack(x), shape, kernel, apart))

    return jax.lax.platform_dependent(
        x, cpu=copy_apart, default=lambda x: _shifted(x, shape, kernel)
    )


def _shifted(
    x: jax.Array,
    shape: Shape,
    kernel: int,
    apart: Callable[[Any], Any] = lambda arrays: arrays,
) -> jax.Array:
    lead = x.shape[:-1]
    reach = kernel // 2
    edges = [(0, 0)] * len(lead) + [(reach, reach), (reach, reach), (0, 0)]
    padded = apart(jnp.pad(x.reshape(*lead, *shape), edges))
    copies = [
        padded[..., top : top + shape.height, left : left + shape.width, :]
        for top in range(kernel)
        for left in range(kernel)
    ]
    together = apart(jnp.concatenate(apart(copies), axis=-1))
    return together.reshape(*lead, shape.positions, kernel * kernel * shape.channels)


def _windows_forward(x, shape, kernel):
    # An array of no size tells the type and the leading axes.
    return windows(x, shape, kernel), x[..., :0]


def _windows_backward(shape, kernel, empty, g):
    like = jax.ShapeDtypeStruct((*empty.shape[:-1], shape.size), empty.dtype)
    return jax.linear_transpose(lambda x: _shifted(x, shape, kernel), like)(g)


windows.defvjp(_windows_forward, _windows_backward)


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
