import re

import numpy as np
import pytest

from ffjax import config
from ffjax.runs import cost


def _flops(**fields):
    return cost.flops(config.make_spec(**fields))


def test_products_of_a_small_run_counted_by_hand():
    fields = {"dataset": "mnist", "num_layers": 2, "width": 100, "epochs": 3}
    first, later = 784 * 100, 100 * 100
    # ffcl: a layer's inputs serve both labels in training and all labels afterwards.
    steps = 60_000 * 3 * 4 * (first + later)
    looks = 70_000 * 2 * (first + later)
    assert _flops(pathway="ffcl", **fields) == steps + looks
    # standard: above the first layer, two kinds of inputs in training, ten afterwards.
    steps = 60_000 * 3 * 4 * (first + 2 * later)
    looks = 70_000 * 2 * (first + 10 * later)
    assert _flops(pathway="standard", **fields) == steps + looks


def test_products_of_other_objectives_and_of_backpropagation():
    fields = {"dataset": "mnist", "num_layers": 2, "width": 100, "epochs": 3}
    later = 60_000 * 3 * 2 * 100 * 100  # one product of a later layer in every step
    for pathway, choice, more in (
        ("ffcl", {"negatives": "hard"}, 0),
        ("ffcl", {"negatives": "all"}, 0),
        ("standard", {"negatives": "hard"}, 9),
        ("standard", {"negatives": "all"}, 20 - 4),
        ("ffcl", {"trainer": "backprop"}, 1),
    ):
        fields["pathway"] = pathway
        assert _flops(**fields, **choice) == _flops(**fields) + more * later


def test_limits_count():
    few = _flops(dataset="mnist", train_limit=6000, test_limit=1000)
    assert few == pytest.approx(_flops(dataset="mnist") / 10)
    assert _flops(valid_fraction=0.5) < 0.51 * _flops()


def test_the_papers_run_takes_the_papers_time():
    spec = config.make_spec(dataset="mnist", pathway="standard", goodness="sos")
    assert cost.a100_seconds(spec) == pytest.approx(45.0)


def test_own_data(tmp_path):
    path = tmp_path / "mine.npz"
    images = np.zeros((30, 4, 5), np.uint8)
    images[::2] = 255
    labels = np.arange(30) % 3
    np.savez(
        path,
        train_images=images,
        train_labels=labels,
        test_images=images[:6],
        test_labels=labels[:6],
    )
    fields = {"num_layers": 1, "width": 7, "epochs": 1, "batch_size": 10}
    assert _flops(dataset=str(path), **fields) == 20 * 7 * (30 * 4 + 36 * 2)


@pytest.mark.parametrize(
    ("seeds", "expected"), [((42,), "1 cell, 1 run: "), ((1, 2), "1 cell, 2 runs: ")]
)
def test_description(seeds, expected):
    fields = config.default()
    fields.seeds = seeds
    text = cost.describe(config.expand(fields))
    assert text.startswith(expected)
    assert re.search(r"about [\d.]+ GPU-\w+ on one A100, or [\d.]+ \w+ on 2", text)
    assert "\n" not in text


def test_convolutions():
    fields = {"dataset": "mnist", "layer": "conv", "widths": (20, 30), "pool": (1, 0)}
    first, later = 28 * 28 * 9 * 20, 14 * 14 * 9 * 20 * 30
    layers = cost._layers(config.make_spec(**fields), (28, 28), 10)
    assert [one.products for one in layers] == [first, later]
    expected = 60000 * (3 * 4 * (first + later)) + 70000 * 2 * (first + later)
    for pathway in ("ffcl", "groups"):
        assert _flops(**fields, epochs=3, pathway=pathway) == expected


def _shares(shape, **fields):
    work = cost.stage_work(config.make_spec(**fields), shape, 10)
    return [one / sum(work) for one in work]


def test_the_work_of_layers_is_in_proportion_to_their_time():
    # Those of Fashion-MNIST's convolutions in bfloat16, measured on a core.
    conv = {"layer": "conv", "widths": (100, 200, 400, 400), "pool": (1, 1, 0, 0)}
    seconds = np.array([9.7, 38.0, 24.5, 57.0])  # an epoch
    shares = _shares((28, 28), **conv, pathway="groups", goodness="mean")
    np.testing.assert_allclose(shares, seconds / seconds.sum(), rtol=0.25)


def test_the_work_of_dense_layers_and_of_a_whole_network():
    fields = {"num_layers": 3, "width": 784}
    np.testing.assert_allclose(_shares((28, 28), **fields), 1 / 3)
    # Above the first layer of the standard pathway, each label has inputs of its own.
    shares = _shares((28, 28), **fields, pathway="standard")
    np.testing.assert_allclose(shares, [0.2, 0.4, 0.4])
    assert _shares((28, 28), **fields, trainer="backprop") == [1.0]
