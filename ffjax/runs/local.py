"""Runs in this process, on all its devices."""

import dataclasses
import time
from collections.abc import Sequence

import jax

from ffjax.config.spec import RunSpec, Way
from ffjax.data import Dataset
from ffjax.runs import attempt, cost, order
from ffjax.runs.checkpoint import Layers
from ffjax.runs.datasets import Datasets, describe
from ffjax.runs.order import Run
from ffjax.runs.provenance import provenance
from ffjax.runs.workdir import Workdir
from ffjax.training import machine

_MAX_PROGRAMS = 16  # kept in memory; those of a 2-layer network take about 25 MB


class Worker:
    """Works through the runs of a workdir, group after group."""

    def __init__(self, workdir: Workdir, way: Way, *, save: bool = False):
        """A worker; with ``save``, networks are kept beside their records."""
        self._workdir = workdir
        self._extras = attempt.Extras(
            way.eval_every, workdir.save_network if save else None
        )
        self._group_size = way.group_size
        self._machine = machine.here(way.num_devices)
        self._datasets = Datasets(way.data_dir)
        self._limit: int | None = None  # of groups, after one that was too large
        self._programs = Programs()

    def work(self) -> None:
        """Returns when every run has a record or has failed."""
        pending = self._workdir.open()
        while pending:
            left = []
            for runs in order.groups(pending, self._size):
                left += self._settle(runs)
            if len(left) == len(pending):
                self._workdir.wait_for(left)
            pending = left

    def _size(self, spec: RunSpec) -> int:
        size = attempt.group_size(spec, self._machine, self._group_size)
        return size if self._limit is None else min(size, self._limit)

    def _settle(self, runs: Sequence[Run]) -> list[Run]:
        """Sees to it that runs are done; returns those that other processes have."""
        ours, theirs = self._workdir.claim(runs)
        try:
            return theirs + (self._do(ours) if ours else [])
        finally:
            self._workdir.release(ours)

    def _do(self, runs: Sequence[Run]) -> list[Run]:
        """Runs a group; returns those that were taken over meanwhile."""
        workdir, spec = self._workdir, runs[0].spec
        started = time.monotonic()
        more = f" and {len(runs) - 1} more" if len(runs) > 1 else ""
        work = sum(cost.cpu_seconds(run.spec) for run in runs)
        name = f"{runs[0].title}{more}"
        is_whole = spec.trainer == "backprop"
        workdir.display.start_run(
            name, spec.num_stages, spec.epochs, work, is_whole=is_whole
        )
        kept: list[Layers] = []
        outcomes: list[attempt.Outcome]
        try:
            dataset = self._datasets.load(spec)
        except Exception as error:  # a missing dataset
            outcomes = [error] * len(runs)
        else:
            workdir.say_once(describe(dataset))
            if note := machine.precision_note(spec.precision, self._machine):
                workdir.say_once(note)
            self._programs.use(runs)
            kept = [self._kept(run, dataset) for run in runs]
            outcomes = attempt.attempt(
                runs,
                dataset,
                self._machine,
                kept=kept,
                extras=self._extras,
                on_epochs=workdir.display.epochs_done,
                on_halved=self._halve,
            )
        seconds = time.monotonic() - started
        lost = []
        for position, (run, outcome) in enumerate(zip(runs, outcomes, strict=True)):
            if isinstance(outcome, Exception):
                workdir.fail(run, outcome, seconds)
            elif workdir.write(run, outcome, seconds):
                kept[position].remove()
            else:
                lost.append(run)
        workdir.display.end_run()
        return lost

    def _halve(self, half: int, error: Exception) -> None:
        self._workdir.display.print(attempt.halved(half, error))
        if attempt.is_out_of_memory(error):
            self._limit = half

    def _kept(self, run: Run, dataset: Dataset) -> Layers:
        """Where a run's finished layers are kept, with all that they depend on."""
        origin = provenance()
        identity = {
            "spec": dataclasses.asdict(run.spec.identity()),
            "seed": run.seed,
            "data": dict(dataset.source),
            "goodness": attempt.goodness_source(run.spec),
            "device": origin["device"],
            "versions": origin["versions"],
        }
        if self._extras.eval_every:  # a curve has no gaps
            identity["eval_every"] = self._extras.eval_every
        path, report = self._workdir.path, self._workdir.display.print
        return Layers(path, run.name, identity, report)


class Programs:
    """The compiled programs in memory: a whole grid has thousands, too many to keep."""

    def __init__(self):
        """None at first."""
        self._known: set[RunSpec] = set()

    def use(self, runs: Sequence[Run]) -> None:
        """Forgets all programs if these runs would bring one too many."""
        for program in (order.program(run.spec) for run in runs):
            if program in self._known:
                continue
            if len(self._known) == _MAX_PROGRAMS:
                jax.clear_caches()
                self._known.clear()
            self._known.add(program)
