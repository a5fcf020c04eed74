from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

from ffjax.model import layer

CLASSES = 3


def make_layer(site, width=8, activation="gelu", norm_gate: bool | None = False):
    return layer.Layer(width, activation, norm_gate, site, CLASSES)


def init(module, num_inputs) -> Any:
    x, label = jnp.zeros(num_inputs), jnp.int32(0)
    return module.init(jax.random.key(1), x, label)["params"]


REFERENCE = {
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: x * 0.5 * (1 + scipy.special.erf(x / np.sqrt(2))),
    "swish": lambda x: x * scipy.special.expit(x),
}


def standardise(x):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)


@pytest.mark.parametrize("name", layer.ACTIVATIONS)
def test_activations(rng, name):
    x = rng.normal(size=(4, 30)).astype(np.float32) * 3
    before = standardise(x) if name.startswith("ln_") else x
    expected = REFERENCE[name.removeprefix("ln_")](before)
    np.testing.assert_allclose(layer.ACTIVATIONS[name](x), expected, atol=2e-6)


def test_gate(rng):
    h = rng.normal(size=(4, 30)).astype(np.float32)
    length = np.linalg.norm(h, axis=-1, keepdims=True)
    expected = scipy.special.expit(length) * h
    np.testing.assert_allclose(layer.gate(h), expected, rtol=1e-5)
    chex.assert_tree_all_finite(jax.grad(lambda h: layer.gate(h).sum())(jnp.zeros(5)))


@pytest.mark.parametrize(
    ("site", "num_inputs", "shapes"),
    [
        ("none", 12, {"kernel": (12, 8), "bias": (8,)}),
        ("input", 13, {"kernel": (12, 8), "bias": (8,), "label_kernel": (3, 8)}),
        ("output", 12, {"kernel": (12, 8), "bias": (8,), "label_kernel": (3, 8)}),
    ],
)
def test_parameters(site, num_inputs, shapes):
    params = init(make_layer(site), num_inputs)
    assert {name: value.shape for name, value in params.items()} == shapes


@pytest.mark.parametrize(
    ("site", "kernel_bound", "label_bound"),
    [("input", 203**-0.5, 203**-0.5), ("output", 200**-0.5, 3**-0.5)],
)
def test_initial_weights_are_uniform_in_the_papers_bounds(
    site, kernel_bound, label_bound
):
    num_inputs = 201 if site == "input" else 200
    params = init(make_layer(site, width=500), num_inputs)
    for name, bound in (
        ("kernel", kernel_bound),
        ("bias", kernel_bound),
        ("label_kernel", label_bound),
    ):
        largest = float(jnp.abs(params[name]).max())
        assert 0.95 * bound < largest <= bound, name
        assert float(params[name].std()) == pytest.approx(bound / 3**0.5, rel=0.1), name


def test_label_at_the_output_shifts_only_what_is_measured(rng):
    module = make_layer("output", norm_gate=True)
    params = init(module, 12)
    x = rng.normal(size=(5, 12)).astype(np.float32)
    labels = np.array([0, 2, 1, 1, 0])
    outputs: Any = module.apply({"params": params}, x, labels)
    features, measured = outputs
    before = x @ np.asarray(params["kernel"]) + np.asarray(params["bias"])
    expected = np.asarray(layer.gate(REFERENCE["gelu"](before).astype(np.float32)))
    np.testing.assert_allclose(features, expected, atol=1e-6)
    shift = np.asarray(params["label_kernel"])[labels]
    np.testing.assert_allclose(measured, features + shift, atol=1e-6)


@pytest.mark.parametrize("site", ["none", "input", "output"])
def test_a_gate_that_is_a_number_is_the_gate(rng, site):
    x = rng.normal(size=(5, 13)).astype(np.float32)
    labels = np.array([0, 2, 1, 1, 0])
    params = init(make_layer(site), 13)
    by_number = make_layer(site, norm_gate=None)
    for on in (False, True):
        expected = make_layer(site, norm_gate=on).apply({"params": params}, x, labels)
        found = by_number.apply({"params": params}, x, labels, jnp.float32(on))
        chex.assert_trees_all_equal(found, expected)
