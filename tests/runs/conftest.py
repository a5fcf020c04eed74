import types

import pytest
import small_runs

import ffjax
from ffjax import data
from ffjax.runs import attempt
from ffjax.training import machine, networks


@pytest.fixture(autouse=True)
def drawn(monkeypatch, tmp_path):
    """Reports are not drawn in this folder; what would have been is listed."""
    calls = []

    def write(workdir, *, figures=True):
        calls.append(figures)
        return tmp_path / "index.html"

    def summary_table(made, *others):
        return f"a table of {len(made)} records"

    stub = types.SimpleNamespace(write=write, summary_table=summary_table)
    monkeypatch.setattr(ffjax, "report", stub, raising=False)
    return calls


@pytest.fixture
def trained(monkeypatch):
    """Training replaced by something quick; the runs that were asked for are listed."""
    calls = []

    def fake(runs, dataset, machine, **more):
        calls.extend((run.spec.goodness, run.seed) for run in runs)
        return [small_runs.record(run) for run in runs]

    monkeypatch.setattr(attempt, "run_group", fake)
    return calls


@pytest.fixture
def before_training(monkeypatch):
    """Lets a test call ``change(runs)`` before what training is now."""

    def replace(change):
        then = attempt.run_group

        def changed(runs, *rest, **more):
            change(runs)
            return then(runs, *rest, **more)

        monkeypatch.setattr(attempt, "run_group", changed)

    return replace


@pytest.fixture
def trained_layers(monkeypatch):
    """The layers that are trained for real, listed."""
    calls, train = [], networks._train_layer

    def counted(group, index, *rest):
        calls.append(index)
        return train(group, index, *rest)

    monkeypatch.setattr(networks, "_train_layer", counted)
    return calls


@pytest.fixture(scope="session")
def real():
    """A run whose goodness function has a state of its own, its data and its record."""
    run = small_runs.a_run(goodness="softmax_energy_margin", pathway="standard")
    dataset = data.load("fashion_mini", train_limit=100, test_limit=50)
    (record,) = attempt.run_group([run], dataset, machine.here())
    return types.SimpleNamespace(run=run, dataset=dataset, record=record)
