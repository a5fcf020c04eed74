"""``ffjax.fit``, what a network answers, and its files."""

import json
import pickle
import re
import time

import chex
import numpy as np
import pytest
import safetensors.numpy

import ffjax
from ffjax import config, data
from ffjax.errors import UserError
from ffjax.runs import attempt
from ffjax.runs.order import Run
from ffjax.training import machine, networks
from ffjax.training.machine import Machine

SMALL = {
    "num_layers": 2,
    "width": 16,
    "epochs": 8,
    "batch_size": 20,
    "learning_rate": 3e-3,
    "progress": False,
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
    network = ffjax.fit(images, labels, **{**SMALL, "epochs": 1})
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
        ({"goodness": "sos", "p": 3}, "p=3: goodness 'sos' does not use it"),
        ({"goodness": "topk", "alpha": 2.0}, "alpha=2.0: goodness 'topk' does not use"),
        ({"wdith": 5}, "fit has no argument 'wdith'; did you mean 'width'"),
        ({"dataset": "mnist"}, "fit has no argument 'dataset'"),
        ({"seeds": (1,)}, "fit has no argument 'seeds'"),
        ({"trainer": "backprop"}, "fit has no argument 'trainer'"),
        ({"goodness_params": {"q": 1}}, "burstiness has no parameter 'q'"),
        ({"precision": "tensorfloat32"}, "needs a GPU"),
        ({"num_classes": 3}, r"labels: from 0 to 3; must lie in 0\.\.2"),
    ],
)
def test_wrong_arguments_are_named(toy, changes, message):
    with pytest.raises(UserError, match=message) as error:
        ffjax.fit(*toy, **{**SMALL, **changes})
    assert "\n" not in str(error.value)


def test_wrong_arrays_are_named(toy):
    images, labels = toy
    bad = images.copy()
    bad[0, 0] = np.nan
    for x, y, message in (
        (images, labels[:-1], r"labels: shape \(204,\) for 205 images"),
        (images, labels + 0.5, "labels: fractions or NaN; must be integers"),
        (images, labels * 0, "at least 2 are needed"),
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
    [
        ("widths", [16]),
        ("widths", []),
        ("widths", [16, -1]),
        ("widths", [10**9, 12]),
        ("num_classes", 5),
        ("num_classes", 0),
        ("goodness", "os:system"),
        ("goodness", "nosuch"),
        ("goodness_params", {"p": 3}),
        ("pathway", "x"),
        ("activation", "tanh"),
        ("image_shape", [-3]),
        ("mean", []),
        ("mean", [float("nan")]),
        ("std", [0.0]),
        ("std", [1.0, 1.0]),
        ("classes", [0, 0, 1, 2]),
        ("ensemble", "none"),
    ],
)
def test_an_altered_header_is_refused(tmp_path, network, field, value):
    path = tmp_path / "n"
    network.save(path)
    with safetensors.safe_open(path, "numpy") as file:
        metadata = file.metadata()
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    header = json.loads(metadata["network"])
    assert field in header
    metadata["network"] = json.dumps({**header, field: value})
    safetensors.numpy.save_file(tensors, path, metadata)
    with pytest.raises(UserError, match=re.escape(str(path))) as error:
        ffjax.load(path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("damage", ["NaN", "missing", "extra", "shape", "type"])
def test_altered_weights_are_refused(tmp_path, network, damage):
    path = tmp_path / "n"
    network.save(path)
    with safetensors.safe_open(path, "numpy") as file:
        metadata = file.metadata()
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    kernel = tensors["layer1.kernel"].copy()
    if damage == "NaN":
        kernel[0, 0] = np.nan
    elif damage == "shape":
        kernel = kernel[:-1]
    elif damage == "type":
        kernel = kernel.astype(np.float64)
    tensors["layer1.kernel"] = np.ascontiguousarray(kernel)
    if damage == "missing":
        del tensors["layer1.kernel"]
    elif damage == "extra":
        tensors["layer2.kernel"] = kernel
    safetensors.numpy.save_file(tensors, path, metadata)
    with pytest.raises(UserError, match="not a network saved by ffjax"):
        ffjax.load(path)


def test_a_network_survives_a_pickle_without_code(network, toy):
    content = pickle.dumps(network)
    again = pickle.loads(content)
    assert again == network
    assert hash(again) == hash(network)
    np.testing.assert_array_equal(again.scores(toy[0]), network.scores(toy[0]))


# --- One training path ---------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"pathway": "standard", "goodness": "moment", "p": 4, "norm_gate": True},
        {"dropout": 0.2, "schedule": "cosine", "widths": (16, 12)},
    ],
)
@pytest.mark.parametrize("kind", [np.uint8, np.float64])
def test_fit_is_the_command_bit_for_bit(tmp_path, rng, fields, kind):
    """The same spec and the same arrays, from a file or from memory."""
    images = rng.integers(0, 256, size=(90, 5, 4)).astype(kind)
    labels = rng.integers(0, 3, size=90)
    images[np.arange(90), labels] //= 4  # there is something to learn
    np.savez(
        tmp_path / "mine.npz",
        train_images=images[:60],
        train_labels=labels[:60],
        test_images=images[60:],
        test_labels=labels[60:],
    )
    spec = {"num_layers": 2, "width": 16, "epochs": 3, "batch_size": 20, **fields}
    values = config.default()
    values.update({"dataset": str(tmp_path / "mine.npz"), **spec})
    (cell,) = config.expand(values)
    dataset = data.load(cell.spec.dataset)
    here = machine.here(num_devices=1)
    (record,) = attempt.run_group([Run(cell, 7)], dataset, here)
    network = ffjax.fit(images[:60], labels[:60], seed=7, progress=False, **spec)
    found = [layer.losses.tolist() for layer in network.layers]
    assert found == record.losses
    judged = network.evaluate(images[60:], labels[60:])
    assert judged.confusion.tolist() == record.confusion
    assert judged.accuracy_layers == record.accuracy_layers
    assert judged.accuracy == record.accuracy


def test_fit_recomputes_inputs_where_memory_is_short(toy, monkeypatch):
    fields = {**SMALL, "pathway": "standard", "epochs": 3}
    kept = ffjax.fit(*toy, **fields)
    seen = []
    train = networks.train_members

    def look(state, losses, key, examples, *rest, **static):
        seen.append(len(examples.lower))
        return train(state, losses, key, examples, *rest, **static)

    monkeypatch.setattr(networks, "train_members", look)
    monkeypatch.setattr(Machine, "memory_budget", 0.0)
    recomputed = ffjax.fit(*toy, **fields)
    assert seen == [0, 1]
    for one, other in zip(kept.layers, recomputed.layers, strict=True):
        np.testing.assert_allclose(one.losses, other.losses, rtol=2e-4)
        chex.assert_trees_all_close(one.params, other.params, atol=2e-3)


@pytest.mark.parametrize("width", [10**6, 10**9])
def test_fit_refuses_what_cannot_fit_into_memory(toy, width):
    started = time.perf_counter()
    with pytest.raises(UserError, match=rf"width={width}: .* need about \S+ GB, but"):
        ffjax.fit(*toy, **{**SMALL, "width": width})
    assert time.perf_counter() - started < 5


def test_progress_and_callbacks_change_nothing(toy, network, capsys):
    seen = []
    fields = {**SMALL, "progress": True}
    shown = ffjax.fit(*toy, **fields, on_epochs=lambda *news: seen.append(news))
    assert shown == network
    assert seen[0][0] == 0
    assert (seen[-1][0], len(seen[-1][1])) == (1, 8)
    assert capsys.readouterr().out
