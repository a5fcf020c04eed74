"""Functions that cannot be learned with are seen before training."""

import jax
import jax.numpy as jnp
import pytest

from ffjax import goodness
from ffjax.errors import UserError
from ffjax.goodness import registry, sanity

BUILT_IN = [name for name, entry in goodness.GOODNESS.items() if entry.is_built_in]


@pytest.fixture
def own(monkeypatch):
    monkeypatch.setattr(registry, "GOODNESS", dict(registry.GOODNESS))
    return lambda fn: goodness.Goodness(goodness.register(fn), ())


@pytest.mark.parametrize("name", BUILT_IN)
@pytest.mark.parametrize("activate", [jax.nn.relu, jax.nn.gelu])
def test_built_in_functions_have_no_problem(name, activate):
    assert sanity.problem(goodness.make(name), 40, activate) is None


@pytest.mark.parametrize(
    ("fn", "problem"),
    [
        (lambda h: jnp.log(jnp.min(h, axis=-1)), "gives nan for 16 of 16 ordinary"),
        (lambda h: 1 / jnp.sum(h > 9, axis=-1), "gives inf for 16 of 16 ordinary"),
        # Finite, but the root has no slope at zero.
        (
            lambda h: jnp.sum(jnp.sqrt(jnp.maximum(h, 0)), axis=-1),
            "has a gradient that is not finite for 16 of 16",
        ),
        (lambda h: jnp.ones(h.shape[:-1]), "gives 1 for every vector"),
        # A constant up to rounding, with a gradient that is rounding alone.
        (
            lambda h: jnp.sum(h * h, axis=-1) / jnp.linalg.norm(h, axis=-1) ** 2,
            "gives 1 for every vector",
        ),
        (lambda h: jnp.mean(jnp.sign(h), axis=-1), "has a gradient of zero for every"),
    ],
)
def test_problems_are_named(own, fn, problem):
    line = sanity.problem(own(fn), 40)
    assert line is not None
    assert line.startswith("goodness='sanity_test:<lambda>': " + problem)
    assert "\n" not in line


def test_only_what_the_activation_lets_through_counts(own):
    g = own(lambda h: jnp.mean(jnp.sqrt(h + 1e-6), axis=-1))
    assert "gives nan" in str(sanity.problem(g, 40))
    assert sanity.problem(g, 40, jax.nn.relu) is None


def test_statistics_are_those_of_a_batch(monkeypatch):
    """As in the first step; the zeros of an untrained layer would give NaN."""
    monkeypatch.setattr(registry, "GOODNESS", dict(registry.GOODNESS))
    by_spread = goodness.register(batch=lambda h, positive: jnp.std(h))
    g = goodness.Goodness(by_spread(lambda h, std: jnp.mean(h / std, axis=-1)), ())
    assert sanity.problem(g, 40) is None


def test_low_moments_are_constants():
    assert "gives 0 for every" in str(sanity.problem(goodness.make("moment", p=2), 40))


def test_the_layer_is_as_wide_as_in_training(own):
    g = own(lambda h: h.reshape(*h.shape[:-1], 100, -1).max(-1).mean(-1))
    assert sanity.problem(g, 200) is None
    with pytest.raises(UserError, match=r"sanity_test.py, line \d+\)"):
        sanity.problem(g, 64)


def test_a_function_without_a_derivative_is_an_error(own):
    def loop(h):
        return jax.lax.while_loop(lambda s: (s < 9).all(), lambda s: s + 1, h.sum(-1))

    with pytest.raises(UserError, match="loop': ValueError: Reverse-mode diff"):
        sanity.problem(own(loop), 40)
