import json

import numpy as np
import pytest
import safetensors.numpy

import ffjax
from ffjax.errors import UserError

SMALL = {
    "num_layers": 2,
    "width": 16,
    "epochs": 8,
    "batch_size": 20,
    "learning_rate": 3e-3,
}


@pytest.fixture(scope="module")
def network(toy):
    return ffjax.fit(*toy, **SMALL)


def test_fit_learns_and_predicts(network, toy):
    images, labels = toy
    scores = network.scores(images)
    assert scores.shape == (205, 4)
    predicted = network.predict(images)
    np.testing.assert_array_equal(predicted, scores.argmax(-1))
    assert np.mean(predicted == labels) > 0.9


def test_a_loaded_network_predicts_bit_for_bit(network, toy, tmp_path):
    path = tmp_path / "folder" / "network.safetensors"
    network.save(path)
    loaded = ffjax.load(path)
    np.testing.assert_array_equal(loaded.scores(toy[0]), network.scores(toy[0]))
    assert loaded.arch == network.arch
    assert [child.name for child in path.parent.iterdir()] == [path.name]


def test_the_running_mean_is_saved_too(toy, tmp_path):
    network = ffjax.fit(
        *toy, **{**SMALL, "epochs": 1}, goodness="softmax_energy_margin"
    )
    network.save(tmp_path / "n")
    loaded = ffjax.load(tmp_path / "n")
    assert float(loaded.layers[0].goodness_state) > 0
    np.testing.assert_array_equal(loaded.scores(toy[0]), network.scores(toy[0]))


def test_hintons_network_learns_and_is_saved(toy, tmp_path):
    images, labels = toy
    fields = {
        "pathway": "standard",
        "goodness": "sos",
        "activation": "relu",
        "threshold": 1.0,
        "loss_scale": 16.0,
        "normalisation": "rms",
        "peer_normalisation": 0.03,
        "ensemble": "later",
        "schedule": "half_linear",
    }
    network = ffjax.fit(*toy, **{**SMALL, "epochs": 20, **fields})
    assert np.mean(network.predict(images) == labels) > 0.9
    network.save(tmp_path / "n")
    loaded = ffjax.load(tmp_path / "n")
    assert loaded.arch == network.arch
    np.testing.assert_array_equal(loaded.scores(images), network.scores(images))


def test_images_of_any_shape_and_type(rng):
    images = rng.integers(0, 256, size=(30, 4, 4, 3)).astype(np.uint8)
    images[..., 2] = 7  # a constant channel must not divide by zero
    labels = rng.integers(0, 2, size=30)
    network = ffjax.fit(images, labels, num_layers=1, width=8, epochs=1)
    assert len(network.mean) == 3
    assert np.isfinite(network.scores(images)).all()
    with pytest.raises(UserError, match=r"each has shape \(4, 4\)"):
        network.predict(images[..., 0])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"goodness": "sum"}, "goodness='sum'"),
        ({"pathway": "both"}, "pathway='both': must be one of standard, ffcl"),
        ({"activation": "tanh"}, "activation='tanh'"),
        ({"width": 0}, "width=0: must be an integer >= 1"),
        ({"num_layers": 1.5}, "num_layers=1.5"),
        ({"epochs": 0}, "epochs=0"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"batch_size": 206}, r"batch_size=206: .* \(205 images\)"),
        ({"learning_rate": -1.0}, "learning_rate=-1.0: must be a number > 0"),
        ({"goodness": "entmax", "alpha": 0.5}, "alpha=0.5"),
        ({"goodness": "moment", "p": 0}, "p=0"),
        ({"goodness": "topk", "k_fraction": 2.0}, "k_fraction=2.0"),
        ({"seed": -1}, "seed=-1"),
        ({"num_classes": 3}, r"labels: from 0 to 3; must lie in 0\.\.2"),
    ],
)
def test_wrong_arguments_are_named(toy, changes, message):
    with pytest.raises(UserError, match=message):
        ffjax.fit(*toy, **{**SMALL, **changes})


def test_wrong_arrays_are_named(toy):
    images, labels = toy
    bad = images.copy()
    bad[0, 0] = np.nan
    for x, y, message in (
        (images, labels[:-1], r"labels: shape \(204,\) for 205 images"),
        (images, labels - 1, "labels: from -1 to 2"),
        (images, labels.astype(float), "labels: type float64; must be integers"),
        (images, labels * 0, "at least 2 classes"),
        (bad, labels, "images: holds NaN"),
        (images[:0], labels[:0], "images: shape"),
        (images.astype(str), labels, "images: type"),
    ):
        with pytest.raises(UserError, match=message):
            ffjax.fit(x, y, **SMALL)


def test_divergence_says_where(toy):
    with pytest.raises(FloatingPointError, match="layer 1, epoch 1"):
        ffjax.fit(*toy, **{**SMALL, "learning_rate": 1e30}, goodness="sos")


def test_files_that_are_not_networks(tmp_path, network):
    path = tmp_path / "n"
    with pytest.raises(UserError, match="cannot read it"):
        ffjax.load(path)
    network.save(path)
    whole = path.read_bytes()
    for content in (b"", b"hello", whole[:50], whole[:-40], b"\xff" * 200):
        path.write_bytes(content)
        with pytest.raises(UserError, match="not a network saved by ffjax"):
            ffjax.load(path)
    safetensors.numpy.save_file({"a": np.ones(2)}, path)
    with pytest.raises(UserError, match="format None"):
        ffjax.load(path)


@pytest.mark.parametrize(
    ("field", "value"),
    [("widths", [16]), ("num_classes", 5), ("goodness", "os:system"), ("pathway", "x")],
)
def test_an_altered_header_is_refused(tmp_path, network, field, value):
    path = tmp_path / "n"
    network.save(path)
    with safetensors.safe_open(path, "numpy") as file:
        header = json.loads(file.metadata()["network"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    metadata = {
        "format": "ffjax-network-1",
        "network": json.dumps({**header, field: value}),
    }
    safetensors.numpy.save_file(tensors, path, metadata)
    with pytest.raises(UserError, match="not a network saved by ffjax"):
        ffjax.load(path)
