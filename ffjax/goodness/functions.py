"""The paper's thirteen goodness functions, in its order.

Equation and section numbers are those of "Selectivity and Shape in the Design of
Forward-Forward Goodness Functions".
"""

import functools
import math

import jax
import jax.numpy as jnp

from ffjax.entmax import energy as entmax_energy
from ffjax.goodness.moments import (
    shifted_squares,
    shifted_standard_moment,
    standard_moment,
)
from ffjax.goodness.registry import register
from ffjax.goodness.topk import contrast_of_extremes, count, mean_of_largest
from ffjax.model import normalise

# --- Dense functions -----------------------------------------------------------------


@register(shifted=shifted_squares)
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

    The log d, which the paper does not print, makes a uniform layer 0 and a one-hot
    layer log d, so that goodness can cross the threshold; without it, accuracy is
    22.7 %.
    """
    log_p = jax.nn.log_softmax(h, axis=-1)
    return math.log(h.shape[-1]) + jnp.sum(jnp.exp(log_p) * log_p, axis=-1)


@register(running="goodness")
def softmax_energy_margin(
    h: jax.Array,
    running_mean: jax.Array,
    *,
    temperature: float = 1.0,
    margin: float = 0.5,
) -> jax.Array:
    r"""g = g_sos - lambda * mean(g) * log sum_i exp(h_i / T) (appendix A).

    mean(g) is a running mean over the training batches, lambda = 0.5, T = 1. The paper
    writes the mean of g_sos, and calls it that of goodness values. Of g_sos it would
    run away: goodness is then positive only where energy is several times its own mean.
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
    return mean_of_largest(h, count(fraction, h.shape[-1]))


@register
def contrast_topk(h: jax.Array, *, fraction: float = 0.01) -> jax.Array:
    r"""g = mean of the k largest h_i - mean of the k smallest (section 3.4)."""
    return contrast_of_extremes(h, count(fraction, h.shape[-1]))


@register
def ln_topk(h: jax.Array, *, fraction: float = 0.02) -> jax.Array:
    r"""g = g_topk(LN(h)), LN without trainable scale and shift (section 3.4)."""
    return mean_of_largest(normalise.layer_norm(h), count(fraction, h.shape[-1]))


@register
def entmax(h: jax.Array, *, alpha: float = 1.5) -> jax.Array:
    r"""g = sum_i pi_i h_i^2 with pi = entmax_alpha(h) (eq. 4)."""
    return entmax_energy(h, alpha)


# --- Shape-sensitive functions -------------------------------------------------------


@register(shifted=functools.partial(shifted_standard_moment, p=4))
def burstiness(h: jax.Array) -> jax.Array:
    r"""Excess kurtosis: g = m_4 / m_2^2 - 3, m_q = (1/d) sum_i (h_i - mu)^q (eq. 5)."""
    return standard_moment(h, 4)


@register
def ln_burstiness(h: jax.Array) -> jax.Array:
    r"""g = g_burst(LN(h)), the same up to the eps in LN (section 4.3, appendix E)."""
    return standard_moment(normalise.layer_norm(h), 4)


@register(shifted=shifted_standard_moment)
def moment(h: jax.Array, *, p: int = 6) -> jax.Array:
    r"""g = m_p / m_2^(p/2) - beta_p, beta_p = (p-1)!! for even p, 0 for odd (eq. 6).

    beta_p is the value of a normal distribution. p = 1 and p = 2 are 0 for every h.
    """
    return standard_moment(h, p)
