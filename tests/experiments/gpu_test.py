"""Programs for a GPU keep their promises; compiled where none is.

Needs the extra 'gpu-check', and about 5 minutes on 2 cores.
"""

import functools
import itertools
import json
import pathlib

import pytest

pytest.importorskip("jax_cuda12_plugin", reason="needs the extra 'gpu-check'")

from configs import grid
from experiments.gpu import __main__ as command
from experiments.gpu import programs, read, show

FEW = ("sos", "burstiness", "moment")  # functions with few launches
ROWS = pathlib.Path(programs.__file__).parent / "results" / "a100.json"


@functools.cache
def row(kind="train", goodness="burstiness", pathway="ffcl", layer=2, **others):
    fields = {"precision": "float32", "members": 1, "devices": 1} | others
    case = programs.Case(kind, goodness, pathway, layer, **fields)
    return programs.describe(case, "a100", programs.lower(case, "a100"))


def most_launches(goodness: str, pathway: str) -> int:
    """Of a step, in all."""
    if goodness in FEW:
        return 18 if pathway == "standard" else 20
    return 26


@pytest.mark.parametrize("pathway", ["standard", "ffcl"])
@pytest.mark.parametrize("goodness", ["burstiness", "contrast_topk", "entmax"])
@pytest.mark.parametrize("layer", [1, 2])
def test_a_step_never_waits_nor_sorts_and_has_few_launches(layer, goodness, pathway):
    step = row(goodness=goodness, pathway=pathway, layer=layer)
    assert (step["unknown_loops"], step["sorts"]) == (0, 0)
    assert step["launches"] <= most_launches(goodness, pathway)


@pytest.mark.parametrize("members", [2, 5])
@pytest.mark.parametrize("pathway", ["standard", "ffcl"])
def test_a_group_launches_hardly_more_than_one_network(members, pathway):
    group = row(pathway=pathway, members=members)
    assert (group["unknown_loops"], group["sorts"]) == (0, 0)
    # With and without the norm gate, two compute both.
    most = {"standard": {2: 23, 5: 20}, "ffcl": {2: 27, 5: 24}}
    assert group["launches"] <= most[pathway][members]


def test_eight_devices_run_the_program_of_one():
    assert row(members=8, devices=8)["launches"] == row()["launches"]


@pytest.mark.parametrize("pathway", ["standard", "ffcl"])
@pytest.mark.parametrize(
    ("kind", "goodness", "layer"),
    [("advance", "", 2), ("advance", "", 3), ("evaluate", "burstiness", 0)],
)
def test_inputs_and_evaluation_never_wait(kind, goodness, layer, pathway):
    chunk = row(kind, goodness, pathway, layer)
    assert chunk["unknown_loops"] == 0
    assert chunk["launches"] > 0


@pytest.mark.parametrize("goodness", ["topk", "entmax"])
def test_evaluation_of_selective_functions_never_waits(goodness):
    assert row("evaluate", goodness, layer=0)["unknown_loops"] == 0


def test_float32_is_not_rounded_to_tf32():
    for kind, goodness, layer in [("train", "burstiness", 2), ("advance", "", 2)]:
        products = row(kind, goodness, layer=layer)["products"]
        assert products
        assert {text.split()[-1] for text in products} == {"highest"}


def test_bfloat16_multiplies_bfloat16():
    half, full = row(precision="bfloat16"), row()
    assert half["argument_bytes"] < 0.6 * full["argument_bytes"]
    assert half["launches"] <= full["launches"] + 2


@pytest.mark.parametrize("pathway", ["standard", "ffcl"])
def test_committed_rows_meet_the_goals(pathway):
    rows = [own for own in json.loads(ROWS.read_text()) if own["pathway"] == pathway]
    steps = [own for own in rows if own["kind"] == "train" and own["members"] == 1]
    for layer, precision in itertools.product((1, 2), ("float32", "bfloat16")):
        own = {
            step["goodness"]
            for step in steps
            if (step["layer"], step["precision"]) == (layer, precision)
        }
        assert own == set(grid.GOODNESS)
    assert {own["unknown_loops"] for own in rows} == {0}
    assert {own["sorts"] for own in steps} == {0}
    for step in steps:
        # Rounding the weights to bfloat16 takes a kernel of its own.
        rounding = 2 if step["precision"] == "bfloat16" else 0
        most = most_launches(step["goodness"], pathway) + rounding
        assert step["launches"] <= most, step
    for step in (own for own in rows if own["kind"] == "train"):
        # Groups, too; a pair computes both with and without the gate.
        assert step["launches"] <= (26 if step["precision"] == "float32" else 28), step
    # Temporaries of a chunk, not a copy of all inputs.
    inputs = [own for own in rows if own["kind"] == "advance"]
    assert inputs
    assert all(own["temp_bytes"] < 0.1 * own["output_bytes"] for own in inputs)


def test_launches_are_counted_with_the_turns_of_loops():
    module = read.Module(
        """HloModule jit_f, is_scheduled=true

%fused (parameter_0: f32[4,8], parameter_1: s32[]) -> f32[8] {
  %parameter_0 = f32[4,8]{1,0} parameter(0)
  %parameter_1 = s32[] parameter(1)
  ROOT %part = f32[1,8]{1,0} dynamic-slice(%parameter_0, %parameter_1, %parameter_1)
}

%inner (arg: (s32[], f32[8])) -> (s32[], f32[8]) {
  %arg = (s32[], f32[8]{0}) parameter(0)
  %i = s32[] get-tuple-element(%arg), index=0
  %h = f32[8]{0} get-tuple-element(%arg), index=1
  %next = f32[8]{0} negate(%h)
  ROOT %out = (s32[], f32[8]{0}) tuple(%i, %next)
}

ENTRY %main (x: f32[4,8], i: s32[]) -> f32[8] {
  %x = f32[4,8]{1,0} parameter(0)
  %i.1 = s32[] parameter(1)
  %row = f32[1,8]{1,0} fusion(%x, %i.1), kind=kLoop, calls=%fused
  %start = (s32[], f32[8]{0}) tuple(%i.1, %row)
  %known = (s32[], f32[8]{0}) while(%start), condition=%c, body=%inner, backend_config={"known_trip_count":{"n":"3"}}
  %unknown = (s32[], f32[8]{0}) while(%known), condition=%c, body=%inner
  %order = f32[8]{0} sort(%row), dimensions={0}
  ROOT %dot = f32[8]{0} dot(%order, %order), operand_precision={highest,highest}
}
"""  # noqa: E501
    )
    facts = module.facts(module.entry)
    assert facts.launches == 3 + 3 * 1 + 1
    assert facts.loops == ((3, 1),)
    assert (facts.unknown_loops, facts.sorts) == (1, 1)
    assert facts.products == ("f32[8] highest",)
    row_bytes = 32 + 32 + 4  # a slice read, a row written, an index
    assert facts.moved_bytes == row_bytes + 4 * 64 + 2 * 32 + 3 * 32
    assert module.facts(module.loop(3)).launches == 1


def test_rows_are_kept_and_shown(tmp_path, capsys):
    path = tmp_path / "rows.json"
    case = programs.Case("advance", "", "ffcl", 2, "float32", 1, 1)
    rows = command._read(path)
    command.compile_missing([case], "a100", rows, path)
    assert "1/1" in capsys.readouterr().err
    again = command._read(path)
    assert json.dumps(list(again.values())) == json.dumps(list(rows.values()))
    command.compile_missing([case], "a100", again, path)
    assert capsys.readouterr().err == ""
    shown = path.with_suffix(".md").read_text()
    assert shown == show.render(list(again.values()))
    assert "## advance" in shown
    assert "1 of the grid's 656 programs" in shown
    assert "| 1 | 1 | float32 | advance, layer 2 | none | serves all |" in shown


def test_largest_group():
    needed = {1: 10_000_000_000, 5: 30_000_000_000}
    assert show.largest_group(needed, 30e9) == 5
    assert show.largest_group(needed, 34e9) == 5
    assert show.largest_group(needed, 35e9) == 6
    assert show.largest_group(needed, 9e9) == 0
