"""The benchmark runs, compares like with like, and counts its goals rightly."""

import dataclasses
import json
import os
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="the benchmark needs the extra 'bench'")
pytest.importorskip("entmax", reason="the benchmark needs the extra 'bench'")

from experiments.benchmark import cases, measure, recipe, show

ROOT = pathlib.Path(__file__).parents[1]
ALL = cases.SIZES["full"].goodness
TINY = dataclasses.replace(cases.SIZES["tiny"], goodness=ALL)


@pytest.fixture(scope="module")
def bench():
    return measure.Bench(TINY, cases.load_images(TINY))


# PyTorch knows nothing of ffjax's code: same weights and batches, same losses and
# scores means that both do what the paper says, or make the same mistake twice.
@pytest.mark.parametrize(
    ("pathway", "goodness"),
    [("standard", name) for name in ALL] + [("ffcl", name) for name in cases.MAIN],
)
def test_frameworks_agree(bench, pathway, goodness):
    prepared = bench.prepare(cases.Case(pathway, goodness, (32, 32)))
    bench.measure_training(prepared, 0, variants=False)
    scores = {}
    bench.measure_evaluation(prepared, scores, 0)
    assert [row["loss_error"] < 1e-4 for row in prepared.rows] == [True, True]
    assert scores["score_error"] < 1e-4


def test_disagreement_is_seen(bench, monkeypatch):
    prepared = bench.prepare(cases.Case("ffcl", "sos", (32,)))
    monkeypatch.setattr(recipe, "THRESHOLD", 2.1)
    bench.measure_training(prepared, 0, variants=False)
    assert prepared.rows[0]["loss_error"] > show.TOLERANCE


def results(ffjax):
    """Two rounds of two layers; only ffjax's seconds vary."""
    row = {"pathway": "ffcl", "goodness": "burstiness", "loss_error": 0.0}
    times = {"torch": [6.0, 9.0], "ffjax": ffjax, "products": [2.0, 2.0]}
    times["together"] = ffjax
    layers = [{**row, "layer": 1, **times}]
    layers += [{**row, "layer": 2, **times, "inputs": [60.0, 120.0]}]
    return {"training": layers, "depth": [], "width": [], "evaluation": []}


def test_totals_count_the_share_of_stored_inputs():
    rows = results([2.0, 2.0])["training"]
    assert show.totals(rows, "torch") == [12.0, 18.0]
    assert show.totals(rows, "ffjax") == [5.0, 6.0]


@pytest.mark.parametrize(("ffjax", "met"), [([2.0, 2.0], True), ([9.0, 9.0], False)])
def test_goals(ffjax, met):
    found = {goal["figure"]: goal for goal in show.goals(results(ffjax))}
    assert len(found) == 2  # those of networks that were not measured are left out
    assert found["ffcl burstiness: training, PyTorch / ffjax"]["met"] == met
    name = "ffcl burstiness, layer 2: training / its products alone"
    assert found[name]["value"] == ffjax[0] / 2


def test_nan_is_not_agreement():
    found = results([2.0, 2.0])
    found["training"][0]["loss_error"] = float("nan")
    assert not show.largest_error(found) <= show.TOLERANCE


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "experiments.benchmark", *arguments],
        cwd=ROOT,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=600,
    )


def test_command(tmp_path):
    done = run("--size=tiny", f"--output={tmp_path}")
    assert done.returncode == 0, done.stderr
    assert "the same work" in done.stdout
    found = json.loads((tmp_path / "benchmark.json").read_text())
    assert {row["framework"] for row in found["memory"]} == {"torch", "ffjax"}
    assert all(row["peak"] > row["loaded"] > 0 for row in found["memory"])
    assert "## Goals" in (tmp_path / "benchmark.md").read_text()
    assert (tmp_path / "benchmark.png").read_bytes().startswith(b"\x89PNG")


def test_unknown_goodness():
    done = run("--goodness=nope")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "goodness='nope'" in done.stderr
