"""Centring and normalising over the last axis; all are safe at a zero vector."""

import jax
import jax.numpy as jnp


def l2_normalise(x: jax.Array, eps: float = 1e-12) -> jax.Array:
    """x / sqrt(sum_i x_i^2 + eps) over the last axis.

    The eps sits inside the root: with it outside, the gradient at a zero row, which
    ReLU layers do produce, would be NaN.
    """
    return x * jax.lax.rsqrt(jnp.sum(x * x, axis=-1, keepdims=True) + eps)


def centre(x: jax.Array) -> jax.Array:
    """x minus its mean over the last axis; exactly zero for a constant vector.

    The first entry is taken off before the mean is: a mean of large equal numbers is
    not that number in floating point, and the moments would magnify the rest.
    """
    shifted = x - jax.lax.stop_gradient(x[..., :1])
    return shifted - jnp.mean(shifted, axis=-1, keepdims=True)


def layer_norm(x: jax.Array, eps: float = 1e-5) -> jax.Array:
    """(x - mean) / sqrt(var + eps) over the last axis; nothing in it is trainable."""
    centred = centre(x)
    variance = jnp.mean(centred * centred, axis=-1, keepdims=True)
    return centred * jax.lax.rsqrt(variance + eps)


def group_norm(
    x: jax.Array, num_groups: int, channels: int, eps: float = 1e-5
) -> jax.Array:
    """``layer_norm`` of each group of channels alone, over all positions.

    Args:
      x: rows (..., P * channels): the channels at each of P >= 1 positions.
      num_groups: how many, of equal size, group after group.
      channels: at a position; the units of a dense layer, which has a single position.
      eps: added to the variance.
    """
    split = x.reshape(*x.shape[:-1], -1, num_groups, channels // num_groups)
    centred = split - jnp.mean(split, axis=(-3, -1), keepdims=True)
    variance = jnp.mean(centred * centred, axis=(-3, -1), keepdims=True)
    return (centred * jax.lax.rsqrt(variance + eps)).reshape(x.shape)
