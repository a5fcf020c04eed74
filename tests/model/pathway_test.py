"""How images and labels reach the layers, against the formulas as they stand."""

import dataclasses
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_networks import architecture

from ffjax.model import normalise, pathway

CLASSES = 3
LABELLED = ("standard", "ffcl")  # groups have tests of their own


def network(name, **changes):
    return architecture(name, "sos", (8, 6), num_classes=CLASSES, **changes)


def init(module, num_inputs) -> Any:
    x, label = jnp.zeros(num_inputs), jnp.int32(0)
    return module.init(jax.random.key(1), x, label)["params"]


def test_label_at_the_input_is_the_product_with_the_concatenation(rng):
    x = rng.normal(size=(5, 12)).astype(np.float32)
    labels = np.array([0, 2, 1, 1, 0])
    arch = network("standard", activation="relu")
    params = init(arch.layer(0), 13)
    encoded = pathway.encode(arch, jnp.asarray(x))
    features, measured = pathway.run_layer(
        arch, 0, params, encoded, jnp.asarray(labels)
    )
    # The paper's eq. 1 as it stands: l2([x ; 5 onehot(y)]) through one dense layer.
    both = np.concatenate([x, 5 * np.eye(CLASSES)[labels]], axis=1)
    both = both / np.linalg.norm(both, axis=1, keepdims=True)
    kernel = np.concatenate([params["kernel"], params["label_kernel"]])
    expected = np.maximum(both @ kernel + np.asarray(params["bias"]), 0)
    np.testing.assert_allclose(features, expected, atol=1e-6)
    chex.assert_trees_all_equal(features, measured)


@pytest.mark.parametrize("name", LABELLED)
def test_encoded_images_have_unit_norm(rng, name):
    images = 30 * rng.normal(size=(6, 12)).astype(np.float32)
    x = pathway.encode(network(name), jnp.asarray(images))
    np.testing.assert_allclose(np.linalg.norm(x, axis=-1), 1, rtol=1e-5)
    assert x.shape == (6, 13 if name == "standard" else 12)


@pytest.mark.parametrize("name", LABELLED)
def test_rms_normalised_inputs_have_a_mean_square_of_1(rng, name):
    arch = network(name, normalisation="rms")
    params = init(arch.layer(0), 13 if name == "standard" else 12)
    x = pathway.encode(arch, jnp.asarray(rng.normal(size=(5, 12)), jnp.float32))
    np.testing.assert_allclose(jnp.mean(x * x, axis=-1), 1, rtol=1e-5)
    x = pathway.advance(arch, 0, params, x)
    np.testing.assert_allclose(jnp.mean(x * x, axis=-1), 1, rtol=1e-5)


@pytest.mark.parametrize("name", LABELLED)
def test_many_labels_equal_one_at_a_time(rng, name):
    arch = network(name)
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


@pytest.mark.parametrize("name", LABELLED)
def test_advance_gives_the_next_inputs_of_every_example(rng, name, monkeypatch):
    arch = network(name)
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


@pytest.mark.parametrize("name", LABELLED)
def test_propagation_is_advance_at_the_labels(rng, name):
    arch = network(name)
    x = pathway.encode(arch, jnp.asarray(rng.normal(size=(7, 12)), jnp.float32))
    params = init(arch.layer(0), x.shape[-1])
    labels = jnp.asarray(rng.integers(0, CLASSES, size=(2, 7)))
    kept = pathway.advance(arch, 0, params, x)
    found = pathway.propagate(arch, [params], x, labels)
    expected = kept[jnp.arange(7)[None], labels] if name == "standard" else kept
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert pathway.input_width(arch, [params], x) == 8
    assert pathway.input_width(arch, [], x) == x.shape[-1]


@pytest.mark.parametrize("name", LABELLED)
def test_scores_of_many_labels_are_those_of_each(rng, name):
    """Also where the goodness function has a way to all of them at once."""
    arch = network(name)
    assert arch.goodness.shifted is not None
    x = pathway.encode(arch, jnp.asarray(rng.normal(size=(4, 12)), jnp.float32))
    params = init(arch.layer(0), x.shape[-1])
    labels = jnp.asarray(rng.integers(0, CLASSES, size=(5, 4)))
    scores, measured = pathway.score(arch, 0, params, (), x, labels)
    assert scores.shape == (5, 4)
    assert measured.shape == ((5, 4, 8) if name == "standard" else (1, 4, 8))
    for row, found in zip(labels, scores, strict=True):
        expected, _ = pathway.score(arch, 0, params, (), x, row[None])
        np.testing.assert_allclose(found, expected[0], rtol=1e-5)


def test_layers_of_one_shape_share_their_programs():
    arch = dataclasses.replace(network("ffcl", ensemble="later"), widths=(8, 6, 6, 6))
    later = [pathway.as_program(arch, index) for index in (1, 2, 3)]
    assert len(set(later)) == 1
    assert later[0][0].layer(later[0][1]) == arch.layer(3)
    first, index = pathway.as_program(arch, 0)
    assert first.layer(index) == arch.layer(0)
    assert first != later[0][0]


def test_a_chunk_is_never_empty_and_stays_small():
    tiny, huge = network("ffcl"), network("ffcl")
    huge = dataclasses.replace(huge, widths=(10**9,))
    assert pathway.chunk_size(huge) == 1
    assert pathway.chunk_size(tiny) * CLASSES * 8 <= 2**22
