"""A group of runs: its records, its halving, its size; real training at a tiny size."""

import types

import jax
import numpy as np
import pytest
import small_runs
from small_runs import a_run, as_cell

from ffjax import config, data
from ffjax.records import Record
from ffjax.runs import attempt
from ffjax.runs.provenance import provenance
from ffjax.training import machine


def test_a_record_says_what_came_out_and_with_what(real):
    record, spec = real.record, real.run.spec
    assert (record.cell, record.seed, record.spec) == (real.run.cell.id, 42, spec)
    assert record.status == "ok"
    assert sum(map(sum, record.confusion)) == record.test_size == 50
    assert record.train_size == 100
    assert np.shape(record.losses) == (spec.num_layers, spec.epochs)
    assert len(record.accuracy_layers) == spec.num_layers
    assert record.accuracy_concat is not None
    assert record.device == jax.local_devices()[0].device_kind
    assert (record.versions, record.commit) == (
        provenance()["versions"],
        provenance()["commit"],
    )
    assert record.data["kind"] == "embedded"
    assert record.class_names == list(real.dataset.class_names)
    assert record.group_size == 1
    assert record.goodness_source == ""
    assert record.finished.endswith("+00:00")
    assert record.time.train_s > 0
    assert record.time.eval_s > 0


def test_a_validation_part_is_judged_too(real):
    dataset = data.load(
        "fashion_mini", train_limit=100, test_limit=50, valid_fraction=0.2
    )
    run = a_run(goodness="sos", valid_fraction=0.2)
    (record,) = attempt.run_group([run], dataset, machine.here())
    assert record.train_size == 80
    assert record.valid_size == 20
    assert record.accuracy_valid is not None
    assert 20 * record.accuracy_valid % 100 == 0
    assert real.record.accuracy_valid is None


def test_backpropagation_gives_a_record_of_one_stage(real):
    run = a_run(trainer="backprop")
    (record,) = attempt.run_group([run], real.dataset, machine.here())
    assert [len(losses) for losses in record.losses] == [run.spec.epochs]
    assert record.accuracy_concat is None


def test_a_divergence_is_a_record(real):
    cell = as_cell(real.run, learning_rate=1e30)
    run, spec = real.run._replace(cell=cell), cell.spec
    (record,) = attempt.run_group([run], real.dataset, machine.here())
    assert record.status == "diverged"
    assert record.diverged_at is not None
    assert (record.diverged_at.layer, record.diverged_at.epoch) == (0, 0)
    assert record.losses == [[None]]
    assert record.accuracy_layers[1:] == [None] * (spec.num_layers - 1)


def test_a_group_gives_each_run_its_record(real):
    runs = [
        a_run(seed=seed, goodness="sos", norm_gate=gate)
        for seed, gate in ((42, False), (43, False), (42, True))
    ]
    together = attempt.run_group(runs, real.dataset, machine.here())
    assert [record.group_size for record in together] == [3] * 3
    for run, record in zip(runs, together, strict=True):
        (alone,) = attempt.run_group([run], real.dataset, machine.here())
        assert (record.spec, record.seed) == (alone.spec, alone.seed)
        assert abs(record.accuracy - alone.accuracy) <= 2  # of 50 images
        losses = (np.array(one.losses, float) for one in (record, alone))
        np.testing.assert_allclose(*losses, rtol=1e-4)


def _limited(monkeypatch, limit, error):
    """Groups above a size fail; the sizes that were tried are listed."""
    sizes = []

    def run_group(runs, *rest, **more):
        sizes.append(len(runs))
        if len(runs) > limit:
            raise error
        return [small_runs.record(run) for run in runs]

    monkeypatch.setattr(attempt, "run_group", run_group)
    return sizes


def test_a_group_that_is_too_large_is_halved(monkeypatch, real):
    error = MemoryError("no")
    sizes, said = _limited(monkeypatch, 2, error), []
    runs = [a_run(seed=seed) for seed in range(5)]
    outcomes = attempt.attempt(
        runs, real.dataset, machine.here(), on_halved=lambda *news: said.append(news)
    )
    assert sizes == [5, 3, 2, 1, 2]
    assert said == [(3, error), (2, error)]
    made = [outcome for outcome in outcomes if isinstance(outcome, Record)]
    assert [record.seed for record in made] == [0, 1, 2, 3, 4]


def test_a_run_that_fails_does_not_take_its_group_along(monkeypatch, real):
    def run_group(runs, *rest, **more):
        if any(run.seed == 3 for run in runs):
            raise ValueError("seed 3")
        return [small_runs.record(run) for run in runs]

    monkeypatch.setattr(attempt, "run_group", run_group)
    runs = [a_run(seed=seed) for seed in range(5)]
    outcomes = attempt.attempt(
        runs, real.dataset, machine.here(), on_halved=lambda *_: None
    )
    is_error = [isinstance(outcome, ValueError) for outcome in outcomes]
    assert is_error == [False, False, False, True, False]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (MemoryError("no"), "not enough memory"),
        (RuntimeError("RESOURCE_EXHAUSTED: on the device"), "not enough memory"),
        (ValueError("odd\nlines"), r"ValueError('odd\nlines')"),
    ],
)
def test_why_a_group_was_halved(error, said):
    text = attempt.halved(3, error)
    assert text == (
        f"a group of runs failed ({said}); tried again with at most 3 at once"
    )


def test_how_many_runs_go_together():
    spec = config.make_spec(pathway="standard")
    assert attempt.group_size(spec, machine.here()) == 1, "a CPU is busy with one"
    assert attempt.group_size(spec, machine.here(), 7) == 7
    accelerator = types.SimpleNamespace(platform="gpu")
    one = machine.Machine((accelerator,), 32e9)  # a quarter for the inputs
    # 60,000 images under 10 labels with 2000 activations are 4.8 GB.
    assert attempt.group_size(spec, one) == 1
    assert attempt.group_size(spec, machine.Machine((accelerator,) * 8, 80e9)) == 32
    free = config.make_spec(pathway="ffcl")
    assert 10 <= attempt.group_size(free, one) <= 20
    assert attempt.group_size(spec, machine.Machine((accelerator,), 4e9)) > 1, (
        "what is recomputed needs no memory"
    )
