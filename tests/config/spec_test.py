"""The fields of a run: every one has a role, a domain and a use."""

import dataclasses
import inspect
import json
import os
import subprocess
import sys
from typing import get_args

import pytest
from other_fields import OTHER, without

import ffjax
from ffjax import data, goodness
from ffjax.config import spec
from ffjax.config.spec import RunSpec, Way, make_spec
from ffjax.errors import PARAMETERS, UserError
from ffjax.model import evaluate, layer, pathway, product
from ffjax.paper import numbers
from ffjax.training import objective, optimizer

# What the paper compares, and the size of its networks. Every other field must be as in
# the paper for a run to measure one of its numbers: a setting.
METHOD = {
    "dataset",
    "pathway",
    "goodness",
    "activation",
    "norm_gate",
    "k_fraction",
    "alpha",
    "p",
    "goodness_params",
}
SIZE = {"num_layers", "width", "widths"}
FIELDS = [field.name for field in dataclasses.fields(RunSpec)]
SETTINGS = [name for name in FIELDS if name not in METHOD | SIZE]


def test_every_field_is_method_size_or_setting():
    assert set(spec.names("method")) == METHOD
    assert set(spec.names("size")) == SIZE
    assert set(spec.names("setting")) == set(SETTINGS)
    assert set(spec.names("way")) == {f.name for f in dataclasses.fields(Way)}
    # None is forgotten, and none is there twice.
    assert list(spec.ABOUT) == [*FIELDS, *spec.names("way")]
    assert set(OTHER) == set(FIELDS)


@pytest.mark.parametrize("name", SETTINGS)
def test_a_run_with_another_setting_is_not_the_papers(name):
    """Deleting any setting from the paper's would let another run pass for its own."""
    plain, other = make_spec(), make_spec(**OTHER[name])
    assert getattr(other, name) != getattr(plain, name)
    assert numbers.at_settings(plain)
    assert not numbers.at_settings(other)
    rows = numbers.matching(plain)
    assert rows
    assert not numbers.matching(other)
    for row in rows:
        assert not numbers.matches(row, other)
        # The field itself makes the difference, whatever came with it.
        alone = dataclasses.replace(plain, **{name: getattr(other, name)})
        assert not numbers.matches(row, alone)


@pytest.mark.parametrize("name", sorted(METHOD | SIZE))
def test_method_and_size_are_no_settings(name):
    assert numbers.at_settings(make_spec(**OTHER[name]))


@pytest.mark.parametrize("name", FIELDS)
def test_another_value_is_another_cell(name):
    other = make_spec(**OTHER[name])
    plain = make_spec(**without(name))
    assert getattr(other, name) != getattr(plain, name)
    assert other != plain
    assert spec.cell_id(other) != spec.cell_id(plain)
    alone = dataclasses.replace(plain, **{name: getattr(other, name)})
    assert spec.cell_id(alone) != spec.cell_id(plain)


def test_ids_are_readable_and_all_different():
    names = [spec.cell_id(make_spec(**other)) for other in OTHER.values()]
    names.append(spec.cell_id(make_spec()))
    names.append(spec.cell_id(make_spec(trainer="backprop", epochs=5)))
    names.append(spec.cell_id(make_spec(goodness="moment")))
    assert len(set(names)) == len(names) == len(FIELDS) + 3
    assert not any("/" in name for name in names)
    moment = spec.cell_id(make_spec(goodness="moment", p=4))
    assert moment.startswith("fashion_mnist-ffcl-moment-p4-gelu-4x2000-e60-")


def test_ids_of_earlier_runs_stay_as_they_are():
    """Records are filed under them."""
    assert spec.cell_id(make_spec()) == (
        "fashion_mnist-ffcl-burstiness-gelu-4x2000-e60-44136fa3"
    )
    quick = make_spec(
        dataset="fashion_mini", num_layers=2, width=500, epochs=10, batch_size=100
    )
    assert spec.cell_id(quick).startswith(
        "fashion_mini-ffcl-burstiness-gelu-2x500-e10-"
    )


def test_a_file_is_known_by_its_name_wherever_it_lies():
    here, there = (make_spec(dataset=f"{folder}/mine.npz") for folder in ("a", "b/c"))
    windows = make_spec(dataset="d\\mine.npz")
    ids = {spec.cell_id(run) for run in (here, there, windows)}
    assert len(ids) == 1
    assert here.identity() == there.identity() == windows.identity()
    assert ids.pop() != spec.cell_id(make_spec(dataset="a/other.npz"))


def test_every_field_is_explained():
    lines = spec.describe_fields().splitlines()
    assert [line.partition(" [")[0] for line in lines] == list(spec.ABOUT)
    for name, line in zip(spec.ABOUT, lines, strict=True):
        assert spec.ABOUT[name].help in line
        assert spec.allowed_values(name) in line
        default = spec.DEFAULTS[name]
        assert f" [{'automatic' if default is None else default}]: " in line


def test_help_has_every_field():
    done = subprocess.run(
        [sys.executable, "-m", "ffjax.main", "--help"],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "COLUMNS": "1000"},
    )
    assert done.returncode == 0, done.stderr
    text = " ".join(done.stdout.split())
    for name in spec.ABOUT:
        assert f" {name} [" in text, name


def test_fit_takes_every_field_that_is_not_of_the_data():
    parameters = inspect.signature(ffjax.fit).parameters
    not_in_fit = {"trainer", "dataset", "train_limit", "test_limit", "valid_fraction"}
    assert {n for n in FIELDS if not spec.ABOUT[n].in_fit} == not_in_fit
    expected = [name for name in FIELDS if name not in not_in_fit]
    own = ["images", "labels", "num_classes", "validation_data", "eval_every", "seed"]
    assert list(parameters) == [*own, "progress", "on_epochs", *expected]
    for name in expected:
        assert parameters[name].kind == inspect.Parameter.KEYWORD_ONLY
        assert f" {name} [" in (ffjax.fit.__doc__ or "")
        sized = name in ("num_layers", "width", "epochs", "batch_size")
        assert sized or parameters[name].default == spec.DEFAULTS[name]


def choices(name):
    words = spec.ABOUT[name].domain.words
    assert words.startswith("one of ")
    return words.removeprefix("one of ").split(", ")


@pytest.mark.parametrize(
    ("name", "table"),
    [
        ("pathway", pathway.PATHWAYS),
        ("activation", layer.ACTIVATIONS),
        ("negatives", objective.NEGATIVES),
        ("loss", objective.LOSSES),
        ("schedule", optimizer.SCHEDULES),
        ("normalisation", pathway.NORMALISATIONS),
        ("ensemble", evaluate.ENSEMBLES),
        ("precision", get_args(product.Precision)),
    ],
)
def test_choices_are_the_tables_of_the_code(name, table):
    assert choices(name) == list(table)
    domain = spec.ABOUT[name].domain
    assert all(domain.allows(key) for key in table)
    assert not domain.allows(f"{next(iter(table))} ")
    assert not domain.allows(0)


def test_trainers_and_datasets():
    assert choices("trainer") == ["ff", "backprop"]
    words = spec.ABOUT["dataset"].domain.words
    assert all(name in words for name in data.DATASETS)


def test_parameters_have_the_domains_of_the_goodness_functions():
    for parameter, field in spec.PARAM_FIELDS.items():
        domain = spec.ABOUT[field].domain
        assert domain.words == PARAMETERS[parameter].words
        assert domain.allows(None)
    taken = {name for entry in goodness.GOODNESS.values() for name in entry.defaults}
    assert set(spec.PARAM_FIELDS) <= taken
    values = {"fraction": (0.5, 2.0), "alpha": (1.0, 0.5), "p": (32, 33)}
    for parameter, (good, bad) in values.items():
        domain = spec.ABOUT[spec.PARAM_FIELDS[parameter]].domain
        function = {"fraction": "topk", "alpha": "entmax", "p": "moment"}[parameter]
        assert domain.allows(good)
        goodness.make(function, **{parameter: good})
        assert not domain.allows(bad)
        with pytest.raises(UserError):
            goodness.make(function, **{parameter: bad})


def test_defaults_are_the_papers():
    run = make_spec()
    assert (run.num_layers, run.width, run.epochs, run.batch_size) == (
        4,
        2000,
        60,
        500,
    )
    assert (run.learning_rate, run.threshold, run.label_scale) == (1e-3, 2.0, 5.0)
    assert (run.pathway, run.goodness, run.activation) == ("ffcl", "burstiness", "gelu")
    assert run.norm_gate is False
    assert Way().seeds == (42,)
    assert run == RunSpec()
    assert all(spec.ABOUT[name].domain.allows(v) for name, v in spec.DEFAULTS.items())


def test_kinds():
    assert [spec.kind(name) for name in ("p", "alpha", "width", "norm_gate")] == [
        int,
        float,
        int,
        bool,
    ]
    for name, default in spec.DEFAULTS.items():
        if default is not None and type(default) is not tuple:
            assert spec.kind(name) is type(default), name


def test_parameters_that_are_not_used_are_no_part_of_a_spec():
    assert make_spec(goodness="sos", p=4) == make_spec(goodness="sos")
    assert make_spec(goodness="sos").alpha is None
    assert make_spec(goodness="topk").k_fraction == 0.02
    assert make_spec(goodness="contrast_topk").k_fraction == 0.01
    assert make_spec(goodness="moment").p == 6


def test_a_parameter_that_is_given_by_hand_must_be_used():
    run = make_spec(goodness="sos", p=3)
    with pytest.raises(UserError, match="p=3: goodness 'sos' does not use it"):
        spec.check_used(run, {"p": 3})
    spec.check_used(run, {"p": None, "epochs": 3})
    spec.check_used(make_spec(goodness="moment", p=3), {"p": 3})


def test_fields_that_a_run_does_not_use_have_their_defaults():
    symba = make_spec(loss="symba", threshold=5.0)
    assert symba == make_spec(loss="symba")
    backprop = make_spec(trainer="backprop", goodness="moment", p=4)
    assert backprop == make_spec(trainer="backprop", pathway="standard")
    assert (backprop.pathway, backprop.goodness) == ("backprop", "cross_entropy")
    assert make_spec(**dataclasses.asdict(backprop)) == backprop
    assert (backprop.num_stages, make_spec().num_stages) == (1, 4)


@pytest.mark.parametrize("name", FIELDS)
def test_backpropagation_ignores_what_is_of_forward_forward_alone(name):
    fields = {**OTHER[name], "trainer": "backprop"}
    is_same = make_spec(**fields) == make_spec(trainer="backprop")
    assert is_same == (spec.ABOUT[name].ff_only or name == "trainer")


def test_the_loss_without_a_threshold_is_known_here_too():
    for loss in objective.LOSSES:
        negatives = "all" if loss == "softmax" else "random"
        run = make_spec(loss=loss, negatives=negatives, threshold=5.0)
        assert (run.threshold == 5.0) == (loss in objective.USES_THRESHOLD)


@pytest.mark.parametrize("name", FIELDS)
def test_a_spec_survives_json(name):
    run = make_spec(**OTHER[name])
    again = make_spec(**json.loads(json.dumps(dataclasses.asdict(run))))
    assert again == run
    assert spec.cell_id(again) == spec.cell_id(run)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"goodness": "foo"}, "goodness='foo': unknown"),
        ({"goodness": 3}, "goodness=3: must be a name or module:function"),
        ({"activation": "tanh"}, "activation='tanh': must be one of relu"),
        ({"pathway": "x"}, "pathway='x': must be one of standard, ffcl"),
        ({"dataset": "mnits"}, "did you mean 'mnist'"),
        ({"dataset": "a\0b.npz"}, "dataset='a.*': must be one of"),
        ({"wdith": 3}, "wdith: no such field; did you mean 'width'"),
        ({"alpha": 0.9}, "alpha=0.9: must be a number >= 1"),
        ({"p": 0}, "p=0: must be an integer from 1 to 32"),
        ({"p": 2.5}, "p=2.5: must be an integer from 1 to 32"),
        ({"k_fraction": 0.0}, r"k_fraction=0.0: must be a number in \(0, 1\]"),
        ({"k_fraction": 1.1}, "k_fraction=1.1"),
        ({"width": 0}, "width=0: must be an integer >= 1"),
        ({"width": True}, "width=True"),
        ({"width": 10**400}, "width=1000.*…: must be an integer >= 1, at most 10"),
        ({"train_limit": 10**13}, "train_limit=10000000000000: must be an integer"),
        ({"num_layers": 0}, "num_layers=0"),
        ({"num_layers": 10**4}, "num_layers=10000: must be an integer from 1 to 1000"),
        ({"epochs": 0}, "epochs=0"),
        ({"epochs": 10**12}, "epochs=1000000000000: must be an integer from 1 to"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"batch_size": 100, "train_limit": 50}, "batch_size=100: must not be larger"),
        ({"learning_rate": -0.1}, "learning_rate=-0.1: must be a number > 0"),
        ({"learning_rate": float("inf")}, "learning_rate=inf"),
        ({"learning_rate": 1e308}, r"learning_rate=1e\+308: .* at most 1e30"),
        ({"learning_rate": 10**400}, "learning_rate=1000.*…: must be"),
        ({"learning_rate": 10**5000}, "learning_rate=a number too large to print"),
        ({"threshold": float("nan")}, "threshold=nan"),
        ({"label_scale": 0.0}, "label_scale=0.0"),
        ({"norm_gate": 1}, "norm_gate=1: must be True or False"),
        ({"negatives": "easy"}, "negatives='easy': must be one of random, hard, all"),
        ({"loss": "hinge"}, "loss='hinge': must be one of softplus, symba, softmax"),
        ({"loss": "softmax"}, "negatives='random': must be 'all' with loss='softmax'"),
        ({"loss_scale": 0.0}, "loss_scale=0.0: must be a number > 0"),
        ({"schedule": "x"}, "schedule='x': must be one of constant, cosine"),
        ({"weight_decay": -1.0}, "weight_decay=-1.0: must be a number >= 0"),
        ({"trainer": "x"}, "trainer='x': must be one of ff, backprop"),
        ({"pathway": "backprop"}, "pathway='backprop': must be one of standard, ffcl"),
        ({"normalisation": "x"}, "normalisation='x': must be one of l2, rms"),
        ({"peer_normalisation": -1.0}, "peer_normalisation=-1.0: must be a number >="),
        ({"dropout": 1.0}, "dropout=1.0: must be a number from 0 to 0.9"),
        ({"ensemble": "x"}, "ensemble='x': must be one of all, later"),
        ({"ensemble": "later", "num_layers": 1}, "ensemble='later': needs num_layers"),
        ({"train_limit": -1}, "train_limit=-1"),
        ({"valid_fraction": 1.0}, r"valid_fraction=1.0: must be a number in \[0, 1\)"),
        ({"goodness_params": "q=4"}, "burstiness has no parameter 'q'"),
        (
            {"goodness": "moment", "goodness_params": "p=4"},
            "moment has no parameter 'p'.*p is set by p",
        ),
        ({"trainer": "backprop", "width": 0}, "width=0"),
    ],
)
def test_impossible_values_are_named(changes, message):
    with pytest.raises(UserError, match=message) as error:
        make_spec(**changes)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 700


def test_a_functions_own_defaults_hold_unless_set(tmp_path, monkeypatch):
    (tmp_path / "own_defaults.py").write_text(
        "from ffjax.goodness import register\n"
        "@register\n"
        "def third(h, *, p=3, alpha=2.0, q=1.5):\n"
        "    return (h**p).mean(-1) * alpha + q\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    try:
        run = make_spec(goodness="own_defaults:third")
        assert (run.p, run.alpha, run.goodness_params) == (3, 2.0, "q=1.5")
        assert make_spec(goodness="own_defaults:third", p=5).p == 5
        other = make_spec(goodness="own_defaults:third", goodness_params="q=2")
        assert other.goodness_params == "q=2.0"
        assert spec.cell_id(other) != spec.cell_id(run)
    finally:
        goodness.GOODNESS.pop("third", None)


def test_widths_are_a_size_said_in_one_way():
    plain = make_spec(num_layers=2, width=500)
    assert make_spec(widths=(500, 500)) == plain == make_spec(widths=[500, 500])
    assert make_spec(widths=(), num_layers=2, width=500) == plain
    other = make_spec(widths=[500, 300], width=7)
    assert other.size == "500-300"
    assert other.layer_widths == (500, 300)
    assert other == make_spec(widths=(500, 300), num_layers=9)
    assert spec.cell_id(other) != spec.cell_id(make_spec(widths=(300, 500)))
    assert "-500_300-" in spec.cell_id(other)
    assert make_spec(widths=(30, 20), trainer="backprop").num_layers == 2
    # A size that is not the paper's measures none of its numbers.
    assert numbers.matching(make_spec(widths=(2000,) * 4))
    assert not numbers.matching(make_spec(widths=(2000, 2000, 2000, 1999)))


@pytest.mark.parametrize("widths", [(0,), (5, -1), (1.5,), "500", (True,), [3, None]])
def test_impossible_widths_are_refused(widths):
    with pytest.raises(UserError, match=r"widths=.*: must be integers >= 1"):
        make_spec(widths=widths)


def test_widths_and_another_size_contradict_each_other():
    run = make_spec(widths=(30, 20))
    spec.check_used(run, {"widths": (30, 20), "num_layers": 2, "width": 30})
    with pytest.raises(UserError, match=r"num_layers=3: does not go with widths"):
        spec.check_used(run, {"widths": (30, 20), "num_layers": 3})


# --- Convolutions and groups ----------------------------------------------------------


def test_groups_imply_their_loss():
    run = make_spec(pathway="groups", threshold=3.0, loss_scale=2.0)
    assert (run.loss, run.negatives, run.loss_scale) == ("softmax", "all", 2.0)
    assert run == make_spec(
        pathway="groups", loss="softmax", negatives="all", loss_scale=2.0
    )
    with pytest.raises(UserError, match="loss='softplus': must be 'softmax' with path"):
        spec.check_used(run, {"loss": "softplus"})
    spec.check_used(run, {"loss": "softmax", "negatives": "all"})


def test_no_pooling_and_no_window_are_said_in_a_single_way():
    conv = make_spec(layer="conv", num_layers=2)
    assert conv == make_spec(layer="conv", num_layers=2, pool=(0, 0))
    assert conv == make_spec(layer="conv", num_layers=2, pool=[0, 0])
    assert conv != make_spec(layer="conv", num_layers=2, pool=(0, 1))
    assert make_spec(kernel=5, pool=(1,)) == make_spec()
    assert "-conv-2x2000-" in spec.cell_id(conv)
    both = [make_spec(layer="conv", pool=pool) for pool in ((1, 0, 0, 0), (0, 0, 0, 1))]
    assert spec.cell_id(both[0]) != spec.cell_id(both[1])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kernel": 2}, "kernel=2: must be an odd integer from 1 to 99"),
        ({"pool": (2, 0)}, r"pool=\(2, 0\): must be 0 or 1 for each layer"),
        ({"pool": (True, 0)}, "pool=.*: must be 0 or 1 for each layer"),
        ({"layer": "x"}, "layer='x': must be one of dense, conv"),
        ({"layer": "conv", "pool": (1, 1)}, "has 2 entries for 4 layers"),
        (
            {"layer": "conv", "pathway": "standard"},
            "layer='conv': must be 'dense' with",
        ),
        (
            {"pathway": "standard", "normalisation": "layer"},
            "normalisation='layer': must be 'l2' or 'rms' with pathway='standard'",
        ),
        ({"pathway": "groups", "loss": "symba"}, "loss='symba': must be 'softmax'"),
        ({"pathway": "groups", "negatives": "hard"}, "negatives='hard': must be 'all'"),
        ({"layer": "conv", "goodness": "info_nce"}, "compares the examples of a batch"),
    ],
)
def test_layers_that_cannot_be(changes, message):
    with pytest.raises(UserError, match=message) as caught:
        make_spec(**changes)
    assert "\n" not in str(caught.value)


def test_shapes_are_checked_against_the_images():
    run = make_spec(layer="conv", pathway="groups", widths=(20, 30), pool=(1, 1))
    maps = spec.check_shape(run, (28, 28), 10)
    assert maps is not None
    assert maps.makes(run.layer_widths, 1) == (14, 14, 30)
    for shape, classes, message in (
        ((784,), 10, r"shape \(784,\)"),
        ((30, 30), 10, "the map of layer 2 is 15 x 15"),
        ((28, 28), 7, r"width=20: must be a multiple of the number of classes \(7\)"),
    ):
        with pytest.raises(UserError, match=message):
            spec.check_shape(run, shape, classes)
    hidden = make_spec(normalisation="group", width=2001)
    with pytest.raises(UserError, match=r"width=2001: .* with normalisation='group'"):
        spec.check_shape(hidden, (28, 28), 10)
    assert spec.check_shape(make_spec(trainer="backprop"), (), 7) is None
