import inspect
from typing import Any

import numpy as np
import pytest

import ffjax
from ffjax import goodness
from ffjax.config import spec
from ffjax.errors import UserError
from ffjax.network import arrays

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
    assert [len(losses) for losses in network.history.losses] == [8, 8]


NAMES = np.array(["bag", "boot", "coat", "dress"])


@pytest.mark.parametrize(
    "relabel",
    [
        lambda labels: labels[:, None],
        lambda labels: labels.astype(np.float64),
        lambda labels: labels * 3 - 4,
        lambda labels: labels.astype(np.int64) + 2**31,
        lambda labels: NAMES[labels],
        lambda labels: NAMES[labels].astype(object),
        lambda labels: labels.tolist(),
    ],
    ids=["column", "float", "any", "large", "strings", "objects", "list"],
)
def test_labels_of_any_kind_give_the_same_network(network, toy, relabel):
    images, labels = toy
    given = relabel(labels)
    other = ffjax.fit(images, given, **SMALL)
    np.testing.assert_array_equal(other.scores(images), network.scores(images))
    predicted = other.predict(images)
    expected = np.asarray(given).reshape(-1)[[*map(labels.tolist().index, range(4))]]
    np.testing.assert_array_equal(predicted, expected[network.predict(images)])
    assert other.evaluate(images, given).accuracy > 90


def test_truth_values_are_labels(toy):
    images, labels = toy
    fields = {**SMALL, "epochs": 1, "num_layers": 1}
    network = ffjax.fit(images, labels > 1, **fields)
    assert network.classes == (False, True)
    assert network.predict(images).dtype == bool


def test_num_classes_takes_labels_as_they_are(toy):
    images, labels = toy
    fields = {**SMALL, "epochs": 1, "num_layers": 1}
    network = ffjax.fit(images, labels, num_classes=np.int64(6), **fields)
    assert network.classes == tuple(range(6))
    assert network.scores(images).shape == (205, 6)


def test_numpy_numbers_are_numbers(network, toy):
    fields = {
        name: np.float64(value) if isinstance(value, float) else np.int64(value)
        for name, value in SMALL.items()
        if name != "progress"
    }
    other = ffjax.fit(*toy, **fields, seed=np.uint32(42), progress=False)
    assert other == network


def test_validation_is_measured_and_changes_nothing(network, toy):
    images, labels = toy
    seen = ffjax.fit(*toy, **SMALL, validation_data=(images, labels), eval_every=3)
    np.testing.assert_array_equal(seen.scores(images), network.scores(images))
    points = seen.history.points
    places = [(point.layer, point.epochs) for point in points]
    assert places == [(0, 3), (0, 6), (0, 8), (1, 3), (1, 6), (1, 8)]
    end = seen.evaluate(images, labels)
    assert points[-1].ensemble == pytest.approx(end.accuracy)
    assert points[2].accuracy == pytest.approx(end.accuracy_layers[0])
    assert points[-1].accuracy == pytest.approx(end.accuracy_layers[1])
    figure = seen.history.plot()
    assert len(figure.axes) == 2
    shown: Any = figure
    assert shown._repr_png_().startswith(b"\x89PNG")
    assert len(network.history.plot().axes) == 1


def test_validation_at_the_end_of_layers_alone(toy):
    fields = {**SMALL, "epochs": 2, "ensemble": "later"}
    network = ffjax.fit(*toy, **fields, validation_data=toy)
    assert [(p.layer, p.epochs) for p in network.history.points] == [(0, 2), (1, 2)]
    assert network.history.points[0].ensemble is None  # the first layer has no vote


def test_widths(toy):
    network = ffjax.fit(*toy, progress=False, epochs=1, widths=[12, np.int64(8)])
    assert network.arch.widths == (12, 8)
    assert repr(network).startswith("Network(12-8, ffcl burstiness gelu, ")
    with pytest.raises(UserError, match="num_layers=3: does not go with widths"):
        ffjax.fit(*toy, widths=(12, 8), num_layers=3)


def mean_of_fourths(h):
    return (h**4).mean(-1)


@goodness.register
def registered_fourths(h, *, power=4.0):
    return (h**power).mean(-1)


def test_a_function_as_goodness(toy):
    fields = {**SMALL, "epochs": 1, "num_layers": 1}
    network = ffjax.fit(*toy, **fields, goodness=mean_of_fourths)
    assert network.arch.goodness.definition.name == "mean_of_fourths"
    other = ffjax.fit(
        *toy, **fields, goodness=registered_fourths, goodness_params={"power": 4}
    )
    np.testing.assert_allclose(other.scores(toy[0]), network.scores(toy[0]), rtol=1e-5)
    built_in = ffjax.fit(*toy, **fields, goodness=goodness.GOODNESS["sos"])
    assert built_in == ffjax.fit(*toy, **fields, goodness="sos")
    with pytest.raises(UserError, match=r"goodness=.*lambda.*: has no name"):
        ffjax.fit(*toy, **fields, goodness=lambda h: h.mean(-1))


def test_progress_is_readable_without_a_terminal(toy, capsys):
    fields = {**SMALL, "epochs": 2, "num_layers": 1}
    ffjax.fit(*toy, **fields)
    assert capsys.readouterr().out == ""
    seen = []
    ffjax.fit(
        *toy,
        **{**fields, "progress": True},
        on_epochs=lambda layer, losses: seen.append((layer, len(losses))),
    )
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(" · loss")[0] for line in lines] == [
        "  layer 1/1 · epoch 1/2",
        "  layer 1/1 · epoch 2/2",
    ]
    assert seen == [(0, 1), (0, 2)]


def test_help_and_signature_name_every_field():
    signature = inspect.signature(ffjax.fit)
    fields = [n for n, about in spec.ABOUT.items() if about.in_fit]
    own = [name for name in fields if spec.ABOUT[name].role != "way"]
    assert own
    assert set(own) <= set(signature.parameters)
    for name in own:
        assert f"{name} [" in (ffjax.fit.__doc__ or "")
    assert signature.parameters["widths"].default == ()
    assert {"fit", "load", "Network"} <= set(dir(ffjax))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"goodness": "sum"}, "goodness='sum'"),
        ({"pathway": "both"}, "pathway='both': must be one of standard, ffcl"),
        ({"activation": "tanh"}, "activation='tanh'"),
        ({"width": 0}, "width=0: must be an integer >= 1"),
        ({"num_layers": 1.5}, "num_layers=1.5"),
        ({"epochs": 0}, "epochs=0"),
        ({"batch_size": 206}, r"batch_size=206: .* \(205 images\)"),
        ({"learning_rate": -1.0}, "learning_rate=-1.0: must be a number > 0"),
        ({"goodness": "entmax", "alpha": 0.5}, "alpha=0.5"),
        ({"goodness": "topk", "k_fraction": 2.0}, "k_fraction=2.0"),
        ({"seed": -1}, "seed=-1"),
        ({"eval_every": -1}, "eval_every=-1: must be an integer >= 0"),
        ({"num_classes": 3}, r"labels: from 0 to 3; must lie in 0\.\.2"),
        ({"num_classes": 1}, "num_classes=1: must be an integer >= 2"),
        ({"learning_rat": 1.0}, "did you mean 'learning_rate'"),
        ({"goodness": "sos", "p": 3}, "p=3: goodness 'sos' does not use it"),
        ({"dataset": "mnist"}, "fit has no argument 'dataset'"),
        ({"seeds": (1,)}, "fit has no argument 'seeds'"),
        ({"trainer": "backprop"}, "fit has no argument 'trainer'"),
        ({"goodness_params": {"q": 1}}, "burstiness has no parameter 'q'"),
        ({"precision": "tensorfloat32"}, "needs a GPU"),
        ({"validation_data": 3}, r"validation_data=3: must be \(images, labels\)"),
    ],
)
def test_wrong_arguments_are_named(toy, changes, message):
    with pytest.raises(UserError, match=message) as error:
        ffjax.fit(*toy, **{**SMALL, **changes})
    assert "\n" not in str(error.value)


def with_nan(images):
    bad = images.copy()
    bad[0, 0] = np.nan
    return bad


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x, y: (x, y[:-1]), r"labels: shape \(204,\) for 205 images"),
        (lambda x, y: (x, y + 0.5), "labels: fractions or NaN"),
        (lambda x, y: (x, [None] * 205), "labels: type object"),
        (lambda x, y: (x, y * 0), r"labels: 1 class \(0\); at least 2"),
        (lambda x, y: (with_nan(x), y), "images: holds NaN"),
        (lambda x, y: (x[:0], y[:0]), "images: shape"),
        (lambda x, y: (x[:, :0], y), "images: shape"),
        (lambda x, y: (x.astype(str), y), "images: type"),
        (lambda x, y: ([[1.0, 2.0], [3.0]], y[:2]), "images: not an array"),
        (lambda x, y: (x.astype(float) * 1e307, y), "images: holds values of up to"),
    ],
)
def test_wrong_arrays_are_named(toy, change, message):
    with pytest.raises(UserError, match=message):
        ffjax.fit(*change(*toy), **SMALL)


def test_wrong_validation_data_is_named(toy):
    images, labels = toy
    for data, message in (
        ((images[:, :3], labels), "validation images: each has shape"),
        ((images, labels + 1), "validation labels: 4 is none of the network's classes"),
        ((images, NAMES[labels]), "validation labels: '.*' is none of"),
    ):
        with pytest.raises(UserError, match=message):
            ffjax.fit(*toy, **SMALL, validation_data=data)


def test_divergence_says_where(toy):
    with pytest.raises(FloatingPointError, match="layer 1, epoch 1"):
        ffjax.fit(*toy, **{**SMALL, "learning_rate": 1e30}, goodness="sos")


def test_labels_are_found_among_classes():
    codes = arrays.encode("labels", np.array([5, -3, 5]), (-3, 5))
    assert codes.tolist() == [1, 0, 1]
    assert codes.dtype == np.int32
