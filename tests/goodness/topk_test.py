"""The mean of the k largest entries, against a sort."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ffjax import goodness


@pytest.mark.parametrize(
    ("fraction", "width", "k"),
    [(0.02, 2000, 40), (0.0025, 2000, 5), (0.29, 100, 29), (0.02, 3, 3), (1.0, 8, 8)],
)
def test_the_number_that_counts(rng, fraction, width, k):
    h = rng.normal(size=(2, width)).astype(np.float32)
    g = goodness.make("topk", fraction=fraction)
    np.testing.assert_allclose(g(h), np.sort(h)[:, -k:].mean(-1), rtol=1e-5)


@pytest.mark.usefixtures("branch")
@pytest.mark.parametrize("width", [5, 19, 23, 100, 1999])
def test_value_and_gradient_are_those_of_a_sort(rng, width):
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
    value, back = jax.jit(lambda h: jax.vjp(g, h))(jnp.asarray(h))
    assert (np.abs(value - expected) <= rounding).all()
    gradient = np.asarray(jax.jit(back)(jnp.ones_like(value))[0])
    np.testing.assert_allclose(gradient.sum(axis=-1), 1, rtol=1e-5)
    last = order[:, k - 1 : k]
    apart = np.abs(h - last) > 1e-5 * np.abs(last)
    np.testing.assert_allclose(gradient[apart], ((h > last) / k)[apart], rtol=1e-6)


@pytest.mark.usefixtures("branch")
def test_odd_rows():
    rows, means = zip(
        (np.zeros(40), 0.0),
        (np.full(40, -0.0), 0.0),
        (np.full(40, 7.5), 7.5),
        (np.r_[np.ones(2), np.zeros(38)], 0.4),
        (np.r_[np.full(3, 1e-42), np.zeros(37)], 0.0),
        (np.r_[np.full(20, -3e38), np.full(20, 3e38)], 3e38),
        (np.r_[np.nan, np.ones(39)], np.nan),
        (np.r_[np.inf, np.ones(39)], np.inf),
        strict=True,
    )
    g = jax.jit(goodness.make("topk", fraction=5 / 40))
    # Each in a batch of its own: how long a search takes is for all rows of a batch.
    values = [g(row.astype(np.float32)) for row in rows]
    np.testing.assert_allclose(values, means, rtol=1e-6, atol=1e-40)


@pytest.mark.usefixtures("branch")
def test_ties_share_the_weight():
    h = jnp.asarray([3.0, 1, 1, 1, 1, 1, 1, 0])
    value, pull = jax.jit(jax.value_and_grad(goodness.make("topk")))(h)  # k = 5
    assert value == pytest.approx(7 / 5)
    expected = [1 / 5, *[4 / 5 / 6] * 6, 0]  # six are tied for four places
    np.testing.assert_allclose(pull, expected, rtol=1e-6)


@pytest.mark.parametrize("name", ["topk", "ln_topk", "contrast_topk"])
def test_a_gpu_gets_no_loop(name, cuda_loop_conditions):
    g = goodness.make(name)
    gradient = jax.grad(lambda h: g(h).sum())
    for fn in (g, gradient, jax.vmap(gradient)):
        assert not cuda_loop_conditions(fn, jnp.ones((3, 4, 200)))


@pytest.mark.usefixtures("branch")
def test_both_ends_are_those_of_a_sort(rng):
    h = rng.normal(size=(2, 30, 500)).astype(np.float32)
    order, k = np.sort(h, axis=-1), 5
    value, back = jax.jit(lambda h: jax.vjp(goodness.make("contrast_topk"), h))(h)
    expected = order[..., -k:].mean(-1) - order[..., :k].mean(-1)
    np.testing.assert_allclose(value, expected, rtol=1e-6)
    is_high, is_low = h >= order[..., -k:][..., :1], h <= order[..., k - 1 : k]
    (gradient,) = back(jnp.ones_like(value))
    np.testing.assert_allclose(gradient, (is_high * 1.0 - is_low) / k, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.usefixtures("branch", "x64")
def test_brackets_end_in_time(rng, dtype):
    """The widest bracket that there is, of every type."""
    largest = float(jnp.finfo(dtype).max)
    tiny = float(jnp.finfo(dtype).smallest_normal)
    few = np.r_[np.full(2, largest), tiny * np.arange(1, 9), np.full(30, -largest)]
    h = jnp.asarray(rng.permutation(few).astype(dtype))
    pull = jax.jit(jax.grad(goodness.make("topk")))(h)  # k = 5
    expected = (h >= float(np.asarray(6 * tiny, dtype))) / 5
    np.testing.assert_allclose(pull, expected, rtol=1e-3)
