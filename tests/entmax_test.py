import functools

import chex
import hypothesis
import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from ffjax import entmax as entmax_module
from ffjax.errors import UserError

# Compiled: eager calls would compile every operation on its own.
entmax = jax.jit(entmax_module.entmax, static_argnums=1)

ALPHAS = (1.25, 1.5, 1.75, 2.0, 3.0)


def sparsemax(x):
    """Projection onto the simplex by sorting (Martins and Astudillo, 2016)."""
    ordered = -np.sort(-x, axis=-1)
    sums = np.cumsum(ordered, axis=-1)
    rank = np.arange(1, x.shape[-1] + 1)
    size = np.sum(1 + rank * ordered > sums, axis=-1, keepdims=True)
    tau = (np.take_along_axis(sums, size - 1, axis=-1) - 1) / size
    return np.maximum(x - tau, 0)


def entmax15(x):
    """Exact 1.5-entmax: the root of a quadratic for every possible support size."""
    z = np.sort(x / 2, axis=-1)[..., ::-1]
    z = z - z[..., :1]
    rank = np.arange(1, x.shape[-1] + 1)
    mean = np.cumsum(z, axis=-1) / rank
    mean_square = np.cumsum(z * z, axis=-1) / rank
    tau = mean - np.sqrt(np.maximum((1 - rank * (mean_square - mean**2)) / rank, 0))
    size = np.sum(tau <= z, axis=-1, keepdims=True)
    tau = np.take_along_axis(tau, size - 1, axis=-1)
    return np.maximum(x / 2 - np.max(x / 2, axis=-1, keepdims=True) - tau, 0) ** 2


def bisect64(x, alpha):
    """Plain bisection in float64: slow, with no Newton step and no shift of scale."""
    z = (alpha - 1) * (x - x.max(-1, keepdims=True)).astype(np.float64)
    low, high = np.full_like(z[..., :1], -1.0), np.zeros_like(z[..., :1])
    for _ in range(200):
        middle = (low + high) / 2
        mass = (np.maximum(z - middle, 0) ** (1 / (alpha - 1))).sum(-1, keepdims=True)
        low = np.where(mass >= 1, middle, low)
        high = np.where(mass >= 1, high, middle)
    p = np.maximum(z - low, 0) ** (1 / (alpha - 1))
    return p / p.sum(-1, keepdims=True)


@pytest.mark.usefixtures("branch")
@pytest.mark.parametrize("scale", [1e-3, 0.1, 1.0, 10.0, 1e4])
@pytest.mark.parametrize(("alpha", "exact"), [(2.0, sparsemax), (1.5, entmax15)])
def test_equals_the_exact_forms_to_rounding(rng, scale, alpha, exact):
    x = (rng.normal(size=(64, 500)) * scale).astype(np.float32)
    p = np.asarray(entmax(x, alpha))
    expected = exact(x.astype(np.float64))
    # The input's own rounding moves p by up to eps * |x|.
    np.testing.assert_allclose(p, expected, atol=5e-7 * max(1.0, scale))
    # It loses nothing to the exact form computed in float32 as well.
    error32 = np.abs(exact(x) - expected).max()
    assert np.abs(p - expected).max() <= 2 * error32 + 1e-7


@pytest.mark.usefixtures("branch")
@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(("alpha", "exact"), [(2.0, sparsemax), (1.5, entmax15)])
def test_equals_the_exact_forms_in_float64(rng, alpha, exact):
    x = rng.normal(size=(64, 500))
    p = entmax(jnp.asarray(x), alpha)
    assert p.dtype == jnp.float64
    np.testing.assert_allclose(p, exact(x), atol=1e-14)


@pytest.mark.usefixtures("branch")
@pytest.mark.parametrize("alpha", [1.01, 1.25, 1.75, 2.5, 3.0])
def test_equals_plain_bisection_in_float64(rng, alpha):
    x = rng.normal(size=(32, 300)).astype(np.float32)
    # alpha > 2 is steep at the edge of the support, where rounding of x shows.
    tolerance = 1e-6 if alpha <= 2 else 2e-5
    np.testing.assert_allclose(entmax(x, alpha), bisect64(x, alpha), atol=tolerance)


def test_alpha_one_is_softmax_and_its_neighbourhood_joins_it(rng):
    x = rng.normal(size=(8, 100)).astype(np.float32)
    chex.assert_trees_all_equal(entmax(x, 1), jax.nn.softmax(x))
    for alpha in (1 + 1e-6, 1 + 1e-4):
        np.testing.assert_allclose(
            entmax(x, alpha), jax.nn.softmax(x), atol=10 * (alpha - 1) + 1e-6
        )


@hypothesis.settings(max_examples=60, deadline=None)
@hypothesis.given(
    x=hnp.arrays(
        np.float32,
        hnp.array_shapes(min_dims=1, max_dims=1, min_side=1, max_side=24),
        elements=st.floats(-1e4, 1e4, width=32),
    ),
    alpha=st.sampled_from((1.0, 1.05, *ALPHAS, 5.0)),
    shift=st.sampled_from((0.0, -3.0, 16.0)),
)
def test_properties(x, alpha, shift):
    # Padding to one width keeps this to one compilation for each alpha.
    padded = np.full(24, -np.inf, np.float32)
    padded[: len(x)] = x
    p = np.asarray(entmax(jnp.asarray(padded), alpha))
    assert np.isfinite(p).all()
    assert (p >= 0).all()
    assert abs(p.sum() - 1) < 1e-5
    assert (p[len(x) :] == 0).all()
    order = np.argsort(x, kind="stable")
    assert (np.diff(p[: len(x)][order]) >= 0).all(), "larger scores, larger weights"
    if alpha > 1:
        far = (alpha - 1) * (x - x.max()) < -1.001
        assert (p[: len(x)][far] == 0).all(), "the support is bounded"
    moved = np.asarray(entmax(jnp.asarray(padded + np.float32(shift)), alpha))
    if np.abs(x).max(initial=0) < 10 and alpha <= 2:
        np.testing.assert_allclose(moved, p, atol=1e-4)
    np.testing.assert_allclose(entmax(padded[::-1], alpha), p[::-1], atol=1e-6)


@pytest.mark.usefixtures("branch")
@pytest.mark.parametrize("alpha", [1.0, 1.05, *ALPHAS, 20.0, 1e3])
def test_ties_one_hot_and_width_one(alpha):
    np.testing.assert_allclose(
        entmax(np.zeros(50), alpha), np.full(50, 0.02), rtol=1e-5
    )
    np.testing.assert_array_equal(entmax(np.full((3, 1), 7.0), alpha), np.ones((3, 1)))
    np.testing.assert_array_equal(entmax(1e6 * np.eye(50)[3], alpha), np.eye(50)[3])


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("alpha", [1.0, 1.05, *ALPHAS])
def test_derivatives_match_finite_differences(rng, alpha):
    x = jnp.asarray(rng.normal(size=(3, 7)))
    check_grads(
        lambda x: entmax(x, alpha), (x,), order=1, modes=("fwd", "rev"), eps=1e-6
    )


@pytest.mark.usefixtures("x64")
def test_second_derivatives_match_finite_differences(rng):
    x = jnp.asarray(rng.normal(size=(2, 6)))
    check_grads(lambda x: entmax(x, 1.5), (x,), order=2, modes=("rev",), eps=1e-5)


@pytest.mark.usefixtures("x64")
def test_jacobian_of_sparsemax_is_the_known_one():
    x = jnp.asarray([1.0, 0.8, -2.0])
    support = np.array([1.0, 1.0, 0.0])
    expected = np.diag(support) - np.outer(support, support) / 2
    for jacobian in (jax.jacfwd, jax.jacrev):
        value = jax.jit(jacobian(lambda x: entmax(x, 2)))(x)
        np.testing.assert_allclose(value, expected, atol=1e-15)


@pytest.mark.parametrize("alpha", [1.0, 1.05, *ALPHAS, 20.0, 1e3])
def test_gradient_is_finite_where_inputs_are_extreme(alpha):
    peak = np.eye(9)[0]
    rows = np.stack([np.zeros(9), np.full(9, 3.0), peak * 1e6, peak * 1e-6])
    energy = jax.jit(jax.grad(lambda x: jnp.sum(entmax(x, alpha) * x * x)))
    chex.assert_tree_all_finite(energy(rows.astype(np.float32)))


@pytest.mark.parametrize("alpha", [1.5, 3.0])
def test_vmap_equals_loop_and_jit_equals_plain(rng, alpha):
    x = rng.normal(size=(4, 30)).astype(np.float32)
    whole = entmax(x, alpha)

    def plain(x):
        return entmax_module.entmax(x, alpha)

    chex.assert_trees_all_close(plain(x), whole, atol=1e-6)
    chex.assert_trees_all_close(jax.vmap(plain)(x), whole, atol=1e-6)
    loop = np.stack([entmax(row, alpha) for row in x])
    chex.assert_trees_all_close(loop, np.asarray(whole), atol=1e-6)


def test_types():
    assert entmax(jnp.arange(3), 1.5).dtype == jnp.float32
    assert entmax(jnp.ones(3, jnp.bfloat16), 1.5).dtype == jnp.bfloat16


@pytest.mark.usefixtures("branch")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("alpha", [1.0, 1.05, *ALPHAS])
def test_energy_is_that_of_the_probabilities(rng, alpha, dtype):
    x = jnp.asarray(rng.normal(size=(3, 5, 200)), dtype)

    def plain(x):
        return jnp.sum(entmax_module.entmax(x, alpha) * x * x, axis=-1)

    def both(function):
        return jax.jit(lambda x: jax.vjp(function, x)[1](jnp.ones((3, 5), dtype)))(x)

    def energy(x):
        return entmax_module.energy(x, alpha)

    rtol = 1e-5 if dtype == "float32" else 5e-2
    value = jax.jit(energy)(x)
    assert value.dtype == dtype
    chex.assert_trees_all_close(value, plain(x), rtol=rtol)
    chex.assert_trees_all_close(both(energy), both(plain), rtol=rtol, atol=rtol)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("alpha", [1.25, 1.5])
def test_derivatives_of_energy_match_finite_differences(rng, alpha):
    x = jnp.asarray(rng.normal(size=(2, 6)))
    energy = functools.partial(entmax_module.energy, alpha=alpha)
    check_grads(jax.jit(energy), (x,), order=1, modes=("fwd", "rev"), eps=1e-6)
    check_grads(jax.jit(energy), (x,), order=2, modes=("rev",), eps=1e-5)


@pytest.mark.parametrize("alpha", [0.99, -1, float("nan"), "2", True, None])
def test_impossible_alpha_is_refused(alpha):
    with pytest.raises(UserError, match="alpha="):
        entmax_module.entmax(jnp.ones(3), alpha)


@pytest.mark.parametrize("alpha", [1.0, 1.05, 1.5, 2.0, 3.0])
def test_a_gpu_gets_no_loop_that_waits_for_the_host(alpha, cuda_loop_conditions):
    def energy(x):
        return jnp.sum(entmax_module.entmax(x, alpha) * x)

    for fn in (energy, jax.grad(energy), jax.vmap(jax.grad(energy))):
        conditions = cuda_loop_conditions(fn, jnp.ones((3, 4, 20)))
        assert len(conditions) == (1 if alpha > 2 else 0)
        for condition in conditions:
            lines = condition.split("\n")
            assert sum("compare LT, %iterArg" in line for line in lines) == 1
            assert sum(" = " in line for line in lines) == 2  # and its constant


@pytest.mark.parametrize("alpha", [1.01, 1.25, 1.5, 1.75, 2.0])
def test_a_fixed_number_of_steps_is_enough(rng, alpha):
    """For rows at every scale, and for rows that Newton's method is slow on."""
    width = 2000
    steps = np.arange(width)
    rows = [rng.normal(size=(4, width)) * 10.0**scale for scale in range(-6, 7)]
    rows += [
        rng.standard_cauchy(size=(4, width)),
        -(np.linspace(0, 1, width)[None] ** 2),
    ]
    rows += [
        -first * base ** np.minimum(steps // copies, 60)[None]
        for first in (1e-8, 1e-4, 1e-2)
        for base in (1.1, 1.5, 2.0)
        for copies in (1, 50)
    ]
    x = np.vstack(rows).astype(np.float32)
    z = jnp.asarray((alpha - 1) * (x - x.max(-1, keepdims=True)))
    near_softmax = alpha < 1.1
    settled, fixed = (
        jax.jit(functools.partial(search, alpha=alpha, near_softmax=near_softmax))(z)
        for search in (
            entmax_module._search_until_settled,
            entmax_module._search_at_fixed_length,
        )
    )
    np.testing.assert_allclose(fixed, settled, rtol=1e-5, atol=1e-7)
