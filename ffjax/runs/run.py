"""Cells -> records: skips what is done, shares the work, survives what can happen."""

import collections
import contextlib
import gc
import os
import pathlib
import shlex
import signal
import threading
import time
import types
from collections.abc import Iterator, Sequence

from ffjax.config import Cell
from ffjax.config.spec import Way
from ffjax.paper.names import count, shortened
from ffjax.records import Record
from ffjax.runs import cost, order, ray_cluster, workdir
from ffjax.runs.display import Display, suggest, summarise
from ffjax.runs.local import Worker
from ffjax.runs.locks import Claims
from ffjax.runs.tensorboard import Board
from ffjax.runs.workdir import Workdir
from ffjax.runs.workers import Crew, choose

_MAX_LISTED = 30  # cells in the table at the end; the report has all of them
_REPORT_SECONDS = 5.0  # between two drawings of the report while a grid runs
_AGAIN_SECONDS = 0.05  # until a signal is sent again that came in the wrong moment


def run(
    cells: Sequence[Cell],
    path: str,
    way: Way,
    *,
    ray: ray_cluster.Ray | None = None,
    workers: int = 1,
    arguments: Sequence[str] = (),
    is_grid: bool = False,
    save: bool = False,
    tensorboard: bool = False,
) -> int:
    """Runs every cell with every seed that has no record yet.

    Args:
      cells: what to run.
      path: the folder of the records.
      way: with what.
      ray: the cluster to run on; None: this machine.
      workers: processes that train; 0 = as many as pay, 1 = this process alone.
      arguments: of the command line, to say how to go on after an interruption.
      is_grid: whether the cells are a grid's, which ends in a report, even if overrides
        left but one run.
      save: whether to keep the networks, in ``<path>/networks``.
      tensorboard: whether to write event files, in ``<path>/tensorboard``.

    Returns:
      The exit code: 0, or 1 if a run failed.

    Raises:
      KeyboardInterrupt: after Ctrl-C or SIGTERM, when all is left in order.
    """
    workdir.prepare(path)
    board = Board(path) if tensorboard else None
    arrange = order.by_value if way.order == "value" else order.ordered
    runs = arrange(cells)
    with _ending_as_interrupt(), contextlib.ExitStack() as stack:
        work = sum(cost.cpu_seconds(run.spec) for run in runs)
        display = stack.enter_context(Display(len(runs), work, is_grid=is_grid))
        with workdir.writing(path):
            claims = Claims(pathlib.Path(path) / "claims")
        stack.enter_context(claims)
        timer = _AfterRecord(path, display, board)
        folder = Workdir(path, runs, display, claims, timer.draw)
        try:
            if ray is None:
                _work_here(folder, way, workers, save)
            else:
                ray_cluster.Driver(folder, ray, way, save=save).work()
        except KeyboardInterrupt:
            stack.close()
            _say_how_to_go_on(folder, arguments, keeps_layers=ray is None)
            raise
        claims.clear_void()
    if board is not None:
        board.complete(folder.records)
    _conclude(folder)
    if save:
        _say_what_is_saved(folder)
    return 1 if folder.failed else 0


def _work_here(folder: Workdir, way: Way, workers: int, save: bool) -> None:
    """Does the runs that are not done, in this process or in workers of it."""
    pending = folder.open()
    number = choose(workers, folder.runs, way)
    if number > 1 and pending:
        Crew(folder, way, number, save=save).work(pending)
    else:
        Worker(folder, way, save=save).work(pending)


class _AfterRecord:
    """Event files, and the report anew while a grid runs for a small share of time."""

    def __init__(self, path: str, display: Display, board: Board | None):
        self._board = board
        self._path = path
        self._display = display
        self._due = time.monotonic() + _REPORT_SECONDS
        self._has_failed = False

    def draw(self, record: Record) -> None:
        if self._board is not None:
            self._board.write(record)
        if not self._display.is_grid or time.monotonic() < self._due:
            return
        started = time.monotonic()
        try:
            from ffjax import report  # a single run does without

            report.write(self._path, figures=False)
        except Exception as error:  # the runs matter more
            if not self._has_failed:
                self._display.print(f"the report could not be drawn ({error!r})")
            self._has_failed = True
        took = time.monotonic() - started
        self._due = time.monotonic() + max(_REPORT_SECONDS, 20 * took)


@contextlib.contextmanager
def _ending_as_interrupt() -> Iterator[None]:
    """Lets a request to end, as from a job scheduler, do what Ctrl-C does.

    Neither is lost in the garbage collector, which prints and forgets what is raised in
    its callbacks; JAX has one.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: types.FrameType | None) -> None:
        if not _is_collecting(frame):
            raise KeyboardInterrupt
        again = threading.Timer(_AGAIN_SECONDS, os.kill, (os.getpid(), number))
        again.daemon = True
        again.start()

    numbers = [signal.SIGTERM]
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        numbers.append(signal.SIGINT)  # which is not ignored, as with nohup
    previous = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _is_collecting(frame: types.FrameType | None) -> bool:
    """Whether a frame belongs to a callback of the garbage collector."""
    callbacks = {getattr(callback, "__code__", None) for callback in gc.callbacks}
    while frame is not None:
        if frame.f_code in callbacks:
            return True
        frame = frame.f_back
    return False


def _say_how_to_go_on(
    folder: Workdir, arguments: Sequence[str], *, keeps_layers: bool
) -> None:
    command = shlex.join(["python", "-m", "ffjax.main", *arguments])
    done = count(len(folder.records), "run")
    kept = ", and finished layers of unfinished runs are kept" if keeps_layers else ""
    folder.display.print(f"stopped: {done} done{kept}")
    folder.display.print(f"to go on:\n  {command}")


def _conclude(folder: Workdir) -> None:
    """The last lines: results, where they are, and what failed."""
    display, path = folder.display, folder.path
    if folder.records and not display.is_grid:
        (record,) = folder.records
        if not folder.num_new:
            display.print(
                "this run was done before; to run it again, name another --workdir or "
                "remove its record"
            )
        summarise(display, record, path)
        suggest(display, record.spec, path)
    if display.is_grid:
        from ffjax import report

        with workdir.writing(path):
            page = report.write(path)
        if folder.records:
            _print_table(folder)
        if not folder.num_new and not folder.failed:
            display.print("all runs were done before; nothing was run")
        display.print(f"report: {page}")
    for failed, error in folder.failed.items():
        display.print(f"failed: {failed.name}: {shortened(error)}")
    if folder.failed:
        display.print(
            f"{count(len(folder.failed), 'run')} failed, see "
            f"{pathlib.Path(path) / 'failures'}; the same command tries again"
        )


def _say_what_is_saved(folder: Workdir) -> None:
    """Where the networks are, and which runs have none."""
    reasons = collections.Counter(
        _why_unsaved(folder.path, record) for record in folder.records
    )
    if saved := reasons.pop("", 0):
        path = pathlib.Path(folder.path) / "networks"
        folder.display.print(f"{count(saved, 'network')} in {path}")
    for reason, number in reasons.items():
        folder.display.print(f"{count(number, 'run')} {reason}")


def _why_unsaved(path: str, record: Record) -> str:
    """Why a run has no network; empty if it has."""
    if workdir.network_path(path, record.name).is_file():
        return ""
    if record.spec.trainer == "backprop":
        return "of backpropagation: --save keeps no network of these"
    if record.is_diverged:
        return "diverged: no network is saved"
    return (
        "done before without --save: to have the network, move the record away and run "
        "again"
    )


def _print_table(folder: Workdir) -> None:
    """The accuracies of the cells, over all seeds that the page has, too."""
    from ffjax import report

    best: dict[str, float] = {}
    for record in folder.records:
        best[record.cell] = max(record.accuracy, best.get(record.cell, 0.0))
    listed = sorted(best, key=lambda cell: best[cell], reverse=True)[:_MAX_LISTED]
    shown = [record for record in folder.records if record.cell in listed]
    folder.display.console.print(report.summary_table(shown, folder.path))
    if len(listed) < len(best):
        folder.display.print(
            f"the best {len(listed)} of {len(best)} cells; the report has all"
        )
