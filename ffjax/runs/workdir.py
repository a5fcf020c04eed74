"""The folder of a grid: records, failures, and who is working on what.

All that a way of running, here or on a cluster, reads and writes there.
"""

import contextlib
import dataclasses
import datetime
import json
import os
import pathlib
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence

from ffjax import atomic, data, records
from ffjax.config import Cell
from ffjax.errors import UserError
from ffjax.paper.names import count, shortened
from ffjax.records import BrokenRecord, Record
from ffjax.runs import checkpoint, cost, order
from ffjax.runs.attempt import describe, goodness_source
from ffjax.runs.datasets import DatasetError
from ffjax.runs.display import Display
from ffjax.runs.locks import Claims
from ffjax.runs.order import Run
from ffjax.runs.provenance import provenance

_POLL_SECONDS = 1.0  # between two looks at runs that other processes have


class Workdir:
    """The runs of a grid, beside other processes that work on the same ones.

    Attributes:
      path: the folder.
      runs: all that there are, done or not.
      display: where news are printed.
      records: of all runs that are done, by whichever process.
      failed: runs that ended in an error, and the error.
      num_new: how many records this process made.
    """

    def __init__(
        self,
        path: str,
        runs: Sequence[Run],
        display: Display,
        claims: Claims,
        on_record: Callable[[Record], None] = lambda record: None,
    ):
        """The folder of some runs; ``on_record`` is called after each new record."""
        self.path = path
        self.display = display
        self.records: list[Record] = []
        self.failed: dict[Run, str] = {}
        self.num_new = 0
        self.runs = runs
        self._claims = claims
        self._on_record = on_record
        self._said: set[str] = set()
        self._old_failures = {run for run in runs if self._failure_path(run).exists()}

    def open(self, *, runs_here: bool = True) -> list[Run]:
        """The runs that are not done yet.

        Args:
          runs_here: whether they will be run on a device of this machine.
        """
        pending = [run for run in self.runs if not self._take_record(run, before=True)]
        for record in self.records:
            checkpoint.forget(self.path, record.name)
        if self.records:
            self._compare_origins(runs_here)
        if self.display.is_grid and self.records:
            self.display.print(f"{len(self.records)} of {len(self.runs)} done before")
        return pending

    def claim(self, runs: Iterable[Run]) -> tuple[list[Run], list[Run]]:
        """Claims those of the runs that are not done: ours, and other processes'."""
        ours, theirs = [], []
        try:
            for run in runs:
                if self._take_record(run, before=False) or self._failed_elsewhere(run):
                    continue
                with writing(self.path):
                    is_ours = self._claims.acquire(run.name)
                (ours if is_ours else theirs).append(run)
            # The last owner may have written the record just before it let go.
            done = [run for run in ours if self._take_record(run, before=False)]
        except BaseException:
            self.release(ours)
            raise
        self.release(done)
        return [run for run in ours if run not in done], theirs

    def release(self, runs: Iterable[Run]) -> None:
        """Gives claims back."""
        for run in runs:
            self._claims.release(run.name)

    def write(self, run: Run, record: Record, seconds: float) -> bool:
        """Writes the record of a claimed run; False if the claim was lost meanwhile.

        Args:
          run: which run.
          record: of it.
          seconds: how long it took, for the display.
        """
        if not self._claims.is_held(run.name):  # this process was stopped for a while
            return False
        with writing(self.path):
            path = records.record_path(self.path, run.cell.id, run.seed)
            if path.exists():  # broken or of other inputs, or it would have been taken
                os.replace(path, _set_aside(path))
            records.write(self.path, record)
            self._failure_path(run).unlink(missing_ok=True)
        self.records.append(record)
        self.num_new += 1
        work = cost.cpu_seconds(run.spec)
        self.display.finish_run(run.title, record, work, seconds)
        self._on_record(record)
        return True

    def fail(self, run: Run, error: Exception, seconds: float) -> None:
        """Notes that a run ended in an error.

        Raises:
          UserError: it is the user's mistake, and no other run would do better.
        """
        one_dataset = len({order.dataset_key(run.spec) for run in self.runs}) == 1
        is_hopeless = isinstance(error, DatasetError) and one_dataset
        if isinstance(error, UserError) and (is_hopeless or not self.display.is_grid):
            raise error
        text = describe(error)
        failure = {
            "cell": run.cell.id,
            "seed": run.seed,
            "spec": dataclasses.asdict(run.spec),
            "error": text,
            "traceback": "".join(traceback.format_exception(error)),
            "finished": datetime.datetime.now(datetime.UTC).isoformat("T", "seconds"),
        }
        with writing(self.path):
            atomic.write_text(self._failure_path(run), json.dumps(failure) + "\n")
        self.failed[run] = text
        work = cost.cpu_seconds(run.spec)
        self.display.fail_run(run.title, shortened(text), work, seconds)

    def say_once(self, text: str) -> None:
        """Prints a line, but never twice."""
        if text not in self._said:
            self._said.add(text)
            self.display.print(text)

    def wait_for(self, left: Sequence[Run]) -> None:
        """Waits a moment for runs that other processes have."""
        owners = {self._claims.owner(run.name) for run in left} - {""}
        whose = f" of {', '.join(sorted(owners))}" if owners else ""
        self.display.wait_for(
            f"waiting for {count(len(left), 'run')}{whose} (taken over if that dies)"
        )
        time.sleep(_POLL_SECONDS)

    def _take_record(self, run: Run, before: bool) -> bool:
        """Whether a run is done; then its record is among ``records``."""
        path = records.record_path(self.path, run.cell.id, run.seed)
        try:
            record = records.find(self.path, run.cell.id, run.seed, run.spec)
            changed = record and _changed_input(run, record)
        except BrokenRecord as error:
            record, changed = None, str(error)
        if changed:
            aside = _set_aside(path)
            self.say_once(f"{changed}; it runs again, the file becomes {aside}")
            return False
        if record is None:
            return False
        self.records.append(record)
        self.display.found_record(record, cost.cpu_seconds(run.spec), before)
        return True

    def _failed_elsewhere(self, run: Run) -> bool:
        """Whether a run failed in another process since this one started."""
        path = self._failure_path(run)
        if run in self._old_failures or not path.exists():
            return False
        self.failed[run] = f"in another process, see {path}"
        self.display.skip_failed(cost.cpu_seconds(run.spec))
        return True

    def _failure_path(self, run: Run) -> pathlib.Path:
        return pathlib.Path(self.path) / "failures" / f"{run.name}.json"

    def _compare_origins(self, runs_here: bool) -> None:
        """Says which of the records that are taken were made with something else."""
        here = provenance()
        wanted = {name: here["versions"][name] for name in ("ffjax", "jax", "jaxlib")}
        if runs_here:
            wanted["device"] = here["device"]
        others: dict[str, int] = {}
        for record in self.records:
            made = {**record.versions, "device": record.device}
            differing = [
                f"{name} {made[name]} (here {value})"
                for name, value in wanted.items()
                if made.get(name, value) != value
            ]
            if differing:
                text = ", ".join(differing)
                others[text] = others.get(text, 0) + 1
        for text, number in others.items():
            self.display.print(
                f"{count(number, 'record')} made with {text} taken as done; to run "
                "again, move them away"
            )


def listed(workdir: str, cells: Iterable[Cell]) -> Iterator[str]:
    """A line for each cell: its id, and how many of its runs are done if any is."""
    for cell in cells:
        runs = [order.Run(cell, seed) for seed in cell.seeds]
        done = sum(_is_done(workdir, run) for run in runs)
        if done == len(runs):
            yield f"{cell.id}  (done)"
        else:
            yield f"{cell.id}  ({done} of {len(runs)} done)" if done else cell.id


def _is_done(workdir: str, run: Run) -> bool:
    try:
        record = records.find(workdir, run.cell.id, run.seed, run.spec)
    except BrokenRecord:
        return False
    return record is not None and not _changed_input(run, record)


def network_path(workdir: str, name: str) -> pathlib.Path:
    """Where the network of a run is kept, if it is."""
    return pathlib.Path(workdir) / "networks" / f"{name}.safetensors"


def save_network(workdir: str, run: Run, content: bytes) -> None:
    """Keeps the network of a run beside its record, whole or not at all."""
    with writing(workdir):
        atomic.write_bytes(network_path(workdir, run.name), content)


def prepare(workdir: str) -> None:
    """Makes the folders, or says in one line why they cannot be written.

    Scratch files of writers that were killed are removed.
    """
    folder = pathlib.Path(workdir) / "results"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UserError(
            f"workdir={workdir!r}: cannot write there ({error.strerror}); "
            "name a folder that you may write to with --workdir=DIR"
        ) from None
    for name in ("results", "failures", "partial", "report", "networks"):
        atomic.remove_scratch(pathlib.Path(workdir) / name)


def _changed_input(run: Run, record: Record) -> str:
    """Which input of a run differs from that of its record; empty if none does."""
    name = f"{record.name}.json"
    if record.goodness_source != goodness_source(run.spec):
        return f"{name}: the source of {run.spec.goodness} has changed since"
    content = data.fingerprint(run.spec.dataset)
    files = record.data.get("files")
    known = files.values() if isinstance(files, dict) else ()
    if content is not None and content not in known:
        return f"{name}: the content of {run.spec.dataset} has changed since"
    return ""


def _set_aside(path: pathlib.Path) -> pathlib.Path:
    """A name for a file that is no result of the run it names, beside earlier ones."""
    aside = path.with_name(f"{path.name}.old")
    number = 2
    while aside.exists():
        aside = path.with_name(f"{path.name}.old{number}")
        number += 1
    return aside


@contextlib.contextmanager
def writing(workdir: str) -> Iterator[None]:
    """Says in one line what keeps the store from being written, such as a full disk."""
    try:
        yield
    except OSError as error:
        if not (pathlib.Path(workdir) / "results").is_dir():
            raise UserError(
                f"workdir={workdir!r}: was removed while runs went on; the records in "
                "it are gone, and the same command starts anew"
            ) from None
        raise UserError(
            f"workdir={workdir!r}: cannot write there ({error}); finished runs are kept"
        ) from None
