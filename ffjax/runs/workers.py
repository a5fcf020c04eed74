"""Runs in several processes of this machine, each with cores of its own.

The product of a small network is too short to be shared by cores: two processes of one
core each do more runs an hour than one process of two. This process claims runs, writes
their records and shows what goes on. The workers train, and have nothing that a kill
could lose but the layer in training.
"""

import contextlib
import dataclasses
import itertools
import multiprocessing
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Sequence
from multiprocessing import connection as connections
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import NamedTuple

import numpy as np
from absl import logging

from ffjax.config import build
from ffjax.config.spec import RunSpec, Way
from ffjax.errors import UserError
from ffjax.paper.names import count
from ffjax.runs import attempt, cost, local, order
from ffjax.runs.attempt import Outcome, WorkerError
from ffjax.runs.order import Run
from ffjax.runs.workdir import Workdir
from ffjax.training import checks, machine
from ffjax.training.machine import Machine

_MAX_RETRIES = 3  # of runs whose worker died
_POLL_SECONDS = 1.0  # between two looks at the clock while nothing is reported
_AHEAD = 8  # groups to choose the next one from
_START_SECONDS = 60.0  # of expected work; less is over before workers pay
_PROCESS_BYTES = 0.5e9  # of a process that has not loaded any images
# Of the matrix product that a layer of a step is, for one core to do it as well. On 2
# cores two workers do 1.1 to 1.3 times as many runs of 2x500; of 2x1000, 0.8 to 1.05.
_SMALL_PRODUCT = 100 * 784 * 500


# --- How many -------------------------------------------------------------------------


def check(asked: int, *, on_ray: bool) -> None:
    """Raises a UserError for a number of workers that no runs could have."""
    if asked < 2:
        return
    if on_ray:
        raise UserError(f"workers={asked}: not with --runner=ray, see --ray_cpus")
    if asked > len(_cores()):
        raise UserError(
            f"workers={asked}: there are {count(len(_cores()), 'core')} for them; 0 is "
            "automatic, 1 is this process alone"
        )


def choose(asked: int, runs: Sequence[Run], way: Way) -> int:
    """How many workers some runs have; 1: none, this process trains.

    A program for other cores rounds differently. So the number depends on all runs of a
    grid, done or not: a restart ends with the records of an undisturbed start.

    Args:
      asked: what the user wants; 0 = as many as pay.
      runs: all that there are.
      way: with what.

    Raises:
      UserError: so many cannot work here.
    """
    if asked == 1 or len(runs) < 2:
        return 1
    here = machine.here(way.num_devices)
    is_plain = here.is_cpu and len(here.devices) == 1
    if not asked:
        pays = is_plain and way.group_size < 2 and _pays([run.spec for run in runs])
        return _most(runs, here, len(_cores()), is_careful=True) if pays else 1
    if not is_plain:
        what = f"{count(len(here.devices), 'device')} ({here.devices[0].device_kind})"
        raise UserError(
            f"workers={asked}: only for one CPU device; with {what} a process uses all"
        )
    number = min(asked, len(runs))
    most = _most(runs, here, number)
    if most < number:
        raise UserError(
            f"workers={asked}: as many runs at once need about "
            f"{_needed(runs, here, number) / 1e9:.3g} GB, but this machine has "
            f"{here.memory / 1e9:.3g} GB; at most {most}"
        )
    return number


def _pays(specs: Sequence[RunSpec]) -> bool:
    """Whether workers are faster than this process alone."""
    work = sum(map(cost.cpu_seconds, specs))
    return work >= _START_SECONDS and all(map(is_small, set(specs)))


def is_small(spec: RunSpec) -> bool:
    """Whether a core trains this network about as fast as several do."""
    widths = [cost.sizes(spec).inputs, *spec.layer_widths]
    product = max(below * width for below, width in itertools.pairwise(widths))
    return spec.batch_size * product <= _SMALL_PRODUCT


def _most(
    runs: Sequence[Run], here: Machine, limit: int, *, is_careful: bool = False
) -> int:
    """How many workers the memory is enough for, up to a limit.

    With ``is_careful`` half of it is left to other programs, and workers keep the
    inputs of layers where a single process would.
    """
    stored = max(_run_bytes(spec)[0] for spec in {run.spec for run in runs})
    most = 1
    for number in range(2, min(limit, len(runs)) + 1):
        memory, budget = here.memory, _share(here, number).memory_budget
        if is_careful:
            memory /= 2
        if _needed(runs, here, number) > memory:
            break
        if is_careful and budget < stored <= here.memory_budget:
            break
        most = number
    return most


def _needed(runs: Sequence[Run], here: Machine, number: int) -> float:
    """Bytes that so many workers need."""
    budget = _share(here, number).memory_budget
    return number * max(
        # The inputs of two layers while the next ones are computed; or none are kept.
        rest + (2 * stored if stored <= budget else 0) + _PROCESS_BYTES
        for stored, rest in map(_run_bytes, {run.spec for run in runs})
    )


def _run_bytes(spec: RunSpec) -> tuple[float, float]:
    """About what a run needs: its layers' inputs, and all the rest with the images."""
    sizes = cost.sizes(spec)
    stored, rest = checks.member_bytes(
        build.architecture(spec, sizes.classes, sizes.image_shape),
        build.training(spec),
        (sizes.train, sizes.inputs),
    )
    return stored, rest + 4 * (sizes.train + sizes.test) * sizes.inputs


def _share(here: Machine, number: int) -> Machine:
    return dataclasses.replace(here, memory=here.memory / number)


def _cores() -> list[int]:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


# --- What the processes send each other -----------------------------------------------


class _Task(NamedTuple):
    """What a worker needs to know before its first run."""

    path: str
    way: Way
    save: bool
    cores: list[int]
    share: float  # of the memory
    verbosity: int


class _Said(NamedTuple):
    """A line for people."""

    text: str


class _Epochs(NamedTuple):
    """Progress of the run in training."""

    layer: int
    losses: np.ndarray


class _Done(NamedTuple):
    """What came of the runs that a worker was sent."""

    outcomes: list[Outcome]


def serve(connection: Connection, task: _Task) -> None:
    """Trains what is sent through the connection, in a process of its own."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    # Before JAX starts: XLA has a thread for each core that its process may use.
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, task.cores)
    os.environ["NPROC"] = str(len(task.cores))  # and where processes have no cores
    logging.set_verbosity(task.verbosity)
    machine.use_compilation_cache()
    trainer = local.Trainer(
        task.path,
        task.way,
        machine.here(share=task.share),
        lambda text: connection.send(_Said(text)),
        task.save,
    )
    while True:
        try:
            runs = connection.recv()
        except EOFError:
            return
        outcomes = trainer.train(
            runs, lambda layer, losses: connection.send(_Epochs(layer, losses))
        )
        connection.send(_Done(list(map(attempt.portable, outcomes))))


def _end_with_parent() -> None:
    """Ends this process when that which started it is gone, however it ended."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


# --- The workers, as seen from the process that has the workdir -----------------------


@dataclasses.dataclass
class _Hand:
    """A worker: its process, and what it is doing."""

    place: int
    process: SpawnProcess
    connection: Connection
    runs: list[Run] = dataclasses.field(default_factory=list)
    started: float = 0.0
    last: RunSpec | None = None  # the program that it has compiled

    def give(self, runs: list[Run]) -> None:
        self.runs, self.started = runs, time.monotonic()
        self.last = order.program(runs[0].spec)
        with contextlib.suppress(OSError):  # it is dead, as the next look at it says
            self.connection.send(runs)


class Crew:
    """Works through the runs of a workdir with several worker processes."""

    def __init__(self, workdir: Workdir, way: Way, number: int, *, save: bool = False):
        """So many workers; with ``save``, networks are kept beside their records."""
        self._workdir = workdir
        self._way = way
        self._save = save
        self._number = number
        self._hands: list[_Hand] = []
        self._queue: list[list[Run]] = []
        self._theirs: list[Run] = []
        self._deaths: Counter[str] = Counter()  # by the name of the run

    def work(self, pending: Sequence[Run]) -> None:
        """Returns when every run has a record or has failed."""
        cores = [len(self._cores(place)) for place in range(self._number)]
        each = " or ".join(str(n) for n in sorted(set(cores)))
        unit = "core" if each == "1" else "cores"
        self._workdir.display.print(f"{self._number} workers of {each} {unit} each")
        try:
            places = range(min(self._number, len(pending)))
            self._hands = [self._start(place) for place in places]
            while pending:
                self._run(pending)
                left = self._theirs
                if len(left) == len(pending):
                    self._workdir.wait_for(left)
                pending = left
        finally:
            self._stop()

    def _run(self, pending: Sequence[Run]) -> None:
        """Sees to it that runs are done, but for those that other processes have."""
        size = max(1, self._way.group_size)
        self._queue = list(order.groups(pending, lambda _: size))
        self._theirs = []
        for hand in self._hands:
            self._give_next(hand)
        while any(hand.runs for hand in self._hands):
            busy = {hand.connection: hand for hand in self._hands if hand.runs}
            for connection in connections.wait(list(busy), _POLL_SECONDS):
                self._hear(busy[connection])  # type: ignore[index]

    def _give_next(self, hand: _Hand) -> None:
        """Claims the next runs for an idle worker and sends them."""
        while self._queue and not hand.runs:
            runs = self._queue.pop(self._choose(hand))
            ours, theirs = self._workdir.claim(runs)
            self._theirs += theirs
            if ours:
                hand.give(ours)
                local.start(self._workdir, ours, hand.place)

    def _choose(self, hand: _Hand) -> int:
        """Which runs are next: not of a program that another worker may compile."""
        others = {
            other.last for other in self._hands if other is not hand and other.runs
        }
        dataset = order.dataset_key(self._queue[0][0].spec)
        for index, runs in enumerate(self._queue[:_AHEAD]):
            program = order.program(runs[0].spec)
            is_near = order.dataset_key(program) == dataset
            if is_near and (program == hand.last or program not in others):
                return index
        return 0

    def _hear(self, hand: _Hand) -> None:
        """Takes what a worker sent, or notices its death."""
        try:
            message = hand.connection.recv()
        except (EOFError, OSError):
            self._bury(hand)
            return
        match message:
            case _Said(text):
                self._workdir.say_once(text)
            case _Epochs(layer, losses):
                self._workdir.display.epochs_done(layer, losses, place=hand.place)
            case _Done(outcomes):
                self._take(hand, outcomes)

    def _take(self, hand: _Hand, outcomes: list[Outcome]) -> None:
        """Writes what came of a worker's runs, which goes on with others meanwhile."""
        runs, seconds = hand.runs, time.monotonic() - hand.started
        self._workdir.display.end_run(place=hand.place)
        try:
            hand.runs = []
            self._give_next(hand)
            self._theirs += local.settle(self._workdir, runs, outcomes, seconds)
        finally:
            self._workdir.release(runs)

    def _bury(self, hand: _Hand) -> None:
        """Lets a new worker go on with the runs of a dead one."""
        hand.process.join()
        hand.connection.close()
        runs, why = hand.runs, _cause(hand.process.exitcode)
        self._hands[hand.place] = new = self._start(hand.place)
        new.runs, new.started = runs, hand.started
        self._deaths[runs[0].name] += 1
        deaths = self._deaths[runs[0].name]
        if deaths > _MAX_RETRIES:
            lost = WorkerError(
                f"its worker died ({why}), {deaths} times in a row; --workers=1 needs "
                "less memory"
            )
            self._take(new, [lost] * len(runs))
            return
        self._workdir.display.print(
            f"{runs[0].title}: its worker died ({why}); retry {deaths} of "
            f"{_MAX_RETRIES}"
        )
        new.give(runs)
        local.start(self._workdir, runs, new.place)

    def _start(self, place: int) -> _Hand:
        """A new worker."""
        spawn = multiprocessing.get_context("spawn")
        ours, theirs = spawn.Pipe()
        task = _Task(
            self._workdir.path,
            self._way,
            self._save,
            self._cores(place),
            1 / self._number,
            logging.get_verbosity(),
        )
        process = spawn.Process(target=serve, args=(theirs, task), daemon=True)
        # A terminal sends Ctrl-C to all processes; this one ends the others then. The
        # tracker would be started with the first worker, and lets the signal in again.
        resource_tracker.ensure_running()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()  # so that its death is seen
        return _Hand(place, process, ours)

    def _cores(self, place: int) -> list[int]:
        """The cores of a worker: all have about as many, and each has its own."""
        cores = _cores()
        first, last = (part * len(cores) // self._number for part in (place, place + 1))
        return cores[first:last]

    def _stop(self) -> None:
        """Ends the workers; finished layers of their runs are in the workdir."""
        for hand in self._hands:
            hand.process.kill()
        for hand in self._hands:
            hand.process.join()
            hand.connection.close()
            self._workdir.release(hand.runs)


def _cause(code: int | None) -> str:
    """Why a process ended."""
    if code is not None and code < 0:
        return signal.Signals(-code).name
    return f"exit code {code}"
