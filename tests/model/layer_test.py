import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

from ffjax import goodness
from ffjax.model import layer, normalise, pathway

CLASSES = 3


def make_layer(site, width=8, activation="gelu", norm_gate=False):
    return layer.Layer(width, activation, norm_gate, site, CLASSES)


def init(module, num_inputs):
    x, label = jnp.zeros(num_inputs), jnp.int32(0)
    return module.init(jax.random.key(1), x, label)["params"]


def architecture(name, **changes):
    fields = {
        "pathway": name,
        "goodness": goodness.make("sos"),
        "activation": "gelu",
        "norm_gate": False,
        "widths": (8, 6),
        "num_classes": CLASSES,
        "label_scale": 5.0,
    }
    return pathway.Architecture(**{**fields, **changes})


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


def test_label_at_the_input_is_the_product_with_the_concatenation(rng):
    module = make_layer("input", activation="relu")
    params = init(module, 13)
    x = rng.normal(size=(5, 12)).astype(np.float32)
    labels = np.array([0, 2, 1, 1, 0])
    arch = architecture("standard", activation="relu")
    encoded = pathway.encode(arch, jnp.asarray(x))
    features, measured = module.apply({"params": params}, encoded, labels)
    # The paper's eq. 1 as it stands: l2([x ; 5 onehot(y)]) through one dense layer.
    both = np.concatenate([x, 5 * np.eye(CLASSES)[labels]], axis=1)
    both = both / np.linalg.norm(both, axis=1, keepdims=True)
    kernel = np.concatenate([params["kernel"], params["label_kernel"]])
    expected = np.maximum(both @ kernel + np.asarray(params["bias"]), 0)
    np.testing.assert_allclose(features, expected, atol=1e-6)
    chex.assert_trees_all_equal(features, measured)


def test_label_at_the_output_shifts_only_what_is_measured(rng):
    module = make_layer("output", norm_gate=True)
    params = init(module, 12)
    x = rng.normal(size=(5, 12)).astype(np.float32)
    labels = np.array([0, 2, 1, 1, 0])
    features, measured = module.apply({"params": params}, x, labels)
    before = x @ np.asarray(params["kernel"]) + np.asarray(params["bias"])
    expected = np.asarray(layer.gate(REFERENCE["gelu"](before).astype(np.float32)))
    np.testing.assert_allclose(features, expected, atol=1e-6)
    shift = np.asarray(params["label_kernel"])[labels]
    np.testing.assert_allclose(measured, features + shift, atol=1e-6)


@pytest.mark.parametrize("name", pathway.PATHWAYS)
def test_encoded_images_have_unit_norm(rng, name):
    images = 30 * rng.normal(size=(6, 12)).astype(np.float32)
    x = pathway.encode(architecture(name), jnp.asarray(images))
    np.testing.assert_allclose(np.linalg.norm(x, axis=-1), 1, rtol=1e-5)
    assert x.shape == (6, 13 if name == "standard" else 12)


def test_normalisations_at_zero_and_large_constants():
    zero = jnp.zeros((2, 5))
    for function in (normalise.l2_normalise, normalise.layer_norm):
        np.testing.assert_array_equal(function(zero), zero)
        chex.assert_tree_all_finite(jax.grad(lambda x, f=function: f(x).sum())(zero))
    np.testing.assert_array_equal(normalise.centre(jnp.full((2, 999), 1e6 / 3)), 0)


@pytest.mark.parametrize("name", pathway.PATHWAYS)
def test_many_labels_equal_one_at_a_time(rng, name):
    arch = architecture(name)
    x = pathway.encode(arch, jnp.asarray(rng.normal(size=(4, 12)), jnp.float32))
    params = init(arch.layer(0), x.shape[-1])
    labels = jnp.asarray(rng.integers(0, CLASSES, size=(5, 4)))
    features, measured = pathway.run_layer(arch, 0, params, x, labels)
    assert features.shape == ((5, 4, 8) if name == "standard" else (4, 8))
    for row, found in zip(labels, measured, strict=True):
        single_features, single = pathway.run_layer(arch, 0, params, x, row)
        np.testing.assert_allclose(found, single, atol=1e-6)
        if name == "ffcl":
            np.testing.assert_allclose(features, single_features, atol=1e-6)


@pytest.mark.parametrize("name", pathway.PATHWAYS)
def test_advance_gives_the_next_inputs_of_every_example(rng, name, monkeypatch):
    arch = architecture(name)
    # 7 examples in chunks of 3: the last chunk is not full.
    monkeypatch.setattr(pathway, "chunk_size", lambda arch: 3)
    x = pathway.encode(arch, jnp.asarray(rng.normal(size=(7, 12)), jnp.float32))
    params = init(arch.layer(0), x.shape[-1])
    found = pathway.advance(arch, 0, params, x)
    for label in range(CLASSES):
        features, _ = pathway.run_layer(arch, 0, params, x, jnp.full(7, label))
        expected = normalise.l2_normalise(features)
        one = found[:, label] if name == "standard" else found
        np.testing.assert_allclose(one, expected, atol=1e-6)
    assert found.nbytes == pathway.stored_bytes(arch, 1, 7)


@pytest.mark.parametrize("shape", [(7, 5), (3, 7, 5), (5,)])
def test_the_gradient_of_the_product_is_that_of_a_plain_one(rng, shape):
    x, kernel = rng.normal(size=shape), rng.normal(size=(5, 4))
    weight = rng.normal(size=(*shape[:-1], 4))

    def gradients(product):
        def loss(x, kernel):
            return jnp.sum(weight * jnp.sin(product(x, kernel)))

        return jax.grad(loss, argnums=(0, 1))(jnp.asarray(x), jnp.asarray(kernel))

    found, expected = gradients(layer._product), gradients(jnp.matmul)
    chex.assert_trees_all_close(found, expected, rtol=1e-4, atol=1e-5)
