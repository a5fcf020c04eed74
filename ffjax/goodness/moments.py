r"""Standard moments m_p / m_2^(p/2), with m_p = (1/d) sum_i (h_i - mu)^p.

They come with their derivative in closed form, and with a faster way to the moments of
a vector under many shifts.
"""

import functools
import math

import jax
import jax.numpy as jnp

from ffjax import fusion
from ffjax.model import normalise, product


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def standard_moment(h: jax.Array, p: int) -> jax.Array:
    """The p-th standard moment less that of a normal distribution (eq. 6)."""
    if p <= 2:
        # m_1 and m_2 / m_2 - 1: zero by construction, with no gradient. Computed, they
        # would be rounding noise that Adam scales up to full steps.
        return jnp.zeros(h.shape[:-1], h.dtype)
    return _power_mean(h, *_standard(h), p)[..., 0] - _normal_moment(p)


@standard_moment.defjvp
def _standard_moment_jvp(
    p: int, primals: tuple[jax.Array], tangents: tuple[jax.Array]
) -> tuple[jax.Array, jax.Array]:
    r"""The derivative in closed form: one pass over h, and no step through the moments.

    dg = (p / (sigma d)) sum_i w_i dh_i with s = (h - mu) / sigma and

        w_i = s_i^(p-1) - mean(s^(p-1)) - mean(s^p) s_i.
    """
    (h,), (dh,) = primals, tangents
    if p <= 2:
        value = standard_moment(h, p)
        return value, jnp.zeros_like(value)
    mean, scale = _standard(h)
    moment = _power_mean(h, mean, scale, p)
    mean, scale = fusion.unshared(mean, scale)
    below = _power_mean(h, mean, scale, p - 1)
    mean, scale = fusion.unshared(mean, scale)
    s = scale * (h - mean)
    weight = jax.lax.integer_pow(s, p - 1) - below - moment * s
    value = moment[..., 0] - _normal_moment(p)
    return value, p * jnp.mean(scale * weight * dh, axis=-1)


def _normal_moment(p: int) -> float:
    """beta_p, the moment of a standard normal distribution."""
    return float(math.prod(range(p - 1, 0, -2))) if p % 2 == 0 else 0.0


def _standard(h: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The mean, and the inverse of the standard deviation: both (..., 1).

    The eps is far below the 1e-4 that the variance has in an untrained layer.
    """
    # A first mean and that of the differences to it: their sum has few rounding errors.
    mean, second = jax.lax.platform_dependent(
        h, cpu=_two_moments_on_cpu, default=_two_moments
    )
    mean, scale = fusion.unshared(mean, jax.lax.rsqrt(second + 1e-8))
    return mean, scale


def _two_moments_on_cpu(h: jax.Array) -> tuple[jax.Array, jax.Array]:
    close = jnp.mean(h, axis=-1, keepdims=True)
    mean = close + jnp.mean(h - close, axis=-1, keepdims=True)
    return mean, jnp.mean(jnp.square(h - mean), axis=-1, keepdims=True)


def _two_moments(h: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The same in two kernels of a GPU and no small ones between them.

    Both sums over differences are one kernel; that to the mean itself changes their
    squares by (mean - close)^2, which is rounding. Numbers are divided before they are
    added up: a quotient of the sum, used in many places, would be a kernel of its own.
    """
    share = 1 / h.shape[-1]
    close = jnp.sum(share * h, axis=-1, keepdims=True)
    rest = jnp.sum(share * (h - close), axis=-1, keepdims=True)
    second = jnp.sum(share * jnp.square(h - close), axis=-1, keepdims=True)
    return close + rest, second


def _power_mean(h: jax.Array, mean: jax.Array, scale: jax.Array, p: int) -> jax.Array:
    # Powers of the standardised values stay in range where m_p and m_2^(p/2) would not.
    powers = jax.lax.integer_pow(scale * (h - mean), p)
    return jnp.mean(powers, axis=-1, keepdims=True)


# --- Under many shifts: h (..., n) and shifts (C, n) -> (..., C) ---------------------


def shifted_squares(h: jax.Array, shifts: jax.Array) -> jax.Array:
    r"""Mean square of h + v_y for each y: (mean h^2 + mean v_y^2) + (2/d) h . v_y."""
    return _shifted_power_mean(h, shifts, jnp.ones_like(h[..., :1]), 2)


def shifted_standard_moment(h: jax.Array, shifts: jax.Array, *, p: int) -> jax.Array:
    """``standard_moment`` of h + v_y for each row v_y of the shifts."""
    if p <= 2:
        return jnp.zeros((*h.shape[:-1], shifts.shape[0]), h.dtype)
    c, d = normalise.centre(h), normalise.centre(shifts)
    # A standard moment does not depend on a common scale. These, constants to the
    # derivative, keep the powers in range.
    square = jax.lax.stop_gradient(jnp.mean(d * d))
    spread = jnp.mean(c * c, axis=-1, keepdims=True) + square + 1e-8
    scale = jax.lax.stop_gradient(jax.lax.rsqrt(spread))
    unit = jnp.sqrt(square) + 1e-12
    c, d, ratio = scale * c, d / unit, scale * unit
    second = _shifted_power_mean(c, d, ratio, 2) + 1e-8 * scale * scale
    value = _shifted_power_mean(c, d, ratio, p) * second ** (-p / 2)
    return value - _normal_moment(p)


def _shifted_power_mean(
    c: jax.Array, d: jax.Array, ratio: jax.Array, q: int
) -> jax.Array:
    r"""mean_i (c_i + r d_yi)^q for each y: (..., n), (C, n), (..., 1) -> (..., C).

    Multiplied out, it is sum_k binom(q, k) r^(q-k) mean_i c_i^k d_yi^(q-k): thin matrix
    products, with the element-wise work of one vector instead of C.
    """
    power = jax.lax.integer_pow
    total = jnp.sum(power(c, q), axis=-1, keepdims=True)
    ends = jnp.sum(power(d, q), axis=-1).reshape((1,) * (c.ndim - 1) + (-1,))
    total = total + power(ratio, q) * ends
    for k in range(1, q):
        total = total + (math.comb(q, k) * power(ratio, q - k)) * (
            product.multiply(power(c, k), power(d, q - k).T)
        )
    return total / c.shape[-1]
