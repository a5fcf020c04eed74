"""The field's functions: values, gradients and states, against NumPy in double."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

from ffjax import goodness
from ffjax.goodness import topk

WIDTH = 30


def energy(h):
    return (h**2).sum(-1)


def mean_energy(h):
    return energy(h).mean()


def entropy(p):
    return -(p * np.log(p + 1e-8)).sum(-1) / np.log(p.shape[-1])


def shares(h):
    return np.abs(h) / np.abs(h).sum(-1, keepdims=True)


def huber(h):
    return np.where(np.abs(h) <= 1, h**2 / 2, np.abs(h) - 0.5)


def trimmed(h):
    k = round(0.1 * h.shape[-1])
    return np.sort(h**2, axis=-1)[:, k : h.shape[-1] - k].sum(-1)


def margin(h):
    return scipy.special.logsumexp(h - h.max(-1, keepdims=True), axis=-1)


def contrast(h, fixed):
    def unit(h):
        return h / np.linalg.norm(h, axis=-1, keepdims=True)

    similar = unit(h) @ unit(fixed).T / 0.1
    return np.diag(similar) - scipy.special.logsumexp(similar, axis=-1)


def ratio(fixed, positive, centres):
    own = np.where(positive[:, None], *centres)
    other = np.where(positive[:, None], *centres[::-1])
    return energy(fixed - other) / (energy(fixed - own) + 1e-8)


# As the benchmark has them, not yet divided by d: of h (n, d), the same h where it is
# a constant to the gradient, the true labels (n,), E_B[S], what else the batch gives,
# and the running mean.
FORMULAS = {
    "mean": lambda h, *_: h.sum(-1),
    "sparse_l1": lambda h, *_: energy(h) - 0.01 * np.abs(h).sum(-1),
    "huber_norm": lambda h, *_: energy(h) - 0.01 * huber(h).sum(-1),
    "oja": lambda h, *_: energy(h) - 1e-4 * (h**4).sum(-1),
    "outlier_trimmed": lambda h, *_: trimmed(h),
    "attention_weighted": lambda h, fixed, *_: (
        energy(h) * (1 + 0.01 * entropy(scipy.special.softmax(np.abs(fixed), -1)))
    ),
    "fractal_dimension": lambda h, fixed, *_: (
        energy(h) * (1 + 0.1 * entropy(shares(fixed)))
    ),
    "decorrelation": lambda h, fixed, positive, mean, *_: (
        energy(h) + 0.001 * mean * h.var(-1)
    ),
    "softmax_energy_margin_shah": lambda h, fixed, positive, mean, *_: np.clip(
        energy(h) - 0.1 * mean * margin(h), 0, 2e5
    ),
    "info_nce": lambda h, fixed, positive, mean, *_: np.clip(
        energy(h) + 0.1 * mean * contrast(h, fixed), 0, 2e5
    ),
    "triplet_margin": lambda h, fixed, positive, mean, centres, _: (
        energy(h) + 0.1 * mean * np.tanh(ratio(fixed, positive, centres))
    ),
    "bcm": lambda h, fixed, positive, mean, centres, theta: np.clip(
        energy(h) + 0.01 * (h**2 * (h**2 - theta)).sum(-1), 0, 2e5
    ),
    "predictive_coding": lambda h, fixed, positive, mean, centres, mu: (
        energy(h) - 0.1 * mean * np.minimum(energy(h - mu) / energy(h), 10)
    ),
}
FIELD = list(FORMULAS)


def centres_of(h, positive):
    return h[positive].mean(0), h[~positive].mean(0)


def in_training(name, h, fixed, positive, running):
    """Of all examples (2, B, d) of a step."""
    flat, still = h.reshape(-1, WIDTH), fixed.reshape(-1, WIDTH)
    mask = positive.reshape(-1)
    of_batch = mean_energy(flat), centres_of(still, mask)
    value = FORMULAS[name](flat, still, mask, *of_batch, running)
    return (value / WIDTH).reshape(h.shape[:-1])


def step(rng, scale=1.0, shift=0.3):
    """Activations (2, B, d) of a step, of which the first B are positive."""
    h = scale * rng.normal(size=(2, 4, WIDTH)) + shift
    positive = np.zeros((2, 4), bool)
    positive[0] = True
    h[0] += 0.2 * rng.normal(size=WIDTH)
    return h, positive


def state_of(name, energy, centres, running):
    """The state of a layer with these running means."""
    parts = {
        "triplet_margin": (energy, *centres),
        "bcm": running,
        "predictive_coding": (running, energy),
    }
    batch = ("decorrelation", "softmax_energy_margin_shah", "info_nce")
    state = parts.get(name, energy if name in batch else ())
    return jax.tree.map(jnp.asarray, state)


def test_the_table_ends_with_the_functions_of_the_field():
    built_in = [n for n, entry in goodness.GOODNESS.items() if entry.is_built_in]
    assert set(built_in[13:]) == set(FIELD)
    for name in FIELD:
        assert "g = " in (goodness.GOODNESS[name].fn.__doc__ or "")
        assert not goodness.GOODNESS[name].defaults


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", FIELD)
def test_a_step_equals_an_independent_formula(rng, name):
    h, positive = step(rng)
    running = rng.uniform(0.1, 1, WIDTH)
    g = goodness.make(name)
    state = state_of(name, 99.0, (h[0, 0], h[1, 0]), running)  # not the batch's own
    value = jax.jit(g.in_training)(h, state, positive)
    chex.assert_shape(value, (2, 4))
    np.testing.assert_allclose(
        value, in_training(name, h, h, positive, running), rtol=1e-6
    )


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", FIELD)
def test_the_gradient_of_a_step_equals_finite_differences(rng, name):
    h, positive = step(rng)
    running = rng.uniform(0.1, 1, WIDTH)
    weight = rng.normal(size=(2, 4))
    state = state_of(name, 99.0, (h[0, 0], h[1, 0]), running)
    g = goodness.make(name)
    found = jax.grad(lambda h: jnp.sum(weight * g.in_training(h, state, positive)))(h)
    eps, expected = 1e-5, np.zeros(h.shape)
    for place in np.ndindex(h.shape):
        ends = []
        for sign in (1, -1):
            moved = h.copy()
            moved[place] += sign * eps
            ends.append((weight * in_training(name, moved, h, positive, running)).sum())
        expected[place] = (ends[0] - ends[1]) / (2 * eps)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-8)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", FIELD)
def test_evaluation_judges_each_example_alone_by_frozen_means(rng, name):
    """As if it was the positive example of a batch with the statistics of the state."""
    h, _ = step(rng)
    mean, centres = 0.8, (rng.normal(size=WIDTH), rng.normal(size=WIDTH))
    running = rng.uniform(0.1, 1, WIDTH)
    value = jax.jit(goodness.make(name))(h, state_of(name, mean, centres, running))
    expected = [
        FORMULAS[name](
            row[None], row[None], np.array([True]), WIDTH * mean, centres, running
        )[0]
        / WIDTH
        for row in h.reshape(-1, WIDTH)
    ]
    np.testing.assert_allclose(value, np.reshape(expected, (2, 4)), rtol=1e-6)


@pytest.mark.parametrize("name", FIELD)
def test_evaluation_does_not_depend_on_the_other_examples(rng, name):
    h = step(rng)[0].astype(np.float32)
    g = goodness.make(name)
    state = g.update(g.init(WIDTH), jnp.asarray(h), np.array([[True], [False]]))
    others = h.copy()
    others[1:] *= 7
    # Trimming searches until all rows are done, which may move the last bit.
    np.testing.assert_allclose(g(h, state)[0], g(others, state)[0], rtol=1e-6)
    chex.assert_trees_all_close(
        jax.jit(jax.vmap(functools.partial(g, state=state)))(h), g(h, state), rtol=1e-5
    )


@pytest.mark.parametrize("name", FIELD)
def test_the_state_over_several_steps_equals_a_loop(rng, name):
    g = goodness.make(name)
    state, expected = g.init(WIDTH), None
    statistics = {
        "triplet_margin": lambda h, mask: (
            mean_energy(h) / WIDTH,
            *centres_of(h, mask),
        ),
        "bcm": lambda h, mask: (h**2).mean(0),
        "predictive_coding": lambda h, mask: (h.mean(0), mean_energy(h) / WIDTH),
        "decorrelation": lambda h, mask: mean_energy(h) / WIDTH,
        "softmax_energy_margin_shah": lambda h, mask: mean_energy(h) / WIDTH,
        "info_nce": lambda h, mask: mean_energy(h) / WIDTH,
    }
    update = jax.jit(g.update)
    for number in range(4):
        h, positive = step(rng, scale=number + 1)
        state = update(state, jnp.asarray(h, jnp.float32), positive)
        if name not in statistics:
            assert state == ()
            continue
        now = statistics[name](h.reshape(-1, WIDTH), positive.reshape(-1))
        old = expected or jax.tree.map(np.zeros_like, now) if number == 0 else expected
        expected = jax.tree.map(lambda mean, new: 0.9 * mean + 0.1 * new, old, now)
    if name in statistics:
        chex.assert_trees_all_close(state, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("width", [1, 2, 40])
@pytest.mark.parametrize("name", FIELD)
def test_finite_everywhere(name, width):
    one_hot = np.eye(width)[0]
    rows = [np.zeros(width), np.ones(width), np.full(width, -3.0), one_hot]
    rows += [scale * row for scale in (1e-6, 1e6) for row in (one_hot, np.ones(width))]
    ramp = np.linspace(-1, 1, width)
    rows += [scale * ramp for scale in (1e-6, 1.0, 1e6)]
    h = np.stack(rows).astype(np.float32)
    g = goodness.make(name)
    state = g.update(g.init(width), jnp.asarray(h), np.arange(len(h)) < 4)

    @jax.jit
    def measure(h):
        """A step with a batch of the row alone and one with all; and evaluation."""
        alone = jax.vmap(lambda h: g.in_training(h[None], g.init(width), np.True_))
        every = jnp.stack([h, h[::-1]])
        positive = np.array([[True], [False]])
        return alone(h).sum() + g.in_training(every, state, positive) + g(every, state)

    value, back = jax.vjp(measure, h)
    chex.assert_tree_all_finite((value, back(jnp.ones_like(value))))


def test_a_batch_of_positives_alone_has_a_goodness():
    """No negatives: their centre is 0, not NaN."""
    g = goodness.make("triplet_margin")
    h = jnp.ones((3, WIDTH))
    chex.assert_tree_all_finite(g.in_training(h, g.init(WIDTH), np.True_))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # h = (0, 0, 0, 0, 0, 2), for the batch: E_B[s] = 2/3.
        ("sparse_l1", 4 / 6 - 0.02 / 6),
        ("huber_norm", 4 / 6 - 0.015 / 6),
        ("oja", 4 / 6 - 16e-4 / 6),
        ("outlier_trimmed", 0.0),  # round(0.6) = 1 on each side
        ("fractal_dimension", 4 / 6),
        ("decorrelation", 4 / 6 + 0.001 * (2 / 3) * (5 / 9)),
        ("info_nce", 4 / 6),
        ("bcm", 4 / 6 + 0.01 * 16 / 6),
        ("predictive_coding", 4 / 6 - 0.1 * (2 / 3)),
    ],
)
def test_hand_computed_values_of_a_first_step(name, expected):
    h = jnp.asarray([[0.0, 0, 0, 0, 0, 2]])
    g = goodness.make(name)
    assert g.in_training(h, (), np.True_) == pytest.approx(expected, abs=1e-6)


# --- Trimming ------------------------------------------------------------------------


@pytest.mark.usefixtures("branch")
@pytest.mark.parametrize(("width", "k"), [(5, 0), (5, 2), (40, 4), (333, 33)])
def test_a_trimmed_sum_is_that_of_a_sort(rng, width, k):
    x = np.vstack(
        [
            rng.normal(size=(9, width)),
            np.maximum(rng.normal(size=(9, width)), 0),  # many ties at 0
            np.zeros((1, width)),
            np.ones((1, width)),
        ]
    ).astype(np.float32)
    value, back = jax.vjp(lambda x: topk.trimmed_sum(x, k), jnp.asarray(x))
    expected = np.sort(x, axis=-1)[:, k : width - k].astype(np.float64).sum(-1)
    np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-5)
    (weight,) = back(jnp.ones_like(value))
    # Where all is 0, what lies just above it is flushed to 0, and shares are not right.
    some = x.any(axis=-1)
    np.testing.assert_allclose(weight.sum(-1)[some], width - 2 * k, rtol=1e-5)
    assert np.all((np.asarray(weight) > -1e-6) & (np.asarray(weight) < 1 + 1e-6))
    order = np.argsort(x[0])
    np.testing.assert_allclose(
        weight[0][order], np.r_[np.zeros(k), np.ones(width - 2 * k), np.zeros(k)]
    )


def test_outliers_leave_no_rounding_behind():
    x = jnp.asarray(np.r_[np.full(38, 0.1), 1e12, 1e12], jnp.float32)
    assert topk.trimmed_sum(x, 2) == pytest.approx(3.6, rel=1e-5)
