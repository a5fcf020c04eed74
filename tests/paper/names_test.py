"""How methods, counts and durations are printed."""

import dataclasses

import pytest

from ffjax import data, goodness
from ffjax.config.spec import RunSpec, make_spec
from ffjax.model import layer, pathway
from ffjax.paper import names


def test_everything_that_ffjax_has_is_labelled():
    built_in = [
        name
        for name, entry in goodness.GOODNESS.items()
        if entry.fn.__module__.startswith("ffjax.")
    ]
    assert len(built_in) == 13 + 13  # the paper's, and those of the field
    tables = (pathway.PATHWAYS, layer.ACTIVATIONS, data.DATASETS)
    for name in [*built_in, *(name for table in tables for name in table)]:
        assert name in names.LABELS
    assert names.label("game_theoretic_shah") == "game-theoretic (Shah)"


@pytest.mark.parametrize(
    ("name", "printed"),
    [
        ("ffcl", "FFCL"),
        ("my_module:mine", "mine"),
        ("a.b:mine", "mine"),
        ("a:b c", "a:b c"),
        (":mine", ":mine"),
        ("strange", "strange"),
    ],
)
def test_labels(name, printed):
    assert names.label(name) == printed


@pytest.mark.parametrize(
    ("fields", "method", "short"),
    [
        ({}, "FFCL, burstiness, GELU", "ffcl burstiness gelu"),
        (
            {"goodness": "moment", "pathway": "standard", "norm_gate": True},
            "standard, moment p = 6, GELU, norm gate",
            "standard moment p=6 gelu gate",
        ),
        (
            {"goodness": "topk", "activation": "ln_swish"},
            "FFCL, top-k k = 2 %, LN-Swish",
            "ffcl topk k=2% ln_swish",
        ),
        (
            {"goodness": "entmax", "alpha": 1.25},
            "FFCL, entmax alpha = 1.25, GELU",
            "ffcl entmax alpha=1.25 gelu",
        ),
        (
            {"trainer": "backprop", "activation": "relu"},
            "backpropagation, ReLU",
            "backprop cross_entropy relu",
        ),
        (
            {"goodness": "softmax_energy_margin", "goodness_params": "margin=0.7"},
            "FFCL, softmax-energy-margin margin = 0.7, GELU",
            "ffcl softmax_energy_margin margin=0.7 gelu",
        ),
    ],
)
def test_methods(fields, method, short):
    run = make_spec(**fields)
    assert names.method(run) == method
    assert names.short_method(run) == short


def test_parameters_in_force():
    assert names.parameters(make_spec(goodness="topk")) == {"k_fraction": 0.02}
    assert names.parameters(make_spec(goodness="moment", p=3)) == {"p": 3}
    assert names.parameters(make_spec(goodness="sos", p=3)) == {}
    own = RunSpec(goodness="mine:g", p=3, goodness_params="q=1.5")
    assert names.parameters(own) == {"p": 3, "q": 1.5}
    # A record that was changed by hand must not end a report.
    broken = dataclasses.replace(own, goodness_params="nonsense")
    assert names.parameters(broken) == {"p": 3}


@pytest.mark.parametrize(
    ("seconds", "printed", "rough"),
    [
        (0, "0 s", "0.0 seconds"),
        (59.4, "59 s", "59 seconds"),
        (59.6, "1 min 0 s", "60 seconds"),
        (190, "3 min 10 s", "3.2 minutes"),
        (3599.7, "1 h 0 min", "60 minutes"),
        (7500, "2 h 5 min", "2.1 hours"),
        (100000, "27 h 46 min", "28 hours"),
    ],
)
def test_times(seconds, printed, rough):
    assert names.duration(seconds) == printed
    assert names.amount(seconds) == rough
    assert names.amount(seconds, "GPU-").split()[1].startswith("GPU-")


def test_counts_and_accuracies():
    assert [names.count(n, "run") for n in (0, 1, 2)] == ["0 runs", "1 run", "2 runs"]
    assert names.accuracy(89.037) == "89.04 %"
    assert names.accuracy(None) == "-"
    assert names.shortened("x" * 200) == "x" * 200
    assert names.shortened("x" * 201) == "x" * 199 + "…"
