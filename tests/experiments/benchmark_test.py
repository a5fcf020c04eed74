"""The benchmark runs, compares like with like, and counts its goals rightly."""

import dataclasses
import json
import os
import pathlib
import subprocess
import sys
from typing import Any

import pytest

pytest.importorskip("torch", reason="the benchmark needs the extra 'bench'")
pytest.importorskip("entmax", reason="the benchmark needs the extra 'bench'")

from experiments.benchmark import cases, measure, recipe, show
from ffjax import config

ROOT = pathlib.Path(__file__).parents[2]
ALL = cases.SIZES["full"].goodness
TINY = dataclasses.replace(cases.SIZES["tiny"], goodness=ALL)


@pytest.fixture(scope="module")
def bench() -> measure.Bench:
    return measure.Bench(TINY, cases.load_images(TINY))


# PyTorch knows nothing of ffjax's code: same weights and batches, same losses and
# scores means that both do what the paper says, or make the same mistake twice.
@pytest.mark.parametrize(
    ("pathway", "goodness"),
    [("standard", name) for name in ALL] + [("ffcl", name) for name in cases.MAIN],
)
def test_frameworks_agree(bench: measure.Bench, pathway: str, goodness: str):
    prepared = bench.prepare(cases.Case(pathway, goodness, 2, 32))
    bench.measure_training(prepared, 0, variants=False)
    scores: measure.Row = {}
    bench.measure_evaluation(prepared, scores, 0)
    assert [row["loss_error"] < 1e-4 for row in prepared.rows] == [True, True]
    assert scores["score_error"] < 1e-4


def test_disagreement_is_seen(bench: measure.Bench, monkeypatch: pytest.MonkeyPatch):
    prepared = bench.prepare(cases.Case("ffcl", "sos", 1, 32))
    monkeypatch.setattr(recipe, "THRESHOLD", 2.1)
    bench.measure_training(prepared, 0, variants=False)
    assert prepared.rows[0]["loss_error"] > show.TOLERANCE


def test_it_trains_what_a_run_of_ffjax_trains(bench: measure.Bench):
    """The recipe's numbers are its own; a run's fields are the paper's."""
    training = bench.prepare(cases.Case("ffcl", "sos", 1, 32)).training
    assert training.learning_rate == recipe.LEARNING_RATE
    assert training.threshold == recipe.THRESHOLD
    assert config.RunSpec().label_scale == recipe.LABEL_SCALE


def results(ffjax: list[float]) -> show.Measured:
    """Two rounds of two layers; only ffjax's seconds vary."""
    row: dict[str, Any] = {
        "pathway": "ffcl",
        "goodness": "burstiness",
        "loss_error": 0.0,
    }
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
def test_goals(ffjax: list[float], met: bool):
    judged = {goal["figure"]: goal for goal in show.goals(results(ffjax))}
    assert len(judged) == 2  # those of networks that were not measured are left out
    assert judged["ffcl burstiness: training, PyTorch / ffjax"]["met"] == met
    name = "ffcl burstiness, layer 2: training / its products alone"
    assert judged[name]["value"] == ffjax[0] / 2


def test_nan_is_not_agreement():
    measured = results([2.0, 2.0])
    measured["training"][0]["loss_error"] = float("nan")
    assert not show.largest_error(measured) <= show.TOLERANCE


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "experiments.benchmark", *arguments],
        cwd=ROOT,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=600,
    )


def test_command(tmp_path: pathlib.Path):
    done = run("--size=tiny", f"--output={tmp_path}")
    assert done.returncode == 0, done.stderr
    assert "the same work" in done.stdout
    measured = json.loads((tmp_path / "benchmark.json").read_text())
    assert {row["framework"] for row in measured["memory"]} == {"torch", "ffjax"}
    assert all(row["peak"] > row["loaded"] > 0 for row in measured["memory"])
    assert "## Goals" in (tmp_path / "benchmark.md").read_text()
    assert (tmp_path / "benchmark.png").read_bytes().startswith(b"\x89PNG")


def test_help_needs_nothing_but_ffjax():
    done = run("--help")
    assert done.returncode == 0, done.stderr
    assert "--size" in done.stdout


def test_unknown_goodness():
    done = run("--goodness=nope")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "goodness='nope'" in done.stderr
