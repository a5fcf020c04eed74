"""The paper's thirteen functions: values, gradients and what they share."""

import math
import subprocess
import sys

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.special
import scipy.stats
from jax.test_util import check_grads

from ffjax import goodness

PAPER = [
    "sos",
    "variance",
    "neg_entropy",
    "softmax_energy_margin",
    "game_theoretic",
    "game_theoretic_shah",
    "topk",
    "contrast_topk",
    "ln_topk",
    "entmax",
    "burstiness",
    "ln_burstiness",
    "moment",
]


def layer_norm(h):
    return (h - h.mean(-1, keepdims=True)) / np.sqrt(h.var(-1, keepdims=True) + 1e-5)


def mean_of_largest(h, k):
    return np.sort(h, axis=-1)[..., -k:].mean(-1)


def weights(h):
    return np.abs(h) / np.abs(h).sum(-1, keepdims=True)


def entmax15_energy(h):
    """sum_i p_i h_i^2 with p from SciPy's root finder on the definition."""

    def energy(h):
        def excess(tau):
            return np.sum(np.maximum(h / 2 - tau, 0) ** 2) - 1

        tau = scipy.optimize.brentq(excess, h.max() / 2 - 1, h.max() / 2, xtol=1e-15)
        return np.sum(np.maximum(h / 2 - tau, 0) ** 2 * h**2)

    return np.array([energy(row) for row in h])


# Independent of the code under test: NumPy, SciPy, and definitions written out.
REFERENCE = {
    "sos": lambda h: (h**2).mean(-1),
    "variance": lambda h: h.var(-1),
    "neg_entropy": lambda h: (
        math.log(h.shape[-1])
        - scipy.stats.entropy(scipy.special.softmax(h, -1), axis=-1)
    ),
    "softmax_energy_margin": lambda h: (h**2).mean(-1),  # the running mean starts at 0
    "game_theoretic": lambda h: (weights(h) * h**2).sum(-1),
    "game_theoretic_shah": lambda h: (h**2 * (1 + 0.1 * weights(h))).mean(-1),
    "topk": lambda h: mean_of_largest(h, 6),  # 2 % of 300
    "contrast_topk": lambda h: mean_of_largest(h, 5) + mean_of_largest(-h, 5),
    "ln_topk": lambda h: mean_of_largest(layer_norm(h), 6),
    "entmax": entmax15_energy,
    "burstiness": lambda h: scipy.stats.kurtosis(h, axis=-1),
    "ln_burstiness": lambda h: scipy.stats.kurtosis(h, axis=-1),
    "moment": lambda h: (
        (((h - h.mean(-1, keepdims=True)) / h.std(-1, keepdims=True)) ** 6).mean(-1)
        - 15
    ),
}


def test_the_table_starts_with_the_thirteen_functions():
    code = "from ffjax.goodness import GOODNESS; print(*GOODNESS)"
    command = [sys.executable, "-c", code]
    names = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert names.split()[: len(PAPER)] == PAPER
    for name in PAPER:
        definition = goodness.GOODNESS[name]
        assert definition.is_built_in
        assert "g = " in (definition.fn.__doc__ or "")


def test_defaults_are_the_papers():
    assert dict(goodness.make("topk").params) == {"fraction": 0.02}
    assert dict(goodness.make("ln_topk").params) == {"fraction": 0.02}
    assert dict(goodness.make("contrast_topk").params) == {"fraction": 0.01}
    assert dict(goodness.make("entmax").params) == {"alpha": 1.5}
    assert dict(goodness.make("moment").params) == {"p": 6}


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", PAPER)
def test_equals_an_independent_formula(rng, name):
    h = rng.normal(size=(5, 300)) * 1.3 + 0.4
    value = jax.jit(goodness.make(name))(h)
    chex.assert_shape(value, (5,))
    np.testing.assert_allclose(value, REFERENCE[name](h), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "params", "expected"),
    [
        # h = (0, 0, 0, 0, 0, 2): mean 1/3, variance 5/9, fourth moment 1.1728...
        ("sos", {}, 4 / 6),
        ("variance", {}, 5 / 9),
        # p = e^2 / (e^2 + 5) for the 2, q = 1 / (e^2 + 5) for each 0:
        # log 6 + p log p + 5 q log q
        ("neg_entropy", {}, 0.467782),
        ("game_theoretic", {}, 4.0),
        ("game_theoretic_shah", {}, 4 * 1.1 / 6),
        ("topk", {}, 2 / 5),  # k = max(5, floor(0.12)) = 5
        ("topk", {"fraction": 1.0}, 2 / 6),
        ("contrast_topk", {}, 2 / 5),
        ("burstiness", {}, 4.2 - 3),
        ("moment", {"p": 3}, 4 / math.sqrt(5)),
        ("entmax", {"alpha": 2.0}, 4.0),  # sparsemax puts all weight on the 2
    ],
)
def test_hand_computed_values(name, params, expected):
    h = jnp.asarray([0.0, 0, 0, 0, 0, 2])
    assert goodness.make(name, **params)(h) == pytest.approx(expected, abs=1e-4)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", PAPER)
def test_gradient_matches_finite_differences(rng, name):
    h = jnp.asarray(rng.normal(size=(2, 12)) + 0.2)
    check_grads(goodness.make(name), (h,), order=1, modes=("rev",), eps=1e-6)


@pytest.mark.parametrize("width", [1, 2, 40])
@pytest.mark.parametrize("name", PAPER)
def test_finite_everywhere(name, width):
    one_hot = np.eye(width)[0]
    rows = [np.zeros(width), np.ones(width), np.full(width, -3.0), one_hot]
    rows += [scale * row for scale in (1e-6, 1e6) for row in (one_hot, np.ones(width))]
    ramp = np.linspace(-1, 1, width)
    rows += [scale * ramp for scale in (1e-6, 1.0, 1e6)]
    h = np.stack(rows).astype(np.float32)
    g = goodness.make(name)
    value, pull = jax.jit(jax.vmap(jax.value_and_grad(g)))(h)
    chex.assert_tree_all_finite((value, pull))


@pytest.mark.parametrize("name", PAPER)
def test_vmap_equals_batch_axes(rng, name):
    h = rng.normal(size=(2, 3, 20)).astype(np.float32)
    g = goodness.make(name)
    chex.assert_trees_all_close(jax.jit(jax.vmap(g))(h), jax.jit(g)(h), rtol=1e-5)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", ["burstiness", "moment"])
def test_shape_sensitive_functions_do_not_see_scale(rng, name):
    h = rng.normal(size=(4, 200)) ** 3
    g = jax.jit(goodness.make(name))
    for scale in (0.1, 7.0, 1e5):
        np.testing.assert_allclose(g(scale * h), g(h), rtol=1e-5)


@pytest.mark.usefixtures("x64")
def test_identities(rng):
    h = rng.normal(size=(6, 500)) + 0.3 * rng.exponential(size=(6, 500))
    burstiness = goodness.make("burstiness")(h)
    np.testing.assert_allclose(goodness.make("moment", p=4)(h), burstiness, rtol=1e-12)
    np.testing.assert_allclose(goodness.make("ln_burstiness")(h), burstiness, rtol=1e-6)
    whole = goodness.make("topk", fraction=1.0)(h)
    np.testing.assert_allclose(whole, h.mean(-1), rtol=1e-12)
    np.testing.assert_allclose(
        goodness.make("entmax", alpha=1)(h),
        (scipy.special.softmax(h, -1) * h**2).sum(-1),
        rtol=1e-12,
    )


def test_softmax_energy_margin_with_a_running_mean(rng):
    h = rng.normal(size=(4, 10)).astype(np.float32)
    energy = -np.log(np.exp(h).sum(-1))
    expected = (h**2).mean(-1) + 0.5 * 1.7 * energy
    g = goodness.make("softmax_energy_margin")
    np.testing.assert_allclose(g(h, jnp.float32(1.7)), expected, rtol=1e-5)


def test_the_running_mean_of_softmax_energy_margin_is_that_of_its_own_values(rng):
    g = goodness.make("softmax_energy_margin", margin=0.3, temperature=2.0)
    mean, state = 0.0, g.init(10)
    for _ in range(4):
        h = rng.normal(size=(2, 3, 10)).astype(np.float32)
        energy = -np.log(np.exp(h / 2).sum(-1))
        values = (h**2).mean(-1) + 0.3 * mean * energy
        mean = 0.9 * mean + 0.1 * values.mean()
        state = g.update(state, jnp.asarray(h), np.array([[True], [False]]))
        np.testing.assert_allclose(state, mean, rtol=1e-5)


def test_softmax_energy_margin_does_not_run_away():
    """Energy that grows tenfold moves the mean by as much, and not goodness below 0."""
    g, state = goodness.make("softmax_energy_margin"), jnp.float32(0.0)
    h = jnp.abs(jax.random.normal(jax.random.key(0), (50, 500)))
    for size in (1.0, 3.0):
        for _ in range(200):
            state = g.update(state, size * h, np.ones(50, bool))
        assert float(jnp.mean(g(size * h, state))) > 0
