"""The benchmark runs, compares like with like, and counts its goals rightly."""

import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from typing import Any

import pytest

pytest.importorskip("torch", reason="the benchmark needs the extra 'bench'")
pytest.importorskip("entmax", reason="the benchmark needs the extra 'bench'")

from experiments.benchmark import cases, measure, recipe, rivals, show
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


# The rivals train the same layers: kept inputs are those that a step would compute.
@pytest.mark.parametrize("pathway", cases.PATHWAYS)
@pytest.mark.parametrize("goodness", ["burstiness", "softmax_energy_margin"])
def test_rivals_agree(bench: measure.Bench, pathway: str, goodness: str):
    prepared = bench.prepare(cases.Case(pathway, goodness, 2, 32))
    wanted = rivals.variants(with_compile=False)
    assert len(wanted) == 6
    rows = rivals.measure_rivals(bench, prepared, wanted, lambda text: None)
    assert len(rows) == 2 * 6 * TINY.rounds
    for layer in (1, 2):
        losses = {
            rivals.Variant(*(row[name] for name in rivals.Variant._fields)): row["loss"]
            for row in rows
            if row["layer"] == layer
        }
        truth = losses[rivals.OURS[0]]
        for variant, loss in losses.items():
            tolerance = 1e-4 if variant.precision == "float32" else 0.05
            assert loss == pytest.approx(truth, rel=tolerance), variant
    for row in rows:
        share = row["inputs_seconds"] / cases.EPOCHS
        assert row["amortised_seconds"] == pytest.approx(row["seconds"] + share)
        has_inputs = row["lower"] == "kept" and row["layer"] == 2
        assert (row["inputs_seconds"] > 0) == has_inputs


@pytest.mark.filterwarnings("ignore")  # of torch.compile, about its own parts
def test_compiled_rivals_agree(bench: measure.Bench):
    if problem := rivals.compile_problem():
        pytest.skip(problem)
    prepared = bench.prepare(cases.Case("ffcl", "burstiness", 1, 32))
    wanted = [v for v in rivals.THEIRS if v.compiled] + [*rivals.OURS]
    rows = rivals.measure_rivals(bench, prepared, wanted, lambda text: None)
    losses = [row["loss"] for row in rows if row["precision"] == "float32"]
    assert len(losses) == 3
    assert losses == pytest.approx([losses[-1]] * 3, rel=1e-4)


def test_without_a_compiler_the_compiled_rivals_are_left_out():
    code = (
        "from experiments.benchmark import rivals\n"
        "problem = rivals.compile_problem()\n"
        "assert problem.startswith('torch.compile is left out: '), problem\n"
        "assert 'g++' in problem and '\\n' not in problem"
    )
    with tempfile.TemporaryDirectory() as cache:
        variables = {"CXX": "/nowhere/g++", "TORCHINDUCTOR_CACHE_DIR": cache}
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env={**os.environ, **variables},
            check=True,
            timeout=300,
        )
    assert not any(v.compiled for v in rivals.variants(False) if v.framework == "torch")


def rival_rows(seconds: dict[rivals.Variant, list[float]]) -> list[show.Row]:
    """Layer 2 of ffcl burstiness: samples of some variants."""
    place = {"pathway": "ffcl", "goodness": "burstiness", "layer": 2}
    return [
        {**place, **variant._asdict(), "round": turn, "amortised_seconds": sample}
        for variant, samples in seconds.items()
        for turn, sample in enumerate(samples, start=1)
    ]


def test_goals_against_the_best_rival():
    eager = rivals.Variant("torch", "kept", False, "float32")
    ours = rivals.OURS[0]
    seconds = {eager: [9.0, 8.0], eager._replace(compiled=True): [3.0, 3.0]}
    measured = results([2.0, 2.0])
    measured["rivals"] = rival_rows({**seconds, ours: [2.0, 4.0]})
    figure = "ffcl burstiness, layer 2, inputs kept by both: best float32 "
    judged = {goal["figure"]: goal for goal in show.goals(measured)}
    goal = judged[f"{figure}PyTorch / ffjax"]
    assert (goal["least"], goal["most"], goal["met"]) == (0.75, 1.5, True)


def test_every_measurement_is_a_row():
    rows = show.flat(results([2.0, 3.0]))
    assert len(rows) == 2 * 4 * 2 + 2  # layers, samples of each, rounds; and inputs
    for row in rows:
        assert {"part", "pathway", "goodness", "layer", "what", "round"} <= set(row)
    times = [r["seconds"] for r in rows if r["what"] == "ffjax" and r["layer"] == 2]
    assert times == [2.0, 3.0]


@pytest.mark.parametrize(
    ("others", "stolen", "word"),
    [(0.01, 0.0, "idle"), (0.2, 0.0, "BUSY"), (0.0, 0.1, "BUSY"), (None, None, "not")],
)
def test_it_says_whether_the_machine_was_idle(others, stolen, word):
    machine = {"others": others, "stolen": stolen, "load_before": 0.1}
    assert word in show._idle_note(machine)


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
    empty = {"depth": [], "width": [], "evaluation": [], "rivals": []}
    return {"training": layers, **empty}


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


def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "experiments.benchmark", *arguments],
        cwd=ROOT,
        env={**os.environ, "JAX_PLATFORMS": "cpu", **variables},
        capture_output=True,
        text=True,
        timeout=600,
    )


def test_command(tmp_path: pathlib.Path):
    # Without a compiler, because compiling all rivals takes minutes.
    cache = str(tmp_path / "cache")
    nothing = {"CXX": "/nowhere/g++", "TORCHINDUCTOR_CACHE_DIR": cache}
    done = run("--size=tiny", f"--output={tmp_path}", **nothing)
    assert done.returncode == 0, done.stderr
    assert "torch.compile is left out" in done.stdout
    assert "the same work" in done.stdout
    measured = json.loads((tmp_path / "benchmark.json").read_text())
    assert {row["framework"] for row in measured["memory"]} == {"torch", "ffjax"}
    parts = {row["part"] for row in measured["measurements"]}
    assert parts == {"training", "depth", "width", "evaluation", "rivals"}
    assert "images an epoch" in done.stdout
    assert "The machine was " in done.stdout
    assert all(row["peak"] > row["loaded"] > 0 for row in measured["memory"])
    assert "## Goals" in (tmp_path / "benchmark.md").read_text()
    assert (tmp_path / "benchmark.png").read_bytes().startswith(b"\x89PNG")


def test_help_needs_nothing_but_ffjax():
    done = run("--help")
    assert done.returncode == 0, done.stderr
    assert "--size" in done.stdout


@pytest.mark.parametrize("flag", ["goodness", "rivals"])
def test_unknown_goodness(flag: str):
    done = run(f"--{flag}=nope")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert f"{flag}='nope'" in done.stderr
