"""How functions get into the table, are looked up and get their parameters."""

import math

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ffjax import goodness
from ffjax.errors import UserError
from ffjax.goodness import functions, registry


@pytest.fixture(autouse=True)
def own_table(monkeypatch):
    """What a test registers is gone after it."""
    monkeypatch.setattr(registry, "GOODNESS", dict(registry.GOODNESS))


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("burstyness", {}, "did you mean 'burstiness'"),
        (3, {}, "goodness=3"),
        ("sos", {"alpha": 2}, "no parameter 'alpha'"),
        ("entmax", {"alpha": 0.5}, "alpha=0.5: must be a number >= 1"),
        ("entmax", {"alpha": math.nan}, "alpha=nan"),
        ("moment", {"p": 0}, "p=0: must be an integer from 1 to 32"),
        ("moment", {"p": 2.5}, "p=2.5"),
        ("moment", {"p": True}, "p=True"),
        ("moment", {"p": 33}, "p=33"),
        ("topk", {"fraction": 0}, r"fraction=0: must be a number in \(0, 1\]"),
        ("topk", {"fraction": 1.5}, "fraction=1.5"),
        ("no_such_module:f", {}, "cannot import module 'no_such_module'"),
        ("math:sqrt", {}, "decorate it with ffjax.goodness.register"),
        (":f", {}, "goodness=':f'"),
    ],
)
def test_mistakes_are_named(name, params, message):
    with pytest.raises(UserError, match=message):
        goodness.make(name, **params)


def test_equal_functions_are_equal_to_jit():
    assert goodness.make("moment", p=6) == goodness.make("moment")
    assert hash(goodness.make("moment", p=6)) == hash(goodness.make("moment"))
    assert goodness.make("moment", p=4) != goodness.make("moment")


def test_a_function_of_your_own(tmp_path, monkeypatch, rng):
    (tmp_path / "own_ratio.py").write_text(
        "import jax.numpy as jnp\n"
        "from ffjax.goodness import register\n"
        "@register\n"
        "def l4_over_l2(h, *, p=4):\n"
        "    return jnp.mean(h**p, axis=-1) / jnp.mean(h * h, axis=-1) ** (p / 2)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    h = rng.normal(size=(3, 9))
    g = goodness.make("own_ratio:l4_over_l2", p=2)
    np.testing.assert_allclose(g(h), np.ones(3), rtol=1e-5)
    assert goodness.make("l4_over_l2").definition is g.definition
    assert g.definition.address == "own_ratio:l4_over_l2"
    # A decorated name still works as the function it was.
    np.testing.assert_array_equal(g.definition(jnp.ones((3, 9)), p=4), np.ones(3))


@pytest.mark.parametrize("definition", [functions.sos, functions.moment])
def test_a_built_in_function_cannot_be_replaced(definition):
    def impostor(h):
        return h.sum(-1)

    impostor.__name__ = definition.name
    with pytest.raises(UserError, match=f"'{definition.name}': built in"):
        goodness.register(impostor)
    assert goodness.find(definition.name) is definition


def test_your_own_function_can_be_replaced():
    def twice(h):
        return h.sum(-1)

    goodness.register(twice)
    again = goodness.register(twice)
    assert goodness.find("twice") is again


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (lambda h, p=3: h.sum(-1), "parameter 'p' must be keyword-only"),
        (lambda h, *, q: h.sum(-1), r"'q' must be .* have a default: \(h, \*, q="),
    ],
)
def test_parameters_are_keywords_with_defaults(fn, message):
    with pytest.raises(UserError, match=message):
        goodness.register(fn)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "def f(h:\n",
            r"SyntaxError: .*never closed \(own_broken\.py, line 1\); it must",
        ),
        ("x = 1\ny = x / 0\n", r"division by zero \(own_broken\.py, line 2\)"),
        ("import no_such_one\n", r"'no_such_one' \(own_broken\.py, line 1\)"),
    ],
)
def test_a_module_that_cannot_be_imported(tmp_path, monkeypatch, text, message):
    (tmp_path / "own_broken.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError, match=f"module 'own_broken': .*{message}") as caught:
        goodness.make("own_broken:f")
    assert "\n" not in str(caught.value)


def test_a_running_mean_is_explicit_state(rng):
    def above_usual(h, usual):
        return h.mean(-1) - usual

    definition = goodness.register(running=lambda h: h.mean(-1))(above_usual)
    g = goodness.Goodness(definition, ())
    h = rng.normal(size=(4, 10)).astype(np.float32) + 1
    state = g.update(g.init(10), jnp.asarray(h), True)
    assert state == pytest.approx(0.1 * h.mean(), rel=1e-5)
    again = g.update(state, jnp.asarray(2 * h), True)
    assert again == pytest.approx(0.9 * np.asarray(state) + 0.2 * h.mean(), rel=1e-5)
    np.testing.assert_allclose(g(h, state), h.mean(-1) - np.asarray(state), rtol=1e-5)
    # A state that was saved and read again comes as a NumPy array.
    np.testing.assert_array_equal(g(h, np.asarray(state)), g(h, state))
    np.testing.assert_array_equal(g(h), g(h, g.init(10)))
    assert g.combine([jnp.float32(1.0), jnp.float32(3.0)]) == 2.0
    # Neither the state nor its update is differentiated.
    assert jax.grad(lambda s: g(h, s).sum())(state) == 0
    assert np.all(jax.grad(lambda h: g.update(state, h, True))(h) == 0)


_OWN = """
import jax.numpy as jnp
from ffjax.goodness import register

@register(running=lambda h: h)
def unusual(h, usual):
    return jnp.mean((h - usual) ** 2, axis=-1)

@register(batch=lambda h, positive: (h.mean(0), h.std(0) + 1e-3))
def standardised(h, batch):
    mean, std = batch
    return jnp.mean(((h - mean) / std) ** 3, axis=-1)

@register(batch=lambda h, positive: h[..., 0].mean(), positive=True)
def leaning(h, batch, positive, *, weight=0.5):
    return jnp.mean(h * h, axis=-1) + weight * batch * jnp.where(positive, 1, -1)

@register(running=lambda h: h.mean(-1), batch=lambda h, positive: h.std(0) + 1e-3)
def both(h, running, batch):
    return jnp.mean(h * h / batch, axis=-1) - running
"""


@pytest.fixture
def own_module(tmp_path, monkeypatch):
    """A user's module, with broadcasting as it is by default."""
    name = f"own_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(_OWN)
    monkeypatch.syspath_prepend(tmp_path)
    with jax.numpy_rank_promotion("allow"):
        yield name


def test_a_function_of_your_own_with_a_vector_state(own_module, rng):
    g = goodness.make(f"{own_module}:unusual")
    h = rng.normal(size=(2, 3, 5)).astype(np.float32)
    state = g.update(g.init(5), jnp.asarray(h), np.array([[True], [False]]))
    np.testing.assert_allclose(state, 0.1 * h.mean((0, 1)), rtol=1e-5)
    expected = ((h - np.asarray(state)) ** 2).mean(-1)
    np.testing.assert_allclose(g(h, state), expected, rtol=1e-5)
    np.testing.assert_array_equal(
        g.in_training(jnp.asarray(h), state, True), g(h, state)
    )
    wide = g.combine([state, jnp.ones(2)])
    np.testing.assert_array_equal(wide, np.r_[state, 1, 1])


def test_a_function_of_your_own_with_statistics_of_the_batch(own_module, rng):
    g = goodness.make(f"{own_module}:standardised")
    h = jnp.asarray(rng.normal(size=(2, 3, 5)) + 1, jnp.float32)
    state = g.init(5)
    chex.assert_trees_all_equal_shapes(state, (jnp.zeros(5), jnp.zeros(5)))
    flat = np.asarray(h).reshape(-1, 5)

    def skewness(h, mean, std):
        return (((h - mean) / std) ** 3).mean(-1)

    now = flat.mean(0), flat.std(0) + 1e-3
    np.testing.assert_allclose(
        g.in_training(h, state, True), skewness(h, *now), rtol=1e-4, atol=1e-5
    )
    state = g.update(state, h, True)
    chex.assert_trees_all_close(state, tuple(0.1 * part for part in now), rtol=1e-5)
    np.testing.assert_allclose(g(h, state), skewness(h, *state), rtol=1e-4)

    # In training the gradient goes through the batch, in evaluation it does not.
    def cross(measure):
        return jax.grad(lambda h: measure(h)[0, 0])(h)[1]

    assert np.any(cross(lambda h: g.in_training(h, state, True)))
    assert not np.any(cross(lambda h: g(h, state)))


def test_a_function_of_your_own_that_knows_the_positives(own_module, rng):
    g = goodness.make(f"{own_module}:leaning", weight=2.0)
    h = jnp.asarray(rng.normal(size=(2, 3, 5)), jnp.float32)
    positive = np.array([[True, True, True], [False, False, True]])
    lean = 2 * np.asarray(h)[..., 0].mean() * np.where(positive, 1, -1)
    square = (np.asarray(h) ** 2).mean(-1)
    found = g.in_training(h, g.init(5), positive)
    np.testing.assert_allclose(found, square + lean, rtol=1e-4)
    # A candidate label is judged as if it was the true one.
    np.testing.assert_allclose(g(h, jnp.float32(3)), square + 6, rtol=1e-5)


def test_a_function_of_your_own_with_two_kinds_of_state(own_module):
    g = goodness.make(f"{own_module}:both")
    state = (jnp.float32(2), jnp.full(5, 4.0))
    chex.assert_trees_all_equal_shapes(g.init(5), state)
    assert g(jnp.full(5, 2.0), state) == 1 - 2
    number, vector = g.combine([state, (jnp.float32(4), jnp.ones(2))])
    assert number == 3
    assert vector.shape == (7,)


@pytest.mark.parametrize(
    ("statistic", "what"),
    [
        (lambda h, positive: h.T, r"batch gives shape \(5, 2\) for a layer of 5"),
        (lambda h, positive: (h.mean(0), h), None),
        (lambda h, positive: positive.sum(), "batch gives int32 numbers"),
        (lambda h, positive: None, "batch gives a value of type 'NoneType'"),
        (lambda h, positive: (h.mean(0), [h.mean()]), "a value of type 'list'"),
    ],
)
def test_a_statistic_that_a_layer_cannot_keep(statistic, what):
    def own_one(h, batch):
        return h.sum(-1)

    g = goodness.Goodness(goodness.register(batch=statistic)(own_one), ())
    if what is None:
        assert len(g.init(5)) == 2
        return
    with pytest.raises(UserError, match=f"own_one': .*{what}.*units; must be floats"):
        g.init(5)


def test_functions_without_a_running_mean_have_no_state(rng):
    g = goodness.make("sos")
    after = g.update((), jnp.ones((2, 3)), True)
    assert g.init(3) == after == g.combine([(), ()]) == ()


def test_the_hash_of_the_source(tmp_path, monkeypatch):
    text = (
        "import ffjax.goodness\n@ffjax.goodness.register\ndef f(h): return h.sum(-1)\n"
    )
    path = tmp_path / "own_hashed.py"
    path.write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    digest = registry.source_hash("own_hashed:f")
    assert digest is not None
    assert registry.source_hash(goodness.find("own_hashed:f")) == digest
    # What was imported is what counts for this process.
    path.write_text(text + "# edited\n")
    assert registry.source_hash("own_hashed:f") == digest
    assert [registry.source_hash(name) for name in ("sos", functions.moment)] == [
        None
    ] * 2
