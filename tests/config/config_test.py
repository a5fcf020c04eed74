import dataclasses
import json

import ml_collections
import pytest

from ffjax import config, goodness
from ffjax.errors import UserError


def gridded(*fields, **flat):
    values = config.default()
    values.dataset = "fashion_mini"
    values.update(flat)
    values.grid = ml_collections.ConfigDict({"one": fields})
    return values


def test_defaults_are_the_papers():
    spec = config.make_spec()
    assert (spec.num_layers, spec.width, spec.epochs, spec.batch_size) == (
        4,
        2000,
        60,
        500,
    )
    assert (spec.learning_rate, spec.threshold, spec.label_scale) == (1e-3, 2.0, 5.0)
    assert config.default().seeds == (42,)


def test_parameters_that_are_not_used_are_no_part_of_a_spec():
    assert config.make_spec(goodness="sos", p=4) == config.make_spec(goodness="sos")
    assert config.make_spec(goodness="sos").alpha is None
    assert config.make_spec(goodness="topk").k_fraction == 0.02
    assert config.make_spec(goodness="contrast_topk").k_fraction == 0.01
    assert config.make_spec(goodness="moment").p == 6
    spec = config.make_spec(goodness="topk", k_fraction=0.1)
    assert spec.architecture(10).goodness.params == (("fraction", 0.1),)


def test_fields_that_a_run_does_not_use_have_their_defaults():
    symba = config.make_spec(loss="symba", threshold=5.0)
    assert symba == config.make_spec(loss="symba")
    backprop = config.make_spec(trainer="backprop", goodness="moment", p=4)
    assert backprop == config.make_spec(trainer="backprop", pathway="standard")
    assert (backprop.pathway, backprop.goodness) == ("backprop", "cross_entropy")
    assert config.make_spec(**dataclasses.asdict(backprop)) == backprop


def test_ids_are_readable_and_tell_specs_apart():
    seen = set()
    for changes in (
        {},
        {"epochs": 5},
        {"width": 100},
        {"learning_rate": 0.01},
        {"norm_gate": True},
        {"goodness": "moment"},
        {"goodness": "moment", "p": 4},
        {"dataset": "folder/mine.npz"},
        {"dataset": "other/mine.npz"},
        {"valid_fraction": 0.1},
        {"negatives": "hard"},
        {"loss": "symba"},
        {"loss_scale": 2.0},
        {"schedule": "cosine"},
        {"weight_decay": 0.1},
        {"normalisation": "rms"},
        {"peer_normalisation": 0.1},
        {"dropout": 0.1},
        {"ensemble": "later"},
        {"trainer": "backprop"},
        {"trainer": "backprop", "epochs": 5},
    ):
        name = config.cell_id(config.make_spec(**changes))
        assert name not in seen
        assert "/" not in name
        seen.add(name)
    first = config.cell_id(config.make_spec(goodness="moment", p=4))
    assert first.startswith("fashion_mnist-ffcl-moment-p4-gelu-4x2000-e60-")


def test_a_spec_survives_json():
    spec = config.make_spec(goodness="topk", norm_gate=True)
    again = config.make_spec(**json.loads(json.dumps(dataclasses.asdict(spec))))
    assert again == spec
    assert config.cell_id(again) == config.cell_id(spec)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"goodness": "foo"}, "goodness='foo': unknown"),
        ({"activation": "tanh"}, "activation='tanh': must be one of relu"),
        ({"pathway": "x"}, "pathway='x': must be one of standard, ffcl"),
        ({"dataset": "mnits"}, "did you mean 'mnist'"),
        ({"wdith": 3}, "wdith: no such field; did you mean 'width'"),
        ({"alpha": 0.9}, "alpha=0.9: must be a number >= 1"),
        ({"p": 0}, "p=0: must be an integer from 1 to 32"),
        ({"p": 2.5}, "p=2.5: must be an integer from 1 to 32"),
        ({"k_fraction": 0.0}, r"k_fraction=0.0: must be a number in \(0, 1\]"),
        ({"k_fraction": 1.1}, "k_fraction=1.1"),
        ({"width": 0}, "width=0: must be an integer >= 1"),
        ({"width": True}, "width=True"),
        ({"num_layers": 0}, "num_layers=0"),
        ({"epochs": 0}, "epochs=0"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"batch_size": 100, "train_limit": 50}, "batch_size=100: must not be larger"),
        ({"learning_rate": -0.1}, "learning_rate=-0.1: must be a number > 0"),
        ({"learning_rate": float("inf")}, "learning_rate=inf"),
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
    ],
)
def test_impossible_values_are_named(changes, message):
    with pytest.raises(UserError, match=message) as error:
        config.make_spec(**changes)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("seeds", [(), (1.5,), (-1,), (2**32,), ("a",)])
def test_impossible_seeds_are_named(seeds):
    values = config.default()
    values.seeds = seeds
    with pytest.raises(UserError, match="seed"):
        config.expand(values)


def test_a_flat_config_is_one_cell():
    values = config.default()
    values.seeds = (1, 2, 1)
    (cell,) = config.expand(values)
    assert cell.seeds == (1, 2)
    assert cell.spec == config.make_spec()


def test_cells_that_sections_share_run_once():
    values = config.default()
    values.grid = ml_collections.ConfigDict(
        {
            "a": ({"goodness": "sos"}, {"goodness": "moment", "p": 6}),
            "b": ({"goodness": "sos", "p": 3, "seeds": (43, 42)},),
        }
    )
    cells = config.expand(values)
    assert [cell.spec.goodness for cell in cells] == ["sos", "moment"]
    assert cells[0].sections == ("a", "b")
    assert cells[0].seeds == (42, 43)


MOMENTS = config.product(goodness=["moment"], p=[4, 6], pathway=["standard", "ffcl"])


def pin(**overrides):
    fields = (*MOMENTS, {"goodness": "sos"}, {"goodness": "topk"})
    return config.expand(gridded(*fields), overrides)


def test_an_override_of_a_varied_field_pins_it():
    cells = pin(goodness="moment", p=6)
    assert [(c.spec.goodness, c.spec.p) for c in cells] == [("moment", 6)] * 2
    assert {c.spec.pathway for c in cells} == {"standard", "ffcl"}
    assert len(pin(p=6)) == 2
    assert len(pin(k_fraction=0.02)) == 1
    assert len(pin(goodness="sos")) == 1


def test_an_override_of_another_field_applies_to_all_and_is_part_of_the_identity():
    cells = pin(epochs=5, width=100)
    assert len(cells) == 6
    assert {(c.spec.epochs, c.spec.width) for c in cells} == {(5, 100)}
    assert not {c.id for c in cells} & {c.id for c in pin()}
    assert {c.seeds for c in pin(seeds=(1, 2))} == {(1, 2)}


def test_an_override_that_leaves_no_cell_says_what_there_is():
    with pytest.raises(UserError, match=r"no cell of the grid has p=5 .*p: 4, 6"):
        pin(p=5)
    with pytest.raises(UserError, match="p=0: must be"):
        pin(p=0)


def test_a_field_that_the_grid_does_not_vary_applies_to_all():
    grid = gridded(*MOMENTS, activation="swish")
    assert {c.spec.dataset for c in config.expand(grid)} == {"fashion_mini"}
    cells = config.expand(grid, {"dataset": "mnist", "activation": "relu"})
    assert {(c.spec.dataset, c.spec.activation) for c in cells} == {("mnist", "relu")}
    assert len(cells) == len(MOMENTS)
    same = config.expand(grid, {"dataset": "fashion_mini", "activation": "swish"})
    assert [c.id for c in same] == [c.id for c in config.expand(grid)]
    with pytest.raises(UserError, match=r"no cell of the grid has alpha=2\.0"):
        config.expand(grid, {"alpha": 2.0})


def test_a_choice_does_not_leak_into_cells_that_leave_the_field_to_the_file():
    grid = gridded({"goodness": "sos"}, {"activation": "relu"}, goodness="topk")
    (cell,) = config.expand(grid, {"goodness": "topk"})
    assert (cell.spec.goodness, cell.spec.activation) == ("topk", "relu")


def test_a_functions_own_defaults_hold_unless_set(tmp_path, monkeypatch):
    (tmp_path / "own_defaults.py").write_text(
        "from ffjax.goodness import register\n"
        "@register\n"
        "def third(h, *, p=3, alpha=2.0):\n"
        "    return (h**p).mean(-1) * alpha\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(goodness, "GOODNESS", dict(goodness.GOODNESS))
    spec = config.make_spec(goodness="own_defaults:third")
    assert (spec.p, spec.alpha) == (3, 2.0)
    assert config.make_spec(goodness="own_defaults:third", p=5).p == 5


@pytest.mark.parametrize("value", [None, {"p": 3}, 7])
def test_what_is_no_config_is_told(value):
    with pytest.raises(UserError, match="must be a ConfigDict"):
        config.expand(value)


def test_an_unknown_field_in_a_grid_is_named():
    with pytest.raises(UserError, match="goodnes: no such field"):
        config.expand(gridded({"goodnes": "sos"}))


def test_every_field_is_described():
    text = config.describe_fields()
    for field in dataclasses.fields(config.RunSpec):
        assert f"{field.name} [" in text
