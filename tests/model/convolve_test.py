"""Convolutions against XLA's own, and maps against NumPy."""

import dataclasses
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_networks import architecture

from ffjax import goodness
from ffjax.errors import UserError
from ffjax.model import convolve, evaluate, maps, normalise, pathway, product
from ffjax.model.maps import Maps, Shape
from ffjax.training import program
from ffjax.training.optimizer import Training

IMAGE = Shape(6, 4, 3)


def conv(x, kernel, shape, size):
    """XLA's convolution of rows (B, H * W * C) by (k * k * C, W): (B, P, W)."""
    weights = kernel.reshape(size, size, shape.channels, -1)
    found = jax.lax.conv_general_dilated(
        x.reshape(-1, *shape),
        weights,
        window_strides=(1, 1),
        padding="SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        precision=jax.lax.Precision.HIGHEST,
    )
    return found.reshape(len(x), shape.positions, -1)


def network(name="ffcl", function="burstiness", pool=(1, 0), **changes):
    made = Maps(IMAGE, 3, pool)
    return architecture(name, function, (8, 12), maps=made, **changes)


def untrained(arch):
    params, size = [], IMAGE.size
    for index in range(len(arch.widths)):
        key = jax.random.key(index)
        layer = program.init_layer(arch, index, key, size, Training())
        params.append(layer.params)
        if index + 1 < len(arch.widths):
            size = arch.row_size(index + 1)
    return params


@pytest.mark.parametrize("size", [1, 3, 5])
@pytest.mark.parametrize("shape", [IMAGE, Shape(5, 7, 2)])
def test_values_and_gradients_are_those_of_a_convolution(rng, shape, size):
    x = jnp.asarray(rng.normal(size=(4, shape.size)), jnp.float32)
    kernel = rng.normal(size=(size**2 * shape.channels, 5)).astype(np.float32)
    target = jnp.asarray(rng.normal(size=(4, shape.positions, 5)), jnp.float32)

    def ours(x, kernel) -> Any:
        bias = jnp.zeros(kernel.shape[-1])
        return product.dense(convolve.windows(x, shape, size), kernel, bias, "float32")

    def theirs(x, kernel) -> Any:
        return conv(x, kernel, shape, size)

    found, expected = (
        jax.vjp(function, x, jnp.asarray(kernel)) for function in (ours, theirs)
    )
    np.testing.assert_allclose(found[0], expected[0], atol=1e-4)
    chex.assert_trees_all_close(found[1](target), expected[1](target), atol=1e-4)
    alone = jax.vmap(lambda row: convolve.windows(row, shape, size))(x)
    np.testing.assert_array_equal(alone, convolve.windows(x, shape, size))


def test_a_layer_is_a_convolution_and_its_activation(rng):
    arch = network("groups", activation="relu")
    params = untrained(arch)
    x = pathway.encode(arch, jnp.asarray(rng.normal(size=(4, IMAGE.size)), jnp.float32))
    features, measured = pathway.run_layer(
        arch, 0, params[0], x, jnp.zeros(4, jnp.int32)
    )
    expected = conv(x, params[0]["kernel"], IMAGE, 3) + params[0]["bias"][None, None]
    np.testing.assert_allclose(features, np.maximum(expected, 0), atol=1e-5)
    chex.assert_trees_all_equal(features, measured)
    bound = (9 * 3) ** -0.5
    assert bound * 0.8 < float(jnp.abs(params[0]["kernel"]).max()) <= bound


def test_bfloat16_rounds_operands_and_not_the_sum(rng):
    arch = network("groups", precision="bfloat16")
    params = untrained(arch)
    x = pathway.encode(arch, jnp.asarray(rng.normal(size=(4, IMAGE.size)), jnp.float32))
    assert x.dtype == jnp.bfloat16
    label = jnp.zeros(4, jnp.int32)
    found, _ = pathway.run_layer(arch, 0, params[0], x, label)
    exact = dataclasses.replace(arch, precision="float32")
    expected, _ = pathway.run_layer(exact, 0, params[0], x.astype(jnp.float32), label)
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, expected, atol=0.02)


def test_pooling_is_the_mean_of_squares_of_positions(rng):
    h = rng.normal(size=(2, IMAGE.positions, 5)).astype(np.float32)
    found = convolve.pool(jnp.asarray(h), IMAGE, 2)
    grid = h.reshape(2, 6, 4, 5)
    for row in range(3):
        for column in range(2):
            square = grid[:, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2]
            np.testing.assert_allclose(
                found[:, 2 * row + column], square.mean((1, 2)), rtol=1e-5, atol=1e-6
            )


@pytest.mark.parametrize("channels", [12, 4])
def test_group_norm_hides_mean_and_variance_of_each_group(rng, channels):
    x = rng.normal(size=(3, 24 * channels)).astype(np.float32) * 3 + 5
    found = normalise.group_norm(jnp.asarray(x), 4, channels)
    groups = convolve.groups(found.reshape(3, 24, channels), 4, has_positions=True)
    assert groups.shape == (3, 4, 6 * channels)
    np.testing.assert_allclose(groups.mean(-1), 0, atol=1e-5)
    np.testing.assert_allclose(groups.std(-1), 1, rtol=1e-4)
    for k in range(4):
        part = x.reshape(3, 24, 4, -1)[:, :, k].reshape(3, -1)
        expected = (part - part.mean(1, keepdims=True)) / part.std(1, keepdims=True)
        np.testing.assert_allclose(groups[:, k], expected, atol=1e-4)


@pytest.mark.parametrize("normalisation", pathway.NORMALISATIONS)
def test_what_goes_on_is_pooled_and_normalised(rng, normalisation):
    arch = network("groups", normalisation=normalisation)
    h = jnp.asarray(rng.normal(size=(5, IMAGE.positions, 8)) + 2, jnp.float32)
    x = arch.pass_on(0, h)
    pooled = np.asarray(convolve.pool(h, IMAGE, 2)).reshape(5, -1)
    assert x.shape == (5, arch.row_size(1)) == (5, 3 * 2 * 8)
    if normalisation == "l2":
        expected = pooled / np.linalg.norm(pooled, axis=1, keepdims=True)
    elif normalisation == "rms":
        expected = pooled / np.sqrt((pooled**2).mean(1, keepdims=True))
    elif normalisation in ("layer", "channel"):
        centred = pooled - pooled.mean(1, keepdims=True)
        expected = centred / centred.std(1, keepdims=True)
    else:
        expected = normalise.group_norm(jnp.asarray(pooled), 4, 8)
    np.testing.assert_allclose(x, expected, atol=1e-4)


# --- Scores --------------------------------------------------------------------------


def layers_by_hand(arch, params, images):
    """Of each layer (N, P, W) before any label, by XLA's convolution."""
    x, found = pathway.encode(arch, jnp.asarray(images)), []
    for index, weights in enumerate(params):
        shape = arch.maps.reads(arch.widths, index)
        before = conv(x, weights["kernel"], shape, 3) + weights["bias"][None, None]
        h = np.maximum(before, 0)
        found.append(np.asarray(h))
        x = arch.pass_on(index, jnp.asarray(h))
    return found


@pytest.mark.parametrize("function", ["mean", "sos", "topk", "burstiness"])
@pytest.mark.parametrize("pool", [(1, 0), (0, 1), (0, 0)])
def test_scores_of_groups_of_maps(rng, function, pool):
    arch = network("groups", function, pool, activation="relu", normalisation="group")
    params, states = untrained(arch), [(), ()]
    images = rng.normal(size=(5, IMAGE.size)).astype(np.float32)
    found = evaluate.score_images(arch, params, states, jnp.asarray(images))
    assert found.shape == (5, 3, 4)
    first, second = layers_by_hand(arch, params, images)
    measure = goodness.make(function)
    pooled = convolve.pool(jnp.asarray(first), IMAGE, 2) if pool[0] else first
    whole = [(first, 8), (second, 12)], [(np.asarray(pooled), 8), (second, 12)]
    for k in range(4):
        rows = [
            [h[..., k * w // 4 : (k + 1) * w // 4].reshape(5, -1) for h, w in part]
            for part in whole
        ]
        for index in (0, 1):
            expected = measure(jnp.asarray(rows[0][index]))
            np.testing.assert_allclose(
                found[:, index, k], expected, rtol=1e-3, atol=1e-4
            )
        expected = measure(jnp.asarray(np.concatenate(rows[1], axis=1)))
        np.testing.assert_allclose(found[:, 2, k], expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("function", ["sos", "topk", "burstiness"])
def test_scores_under_labels_are_means_over_positions(rng, function):
    """Those with a way to all labels at once, and those without."""
    arch = network("ffcl", function, activation="relu", normalisation="layer")
    params, states = untrained(arch), [(), ()]
    images = rng.normal(size=(5, IMAGE.size)).astype(np.float32)
    found = evaluate.score_images(arch, params, states, jnp.asarray(images))
    features = layers_by_hand(arch, params, images)
    measure = goodness.make(function)
    for label in range(4):
        shifts = [np.asarray(weights["label_kernel"])[label] for weights in params]
        for index, h in enumerate(features):
            expected = measure(jnp.asarray(h + shifts[index])).mean(-1)
            np.testing.assert_allclose(
                found[:, index, label], expected, rtol=1e-3, atol=1e-4
            )
        sized = [convolve.pool(jnp.asarray(features[0]), IMAGE, 2), features[1]]
        both = [np.asarray(h) + s for h, s in zip(sized, shifts, strict=True)]
        expected = measure(jnp.asarray(np.concatenate(both, axis=-1))).mean(-1)
        np.testing.assert_allclose(found[:, 2, label], expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("function", ["sos", "topk"])
@pytest.mark.parametrize("name", ["ffcl", "groups"])
@pytest.mark.parametrize("count", [2, 4])
def test_scores_in_training_are_those_of_evaluation(rng, name, function, count):
    arch = network(name, function)
    params = untrained(arch)
    images = jnp.asarray(rng.normal(size=(3, IMAGE.size)), jnp.float32)
    known = evaluate.score_images(arch, params, [(), ()], images)
    labels = jnp.asarray(rng.integers(0, 4, size=(count, 3)))
    x = pathway.encode(arch, images)
    for index in (0, 1):
        found, _ = pathway.score(arch, index, params[index], (), x, labels)
        for row in range(count):
            expected = known[jnp.arange(3), index, labels[row]]
            np.testing.assert_allclose(found[row], expected, rtol=1e-4, atol=1e-5)
        x = pathway.propagate(arch, params[:1], x, labels) if index == 0 else x


@pytest.mark.parametrize("name", ["ffcl", "groups"])
def test_propagation_is_advance(rng, name, monkeypatch):
    monkeypatch.setattr(pathway, "chunk_size", lambda arch: 3)  # 7 examples: 3 + 3 + 1
    arch = network(name, normalisation="group")
    params = untrained(arch)
    images = jnp.asarray(rng.normal(size=(7, IMAGE.size)), jnp.float32)
    x = pathway.encode(arch, images)
    kept = pathway.advance(arch, 0, params[0], x)
    found = pathway.propagate(arch, params[:1], x, jnp.zeros((2, 7), jnp.int32))
    np.testing.assert_allclose(found, kept, atol=1e-5)
    assert kept.nbytes == pathway.stored_bytes(arch, 1, 7)


def test_groups_of_dense_layers(rng):
    arch = architecture("groups", "sos", activation="relu", normalisation="group")
    keys = jax.random.split(jax.random.key(0))
    sizes = (12, 16)
    params = [
        program.init_layer(arch, i, keys[i], sizes[i], Training()).params
        for i in (0, 1)
    ]
    assert all(set(weights) == {"kernel", "bias"} for weights in params)
    images = rng.normal(size=(5, 12)).astype(np.float32)
    found = evaluate.score_images(arch, params, [(), ()], jnp.asarray(images))
    x = (images - images.mean(1, keepdims=True)) / images.std(1, keepdims=True)
    parts = []
    for index, weights in enumerate(params):
        h = np.maximum(x @ np.asarray(weights["kernel"]) + weights["bias"][None], 0)
        groups = np.asarray(h).reshape(5, 4, -1)
        parts.append(groups)
        expected = (groups**2).mean(-1)
        np.testing.assert_allclose(found[:, index], expected, rtol=1e-3, atol=1e-6)
        centred = groups - groups.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
        x = scaled.reshape(5, -1)
    expected = (np.concatenate(parts, axis=-1) ** 2).mean(-1)
    np.testing.assert_allclose(found[:, 2], expected, rtol=1e-3, atol=1e-6)


def test_the_last_layer_alone_votes():
    scores = np.arange(2 * 4 * 3, dtype=np.float32).reshape(2, 4, 3)
    np.testing.assert_array_equal(evaluate.ENSEMBLES["last"](scores), scores[:, 2])


# --- Shapes --------------------------------------------------------------------------


def test_convolutions_of_one_shape_share_their_programs():
    made = Maps(Shape(8, 8, 3), 3, (1, 0, 0, 0))
    arch = architecture("groups", widths=(8, 8, 8, 12), maps=made, ensemble="last")
    programs = [pathway.as_program(arch, index) for index in range(4)]
    assert programs[1] == programs[2]
    assert len(set(programs)) == 3
    for index, (other, of_other) in enumerate(programs):
        assert other.layer(of_other) == arch.layer(index)
        assert (of_other > 0) == (index > 0)
        h = jnp.ones((2, made.makes(arch.widths, index).positions, 12))
        h = h[..., : arch.widths[index]]
        chex.assert_trees_all_equal(other.pass_on(of_other, h), arch.pass_on(index, h))


def test_sizes_of_maps():
    arch = network("groups", precision="bfloat16")
    assert arch.maps is not None
    assert arch.maps.reads(arch.widths, 1) == (3, 2, 8)
    assert arch.maps.makes(arch.widths, 1) == (3, 2, 12)
    assert pathway.stored_bytes(arch, 1, 10) == 2 * 10 * 48
    wide = dataclasses.replace(arch, widths=(10**9, 8))
    assert pathway.chunk_size(wide) == 1
    assert pathway.chunk_size(arch) > 100


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (((784,), 3, (), 2), r"layer='conv': an image has the shape \(784,\); must be"),
        (((4, 4, 3, 2), 3, (), 2), r"shape \(4, 4, 3, 2\)"),
        (((28, 28), 29, (), 2), r"kernel=29: must not be larger .* \(28 x 28\)"),
        (((28, 9), 11, (), 2), "kernel=11"),
        (((28, 28), 3, (1,), 2), r"pool=\(1,\): has 1 entries for 2 layers"),
        (((28, 28), 3, (1, 1, 1), 3), r"the map of layer 3 is 7 x 7; both must be"),
        (((8, 9), 3, (1, 0), 2), "the map of layer 1 is 8 x 9"),
    ],
)
def test_maps_that_cannot_be(arguments, message):
    with pytest.raises(UserError, match=message):
        maps.make(*arguments)


def test_groups_that_cannot_be():
    with pytest.raises(UserError, match=r"width=121: must be a multiple of .* \(10\)"):
        maps.check_groups((60, 121), 10, "pathway='groups'")
