"""The tutorial runs from top to bottom, and what is stored of it came out of that."""

import copy
import os
import pathlib

import nbclient
import nbformat
import pytest

ROOT = pathlib.Path(__file__).parents[1]
TUTORIAL = ROOT / "experiments" / "tutorial.ipynb"


@pytest.fixture(scope="module")
def stored():
    return nbformat.read(TUTORIAL, as_version=4)


def test_the_tutorial_is_stored_with_its_outputs(stored):
    nbformat.validate(stored)
    cells = [cell for cell in stored.cells if cell.cell_type == "code"]
    assert len(cells) >= 9
    kinds = [
        kind for cell in cells for out in cell.outputs for kind in out.get("data", {})
    ]
    assert kinds.count("image/png") == 3
    for cell in cells:
        assert cell.execution_count
        for output in cell.outputs:
            assert output.output_type != "error"
            assert output.get("name") != "stderr"


def test_the_tutorial_runs(stored, tmp_path, monkeypatch):
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    notebook = copy.deepcopy(stored)
    resources = {"metadata": {"path": str(tmp_path)}}
    client = nbclient.NotebookClient(notebook, timeout=600, resources=resources)
    done = client.execute()
    for new, old in zip(done.cells, stored.cells, strict=True):
        if new.cell_type == "code":
            assert _kinds(new) == _kinds(old)


def _kinds(cell):
    """What kinds of output a cell gives; how many lines of progress may vary."""
    return {output.output_type for output in cell.outputs}
