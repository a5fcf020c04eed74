"""Convolutions from Python: arrays of images, files, and what cannot be."""

import json

import numpy as np
import pytest
import safetensors
import safetensors.numpy

import ffjax
from ffjax.errors import UserError

SMALL = {
    "layer": "conv",
    "pathway": "groups",
    "goodness": "mean",
    "activation": "relu",
    "normalisation": "group",
    "widths": (8, 12),
    "pool": (1, 0),
    "ensemble": "last",
    "epochs": 2,
    "batch_size": 20,
    "progress": False,
}


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(0).integers(0, 256, (60, 6, 4), np.uint8)


@pytest.fixture(scope="module")
def labels():
    return np.random.default_rng(1).integers(0, 4, 60)


@pytest.fixture(scope="module")
def network(images, labels):
    return ffjax.fit(images, labels, **SMALL)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"pathway": "ffcl", "goodness": "burstiness"},
        {"normalisation": "channel", "precision": "bfloat16"},
    ],
)
def test_a_loaded_network_is_the_same(images, labels, fields, tmp_path):
    network = ffjax.fit(images, labels, **{**SMALL, **fields})
    network.save(tmp_path / "n")
    loaded = ffjax.load(tmp_path / "n")
    assert loaded == network
    assert loaded.arch == network.arch
    np.testing.assert_array_equal(loaded.scores(images), network.scores(images))


def test_an_axis_of_one_channel_changes_nothing(images, labels, network):
    other = ffjax.fit(images[..., None], labels, **SMALL)
    for one, another in zip(network.layers, other.layers, strict=True):
        np.testing.assert_array_equal(one.params["kernel"], another.params["kernel"])


def test_colours(images, labels):
    coloured = np.stack([images, 255 - images, images // 2], axis=-1)
    network = ffjax.fit(coloured, labels, **SMALL)
    assert network.layers[0].params["kernel"].shape == (27, 8)
    assert network.predict(coloured).shape == (60,)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"pool": (1,)}, r"pool=\(1,\): has 1 entries for 2 layers"),
        ({"pool": (1, 1)}, "the map of layer 2 is 3 x 2; both must be even"),
        ({"kernel": 4}, "kernel=4: must be an odd integer"),
        ({"kernel": 5}, r"kernel=5: must not be larger than the images \(6 x 4\)"),
        ({"widths": (8, 10)}, "width=10: must be a multiple of the number of classes"),
        (
            {"pathway": "standard", "normalisation": "l2"},
            "layer='conv': must be 'dense'",
        ),
        ({"loss": "symba"}, "loss='symba': must be 'softmax' with pathway='groups'"),
        ({"loss": "softplus"}, "loss='softplus': must be 'softmax'"),
        (
            {"negatives": "hard"},
            "negatives='hard': must be 'all' with pathway='groups'",
        ),
        ({"goodness": "info_nce"}, "layer='conv': must be 'dense' with goodness="),
        ({"layer": "dense", "kernel": 5, "pool": ()}, "kernel=5: needs layer='conv'"),
        ({"layer": "dense"}, r"pool=\(1, 0\): needs layer='conv'"),
    ],
)
def test_what_cannot_be(images, labels, fields, message):
    with pytest.raises(UserError, match=message) as caught:
        ffjax.fit(images, labels, **{**SMALL, **fields})
    assert "\n" not in str(caught.value)


def test_images_need_a_shape(images, labels):
    with pytest.raises(
        UserError, match=r"layer='conv': an image has the shape \(24,\)"
    ):
        ffjax.fit(images.reshape(60, 24), labels, **SMALL)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kernel": 2}, "kernel 2"),
        ({"kernel": 0}, "layer 1 has"),
        ({"kernel": 5}, "kernel=5: must not be larger"),
        ({"pool": [1, 2]}, "Invalid enum value 2"),
        ({"pool": [1]}, "has 1 entries for 2 layers"),
        ({"image_shape": [24]}, r"an image has the shape \(24,\)"),
        ({"widths": [8, 10]}, "width=10: must be a multiple"),
    ],
)
def test_files_with_other_content(network, tmp_path, fields, message):
    path = tmp_path / "n"
    network.save(path)
    with safetensors.safe_open(path, "numpy") as file:
        header = json.loads(file.metadata()["network"])
        kept = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    text = json.dumps({**header, **fields})
    metadata = {"format": "ffjax-network-2", "network": text}
    safetensors.numpy.save_file(kept, path, metadata)
    with pytest.raises(UserError, match=message):
        ffjax.load(path)
