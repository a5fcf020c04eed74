"""A goodness function that is not in the paper: how peaked the activations are."""

import jax
import jax.numpy as jnp

from ffjax.goodness import register


@register
def norm_ratio(h: jax.Array, *, q: float = 4.0) -> jax.Array:
    """The L_q norm over the L_2 norm, both as means: 1 if all |h_i| are equal.

    With a single active unit of d it is d^(1/2 - 1/q), so that q sets how far goodness
    can rise above the threshold. Unlike the paper's moments it keeps the mean.
    """
    scaled = jnp.abs(h) / jnp.sqrt(jnp.mean(h * h, axis=-1, keepdims=True) + 1e-8)
    return (jnp.mean(scaled**q, axis=-1) + 1e-8) ** (1 / q)
