"""Cells -> records: skips what is done, shares the work, survives what can happen."""

import contextlib
import dataclasses
import datetime
import functools
import hashlib
import importlib.metadata
import json
import os
import pathlib
import platform
import re
import shlex
import signal
import subprocess
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import ffjax
from ffjax import (
    backprop,
    config,
    cost,
    data,
    evaluate,
    files,
    lease,
    network,
    partial,
    progress,
    results,
    train,
)
from ffjax.data import cache
from ffjax.errors import UserError

_POLL_SECONDS = 1.0  # between two looks at runs that other processes have
_REPORT_SECONDS = 5.0  # between two drawings of the report while a grid runs
_MAX_PROGRAMS = 16  # kept in memory; those of a 2-layer network take about 25 MB
_MAX_LISTED = 30  # cells in the table at the end; the report has all of them


class Run(NamedTuple):
    """A cell with one of its seeds."""

    cell: config.Cell
    seed: int

    @property
    def spec(self) -> config.RunSpec:
        """What is run."""
        return self.cell.spec

    @property
    def name(self) -> str:
        """The name of the run's files."""
        return f"{self.cell.id}-seed{self.seed}"


def run(
    cells: Sequence[config.Cell],
    workdir: str,
    *,
    data_dir: str = "",
    arguments: Sequence[str] = (),
    is_grid: bool = False,
) -> int:
    """Runs every cell with every seed that has no record yet.

    Args:
      cells: what to run.
      workdir: the folder of the records.
      data_dir: where datasets are.
      arguments: of the command line, to say how to go on after an interruption.
      is_grid: whether the cells are a grid's, which ends in a report, even if overrides
        left but one run.

    Returns:
      The exit code: 0, or 1 if a run failed.

    Raises:
      KeyboardInterrupt: after Ctrl-C or SIGTERM, when all is left in order.
    """
    results.prepare_workdir(workdir)
    runs = ordered(cells)
    with _ending_as_interrupt(), contextlib.ExitStack() as stack:
        work = sum(cost.cpu_seconds(run.spec) for run in runs)
        display = stack.enter_context(
            progress.Display(len(runs), work, is_grid=is_grid)
        )
        with _store(workdir):
            claims = lease.Claims(pathlib.Path(workdir) / "claims")
        stack.enter_context(claims)
        worker = _Worker(runs, workdir, data_dir, display, claims)
        try:
            worker.work()
        except KeyboardInterrupt:
            stack.close()
            _say_how_to_go_on(display, worker, arguments)
            raise
        claims.clear_void()
    _conclude(display, worker, workdir)
    return 1 if worker.failed else 0


def use_compilation_cache() -> None:
    """Lets this process reuse what earlier ones compiled; a user's own cache stays.

    On 2 cores a restart of a small run takes seconds instead of half a minute. The
    results are the same to the bit: the same program is loaded.
    """
    if jax.config.jax_compilation_cache_dir is not None:  # type: ignore[attr-defined]
        return
    # Programs for a CPU may use instructions that another one lacks, and a home folder
    # may be shared by different machines.
    try:
        about = pathlib.Path("/proc/cpuinfo").read_text()
    except OSError:
        about = platform.processor()
    features = sorted(
        set(re.findall(r"^(?:flags|Features)\s*:.*", about, re.MULTILINE))
    )
    kind = hashlib.sha256("".join(features or [about]).encode()).hexdigest()[:12]
    folder = cache.folder() / "xla" / f"{platform.machine()}-{kind}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return  # it only saves time
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
    # An entry that a killed process left unfinished is compiled again.
    warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation")


def ordered(cells: Iterable[config.Cell]) -> list[Run]:
    """All runs; those of one dataset together, and in it those of one program."""
    groups: dict[tuple, dict[config.RunSpec, list[Run]]] = {}
    for cell in cells:
        of_dataset = groups.setdefault(_dataset_key(cell.spec), {})
        of_program = of_dataset.setdefault(_program(cell.spec), [])
        of_program += [Run(cell, seed) for seed in cell.seeds]
    return [
        run
        for programs in groups.values()
        for runs in programs.values()
        for run in runs
    ]


class _Worker:
    """Works through runs beside other processes that do the same.

    Attributes:
      records: of all runs that are done, by whomever.
      failed: runs that ended in an error, and the error.
      num_new: how many records this process made.
    """

    def __init__(
        self,
        runs: Sequence[Run],
        workdir: str,
        data_dir: str,
        display: progress.Display,
        claims: lease.Claims,
    ):
        self.records: list[results.Record] = []
        self.failed: dict[Run, str] = {}
        self.num_new = 0
        self._runs = runs
        self._workdir = workdir
        self._data_dir = data_dir
        self._display = display
        self._claims = claims
        self._told: set[str] = set()
        self._dataset: tuple[tuple, data.Dataset | UserError] | None = None
        self._programs: set[config.RunSpec] = set()
        self._old_failures = {run for run in runs if self._failure_path(run).exists()}
        self._report_at = time.monotonic() + _REPORT_SECONDS

    def work(self) -> None:
        """Returns when every run has a record or has failed."""
        pending = [run for run in self._runs if not self._take_record(run, before=True)]
        self._tell_versions()
        if self._display.is_grid and self.records:
            self._display.print(f"{len(self.records)} of {len(self._runs)} done before")
        while pending:
            left = [run for run in pending if not self._settle(run)]
            if len(left) == len(pending):
                self._wait_for(left)
            pending = left

    def _settle(self, run: Run) -> bool:
        """Sees to it that a run is done; False if another process is at it."""
        if self._take_record(run, before=False) or self._failed_elsewhere(run):
            return True
        with _store(self._workdir):
            if not self._claims.acquire(run.name):
                return False
        try:
            # The last owner may have written the record just before it let go.
            return self._take_record(run, before=False) or self._do(run)
        finally:
            self._claims.release(run.name)

    def _do(self, run: Run) -> bool:
        spec = run.spec
        work = cost.cpu_seconds(spec)
        name = f"{run.cell.id} seed {run.seed}"
        self._display.start_run(name, spec.num_stages, spec.epochs, work)
        self._limit_memory(spec)
        try:
            dataset = self._load(spec)
            network.check_batch_size(spec.batch_size, len(dataset.train_labels))
            self._tell_once(_describe(dataset))
            origin = provenance()
            identity = {
                "spec": dataclasses.asdict(spec),
                "seed": run.seed,
                "data": dataset.source,
                "device": origin["device"],
                "versions": origin["versions"],
            }
            kept = partial.Layers(
                self._workdir, run.name, identity, self._display.print
            )
            outcome = train_and_evaluate(
                spec, run.seed, dataset, kept=kept, on_epochs=self._display.epochs_done
            )
        except (
            Exception
        ) as error:  # out of memory, a user's function, a missing dataset
            one_dataset = len({_dataset_key(run.spec) for run in self._runs}) == 1
            is_missing = self._dataset is not None and error is self._dataset[1]
            alone = not self._display.is_grid or (is_missing and one_dataset)
            if isinstance(error, UserError) and alone:
                raise  # no other run would do better
            self._fail(run, error)
            return True
        if not self._claims.is_held(run.name):  # this process was stopped for a while
            self._display.drop_run()
            return False
        record = {
            "cell": run.cell.id,
            "spec": dataclasses.asdict(spec),
            "seed": run.seed,
            **outcome,
            **origin,
            "finished": _now(),
        }
        with _store(self._workdir):
            path = results.record_path(self._workdir, run.cell.id, run.seed)
            if path.exists():  # broken, or it would have been taken
                os.replace(path, _set_aside(path))
            results.write(self._workdir, record)
            self._failure_path(run).unlink(missing_ok=True)
        kept.remove()
        self.records.append(record)
        self.num_new += 1
        self._display.finish_run(record)
        self._draw_report()
        return True

    def _take_record(self, run: Run, before: bool) -> bool:
        """Whether a run is done; then its record is among ``records``."""
        spec = dataclasses.asdict(run.spec)
        try:
            record = results.find(self._workdir, run.cell.id, run.seed, spec, _DEFAULTS)
        except results.BrokenRecord as error:
            path = results.record_path(self._workdir, run.cell.id, run.seed)
            self._tell_once(
                f"{error}; it runs again, the file becomes {_set_aside(path)}"
            )
            return False
        if record is None:
            return False
        self.records.append(record)
        self._display.found_record(record, cost.cpu_seconds(run.spec), before)
        return True

    def _limit_memory(self, spec: config.RunSpec) -> None:
        """Forgets compiled programs now and then: a whole grid has thousands."""
        if _program(spec) in self._programs:
            return
        if len(self._programs) == _MAX_PROGRAMS:
            jax.clear_caches()
            self._programs.clear()
        self._programs.add(_program(spec))

    def _load(self, spec: config.RunSpec) -> data.Dataset:
        """The dataset of a run; only the last one is kept in memory."""
        key = _dataset_key(spec)
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
        if isinstance(self._dataset[1], UserError):
            raise self._dataset[1]
        return self._dataset[1]

    def _fail(self, run: Run, error: Exception) -> None:
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
        with _store(self._workdir):
            path = self._failure_path(run)
            files.write_text(path, json.dumps(failure) + "\n")
        self.failed[run] = text
        self._display.fail_run(_shortened(text))

    def _failed_elsewhere(self, run: Run) -> bool:
        """Whether a run failed in another process since this one started."""
        path = self._failure_path(run)
        if run in self._old_failures or not path.exists():
            return False
        self.failed[run] = f"in another process, see {path}"
        self._display.skip_failed(cost.cpu_seconds(run.spec))
        return True

    def _wait_for(self, left: Sequence[Run]) -> None:
        owners = {self._claims.owner(run.name) for run in left} - {""}
        whose = f" of {', '.join(sorted(owners))}" if owners else ""
        self._display.wait_for(
            f"waiting for {cost.count(len(left), 'run')}{whose} (taken over if that "
            "dies)"
        )
        time.sleep(_POLL_SECONDS)

    def _draw_report(self) -> None:
        """Draws the report anew, but not for more than a small share of the time."""
        if not self._display.is_grid or time.monotonic() < self._report_at:
            return
        from ffjax import report  # a single run does without

        started = time.monotonic()
        try:
            report.write(self._workdir, figures=False)
        except Exception as error:  # the runs matter more
            self._tell_once(f"the report could not be drawn ({error!r})")
        took = time.monotonic() - started
        self._report_at = time.monotonic() + max(_REPORT_SECONDS, 20 * took)

    def _failure_path(self, run: Run) -> pathlib.Path:
        return pathlib.Path(self._workdir) / "failures" / f"{run.name}.json"

    def _tell_once(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self._display.print(text)

    def _tell_versions(self) -> None:
        made_by = [record["versions"].get("ffjax") for record in self.records]
        for version in sorted({str(v) for v in made_by} - {ffjax.__version__}):
            count = sum(str(v) == version for v in made_by)
            self._display.print(
                f"{cost.count(count, 'record')} of ffjax {version} (this is "
                f"{ffjax.__version__}) taken as done; to run again, move them away"
            )


# What older records mean by a field that they do not have.
_DEFAULTS = {field.name: field.default for field in dataclasses.fields(config.RunSpec)}


def _dataset_key(spec: config.RunSpec) -> tuple[str, int, int, float]:
    return spec.dataset, spec.train_limit, spec.test_limit, spec.valid_fraction


def _program(spec: config.RunSpec) -> config.RunSpec:
    """What runs of the same compiled programs have in common."""
    # These two are numbers to the compiled programs, not a part of them.
    return dataclasses.replace(spec, learning_rate=1.0, threshold=0.0)


def _describe(dataset: data.Dataset) -> str:
    """Where the images of the next runs come from."""
    kind = dataset.source["kind"]
    unverified = (
        ", content not verified" if not dataset.source.get("verified", True) else ""
    )
    return (
        f"data: {dataset.name} ({kind}{unverified}), {len(dataset.train_labels)} "
        f"training and {len(dataset.test_labels)} test images"
    )


def _set_aside(path: pathlib.Path) -> pathlib.Path:
    return path.with_name(f"{path.name}.broken")


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def _shortened(text: str, length: int = 200) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


@contextlib.contextmanager
def _store(workdir: str) -> Iterator[None]:
    """Says in one line what keeps the store from being written, such as a full disk."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"workdir={workdir!r}: cannot write there ({error}); finished runs are kept"
        ) from None


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
    display: progress.Display, worker: _Worker, arguments: Sequence[str]
) -> None:
    command = shlex.join(["python", "-m", "ffjax.main", *arguments])
    done = cost.count(len(worker.records), "run")
    display.print(f"stopped: {done} done, and finished layers of the last one are kept")
    display.print(f"to go on:\n  {command}")


def _conclude(display: progress.Display, worker: _Worker, workdir: str) -> None:
    """The last lines: results, where they are, and what failed."""
    if worker.records and not display.is_grid:
        (record,) = worker.records
        if not worker.num_new:
            display.print(
                "this run was done before; to run it again, name another --workdir or "
                "remove its record"
            )
        progress.summarise(display, record, workdir)
        progress.suggest(display, record["spec"], workdir)
    if display.is_grid:
        from ffjax import report

        with _store(workdir):
            path = report.write(workdir)
        if worker.records:
            _print_table(display, worker.records)
        if not worker.num_new and not worker.failed:
            display.print("all runs were done before; nothing was run")
        display.print(f"report: {path}")
    for run, error in worker.failed.items():
        display.print(f"failed: {run.name}: {_shortened(error)}")
    if worker.failed:
        folder = pathlib.Path(workdir) / "failures"
        display.print(
            f"{cost.count(len(worker.failed), 'run')} failed, see {folder}; "
            "the same command tries again"
        )


def _print_table(display: progress.Display, records: list[results.Record]) -> None:
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


def train_and_evaluate(
    spec: config.RunSpec,
    seed: int,
    dataset: data.Dataset,
    *,
    kept: partial.Layers | None = None,
    on_epochs: train.OnEpochs | None = None,
) -> dict[str, Any]:
    """One run, from arrays to the part of its record that depends on them.

    Args:
      spec: the run.
      seed: its seed.
      dataset: what it learns.
      kept: where finished layers are kept, and taken from after an interruption.
      on_epochs: called with progress.
    """
    trained, earlier_train_s, earlier_compile_s = [], 0.0, 0.0
    if kept is not None:
        trained, earlier_train_s, earlier_compile_s = kept.load()
    with _compile_clock() as clock:
        started = time.perf_counter()

        def times() -> tuple[float, float]:
            """Seconds of training and of compilation, earlier attempts included."""
            train_s = time.perf_counter() - started - clock.seconds
            return train_s + earlier_train_s, clock.seconds + earlier_compile_s

        def keep(index: int, layer: train.TrainedLayer) -> None:
            if kept is not None:
                kept.save(index, layer, *times())

        layers, score = _TRAINERS[spec.trainer](
            spec, jax.random.key(seed), dataset, trained, on_epochs, keep
        )
        train_s, compile_s = times()
        trained_at = time.perf_counter()

        def judge(images, labels):
            scores = score(jnp.asarray(images))
            while not scores.is_ready():  # lets Ctrl-C through, unlike waiting in XLA
                time.sleep(0.005)
            return evaluate.evaluate(np.asarray(scores), labels, spec.ensemble)

        test = judge(dataset.test_images, dataset.test_labels)
        valid = None
        if len(dataset.valid_labels):
            valid = judge(dataset.valid_images, dataset.valid_labels)
        ended_at = time.perf_counter()
    eval_compile_s = clock.seconds + earlier_compile_s - compile_s
    missing = spec.num_layers - len(test.accuracy_layers)
    outcome: dict[str, Any] = {
        "status": "diverged" if layers[-1].is_diverged else "ok",
        "accuracy": test.accuracy,
        "accuracy_layers": [*test.accuracy_layers, *[None] * missing],
        "accuracy_concat": test.accuracy_concat if spec.trainer == "ff" else None,
        "confusion": test.confusion.tolist(),
        "losses": [layer.losses.tolist() for layer in layers],
        "time": {
            "compile_s": compile_s + eval_compile_s,
            "train_s": train_s,
            "eval_s": ended_at - trained_at - eval_compile_s,
        },
        "train_size": len(dataset.train_labels),
        "test_size": len(dataset.test_labels),
        "class_names": list(dataset.class_names),
        "data": dataset.source,
    }
    if valid is not None:
        outcome["accuracy_valid"] = valid.accuracy
        outcome["valid_size"] = len(dataset.valid_labels)
    if layers[-1].is_diverged:
        epoch = len(layers[-1].losses) - 1
        outcome["diverged_at"] = {"layer": len(layers) - 1, "epoch": epoch}
    return outcome


# A trained network as layers, and the function that gives scores of images with it.
_Trained = tuple[list[train.TrainedLayer], Callable[[jax.Array], Any]]


def _train_forward_forward(
    spec: config.RunSpec,
    key: jax.Array,
    dataset: data.Dataset,
    trained: Sequence[train.TrainedLayer],
    on_epochs: train.OnEpochs | None,
    on_layer: train.OnLayer,
) -> _Trained:
    arch = spec.architecture(dataset.num_classes)
    layers = train.train_network(
        arch,
        key,
        dataset.train_images,
        dataset.train_labels,
        **spec.training(),
        memory_budget=memory_budget(),
        trained=trained,
        on_epochs=on_epochs,
        on_layer=on_layer,
    )
    part = dataclasses.replace(arch, widths=arch.widths[: len(layers)])
    params = [layer.params for layer in layers]
    states = [layer.goodness_state for layer in layers]
    return layers, functools.partial(evaluate.score_images, part, params, states)


def _train_backprop(
    spec: config.RunSpec,
    key: jax.Array,
    dataset: data.Dataset,
    trained: Sequence[train.TrainedLayer],
    on_epochs: train.OnEpochs | None,
    on_layer: train.OnLayer,
) -> _Trained:
    del trained, on_layer  # there is nothing whole to keep before the end
    network = spec.backprop_network(dataset.num_classes)
    whole = backprop.train_network(
        network,
        key,
        dataset.train_images,
        dataset.train_labels,
        **spec.training(),
        on_epochs=on_epochs,
    )
    score = functools.partial(backprop.score_images, network, whole.params)
    return [whole], score


_TRAINERS = {"ff": _train_forward_forward, "backprop": _train_backprop}


def memory_budget() -> float:
    """How many bytes a layer's inputs under all labels may take on the first device.

    A quarter of its memory: the inputs of two layers exist at once while the next ones
    are computed, and the rest is left for the program and for other processes.
    """
    device = jax.local_devices()[0]
    stats = device.memory_stats()
    if stats and "bytes_limit" in stats:
        return stats["bytes_limit"] / 4
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 4


@functools.cache
def provenance() -> dict[str, Any]:
    """With what this process makes its runs."""
    packages = ("jax", "jaxlib", "flax", "optax", "numpy")
    versions = {name: importlib.metadata.version(name) for name in packages}
    return {
        "device": jax.local_devices()[0].device_kind,
        "versions": {"ffjax": ffjax.__version__, **versions},
        "commit": _commit(),
    }


def _commit() -> str | None:
    """The commit of ffjax's own checkout, with a plus if files differ from it."""
    folder = pathlib.Path(ffjax.__file__).parent
    command = [
        "git",
        "-C",
        str(folder),
        "describe",
        "--always",
        "--abbrev=40",
        "--dirty=+",
    ]
    if not (folder.parent / ".git").exists():  # an installed package, not a checkout
        return None
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip()


class _CompileClock:
    seconds = 0.0


@contextlib.contextmanager
def _compile_clock() -> Iterator[_CompileClock]:
    """Adds up the time that XLA compiles while it is open."""
    clock = _CompileClock()

    def listen(event: str, duration_secs: float, **_: Any) -> None:
        if event.endswith(("backend_compile_duration", "to_mlir_module_duration")):
            clock.seconds += duration_secs

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield clock
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
