"""Runs in this process, on all its devices."""

import dataclasses
import os
import time
from collections.abc import Callable, Sequence

import jax

from ffjax.config.spec import RunSpec, Way
from ffjax.data import Dataset
from ffjax.network import Network
from ffjax.runs import attempt, checkpoint, cost, order
from ffjax.runs.checkpoint import Layers
from ffjax.runs.datasets import Datasets, describe
from ffjax.runs.order import Run
from ffjax.runs.provenance import provenance
from ffjax.runs.workdir import Workdir, save_network
from ffjax.training import machine
from ffjax.training.machine import Machine
from ffjax.training.networks import OnEpochs

_MAX_PROGRAMS = 16  # kept in memory; those of a 2-layer network take about 25 MB


class Worker:
    """Works through the runs of a workdir, group after group."""

    def __init__(self, workdir: Workdir, way: Way, *, save: bool = False):
        """A worker; with ``save``, networks are kept beside their records."""
        self._workdir = workdir
        self._trainer = Trainer(
            workdir.path, way, machine.here(way.num_devices), workdir.say_once, save
        )

    def work(self, pending: Sequence[Run]) -> None:
        """Returns when every run has a record or has failed."""
        while pending:
            left = []
            for runs in order.groups(pending, self._trainer.group_size):
                left += self._settle(runs)
            if len(left) == len(pending):
                self._workdir.wait_for(left)
            pending = left

    def _settle(self, runs: Sequence[Run]) -> list[Run]:
        """Sees to it that runs are done; returns those that other processes have."""
        ours, theirs = self._workdir.claim(runs)
        try:
            return theirs + (self._do(ours) if ours else [])
        finally:
            self._workdir.release(ours)

    def _do(self, runs: Sequence[Run]) -> list[Run]:
        """Runs a group; returns those that were taken over meanwhile."""
        display = self._workdir.display
        started = time.monotonic()
        start(self._workdir, runs)
        outcomes = self._trainer.train(runs, display.epochs_done)
        display.end_run()
        return settle(self._workdir, runs, outcomes, time.monotonic() - started)


def start(workdir: Workdir, runs: Sequence[Run], place: int = 0) -> None:
    """Shows that a group begins."""
    spec = runs[0].spec
    size = cost.sizes(spec)
    more = f" and {len(runs) - 1} more" if len(runs) > 1 else ""
    workdir.display.start_run(
        f"{runs[0].title}{more}",
        cost.stage_work(spec, size.image_shape, size.classes),
        spec.epochs,
        sum(cost.cpu_seconds(run.spec) for run in runs),
        is_whole=spec.trainer == "backprop",
        place=place,
    )


def settle(
    workdir: Workdir,
    runs: Sequence[Run],
    outcomes: Sequence[attempt.Outcome],
    seconds: float,
) -> list[Run]:
    """Writes what came of a group; returns the runs that were taken over meanwhile."""
    lost = []
    for run, outcome in zip(runs, outcomes, strict=True):
        if isinstance(outcome, Exception):
            workdir.fail(run, outcome, seconds)
        elif workdir.write(run, outcome, seconds):
            checkpoint.forget(workdir.path, run.name)
        else:
            lost.append(run)
    return lost


class Trainer:
    """Trains runs of a workdir in this process; others claim them and write records."""

    def __init__(
        self,
        path: str,
        way: Way,
        here: Machine,
        say: Callable[[str], None],
        save: bool,
    ):
        """A trainer.

        Args:
          path: the folder, for finished layers and networks.
          way: with what to train.
          here: where.
          say: called with lines for people; some of them come again and again.
          save: whether to keep the networks.
        """
        self._path = path
        self._say = say
        self._extras = attempt.Extras(way.eval_every, self._save if save else None)
        self._group_size = way.group_size
        self._machine = here
        self._datasets = Datasets(way.data_dir)
        self._limit: int | None = None  # of groups, after one that was too large
        self._programs = Programs()

    def group_size(self, spec: RunSpec) -> int:
        """How many runs like this one to train at once."""
        size = attempt.group_size(spec, self._machine, self._group_size)
        return size if self._limit is None else min(size, self._limit)

    def train(
        self, runs: Sequence[Run], on_epochs: OnEpochs | None
    ) -> list[attempt.Outcome]:
        """What comes of a group: of each run its record, or what kept it from that."""
        spec = runs[0].spec
        try:
            dataset = self._datasets.load(spec)
        except Exception as error:  # a missing dataset
            return [error] * len(runs)
        self._say(describe(dataset))
        if note := machine.precision_note(spec.precision, self._machine):
            self._say(note)
        self._programs.use(runs)
        return attempt.attempt(
            runs,
            dataset,
            self._machine,
            kept=[self._kept(run, dataset) for run in runs],
            extras=self._extras,
            on_epochs=on_epochs,
            on_halved=self._halve,
        )

    def _halve(self, half: int, error: Exception) -> None:
        self._say(attempt.halved(half, error))
        if attempt.is_out_of_memory(error):
            self._limit = half

    def _save(self, run: Run, network: Network) -> None:
        save_network(self._path, run, network.to_bytes())

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
        if machine.num_cores() != os.cpu_count():  # sums are in another order then
            identity["cores"] = machine.num_cores()
        if self._extras.eval_every:  # a curve has no gaps
            identity["eval_every"] = self._extras.eval_every
        return Layers(self._path, run.name, identity, self._say)


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
