import chex
import jax
import jax.numpy as jnp
import numpy as np

from ffjax.model import normalise


def test_lengths_means_and_variances(rng):
    x = (5 + 30 * rng.normal(size=(6, 40))).astype(np.float32)
    unit = normalise.l2_normalise(x)
    np.testing.assert_allclose(np.linalg.norm(unit, axis=-1), 1, rtol=1e-5)
    np.testing.assert_allclose(
        unit, x / np.linalg.norm(x, axis=-1, keepdims=True), rtol=1e-5
    )
    np.testing.assert_allclose(
        normalise.centre(x), x - x.mean(-1, keepdims=True), atol=1e-4
    )
    expected = (x - x.mean(-1, keepdims=True)) / np.sqrt(
        x.var(-1, keepdims=True) + 1e-5
    )
    np.testing.assert_allclose(normalise.layer_norm(x), expected, atol=1e-5)


def test_zero_and_large_constants():
    zero = jnp.zeros((2, 5))
    for function in (normalise.l2_normalise, normalise.layer_norm):
        np.testing.assert_array_equal(function(zero), zero)
        chex.assert_tree_all_finite(jax.grad(lambda x, f=function: f(x).sum())(zero))
    np.testing.assert_array_equal(normalise.centre(jnp.full((2, 999), 1e6 / 3)), 0)
