"""Runs in this process, on all its devices."""

import dataclasses
import time
from collections.abc import Sequence

import jax

from ffjax import config, data
from ffjax.runs import cost, machine, checkpoint, order, attempt
from ffjax.runs.workdir import Ledger
from ffjax.runs.order import Run

_MAX_PROGRAMS = 16  # kept in memory; those of a 2-layer network take about 25 MB


class Worker:
    """Works through the runs of a ledger, one group after another."""

    def __init__(self, ledger: Ledger, group_size: int = 0, num_devices: int = 0):
        """A worker.

        Args:
          ledger: the runs.
          group_size: how many to train in one program; 0 = automatic.
          num_devices: how many devices to use; 0 = all.
        """
        self._ledger = ledger
        self._group_size = group_size
        self._machine = machine.here(num_devices)
        self._limit: int | None = None  # of groups, after one that was too large
        self._programs = Programs()

    def work(self) -> None:
        """Returns when every run has a record or has failed."""
        pending = self._ledger.open()
        while pending:
            left = []
            for runs in order.groups(pending, self._size):
                left += self._settle(runs)
            if len(left) == len(pending):
                self._ledger.wait_for(left)
            pending = left

    def _size(self, spec: config.RunSpec) -> int:
        size = attempt.group_size(spec, self._machine, self._group_size)
        return size if self._limit is None else min(size, self._limit)

    def _settle(self, runs: Sequence[Run]) -> list[Run]:
        """Sees to it that runs are done; returns those that other processes have."""
        ours, theirs = self._ledger.claim(runs)
        try:
            return theirs + (self._do(ours) if ours else [])
        finally:
            self._ledger.release(ours)

    def _do(self, runs: Sequence[Run]) -> list[Run]:
        """Runs a group; returns those that were taken over meanwhile."""
        ledger, spec = self._ledger, runs[0].spec
        started = time.monotonic()
        more = f" and {len(runs) - 1} more" if len(runs) > 1 else ""
        work = sum(cost.cpu_seconds(run.spec) for run in runs)
        name = f"{runs[0].title}{more}"
        ledger.display.start_run(name, spec.num_stages, spec.epochs, work)
        for run in runs:
            self._programs.use(run.spec)
        kept: list[checkpoint.Layers] = []
        origin = machine.provenance()
        try:
            dataset = ledger.load(spec)
        except Exception as error:  # a missing dataset
            outcomes = [error] * len(runs)
        else:
            ledger.tell_once(describe(dataset))
            kept = [self._kept(run, dataset) for run in runs]
            outcomes = attempt.attempt(
                [(run.spec, run.seed) for run in runs],
                dataset,
                self._machine,
                kept=kept,
                on_epochs=ledger.display.epochs_done,
                on_halved=self._halve,
            )
        seconds = time.monotonic() - started
        lost = []
        for position, (run, outcome) in enumerate(zip(runs, outcomes, strict=True)):
            if isinstance(outcome, Exception):
                ledger.fail(run, outcome, seconds)
            elif ledger.write(run, outcome, origin, seconds):
                kept[position].remove()
            else:
                lost.append(run)
        ledger.display.end_run()
        return lost

    def _halve(self, half: int, error: Exception) -> None:
        self._ledger.display.print(attempt.halved(half, error))
        if attempt.is_out_of_memory(error):
            self._limit = half

    def _kept(self, run: Run, dataset: data.Dataset) -> checkpoint.Layers:
        origin = machine.provenance()
        identity = {
            "spec": dataclasses.asdict(run.spec),
            "seed": run.seed,
            "data": dataset.source,
            "device": origin["device"],
            "versions": origin["versions"],
        }
        return checkpoint.Layers(
            self._ledger.workdir, run.name, identity, self._ledger.display.print
        )


class Programs:
    """The compiled programs in memory: a whole grid has thousands, too many to keep."""

    def __init__(self):
        """None at first."""
        self._known: set[config.RunSpec] = set()

    def use(self, spec: config.RunSpec) -> None:
        """Forgets all programs if this run would bring one too many."""
        if order.program(spec) in self._known:
            return
        if len(self._known) == _MAX_PROGRAMS:
            jax.clear_caches()
            self._known.clear()
        self._known.add(order.program(spec))


def describe(dataset: data.Dataset) -> str:
    """Where the images of the next runs come from."""
    kind = dataset.source["kind"]
    unverified = (
        ", content not verified" if not dataset.source.get("verified", True) else ""
    )
    return (
        f"data: {dataset.name} ({kind}{unverified}), {len(dataset.train_labels)} "
        f"training and {len(dataset.test_labels)} test images"
    )
