import functools
import math

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
from ffjax.goodness import functions, registry
from ffjax.errors import UserError

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
    """sum_i p_i h_i^2 with p found by SciPy's root finder on the definition."""

    def one(h):
        def excess(tau):
            return np.sum(np.maximum(h / 2 - tau, 0) ** 2) - 1

        tau = scipy.optimize.brentq(excess, h.max() / 2 - 1, h.max() / 2, xtol=1e-15)
        return np.sum(np.maximum(h / 2 - tau, 0) ** 2 * h**2)

    return np.array([one(row) for row in h])


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
        scipy.stats.moment(h, 6, axis=-1) / scipy.stats.moment(h, 2, axis=-1) ** 3 - 15
    ),
}


def test_the_table_holds_the_thirteen_functions():
    assert [*goodness.GOODNESS][: len(PAPER)] == PAPER
    assert all("g = " in goodness.GOODNESS[name].fn.__doc__ for name in PAPER)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", PAPER)
def test_equals_an_independent_formula(rng, name):
    h = rng.normal(size=(5, 300)) * 1.3 + 0.4
    found = jax.jit(goodness.make(name))(h)
    chex.assert_shape(found, (5,))
    np.testing.assert_allclose(found, REFERENCE[name](h), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "params", "expected"),
    [
        # h = (0, 0, 0, 0, 0, 2): mean 1/3, variance 5/9, fourth moment 1.1728...
        ("sos", {}, 4 / 6),
        ("variance", {}, 5 / 9),
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


def test_neg_entropy_by_hand():
    p = math.exp(2) / (math.exp(2) + 5)
    q = 1 / (math.exp(2) + 5)
    expected = math.log(6) + p * math.log(p) + 5 * q * math.log(q)
    h = jnp.asarray([0.0, 0, 0, 0, 0, 2])
    assert goodness.make("neg_entropy")(h) == pytest.approx(expected, abs=1e-6)


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


def test_constant_vectors_have_the_least_kurtosis_at_any_scale():
    g = jax.jit(goodness.make("burstiness"))
    for scale in (1.0, 1e6, 0.1):
        assert g(jnp.full(2000, scale)) == -3


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", ["burstiness", "moment"])
def test_shape_sensitive_functions_do_not_see_scale(rng, name):
    h = rng.normal(size=(4, 200)) ** 3
    g = jax.jit(goodness.make(name))
    for scale in (0.1, 7.0, 1e5):
        np.testing.assert_allclose(g(scale * h), g(h), rtol=1e-5)
    assert (
        np.abs(
            np.asarray(goodness.make("sos")(7.0 * h) / goodness.make("sos")(h))
        ).min()
        > 48
    )


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

    found, gradients = with_gradients(g.shifted, h, shifts)
    expected, plain_gradients = with_gradients(plain, h, shifts)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    for one, other in zip(gradients, plain_gradients, strict=True):
        largest = float(jnp.abs(other).max())
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4 * largest)


@pytest.mark.parametrize("name", ["sos", "burstiness", "moment"])
def test_many_shifts_at_once_are_finite_everywhere(name):
    g = goodness.make(name)
    assert g.shifted is not None
    value = jax.jit(g.shifted)
    gradients = jax.jit(jax.grad(lambda *parts: g.shifted(*parts).sum(), (0, 1)))
    rows = [np.zeros(30), np.ones(30), 1e6 * np.eye(30)[0], 1e-6 * np.eye(30)[0]]
    h = jnp.asarray(rows, jnp.float32)
    for shifts in (np.zeros((2, 30)), np.eye(30)[:2]):
        v = jnp.asarray(shifts, jnp.float32)
        chex.assert_tree_all_finite((value(h, v), gradients(h, v)))


@pytest.mark.parametrize("p", [1, 2])
def test_low_moments_are_zero_and_pull_nowhere(rng, p):
    h = rng.normal(size=(3, 50)).astype(np.float32)
    g = goodness.make("moment", p=p)
    np.testing.assert_array_equal(g(h), np.zeros(3))
    np.testing.assert_array_equal(jax.grad(lambda h: g(h).sum())(h), np.zeros((3, 50)))


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    ("p", "normal"), [(3, 0), (4, 3), (5, 0), (6, 15), (8, 105), (22, 13749310575)]
)
def test_moments_subtract_those_of_a_normal_distribution(rng, p, normal):
    h = rng.normal(size=500)
    standard = (h - h.mean()) / h.std()
    expected = np.mean(standard**p) - normal
    found = goodness.make("moment", p=p)(h)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("fraction", "width", "k"),
    [(0.02, 2000, 40), (0.0025, 2000, 5), (0.29, 100, 29), (0.02, 3, 3), (1.0, 8, 8)],
)
def test_topk_counts(rng, fraction, width, k):
    h = rng.normal(size=(2, width)).astype(np.float32)
    g = goodness.make("topk", fraction=fraction)
    np.testing.assert_allclose(g(h), mean_of_largest(h, k), rtol=1e-5)


@pytest.mark.parametrize("width", [5, 19, 23, 100, 1999])
def test_topk_and_its_gradient_are_those_of_a_sort(rng, width):
    h = np.vstack(
        [
            rng.normal(size=(50, width)),
            np.maximum(rng.normal(size=(20, width)), 0),
            rng.normal(size=(10, width)) * 10.0 ** rng.uniform(-30, 30, (10, width)),
            -np.abs(rng.normal(size=(10, width))),
        ]
    ).astype(np.float32)
    k = max(5, width // 10)
    g = goodness.make("topk", fraction=max(5.5 / width, 0.1) if width > 5 else 1.0)
    order = np.sort(h, axis=-1)[:, ::-1]
    expected = order[:, :k].astype(np.float64).mean(axis=-1)
    # Entries of both signs may cancel: rounding is relative to their size.
    rounding = 1e-6 * np.abs(order[:, :k]).astype(np.float64).mean(axis=-1)
    assert (np.abs(g(h) - expected) <= rounding).all()
    gradient = np.asarray(jax.grad(lambda h: g(h).sum())(jnp.asarray(h)))
    np.testing.assert_allclose(gradient.sum(axis=-1), 1, rtol=1e-5)
    last = order[:, k - 1 : k]
    apart = np.abs(h - last) > 1e-5 * np.abs(last)
    np.testing.assert_allclose(gradient[apart], ((h > last) / k)[apart], rtol=1e-6)


@pytest.mark.parametrize(
    ("row", "mean"),
    [
        (np.zeros(40), 0.0),
        (np.full(40, -0.0), 0.0),
        (np.full(40, 7.5), 7.5),
        (np.r_[np.ones(2), np.zeros(38)], 0.4),
        (np.r_[np.full(3, 1e-42), np.zeros(37)], 0.0),
        (np.r_[np.full(20, -3e38), np.full(20, 3e38)], 3e38),
        (np.r_[np.nan, np.ones(39)], np.nan),
        (np.r_[np.inf, np.ones(39)], np.inf),
    ],
)
def test_topk_of_odd_rows(row, mean):
    h = row.astype(np.float32)
    found = goodness.make("topk", fraction=5 / 40)(h)
    np.testing.assert_allclose(found, mean, rtol=1e-6, atol=1e-40)


def test_topk_with_ties():
    h = jnp.asarray([3.0, 1, 1, 1, 1, 1, 1, 0])
    value, pull = jax.value_and_grad(goodness.make("topk"))(h)  # k = 5
    assert value == pytest.approx(7 / 5)
    assert pull[0] == pytest.approx(1 / 5)
    assert float(pull.sum()) == pytest.approx(1.0)
    assert pull[-1] == 0


@pytest.mark.parametrize("name", PAPER)
def test_vmap_equals_batch_axes(rng, name):
    h = rng.normal(size=(2, 3, 20)).astype(np.float32)
    g = goodness.make(name)
    chex.assert_trees_all_close(jax.jit(jax.vmap(g))(h), jax.jit(g)(h), rtol=1e-5)


def test_running_mean_is_explicit_state(rng):
    h = rng.normal(size=(4, 10)).astype(np.float32)
    g = goodness.make("softmax_energy_margin")
    state = g.update(g.init(), h)
    assert state == pytest.approx(0.1 * np.mean(h**2), rel=1e-5)
    again = g.update(state, 2 * h)
    assert again == pytest.approx(
        0.9 * float(state) + 0.1 * np.mean(4 * h**2), rel=1e-5
    )
    expected = (h**2).mean(-1) - 0.5 * np.asarray(state) * scipy.special.logsumexp(
        h, -1
    )
    np.testing.assert_allclose(g(h, state), expected, rtol=1e-5)
    assert g.combine([jnp.float32(1.0), jnp.float32(3.0)]) == 2.0
    # Neither the state nor its update is differentiated.
    assert jax.grad(lambda s: g(h, s).sum())(state) == 0
    assert np.all(jax.grad(lambda h: g.update(state, h))(h) == 0)
    assert goodness.make("sos").update((), h) == ()


def test_equal_functions_are_equal_to_jit():
    assert goodness.make("moment", p=6) == goodness.make("moment")
    assert hash(goodness.make("moment", p=6)) == hash(goodness.make("moment"))
    assert goodness.make("moment", p=4) != goodness.make("moment")


def test_defaults_are_the_papers():
    assert dict(goodness.make("topk").params) == {"fraction": 0.02}
    assert dict(goodness.make("ln_topk").params) == {"fraction": 0.02}
    assert dict(goodness.make("contrast_topk").params) == {"fraction": 0.01}
    assert dict(goodness.make("entmax").params) == {"alpha": 1.5}
    assert dict(goodness.make("moment").params) == {"p": 6}


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


def test_a_function_of_your_own(tmp_path, monkeypatch, rng):
    (tmp_path / "own_goodness.py").write_text(
        "import jax.numpy as jnp\n"
        "from ffjax.goodness import register\n"
        "@register\n"
        "def l4_over_l2(h, *, p=4):\n"
        "    return jnp.mean(h**p, axis=-1) / jnp.mean(h * h, axis=-1) ** (p / 2)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "GOODNESS", dict(goodness.GOODNESS))
    h = rng.normal(size=(3, 9))
    g = goodness.make("own_goodness:l4_over_l2", p=2)
    np.testing.assert_allclose(g(h), np.ones(3), rtol=1e-5)
    assert goodness.make("l4_over_l2").definition is g.definition
    with pytest.raises(UserError, match="built in"):
        goodness.register(functions.sos.fn)


def test_a_function_of_your_own_that_cannot_work(tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "GOODNESS", dict(goodness.GOODNESS))
    with pytest.raises(UserError, match="parameter 'p' must be keyword-only"):
        goodness.register(lambda h, p=3: h.sum(-1))
    with pytest.raises(UserError, match="have a default"):
        goodness.register(lambda h, *, q: h.sum(-1))
    unreduced = goodness.register(lambda h: h)
    g = goodness.Goodness(unreduced, ())
    with pytest.raises(UserError, match=r"gives \(4, 3\).*must reduce the last"):
        g(jnp.ones((4, 3)))
    (tmp_path / "broken_goodness.py").write_text("def f(h:\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError, match="cannot import module 'broken_goodness'"):
        goodness.make("broken_goodness:f")
