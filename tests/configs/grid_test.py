import pathlib
import re

import pytest

from configs import grid
from ffjax import config, goodness
from ffjax.errors import UserError
from ffjax.paper import numbers
from ffjax.paper.numbers import Row

FOLDER = pathlib.Path(grid.__file__).parent


@pytest.fixture(scope="module")
def cells() -> list[config.Cell]:
    return config.expand(grid.get_config())


def candidates(row: Row) -> set[tuple[str, bool]]:
    gates = (False, True) if row.norm_gate is None else (row.norm_gate,)
    return {(activation, gate) for activation in row.activations for gate in gates}


@pytest.mark.parametrize("index", range(len(numbers.rows())))
def test_every_row_of_the_paper_has_its_cells(cells: list[config.Cell], index: int):
    row = numbers.rows()[index]
    runs = [cell for cell in cells if numbers.matches(row, cell.spec)]
    # A number that is the best of several runs needs all of them.
    assert {(c.spec.activation, c.spec.norm_gate) for c in runs} == candidates(row)
    assert any(set(row.seeds) <= set(cell.seeds) for cell in runs)
    assert all(42 in cell.seeds for cell in runs)


def test_the_paper_has_282_rows():
    assert len(numbers.rows()) == 282


def test_cells_are_unique_and_at_the_papers_settings(cells: list[config.Cell]):
    assert len(cells) == 408
    assert len({cell.id for cell in cells}) == len(cells)
    assert len({cell.spec for cell in cells}) == len(cells)
    assert all(numbers.at_settings(cell.spec) for cell in cells)


def test_a_cell_of_two_sections_is_there_once_with_all_its_seeds(
    cells: list[config.Cell],
):
    spec = config.make_spec(dataset="mnist", pathway="ffcl", goodness="burstiness")
    (cell,) = [cell for cell in cells if cell.spec == spec]
    assert {"main", "cross_dataset", "seeds"} == set(cell.sections)
    assert cell.seeds == (42, 43, 44, 45, 46)


def test_main_has_every_goodness_function_of_the_paper():
    papers = {
        name
        for name, known in goodness.GOODNESS.items()
        if known.fn.__module__ == "ffjax.goodness.functions"
    }
    assert set(grid.GOODNESS) == papers
    assert len(config.expand(grid.get_config("main"))) == 2 * (13 * 2 * 2 * 2 + 2)


def test_all_sections_but_quick_make_the_grid(cells: list[config.Cell]):
    ids = set()
    for section in grid.SECTIONS:
        members = config.expand(grid.get_config(section))
        assert {cell.sections for cell in members} == {(section,)}
        if section != "quick":
            ids |= {cell.id for cell in members}
    assert ids == {cell.id for cell in cells}


def test_several_sections_can_be_asked_for():
    both = config.expand(grid.get_config("k_sweep,p_sweep"))
    assert {cell.sections for cell in both} == {("k_sweep",), ("p_sweep",)}


def test_quick_needs_no_files_and_tells_the_story():
    cells = config.expand(grid.get_config("quick"))
    assert {cell.spec.dataset for cell in cells} == {"fashion_mini"}
    methods = {(cell.spec.pathway, cell.spec.goodness) for cell in cells}
    for pathway in ("standard", "ffcl"):
        for name in ("sos", "topk", "entmax", "burstiness", "moment"):
            assert (pathway, name) in methods


def test_unknown_section():
    with pytest.raises(UserError, match=r"'mian': must be one of main, interaction"):
        grid.get_config("mian")


def test_overrides_pin_what_the_grid_varies(cells: list[config.Cell]):
    overrides = {"goodness": "moment", "p": 6}
    pinned = config.expand(grid.get_config(), overrides)
    assert {(cell.spec.goodness, cell.spec.p) for cell in pinned} == {("moment", 6)}
    assert pinned == [cell for cell in cells if cell.spec.p == 6]


def test_other_overrides_apply_to_all_and_change_the_identity(
    cells: list[config.Cell],
):
    short = config.expand(grid.get_config(), {"epochs": 5})
    assert {cell.spec.epochs for cell in short} == {5}
    assert len(short) == len(cells)
    assert not {cell.id for cell in short} & {cell.id for cell in cells}


def test_an_override_that_leaves_no_cell_says_what_there_is():
    with pytest.raises(
        UserError, match=re.escape("(the grid has p: 2, 3, 4, 5, 6, 8)")
    ):
        config.expand(grid.get_config("p_sweep"), {"p": 7})


def test_config_files_import_only_from_ffjax():
    files = sorted(FOLDER.glob("*.py"))
    assert len(files) == 3
    for path in files:
        for line in path.read_text().splitlines():
            assert not line.startswith("import"), (path, line)
            assert not line.startswith("from") or line.startswith("from ffjax"), line
