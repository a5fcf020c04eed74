"""Cells -> records: skips what is done, shares the work, survives what can happen."""

import contextlib
import dataclasses
import pathlib
import shlex
import signal
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from ffjax.runs import ray_cluster, cost, locks, workdir, local, order, display
from ffjax import config, records
from ffjax.runs.workdir import Ledger

_MAX_LISTED = 30  # cells in the table at the end; the report has all of them


@dataclasses.dataclass(frozen=True)
class How:
    """How to run, not what.

    Attributes:
      data_dir: where datasets are.
      group_size: how many runs to train in one program; 0 = automatic.
      num_devices: how many local devices to use; 0 = all.
      ray: the cluster to run on; None: this process.
    """

    data_dir: str = ""
    group_size: int = 0
    num_devices: int = 0
    ray: ray_cluster.Ray | None = None

    @classmethod
    def of(cls, fields: Any, ray: ray_cluster.Ray | None) -> "How":
        """What a config says about it."""
        return cls(fields.data_dir, fields.group_size, fields.num_devices, ray)


HERE = How()


def run(
    cells: Sequence[config.Cell],
    workdir: str,
    how: How = HERE,
    *,
    arguments: Sequence[str] = (),
    is_grid: bool = False,
) -> int:
    """Runs every cell with every seed that has no record yet.

    Args:
      cells: what to run.
      workdir: the folder of the records.
      how: where and with what.
      arguments: of the command line, to say how to go on after an interruption.
      is_grid: whether the cells are a grid's, which ends in a report, even if overrides
        left but one run.

    Returns:
      The exit code: 0, or 1 if a run failed.

    Raises:
      KeyboardInterrupt: after Ctrl-C or SIGTERM, when all is left in order.
    """
    records.prepare_workdir(workdir)
    runs = order.ordered(cells)
    with _ending_as_interrupt(), contextlib.ExitStack() as stack:
        work = sum(cost.cpu_seconds(run.spec) for run in runs)
        display = stack.enter_context(
            display.Display(len(runs), work, is_grid=is_grid)
        )
        with workdir.writing(workdir):
            claims = locks.Claims(pathlib.Path(workdir) / "claims")
        stack.enter_context(claims)
        book = Ledger(runs, workdir, how.data_dir, display, claims)
        try:
            if how.ray is None:
                local.Worker(book, how.group_size, how.num_devices).work()
            else:
                ray_cluster.Driver(book, how.ray, how.group_size).work()
        except KeyboardInterrupt:
            stack.close()
            _say_how_to_go_on(book, arguments, keeps_layers=how.ray is None)
            raise
        claims.clear_void()
    _conclude(book)
    return 1 if book.failed else 0


@contextlib.contextmanager
def _ending_as_interrupt() -> Iterator[None]:
    """Lets a request to end, as from a job scheduler, do what Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def _say_how_to_go_on(
    book: Ledger, arguments: Sequence[str], *, keeps_layers: bool
) -> None:
    command = shlex.join(["python", "-m", "ffjax.main", *arguments])
    done = cost.count(len(book.records), "run")
    kept = ", and finished layers of the last one are kept" if keeps_layers else ""
    book.display.print(f"stopped: {done} done{kept}")
    book.display.print(f"to go on:\n  {command}")


def _conclude(book: Ledger) -> None:
    """The last lines: results, where they are, and what failed."""
    display, workdir = book.display, book.workdir
    if book.records and not display.is_grid:
        (record,) = book.records
        if not book.num_new:
            display.print(
                "this run was done before; to run it again, name another --workdir or "
                "remove its record"
            )
        display.summarise(display, record, workdir)
        display.suggest(display, record["spec"], workdir)
    if display.is_grid:
        from ffjax import report

        with workdir.writing(workdir):
            path = report.write(workdir)
        if book.records:
            _print_table(display, book.records)
        if not book.num_new and not book.failed:
            display.print("all runs were done before; nothing was run")
        display.print(f"report: {path}")
    for run, error in book.failed.items():
        display.print(f"failed: {run.name}: {workdir.shortened(error)}")
    if book.failed:
        folder = pathlib.Path(workdir) / "failures"
        display.print(
            f"{cost.count(len(book.failed), 'run')} failed, see {folder}; "
            "the same command tries again"
        )


def _print_table(display: display.Display, records: list[records.Record]) -> None:
    from ffjax import report

    best: dict[str, float] = {}
    for record in records:
        accuracy = max(record["accuracy"], best.get(record["cell"], 0.0))
        best[record["cell"]] = accuracy
    listed = sorted(best, key=lambda cell: best[cell], reverse=True)[:_MAX_LISTED]
    shown = [record for record in records if record["cell"] in listed]
    display.console.print(report.summary_table(shown))
    if len(listed) < len(best):
        display.print(
            f"the best {len(listed)} of {len(best)} cells; the report has all"
        )
