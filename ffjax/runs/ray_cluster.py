"""Runs on a Ray cluster: groups as tasks, datasets sent once, records written here.

Workers return results to this process, which alone writes to the workdir; so they need
not see it. A task whose worker dies is started again.
"""

import contextlib
import dataclasses
import faulthandler
import math
import os
import pathlib
import re
import shutil
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any, NamedTuple

import msgspec
from absl import flags

import ffjax
from ffjax.config.spec import RunSpec, Way
from ffjax.data import Dataset
from ffjax.errors import UserError, number, optional
from ffjax.network import Network
from ffjax.paper.names import count
from ffjax.runs import attempt, cost, order
from ffjax.runs.attempt import Outcome, WorkerError
from ffjax.runs.datasets import Datasets, describe
from ffjax.runs.local import Programs
from ffjax.runs.order import Run
from ffjax.runs.provenance import provenance
from ffjax.runs.workdir import Workdir, save_network
from ffjax.training import machine

_CONNECT_SECONDS = 10.0  # for a first sign of life of a cluster
_JOIN_SECONDS = 60.0  # for a cluster to take us in
_START_SECONDS = 120.0  # for one of our own to start, and for results to arrive
_POLL_SECONDS = 1.0  # between two looks at the tasks
_NODE_SECONDS = 120.0  # how long to wait for a node that could run a task
_GPU_BATCH = 16  # runs in a task for a GPU; the worker groups them as its memory allows


@dataclasses.dataclass(frozen=True)
class Ray:
    """A cluster, and what to ask of it.

    Attributes:
      address: of the cluster; empty: one on this machine, for as long as the runs take.
      cpus: of each task.
      gpus: of each task; None: one if the cluster has any.
      max_retries: how often to start a task again whose worker died.
    """

    address: str = ""
    cpus: float = 1.0
    gpus: float | None = None
    max_retries: int = 3


def define_flags() -> None:
    """The flags that say where to run."""
    flags.DEFINE_enum("runner", "local", ["local", "ray"], "Here, or on a Ray cluster.")
    flags.DEFINE_string("ray_address", "", "HOST:PORT of a cluster [one of its own].")
    flags.DEFINE_float("ray_cpus", 1.0, "CPUs of a task on Ray.", lower_bound=0.01)
    flags.DEFINE_float(
        "ray_gpus", None, "GPUs of a task, 0.5: two share one [1 if there are any].",
        lower_bound=0.0,
    )  # fmt: skip
    flags.DEFINE_integer(
        "max_retries", 3, "How often to start a task on Ray again whose worker died.",
        lower_bound=0,
    )  # fmt: skip


# The flags' own bounds let NaN and infinity through.
_CPUS = number(lambda value: 0.01 <= value <= 1e6, "a number from 0.01 to 1e6")
_GPUS = optional(
    number(
        lambda value: 0 <= value <= 1 or (value <= 1000 and value == int(value)),
        "a number from 0 to 1, or a whole one up to 1000",
    )
)


def from_flags() -> Ray | None:
    """What the flags say; None if the runs are to stay in this process."""
    values = flags.FLAGS
    if values.runner == "ray":
        _CPUS.check("ray_cpus", values.ray_cpus)
        _GPUS.check("ray_gpus", values.ray_gpus)
        return Ray(
            values.ray_address, values.ray_cpus, values.ray_gpus, values.max_retries
        )
    for name in ("ray_address", "ray_cpus", "ray_gpus", "max_retries"):
        if values[name].present:
            raise UserError(f"{name}={values[name].value!r}: needs --runner=ray")
    return None


class _Task(NamedTuple):
    runs: list[Run]
    started: float
    num_retries: int


class Driver:
    """Works through the runs of a workdir on a cluster."""

    def __init__(self, workdir: Workdir, cluster: Ray, way: Way, *, save: bool = False):
        """A driver.

        Args:
          workdir: the runs.
          cluster: where to run them.
          way: groups of size 0 are as large as a worker finds right.
          save: whether to bring the networks back and keep them.
        """
        self._eval_every = way.eval_every
        self._save = save
        self._workdir = workdir
        self._cluster = cluster
        self._group_size = way.group_size
        self._loaded = Datasets(way.data_dir)
        self._tasks: dict[Any, _Task] = {}
        self._datasets: dict[tuple, Any] = {}

    def work(self) -> None:
        """Returns when every run has a record or has failed."""
        pending = self._workdir.open(runs_here=False)
        if not pending:
            return
        with _connected(self._cluster, pending) as ray:
            try:
                self._gpus = self._gpus_of_a_task(ray)
                self._tell_cluster(ray)
                while pending:
                    left = self._run(ray, pending)
                    if len(left) == len(pending):
                        self._workdir.wait_for(left)
                    pending = left
            finally:
                for reference, task in self._tasks.items():
                    ray.cancel(reference, force=True)
                    self._workdir.release(task.runs)

    def _run(self, ray: ModuleType, pending: Sequence[Run]) -> list[Run]:
        """Sees to it that runs are done; returns those that other processes have."""
        theirs: list[Run] = []
        size = self._group_size or (_GPU_BATCH if self._gpus else 1)
        batches = order.groups(pending, lambda _: size)
        batch = next(batches, None)
        able_at = time.monotonic()
        while batch or self._tasks:
            num_slots = self._num_slots(ray)
            # A few wait in Ray's queue, so that no worker idles; the others are left
            # for other processes on the same workdir.
            while batch and len(self._tasks) < 2 * max(1, num_slots):
                ours, others = self._workdir.claim(batch)
                theirs += others
                self._start(ray, ours)
                batch = next(batches, None)
            if not self._tasks:
                continue
            able_at = time.monotonic() if num_slots else able_at
            if time.monotonic() - able_at > _NODE_SECONDS:
                raise UserError(
                    f"ray: no node with {self._request()} for {_NODE_SECONDS:.0f} s; "
                    "finished runs are kept"
                )
            for reference in ray.wait(list(self._tasks), timeout=_POLL_SECONDS)[0]:
                self._collect(ray, reference)
        return theirs

    def _start(self, ray: ModuleType, runs: list[Run], num_retries: int = 0) -> None:
        """Sends claimed runs to the cluster."""
        if not runs:
            return
        task = _Task(runs, time.monotonic(), num_retries)
        try:
            dataset = self._send_dataset(ray, runs[0].spec)
        except Exception as error:  # a missing dataset
            self._fail(task, error)
            return
        # Retries are counted here: Ray's own never end where memory runs out.
        remote = ray.remote(
            num_cpus=self._cluster.cpus, num_gpus=self._gpus, max_retries=0
        )(run_task)
        cpus = None if self._gpus else self._cluster.cpus
        asked = (self._group_size, cpus, self._eval_every, self._save)
        reference = remote.remote(runs, dataset, *asked)
        self._tasks[reference] = task

    def _collect(self, ray: ModuleType, reference: Any) -> None:
        """Writes what a finished task brought, or starts it again."""
        try:
            result: TaskResult = ray.get(reference, timeout=_START_SECONDS)
        except ray.exceptions.RayTaskError as error:
            self._fail(self._tasks.pop(reference), error)
            return
        except ray.exceptions.RayError as error:  # its worker or node died
            self._retry(ray, self._tasks.pop(reference), error)
            return
        task = self._tasks.pop(reference)
        commit = provenance()["commit"]  # a worker has no checkout
        try:
            for text in result.lines:
                self._workdir.say_once(text)
            for run, outcome in zip(task.runs, result.outcomes, strict=True):
                if isinstance(outcome, Exception):
                    self._workdir.fail(run, outcome, result.seconds)
                else:
                    if content := result.networks.get(run.name):
                        save_network(self._workdir.path, run, content)
                    record = msgspec.structs.replace(outcome, commit=commit)
                    self._workdir.write(run, record, result.seconds)
        finally:
            self._workdir.release(task.runs)

    def _retry(self, ray: ModuleType, task: _Task, error: Exception) -> None:
        what = count(len(task.runs), "run")
        why = type(error).__name__
        if task.num_retries >= self._cluster.max_retries:
            lost = WorkerError(f"{why}, {task.num_retries + 1} times in a row")
            self._fail(task, lost)
            return
        attempt = task.num_retries + 1
        self._workdir.display.print(
            f"{task.runs[0].title}: the worker of {what} died ({why}); retry {attempt} "
            f"of {self._cluster.max_retries}"
        )
        half = len(task.runs)
        if isinstance(error, ray.exceptions.OutOfMemoryError):
            half = (half + 1) // 2
        for part in (task.runs[:half], task.runs[half:]):
            self._start(ray, part, attempt)

    def _fail(self, task: _Task, error: Exception) -> None:
        try:
            for run in task.runs:
                self._workdir.fail(run, error, time.monotonic() - task.started)
        finally:
            self._workdir.release(task.runs)

    def _send_dataset(self, ray: ModuleType, spec: RunSpec) -> Any:
        key = order.dataset_key(spec)
        if key not in self._datasets:
            dataset = self._loaded.load(spec)
            self._workdir.say_once(describe(dataset))
            self._datasets[key] = ray.put(dataset)
        return self._datasets[key]

    def _gpus_of_a_task(self, ray: ModuleType) -> float:
        if self._cluster.gpus is not None:
            return self._cluster.gpus
        return 1.0 if any(node.get("GPU") for node in _nodes(ray)) else 0.0

    def _num_slots(self, ray: ModuleType) -> int:
        """How many tasks the cluster can run at a time."""
        slots = 0
        for node in _nodes(ray):
            fits = node.get("CPU", 0.0) / self._cluster.cpus
            if self._gpus:
                fits = min(fits, node.get("GPU", 0.0) / self._gpus)
            slots += math.floor(fits + 1e-9)
        return slots

    def _request(self) -> str:
        gpus = f" and {self._gpus:g} GPUs" if self._gpus else ""
        return f"{self._cluster.cpus:g} CPUs{gpus}"

    def _tell_cluster(self, ray: ModuleType) -> None:
        nodes = count(len(_nodes(ray)), "node")
        slots = self._num_slots(ray)
        if not slots:
            raise UserError(
                f"ray: none of the {nodes} has {self._request()} for a task; ask for "
                "less with --ray_cpus or --ray_gpus"
            )
        self._workdir.display.print(
            f"Ray: {nodes}, {count(slots, 'task')} at a time, {self._request()} each"
        )


class TaskResult(NamedTuple):
    """What a task brings back."""

    outcomes: list[Outcome]  # of each run
    lines: list[str]  # to print
    seconds: float
    networks: dict[str, bytes]  # by the name of the run, as content of a file


def run_task(
    runs: Sequence[Run],
    dataset: Dataset,
    group_size: int,
    cpus: float | None,
    eval_every: int = 0,
    save: bool = False,
) -> TaskResult:
    """Runs some runs of one family, on a worker.

    Args:
      runs: what to run.
      dataset: what they learn.
      group_size: how many to train in one program; 0 = automatic.
      cpus: of this task where it has no GPU; other tasks use the others.
      eval_every: epochs of a layer between two evaluations; 0 = never.
      save: whether to bring back the networks.
    """
    started = time.monotonic()
    # A worker that hangs ends itself, which is a death like any other to the driver.
    faulthandler.dump_traceback_later(patience(runs, cpus), exit=True)
    share = 1.0
    if cpus is not None:
        share = min(1.0, cpus / (os.cpu_count() or 1))
        # How many threads XLA computes with; it would take all cores of the node.
        os.environ.setdefault("NPROC", str(math.ceil(cpus)))
    machine.use_compilation_cache()
    here = machine.here(share=share)
    lines: list[str] = []
    outcomes: list[Outcome] = []
    networks: dict[str, bytes] = {}

    def keep(run: Run, network: Network) -> None:
        networks[run.name] = network.to_bytes()

    extras = attempt.Extras(eval_every, keep if save else None)
    size = attempt.group_size(runs[0].spec, here, group_size)
    for first in range(0, len(runs), size):
        part = runs[first : first + size]
        _PROGRAMS.use(part)
        outcomes += attempt.attempt(
            part,
            dataset,
            here,
            extras=extras,
            on_halved=lambda half, error: lines.append(attempt.halved(half, error)),
        )
    faulthandler.cancel_dump_traceback_later()
    seconds = time.monotonic() - started
    return TaskResult(list(map(attempt.portable, outcomes)), lines, seconds, networks)


_PROGRAMS = Programs()  # of this worker


def patience(runs: Sequence[Run], cpus: float | None) -> float:
    """Seconds after which a task is taken for hung: far more than it can need."""
    expected = sum(cost.cpu_seconds(run.spec) for run in runs)
    return 600 + 20 * expected * max(1.0, 2 / (cpus or 2))


def _nodes(ray: ModuleType) -> list[dict[str, float]]:
    """The resources of each live node."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


@contextlib.contextmanager
def _connected(cluster: Ray, runs: Sequence[Run]) -> Iterator[ModuleType]:
    """Ray, connected to the cluster; workers get the code of this process."""
    address = cluster.address or os.environ.get("RAY_ADDRESS", "")
    _check_address(address)
    ray = _import_ray(on_loopback=not address)
    with contextlib.ExitStack() as stack:
        code = stack.enter_context(tempfile.TemporaryDirectory(prefix="ffjax-code-"))
        _collect_code(pathlib.Path(code), runs)
        settings = {
            "address": address or "local",
            "runtime_env": {"working_dir": code, "env_vars": _environment(cluster)},
            "log_to_driver": False,
            "logging_level": "error",
        }
        if not address:
            settings |= {"include_dashboard": False, "_temp_dir": _private(stack)}
        problems: list[BaseException] = []
        answered, over = threading.Event(), threading.Event()

        def connect() -> None:
            try:
                ray.init(**settings)
            except BaseException as error:
                problems.append(error)
            answered.set()
            over.wait()

        # In a thread of its own, because it may wait for ever for what is no cluster;
        # and there it leaves the signals' handlers alone. The thread stays, because
        # what Ray starts on this machine ends with the thread that started it.
        threading.Thread(target=connect, daemon=True).start()
        shown = f"ray_address={address!r}" if address else "ray"
        patience = _JOIN_SECONDS if address else _START_SECONDS
        if not answered.wait(patience):
            raise UserError(f"{shown}: no Ray cluster within {patience:.0f} s")
        for error in problems:
            text = " ".join(f"{type(error).__name__}: {error}".split())
            raise UserError(f"{shown}: cannot connect ({text[:300]})")
        try:
            yield ray
        finally:
            ray.shutdown()
            over.set()


def _import_ray(on_loopback: bool) -> ModuleType:
    """Ray; a cluster that it starts may be for this machine only."""
    if on_loopback:
        # Read when Ray is imported. Off, as on a Mac, its servers listen on 127.0.0.1;
        # on Linux nothing else keeps them from listening on all interfaces.
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    try:
        import ray
    except ImportError:
        raise UserError(
            "runner='ray': Ray is not installed; pip install 'ffjax[ray]'"
        ) from None
    return ray


def _private(stack: contextlib.ExitStack) -> str:
    """A folder for the sockets, logs and code of a cluster, closed to other users.

    Ray opens its own folder to all, so that it lies in one that is not. Both have short
    names, because the path of a socket may have no more than 107 letters.
    """
    parent = "/tmp" if os.path.isdir("/tmp") else None
    folder = tempfile.TemporaryDirectory(
        prefix="ffjax-", dir=parent, ignore_cleanup_errors=True
    )
    return str(pathlib.Path(stack.enter_context(folder)) / "ray")


def _environment(cluster: Ray) -> dict[str, str]:
    """What keeps tasks that share a machine out of each other's way."""
    if cluster.gpus == 0:
        return {"JAX_PLATFORMS": "cpu"}
    if cluster.gpus is not None and cluster.gpus < 1:
        return {"XLA_PYTHON_CLIENT_MEM_FRACTION": f"{0.9 * cluster.gpus:.3f}"}
    return {}


def _check_address(address: str) -> None:
    """Raises a UserError if nothing listens at HOST:PORT."""
    found = re.fullmatch(r"(?:ray://)?\[?(.+?)\]?:(\d+)", address)
    if not found:
        if address not in ("", "auto", "local"):
            raise UserError(f"ray_address={address!r}: must be HOST:PORT")
        return
    host, port = found.group(1), int(found.group(2))
    try:
        with socket.create_connection((host, port), timeout=_CONNECT_SECONDS):
            pass
    except (OSError, OverflowError) as error:
        raise UserError(
            f"ray_address={address!r}: nothing answers there ({error}); is the cluster "
            "up, and is it the port of its head node?"
        ) from None


def _collect_code(folder: pathlib.Path, runs: Sequence[Run]) -> None:
    """Copies what workers must be able to import: ffjax and users' own functions."""
    ignored = shutil.ignore_patterns("__pycache__", ".*")
    package = pathlib.Path(ffjax.__file__).parent
    shutil.copytree(package, folder / "ffjax", ignore=ignored)
    names = {run.spec.goodness for run in runs if ":" in run.spec.goodness}
    for name in {name.partition(":")[0].partition(".")[0] for name in names}:
        source = getattr(sys.modules[name], "__file__", None)
        paths = [source] if source else sys.modules[name].__path__
        for path in map(pathlib.Path, paths):
            if "site-packages" in path.parts:
                continue  # installed, so on the workers, too
            if path.is_dir() or path.name == "__init__.py":
                root = path if path.is_dir() else path.parent
                _copy_python(root, folder / root.name)
            else:  # with what it may import from beside it
                for sibling in path.parent.glob("*.py"):
                    shutil.copy(sibling, folder / sibling.name)


def _copy_python(source: pathlib.Path, target: pathlib.Path) -> None:
    for path in source.rglob("*.py"):
        copy = target / path.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
