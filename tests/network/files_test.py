import importlib
import json
import sys

import jax
import numpy as np
import pytest
import safetensors
import safetensors.numpy

import ffjax
from ffjax import goodness
from ffjax.errors import UserError

SMALL = {"widths": (16, 12), "epochs": 2, "batch_size": 20, "progress": False}


@pytest.fixture(scope="module")
def network(toy):
    images, labels = toy
    return ffjax.fit(images, np.array(list("abcd"))[labels], **SMALL)


def change(path, *, tensors=(), form="ffjax-network-2", **fields):
    """Writes a saved network anew with other content."""
    with safetensors.safe_open(path, "numpy") as file:
        header = json.loads(file.metadata()["network"])
        kept = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    header = {**header, **fields}
    header = {name: value for name, value in header.items() if value is not None}
    metadata = {"format": form, "network": json.dumps(header)}
    safetensors.numpy.save_file({**kept, **dict(tensors)}, path, metadata)


def test_a_loaded_network_is_the_same(network, toy, tmp_path):
    path = tmp_path / "folder" / "network.safetensors"
    network.save(path)
    loaded = ffjax.load(path)
    np.testing.assert_array_equal(loaded.scores(toy[0]), network.scores(toy[0]))
    assert loaded == network
    assert loaded.classes == ("a", "b", "c", "d")
    assert [child.name for child in path.parent.iterdir()] == [path.name]


def test_what_was_measured_in_training_is_saved(toy, tmp_path):
    network = ffjax.fit(*toy, **SMALL, validation_data=toy)
    network.save(tmp_path / "n")
    loaded = ffjax.load(tmp_path / "n")
    assert loaded.history.points == network.history.points
    assert loaded.history.points


@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        ("softmax_energy_margin", [()]),
        ("bcm", [(16,)]),
        ("triplet_margin", [(), (16,), (16,)]),
    ],
)
def test_the_state_is_saved_too(toy, tmp_path, function, shapes):
    network = ffjax.fit(*toy, **SMALL, goodness=function)
    network.save(tmp_path / "n")
    loaded = ffjax.load(tmp_path / "n")
    state = jax.tree.leaves(loaded.layers[0].goodness_state)
    assert [part.shape for part in state] == shapes
    assert all(np.any(part != 0) for part in state)
    assert loaded == network
    np.testing.assert_array_equal(loaded.scores(toy[0]), network.scores(toy[0]))
    # The other images, and how many there are, make no difference.
    alone = np.concatenate([network.scores(toy[0][i : i + 1]) for i in range(3)])
    np.testing.assert_allclose(alone, network.scores(toy[0])[:3], rtol=1e-6)


def test_a_state_of_another_size_is_refused(toy, tmp_path):
    path = tmp_path / "n"
    ffjax.fit(*toy, **SMALL, goodness="bcm").save(path)
    change(path, tensors={"layer0.goodness_state": np.zeros(3, np.float32)})
    with pytest.raises(UserError, match=r"goodness_state': 'float32\[3\]'"):
        ffjax.load(path)


def test_hintons_network_is_saved(toy, tmp_path):
    fields = {
        "pathway": "standard",
        "goodness": "sos",
        "activation": "relu",
        "normalisation": "rms",
        "ensemble": "later",
        "schedule": "half_linear",
    }
    network = ffjax.fit(*toy, **SMALL, **fields)
    network.save(tmp_path / "n")
    assert ffjax.load(tmp_path / "n") == network


def test_files_of_the_first_format_are_read(network, toy, tmp_path):
    """Their mean and std are those of the values themselves, not of x / 255."""
    path = tmp_path / "n"
    network.save(path)
    newer = ("classes", "class_names", "points", "module", "source")
    change(
        path,
        form="ffjax-network-1",
        mean=[255 * value for value in network.mean],
        std=[255 * value for value in network.std],
        **dict.fromkeys(newer),
    )
    loaded = ffjax.load(path)
    np.testing.assert_allclose(
        loaded.scores(toy[0]), network.scores(toy[0]), rtol=1e-5, atol=1e-5
    )
    assert loaded.classes == (0, 1, 2, 3)


def test_files_that_are_not_networks(tmp_path, network):
    path = tmp_path / "n"
    with pytest.raises(UserError, match="n: cannot read it"):
        ffjax.load(path)
    network.save(path)
    whole = path.read_bytes()
    for content in (b"", b"hello", whole[:50], whole[:-40], b"\xff" * 200):
        path.write_bytes(content)
        with pytest.raises(UserError, match="n: not a network saved by ffjax"):
            ffjax.load(path)
    safetensors.numpy.save_file({"a": np.ones(2)}, path)
    with pytest.raises(UserError, match="format None"):
        ffjax.load(path)


DEEP = "[" * 100_000


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"widths": [16]}, "more than its layers"),
        ({"widths": [16, 11]}, "layer 2 has"),
        ({"widths": [16, -12]}, "Expected `int` >= 1"),
        ({"widths": []}, "length >= 1"),
        ({"num_classes": 5}, "classes are"),
        ({"num_classes": 0}, "Expected `int` >= 2"),
        ({"pathway": "x"}, "Invalid enum value 'x'"),
        ({"activation": "x"}, "activation 'x'"),
        ({"mean": [0.0, 0.0]}, "mean is .*, not 1 numbers"),
        ({"mean": []}, "mean is"),
        ({"std": [0.0]}, "Expected `float` > 0"),
        ({"std": ["1"]}, "Expected `float`"),
        ({"image_shape": [-12]}, "Expected `int` >= 1"),
        ({"image_shape": [12, 2]}, "layer 1 has"),
        ({"image_shape": []}, "image_shape is empty"),
        ({"label_scale": None}, "missing required field `label_scale`"),
        ({"classes": ["a", "a", "b", "c"]}, "classes are"),
        ({"classes": ["a", 1, "b", "c"]}, "classes are"),
        ({"goodness_params": {"p": 3}}, "has no parameter 'p'"),
        ({"goodness": "os:system"}, "it needs the goodness function 'os:system'"),
        ({"ensemble": "none"}, "Invalid enum value"),
    ],
)
def test_an_altered_header_is_refused(tmp_path, network, fields, message):
    path = tmp_path / "n"
    network.save(path)
    change(path, **fields)
    with pytest.raises(UserError, match=message):
        ffjax.load(path)


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"layer0.bias": np.full(16, np.nan, np.float32)}, "layer 1 .* not finite"),
        ({"layer1.kernel": np.ones((16, 11), np.float32)}, "layer 2 has"),
        ({"layer0.bias": np.ones(16, np.float64)}, "layer 1 has"),
        ({"layer0.losses": np.ones(0, np.float32)}, "layer 1 has no losses"),
        ({"layer2.bias": np.ones(3, np.float32)}, "more than its layers"),
        ({"else": np.ones(3, np.float32)}, "more than its layers"),
    ],
)
def test_altered_weights_are_refused(tmp_path, network, tensors, message):
    path = tmp_path / "n"
    network.save(path)
    change(path, tensors=tensors)
    with pytest.raises(UserError, match=message):
        ffjax.load(path)


def test_json_that_is_too_deep_is_refused(tmp_path, network):
    path = tmp_path / "n"
    metadata = {"format": "ffjax-network-2", "network": DEEP}
    safetensors.numpy.save_file({"a": np.ones(2)}, path, metadata)
    with pytest.raises(UserError, match="not a network saved by ffjax"):
        ffjax.load(path)


# --- A goodness function of one's own -------------------------------------------------

SOURCE = """
from ffjax.goodness import register

@register
def of_mine(h):
    return (h**{power}).mean(-1)
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """Imports a module with a goodness function, as of a new process."""
    monkeypatch.syspath_prepend(tmp_path)

    def load(power):
        (tmp_path / "mine_of_files_test.py").write_text(SOURCE.format(power=power))
        sys.modules.pop("mine_of_files_test", None)
        goodness.GOODNESS.pop("of_mine", None)
        importlib.invalidate_caches()
        return importlib.import_module("mine_of_files_test")

    yield load
    sys.modules.pop("mine_of_files_test", None)
    goodness.GOODNESS.pop("of_mine", None)


def test_a_function_of_ones_own_must_be_the_same(toy, tmp_path, mine):
    path = tmp_path / "n"
    network = ffjax.fit(*toy, **SMALL, goodness=mine(2).of_mine)
    network.save(path)
    assert ffjax.load(path) == network
    mine(2)  # imported again from the same source
    np.testing.assert_array_equal(
        ffjax.load(path).scores(toy[0]), network.scores(toy[0])
    )
    mine(4)
    with pytest.raises(UserError, match="another source of mine_of_files_test:of_mine"):
        ffjax.load(path)


def test_a_missing_function_is_named_and_nothing_is_imported(toy, tmp_path, mine):
    path = tmp_path / "n"
    ffjax.fit(*toy, **SMALL, goodness=mine(2).of_mine).save(path)
    sys.modules.pop("mine_of_files_test")
    goodness.GOODNESS.pop("of_mine")
    message = "'of_mine' of module 'mine_of_files_test': import that first"
    with pytest.raises(UserError, match=message):
        ffjax.load(path)
    assert "mine_of_files_test" not in sys.modules

    # Another module's function of the same name is another function.
    @goodness.register
    def of_mine(h):
        return h.mean(-1)

    with pytest.raises(UserError, match=message):
        ffjax.load(path)
