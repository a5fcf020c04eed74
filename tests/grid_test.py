import dataclasses
import importlib.util
import pathlib
import re

import pytest

from ffjax import config, goodness, paper
from ffjax.errors import UserError

_PATH = pathlib.Path(__file__).parents[1] / "configs" / "grid.py"


def _load():
    spec = importlib.util.spec_from_file_location("grid", _PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


grid = _load()


@pytest.fixture(scope="module")
def cells():
    return config.expand(grid.get_config())


@pytest.fixture(scope="module")
def specs(cells):
    return [(cell, dataclasses.asdict(cell.spec)) for cell in cells]


def _candidates(row):
    gates = (False, True) if row.norm_gate is None else (row.norm_gate,)
    return {(activation, gate) for activation in row.activations for gate in gates}


@pytest.mark.parametrize("index", range(len(paper.rows())))
def test_every_row_of_the_paper_has_its_cells(specs, index):
    row = paper.rows()[index]
    found = [cell for cell, spec in specs if paper.matches(row, spec)]
    # A number that is the best of several runs needs all of them.
    assert {(c.spec.activation, c.spec.norm_gate) for c in found} == _candidates(row)
    assert any(set(row.seeds) <= set(cell.seeds) for cell in found)
    assert all(42 in cell.seeds for cell in found)


def test_the_paper_has_282_rows():
    assert len(paper.rows()) == 282


def test_cells_are_unique_and_at_the_papers_settings(cells):
    assert len({cell.id for cell in cells}) == len(cells)
    assert len({cell.spec for cell in cells}) == len(cells)
    assert all(paper.at_settings(dataclasses.asdict(cell.spec)) for cell in cells)


def test_a_cell_of_two_sections_is_there_once_with_all_its_seeds(cells):
    spec = config.make_spec(dataset="mnist", pathway="ffcl", goodness="burstiness")
    (cell,) = [cell for cell in cells if cell.spec == spec]
    assert {"main", "cross_dataset", "seeds"} == set(cell.sections)
    assert cell.seeds == (42, 43, 44, 45, 46)


def test_main_has_every_goodness_function(cells):
    assert set(grid.GOODNESS) == set(goodness.GOODNESS)
    assert len(config.expand(grid.get_config("main"))) == 2 * (13 * 2 * 2 * 2 + 2)


def test_all_sections_but_quick_make_the_grid(cells):
    ids = set()
    for section in grid.SECTIONS:
        found = config.expand(grid.get_config(section))
        assert {cell.sections for cell in found} == {(section,)}
        if section != "quick":
            ids |= {cell.id for cell in found}
    assert ids == {cell.id for cell in cells}


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


def test_overrides_pin_what_the_grid_varies():
    fields = grid.get_config()
    fields.goodness, fields.p = "moment", 6
    cells = config.expand(fields, {"goodness": "moment", "p": 6})
    assert {(cell.spec.goodness, cell.spec.p) for cell in cells} == {("moment", 6)}
    expected = [c for c in config.expand(grid.get_config()) if c.spec.p == 6]
    assert cells == expected


def test_other_overrides_apply_to_all_and_change_the_identity(cells):
    fields = grid.get_config()
    fields.epochs = 5
    short = config.expand(fields, {"epochs": 5})
    assert {cell.spec.epochs for cell in short} == {5}
    assert len(short) == len(cells)
    assert not {cell.id for cell in short} & {cell.id for cell in cells}


def test_an_override_that_leaves_no_cell_says_what_there_is():
    fields = grid.get_config("p_sweep")
    fields.p = 7
    with pytest.raises(
        UserError, match=re.escape("(the grid has p: 2, 3, 4, 5, 6, 8)")
    ):
        config.expand(fields, {"p": 7})


def test_config_files_import_only_from_ffjax():
    for path in _PATH.parent.glob("*.py"):
        for line in path.read_text().splitlines():
            assert not line.startswith("import"), (path, line)
            assert not line.startswith("from") or line.startswith("from ffjax"), line
