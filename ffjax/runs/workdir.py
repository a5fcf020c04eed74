"""What became of the runs of a grid: records, failures, and who is working on what.

All that a way of running them, here or on a cluster, reads and writes in the workdir.
"""

import contextlib
import dataclasses
import datetime
import json
import os
import pathlib
import time
import traceback
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import ffjax
from ffjax import config, data, atomic, network, records
from ffjax.runs import cost, locks, order, display
from ffjax.errors import UserError
from ffjax.runs.order import Run

_POLL_SECONDS = 1.0  # between two looks at runs that other processes have
_REPORT_SECONDS = 5.0  # between two drawings of the report while a grid runs


class Ledger:
    """The runs of a grid beside other processes that work on the same ones.

    Attributes:
      workdir: where all of it is kept.
      display: where news are told.
      records: of all runs that are done, by whomever.
      failed: runs that ended in an error, and the error.
      num_new: how many records this process made.
    """

    def __init__(
        self,
        runs: Sequence[Run],
        workdir: str,
        data_dir: str,
        display: display.Display,
        claims: locks.Claims,
    ):
        """The ledger of some runs; see the class for the arguments."""
        self.workdir = workdir
        self.display = display
        self.records: list[records.Record] = []
        self.failed: dict[Run, str] = {}
        self.num_new = 0
        self._runs = runs
        self._data_dir = data_dir
        self._claims = claims
        self._told: set[str] = set()
        self._dataset: tuple[tuple, data.Dataset | UserError] | None = None
        self._old_failures = {run for run in runs if self._failure_path(run).exists()}
        self._report_at = time.monotonic() + _REPORT_SECONDS

    def open(self) -> list[Run]:
        """The runs that are not done yet."""
        pending = [run for run in self._runs if not self._take_record(run, before=True)]
        self._tell_versions()
        if self.display.is_grid and self.records:
            self.display.print(f"{len(self.records)} of {len(self._runs)} done before")
        return pending

    def claim(self, runs: Iterable[Run]) -> tuple[list[Run], list[Run]]:
        """Claims those of the runs that are not done: ours, and other processes'."""
        ours, theirs = [], []
        try:
            for run in runs:
                if self._take_record(run, before=False) or self._failed_elsewhere(run):
                    continue
                with writing(self.workdir):
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

    def write(
        self, run: Run, outcome: dict[str, Any], origin: dict[str, Any], seconds: float
    ) -> bool:
        """Writes the record of a claimed run; False if the claim was lost meanwhile.

        Args:
          run: which run.
          outcome: the part of its record that the data decide.
          origin: the part that says with what it was made.
          seconds: how long it took, for the display.
        """
        if not self._claims.is_held(run.name):  # this process was stopped for a while
            return False
        record = {
            "cell": run.cell.id,
            "spec": dataclasses.asdict(run.spec),
            "seed": run.seed,
            **outcome,
            **origin,
            "finished": _now(),
        }
        with writing(self.workdir):
            path = records.record_path(self.workdir, run.cell.id, run.seed)
            if path.exists():  # broken, or it would have been taken
                os.replace(path, _set_aside(path))
            records.write(self.workdir, record)
            self._failure_path(run).unlink(missing_ok=True)
        self.records.append(record)
        self.num_new += 1
        work = cost.cpu_seconds(run.spec)
        self.display.finish_run(run.title, record, work, seconds)
        self._draw_report()
        return True

    def fail(self, run: Run, error: BaseException, seconds: float) -> None:
        """Notes that a run ended in an error.

        Raises:
          UserError: it is the user's mistake, and no other run would do better.
        """
        one_dataset = len({order.dataset_key(run.spec) for run in self._runs}) == 1
        is_missing = self._dataset is not None and error is self._dataset[1]
        alone = not self.display.is_grid or (is_missing and one_dataset)
        if isinstance(error, UserError) and alone:
            raise error
        text = " ".join(str(error).split())
        text = (
            text if isinstance(error, UserError) else f"{type(error).__name__}: {text}"
        )
        failure = {
            "cell": run.cell.id,
            "seed": run.seed,
            "spec": dataclasses.asdict(run.spec),
            "error": text,
            "traceback": "".join(traceback.format_exception(error)),
            "finished": _now(),
        }
        with writing(self.workdir):
            path = self._failure_path(run)
            atomic.write_text(path, json.dumps(failure) + "\n")
        self.failed[run] = text
        work = cost.cpu_seconds(run.spec)
        self.display.fail_run(run.title, shortened(text), work, seconds)

    def load(self, spec: config.RunSpec) -> data.Dataset:
        """The dataset of a run; only the last one is kept in memory."""
        key = order.dataset_key(spec)
        if self._dataset is None or self._dataset[0] != key:
            self._dataset = None  # let go of the old one before the new one is there
            name, train_limit, test_limit, valid_fraction = key
            try:
                found = data.load(
                    name,
                    data_dir=self._data_dir,
                    train_limit=train_limit,
                    test_limit=test_limit,
                    valid_fraction=valid_fraction,
                )
            except UserError as error:
                found = error
            self._dataset = key, found
        dataset = self._dataset[1]
        if isinstance(dataset, UserError):
            raise dataset
        network.check_batch_size(spec.batch_size, len(dataset.train_labels))
        return dataset

    def tell_once(self, text: str) -> None:
        """Prints a line, but never twice."""
        if text not in self._told:
            self._told.add(text)
            self.display.print(text)

    def wait_for(self, left: Sequence[Run]) -> None:
        """Waits a moment for runs that other processes have."""
        owners = {self._claims.owner(run.name) for run in left} - {""}
        whose = f" of {', '.join(sorted(owners))}" if owners else ""
        self.display.wait_for(
            f"waiting for {cost.count(len(left), 'run')}{whose} (taken over if that "
            "dies)"
        )
        time.sleep(_POLL_SECONDS)

    def _take_record(self, run: Run, before: bool) -> bool:
        """Whether a run is done; then its record is among ``records``."""
        spec = dataclasses.asdict(run.spec)
        try:
            record = records.find(self.workdir, run.cell.id, run.seed, spec, _DEFAULTS)
        except records.BrokenRecord as error:
            path = records.record_path(self.workdir, run.cell.id, run.seed)
            self.tell_once(
                f"{error}; it runs again, the file becomes {_set_aside(path)}"
            )
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

    def _draw_report(self) -> None:
        """Draws the report anew, but not for more than a small share of the time."""
        if not self.display.is_grid or time.monotonic() < self._report_at:
            return
        from ffjax import report  # a single run does without

        started = time.monotonic()
        try:
            report.write(self.workdir, figures=False)
        except Exception as error:  # the runs matter more
            self.tell_once(f"the report could not be drawn ({error!r})")
        took = time.monotonic() - started
        self._report_at = time.monotonic() + max(_REPORT_SECONDS, 20 * took)

    def _failure_path(self, run: Run) -> pathlib.Path:
        return pathlib.Path(self.workdir) / "failures" / f"{run.name}.json"

    def _tell_versions(self) -> None:
        made_by = [record["versions"].get("ffjax") for record in self.records]
        for version in sorted({str(v) for v in made_by} - {ffjax.__version__}):
            count = sum(str(v) == version for v in made_by)
            self.display.print(
                f"{cost.count(count, 'record')} of ffjax {version} (this is "
                f"{ffjax.__version__}) taken as done; to run again, move them away"
            )


# What older records mean by a field that they do not have.
_DEFAULTS = {field.name: field.default for field in dataclasses.fields(config.RunSpec)}


def _set_aside(path: pathlib.Path) -> pathlib.Path:
    return path.with_name(f"{path.name}.broken")


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def shortened(text: str, length: int = 200) -> str:
    """A text that fits a line or two."""
    return text if len(text) <= length else f"{text[: length - 1]}…"


@contextlib.contextmanager
def writing(workdir: str) -> Iterator[None]:
    """Says in one line what keeps the store from being written, such as a full disk."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"workdir={workdir!r}: cannot write there ({error}); finished runs are kept"
        ) from None
