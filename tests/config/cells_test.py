"""From config files to cells: sections, products, pins and overrides."""

import ml_collections
import pytest

from ffjax import config
from ffjax.config import cells, spec
from ffjax.errors import UserError


def gridded(*fields, **flat):
    values = config.default()
    values.dataset = "fashion_mini"
    values.update(flat)
    values.grid = ml_collections.ConfigDict({"one": fields})
    return values


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
    found = config.expand(values)
    assert [cell.spec.goodness for cell in found] == ["sos", "moment"]
    assert found[0].sections == ("a", "b")
    assert found[0].seeds == (42, 43)


MOMENTS = config.product(goodness=["moment"], p=[4, 6], pathway=["standard", "ffcl"])


def pin(**overrides):
    fields = (*MOMENTS, {"goodness": "sos"}, {"goodness": "topk"})
    return config.expand(gridded(*fields), overrides)


def test_an_override_of_a_varied_field_pins_it():
    found = pin(goodness="moment", p=6)
    assert [(c.spec.goodness, c.spec.p) for c in found] == [("moment", 6)] * 2
    assert {c.spec.pathway for c in found} == {"standard", "ffcl"}
    assert len(pin(p=6)) == 2
    assert len(pin(k_fraction=0.02)) == 1
    assert len(pin(goodness="sos")) == 1


def test_an_override_of_another_field_applies_to_all_and_is_part_of_the_identity():
    found = pin(epochs=5, width=100)
    assert len(found) == 6
    assert {(c.spec.epochs, c.spec.width) for c in found} == {(5, 100)}
    assert not {c.id for c in found} & {c.id for c in pin()}
    assert {c.seeds for c in pin(seeds=(1, 2))} == {(1, 2)}


def test_an_override_that_leaves_no_cell_says_what_there_is():
    with pytest.raises(UserError, match=r"no cell of the grid has p=5 .*p: 4, 6"):
        pin(p=5)
    with pytest.raises(UserError, match="p=0: must be"):
        pin(p=0)


def test_a_field_that_the_grid_does_not_vary_applies_to_all():
    grid = gridded(*MOMENTS, activation="swish")
    assert {c.spec.dataset for c in config.expand(grid)} == {"fashion_mini"}
    found = config.expand(grid, {"dataset": "mnist", "activation": "relu"})
    assert {(c.spec.dataset, c.spec.activation) for c in found} == {("mnist", "relu")}
    assert len(found) == len(MOMENTS)
    same = config.expand(grid, {"dataset": "fashion_mini", "activation": "swish"})
    assert [c.id for c in same] == [c.id for c in config.expand(grid)]
    with pytest.raises(UserError, match=r"no cell of the grid has alpha=2\.0"):
        config.expand(grid, {"alpha": 2.0})


def test_a_choice_does_not_leak_into_cells_that_leave_the_field_to_the_file():
    grid = gridded({"goodness": "sos"}, {"activation": "relu"}, goodness="topk")
    (cell,) = config.expand(grid, {"goodness": "topk"})
    assert (cell.spec.goodness, cell.spec.activation) == ("topk", "relu")


@pytest.mark.parametrize("value", [None, {"p": 3}, 7])
def test_what_is_no_config_is_named(value):
    with pytest.raises(UserError, match="must be a ConfigDict"):
        config.expand(value)


def test_an_unknown_field_in_a_grid_is_named():
    with pytest.raises(UserError, match="goodnes: no such field"):
        config.expand(gridded({"goodnes": "sos"}))


def test_the_default_config_has_every_field_and_its_type():
    values = config.default()
    assert set(values) == set(spec.ABOUT)
    (cell,) = config.expand(values)
    assert cell.spec == config.make_spec()
    assert cell.seeds == (42,)
    # A field without a value takes what its type allows, and nothing else.
    values.p = 4
    with pytest.raises(TypeError):
        values.p = "four"


def test_products():
    assert config.product(p=(4, 6), pathway="ffcl") == (
        {"p": 4, "pathway": "ffcl"},
        {"p": 6, "pathway": "ffcl"},
    )
    assert config.product(p=[1], seeds=((1, 2),)) == ({"p": 1, "seeds": (1, 2)},)
    assert config.product() == ({},)
    assert config.product(p=()) == ()
    every = config.product(a=(1, 2), b=(3, 4, 5), c=6)
    assert len(every) == 6
    assert [(cell["a"], cell["b"]) for cell in every[:4]] == [
        (1, 3),
        (1, 4),
        (1, 5),
        (2, 3),
    ]


SECTIONS = {
    "a": config.product(goodness="moment", p=(4, 6)),
    "b": lambda: config.product(goodness="topk", k_fraction=(0.01, 0.02)),
    "apart": ({"goodness": "sos"},),
}


def sections_of(values):
    return {section for cell in config.expand(values) for section in cell.sections}


def test_sections_of_a_grid():
    assert sections_of(config.grid(SECTIONS)) == {"a", "b", "apart"}
    assert sections_of(config.grid(SECTIONS, apart=("apart",))) == {"a", "b"}
    assert sections_of(config.grid(SECTIONS, "apart", apart=("apart",))) == {"apart"}
    assert sections_of(config.grid(SECTIONS, "b,a")) == {"a", "b"}
    found = config.expand(config.grid(SECTIONS, "b", width=100, epochs=3))
    assert [(c.spec.k_fraction, c.spec.width) for c in found] == [
        (0.01, 100),
        (0.02, 100),
    ]
    with pytest.raises(UserError, match=r"config section 'c': must be one of a, b, ap"):
        config.grid(SECTIONS, "c")
    with pytest.raises(UserError, match="wdith: no such field"):
        config.grid(SECTIONS, wdith=3)


def test_a_cells_own_fields_go_before_those_of_the_grid():
    found = config.expand(
        config.grid({"a": ({"width": 7}, {"goodness": "sos"})}, width=100)
    )
    assert [cell.spec.width for cell in found] == [7, 100]


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        (5, "grid=5; must map names of sections"),
        ([1], "grid=.*must map"),
        ({}, "the grid has no sections"),
        ({"a": 5}, "grid section 'a' is 5; must map"),
        ({"a": ()}, "grid section 'a' has no cells"),
        ({"a": (7,)}, "grid section 'a' has the cell 7"),
        ({"a": ("goodness",)}, "grid section 'a' has the cell 'goodness'"),
        ({"a": ({"goodnes": "sos"},)}, "goodnes: no such field"),
        ({"a": ({"width": "x"},)}, "width='x': must be an integer"),
    ],
)
def test_odd_grids_are_named(grid, message):
    values = config.default()
    values.grid = grid
    with pytest.raises(UserError, match=message) as error:
        config.expand(values)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"group_size": -1}, "group_size=-1: must be an integer >= 0"),
        ({"num_devices": 1.5}, "num_devices=1.5"),
        ({"data_dir": 3}, "data_dir=3: must be a string"),
        ({"seeds": 42}, "seeds=42: must be integers"),
    ],
)
def test_the_way_to_run_is_checked_too(changes, message):
    fields = {**config.default().to_dict(), **changes}
    with pytest.raises(UserError, match=message):
        config.expand(ml_collections.ConfigDict(fields))


def test_the_way_to_run_is_no_part_of_a_cell():
    values = config.default()
    values.update({"data_dir": "x", "group_size": 3, "num_devices": 2})
    assert config.expand(values)[0].id == config.expand(config.default())[0].id
    way = cells.way(values)
    assert (way.data_dir, way.group_size, way.num_devices) == ("x", 3, 2)
    assert cells.way(ml_collections.ConfigDict()) == spec.Way()


def test_a_parameter_that_a_single_run_does_not_use_is_refused():
    values = config.default()
    values.goodness = "sos"
    with pytest.raises(UserError, match="p=3: goodness 'sos' does not use it"):
        config.expand(values, {"p": 3})
    (cell,) = config.expand(values, {"goodness": "moment", "p": 3})
    assert cell.spec.p == 3


def test_parameters_of_ones_own_choose_cells():
    grid = gridded(
        *config.product(
            goodness="softmax_energy_margin",
            goodness_params=("margin=0.9", "margin=0.7"),
        )
    )
    assert len(config.expand(grid)) == 2
    (cell,) = config.expand(grid, {"goodness_params": "margin=0.7"})
    assert cell.spec.goodness_params == "margin=0.7"
    with pytest.raises(UserError, match="no cell of the grid has goodness_params="):
        config.expand(grid, {"goodness_params": "margin=0.8"})
    with pytest.raises(UserError, match="must be NAME=NUMBER"):
        config.expand(grid, {"goodness_params": "margin"})


def test_two_files_of_one_name_are_refused(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    one, other = (str(tmp_path / folder / "mine.npz") for folder in ("a", "b"))
    with pytest.raises(UserError, match="the grid has another file of that name"):
        config.expand(gridded({"dataset": one}, {"dataset": other}))
    twice = str(tmp_path / "b" / ".." / "a" / "mine.npz")
    assert len(config.expand(gridded({"dataset": one}, {"dataset": twice}))) == 1


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"layer": "conv", "pool": (1, 1, 1, 0)},
            "pool=.*: the map of layer 3 is 7 x 7",
        ),
        ({"layer": "conv", "kernel": 31}, r"kernel=31: .* images \(28 x 28\)"),
        ({"pathway": "groups", "width": 2001}, "width=2001: must be a multiple"),
    ],
)
def test_layers_that_do_not_go_with_a_known_dataset(fields, message):
    """They are refused before anything runs, alone and in a grid."""
    flat = config.default()
    with pytest.raises(UserError, match=message):
        config.expand(flat, fields)
    with pytest.raises(UserError, match=message):
        config.expand(gridded(fields))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"pool": (1, 0, 0, 0)}, r"pool=\(1, 0, 0, 0\): needs layer='conv'"),
        ({"kernel": 5}, "kernel=5: needs layer='conv'"),
        ({"pathway": "groups", "loss": "softplus"}, "loss='softplus': must be"),
        ({"pathway": "groups", "negatives": "random"}, "negatives='random': must be"),
    ],
)
def test_what_a_layer_does_not_use_is_refused_by_hand(given, message):
    with pytest.raises(UserError, match=message):
        config.expand(config.default(), given)
