"""Standard moments, alone and under many shifts."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ffjax import goodness


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    ("p", "normal"), [(3, 0), (4, 3), (5, 0), (6, 15), (8, 105), (22, 13749310575)]
)
def test_moments_subtract_those_of_a_normal_distribution(rng, p, normal):
    h = rng.normal(size=500)
    standard = (h - h.mean()) / h.std()
    expected = np.mean(standard**p) - normal
    value = goodness.make("moment", p=p)(h)
    np.testing.assert_allclose(value, expected, rtol=1e-6)


@pytest.mark.usefixtures("branch")
@pytest.mark.parametrize("mean", [0.0, 1.0, 100.0])
def test_moments_and_their_gradient_in_float32(rng, mean):
    h = (mean + rng.normal(size=(3, 2000)) ** 3).astype(np.float32)
    value, slope = jax.jit(
        jax.value_and_grad(lambda h: goodness.make("moment", p=4)(h).sum())
    )(h)
    own = h.astype(np.float64)
    sigma = own.std(axis=1, keepdims=True)
    s = (own - own.mean(axis=1, keepdims=True)) / sigma
    third, fourth = ((s**p).mean(axis=1, keepdims=True) for p in (3, 4))
    np.testing.assert_allclose(value, (fourth - 3).sum(), rtol=1e-4)
    expected = 4 / (2000 * sigma) * (s**3 - third - fourth * s)
    np.testing.assert_allclose(
        slope, expected, rtol=1e-3, atol=1e-4 * abs(expected).max()
    )


@pytest.mark.parametrize("p", [1, 2])
def test_low_moments_are_zero_and_pull_nowhere(rng, p):
    h = rng.normal(size=(3, 50)).astype(np.float32)
    g = goodness.make("moment", p=p)
    np.testing.assert_array_equal(g(h), np.zeros(3))
    np.testing.assert_array_equal(jax.grad(lambda h: g(h).sum())(h), np.zeros((3, 50)))


@pytest.mark.usefixtures("branch")
def test_constant_vectors_have_the_least_kurtosis_at_any_scale():
    g = jax.jit(goodness.make("burstiness"))
    for scale in (1.0, 1e6, 0.1):
        assert g(jnp.full(2000, scale)) == -3


@pytest.mark.parametrize(
    ("name", "params"),
    [("sos", {}), ("burstiness", {}), *(("moment", {"p": p}) for p in (1, 2, 3, 6, 8))],
)
@pytest.mark.parametrize("scale", [0.01, 1.0, 1e4])
def test_many_shifts_at_once(rng, name, params, scale):
    g = goodness.make(name, **params)
    h = jnp.asarray(scale * rng.normal(size=(5, 60)) ** 3, jnp.float32)
    shifts = jnp.asarray(rng.uniform(-0.3, 0.3, (4, 60)), jnp.float32)
    pull = jnp.asarray(rng.normal(size=(5, 4)), jnp.float32)

    def plain(h, shifts):
        return g(h[:, None] + shifts[None])

    @functools.partial(jax.jit, static_argnums=0)
    def with_gradients(way, h, shifts):
        value, back = jax.vjp(way, h, shifts)
        return value, back(pull)

    value, gradients = with_gradients(g.shifted, h, shifts)
    expected, plain_gradients = with_gradients(plain, h, shifts)
    np.testing.assert_allclose(value, expected, rtol=1e-4, atol=1e-5)
    for fast, slow in zip(gradients, plain_gradients, strict=True):
        largest = float(jnp.abs(slow).max())
        np.testing.assert_allclose(fast, slow, rtol=1e-3, atol=1e-4 * largest)


@pytest.mark.parametrize("name", ["sos", "burstiness", "moment"])
def test_many_shifts_at_once_are_finite_everywhere(name):
    g = goodness.make(name)
    shifted = g.shifted
    assert shifted is not None
    value = jax.jit(shifted)
    gradients = jax.jit(jax.grad(lambda *parts: shifted(*parts).sum(), (0, 1)))
    rows = [np.zeros(30), np.ones(30), 1e6 * np.eye(30)[0], 1e-6 * np.eye(30)[0]]
    h = jnp.asarray(rows, jnp.float32)
    for shifts in (np.zeros((2, 30)), np.eye(30)[:2]):
        v = jnp.asarray(shifts, jnp.float32)
        chex.assert_tree_all_finite((value(h, v), gradients(h, v)))
