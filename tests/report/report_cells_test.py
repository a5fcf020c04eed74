"""Cells and settings: what is pooled, and what is beside it in the paper."""

import dataclasses

import pytest
import records as made_up

from ffjax.config import spec as spec_lib
from ffjax.report import cells


def test_gathering_takes_the_sample_standard_deviation():
    accuracies = ((43, 1.0), (42, 2.0), (44, 4.0))
    made = [made_up.record(seed=seed, accuracy=value) for seed, value in accuracies]
    (cell,) = cells.gather(made)
    assert cell.seeds == (42, 43, 44)
    assert cell.mean == pytest.approx(7 / 3)
    assert cell.std == pytest.approx((7 / 3) ** 0.5)
    (single,) = cells.gather(made[:1])
    assert single.std is None


def test_the_same_file_in_two_folders_is_one_cell():
    made = [
        made_up.record(made_up.spec(dataset=path), seed=seed)
        for seed, path in ((1, "/a/mine.npz"), (2, "../b/mine.npz"))
    ]
    (cell,) = cells.gather(made)
    assert cells.setting_of(cell.spec).text.startswith("mine.npz, ")


def reference(records):
    (cell,) = cells.gather(records)
    assert cell.reference is not None
    return cell.reference


def test_references_say_whether_they_are_of_the_same_run():
    exact = reference([made_up.record()])
    assert exact.is_exact
    assert exact.text == "88.41"
    several = reference([made_up.record(seed=seed) for seed in range(42, 47)])
    assert several.row.table == "tab:seeds"
    (own,) = cells.gather([made_up.record(made_up.spec(goodness="mine:own"))])
    assert own.reference is None


@pytest.mark.parametrize(
    ("changes", "differs"),
    [
        ({"width": 500}, "4x2000"),
        ({"epochs": 5}, "60 epochs"),
        (
            {"dataset": "fashion_mini", "num_layers": 2, "width": 500, "epochs": 5},
            "Fashion-MNIST, 4x2000, 60 epochs",
        ),
        ({"learning_rate": 0.01}, "learning rate 0.001"),
        ({"goodness": "game_theoretic_shah"}, "game-theoretic"),
        ({"goodness": "moment", "p": 4, "norm_gate": True}, "no norm gate"),
    ],
)
def test_a_number_of_another_run_says_how_it_differs(changes, differs):
    known = reference([made_up.record(made_up.spec(**changes))])
    assert not known.is_exact
    assert known.differs == differs
    assert known.text.endswith(f": {differs})")


def test_every_setting_that_is_not_the_papers_is_named():
    settings = [name for name in spec_lib.names("setting") if name != "trainer"]
    assert len(settings) > 10
    for name in settings:
        default = spec_lib.DEFAULTS[name]
        other = {str: f"other {name}", tuple: (1,)}.get(type(default)) or default + 1
        spec = dataclasses.replace(made_up.spec(), **{name: other})
        assert list(cells.differing(spec)) == [name]
        text = cells.setting_of(spec).text
        assert text != cells.setting_of(made_up.spec()).text
        assert name.replace("_", " ").removesuffix("s") in text


def test_the_papers_setting_comes_first_then_the_largest():
    small = [
        made_up.record(made_up.spec(width=100, activation=activation))
        for activation in ("gelu", "swish")
    ]
    odd = made_up.record(made_up.spec(width=200))
    groups = cells.by_setting(cells.gather([odd, *small, made_up.record()]))
    assert [setting.spec.width for setting in groups] == [2000, 100, 200]
    assert [setting.is_paper for setting in groups] == [True, False, False]
