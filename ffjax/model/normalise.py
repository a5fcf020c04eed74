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
