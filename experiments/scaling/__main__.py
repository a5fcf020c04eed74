"""Runs a grid in every way that there is, compares the records and times the ways.

    python -m experiments.scaling                      # configs/grid.py:quick as it is
    python -m experiments.scaling --config.epochs=3    # shorter; flags of ffjax.main

It prints a table for SCALING.md, and exits with 1 if a way lost a run or gave an
accuracy further from that of single runs than ``_LIMIT``. Ray is left out where it is
not installed.
"""

import contextlib
import importlib.util
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

from ffjax import records

_ROOT = pathlib.Path(__file__).parents[2]
_LIMIT = 1.5  # percent: what rounding changed at most, see SCALING.md


def _environment(folder: pathlib.Path, **changes: str) -> dict[str, str]:
    # Every way compiles for itself.
    cache = {"FFJAX_CACHE_DIR": str(folder / "cache"), "JAX_PLATFORMS": "cpu"}
    return {**os.environ, **cache, "PYTHONPATH": str(_ROOT), **changes}


def _start(
    folder: pathlib.Path, *arguments: str, **environment: str
) -> subprocess.Popen[str]:
    config = ["--config=configs/grid.py:quick", *sys.argv[1:]]
    command = [sys.executable, "-m", "ffjax.main", *config, *arguments]
    return subprocess.Popen(
        [*command, f"--workdir={folder / 'work'}"],
        cwd=_ROOT,
        env=_environment(folder, **environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _finish(*processes: subprocess.Popen[str]) -> None:
    for process in processes:
        out, _ = process.communicate()
        if process.returncode:
            sys.exit(f"failed:\n{out}")


def _single(folder: pathlib.Path) -> None:
    _finish(_start(folder))


def _grouped(folder: pathlib.Path) -> None:
    _finish(_start(folder, "--config.group_size=4"))


def _eight_devices(folder: pathlib.Path) -> None:
    flags = "--xla_force_host_platform_device_count=8"
    _finish(_start(folder, XLA_FLAGS=flags))


def _two_processes(folder: pathlib.Path) -> None:
    _finish(_start(folder), _start(folder))


def _four_shards(folder: pathlib.Path) -> None:
    for index in range(1, 5):
        _finish(_start(folder, f"--shard={index}/4"))


def _two_nodes_and_a_kill(folder: pathlib.Path) -> None:
    with _cluster(folder) as (address, pid):
        driver = _start(folder, "--runner=ray", f"--ray_address={address}")
        workers: list[int] = []
        while driver.poll() is None and not workers:
            time.sleep(0.1)
            workers = _workers(pid)
        time.sleep(5.0)  # into its training
        for worker in workers[:1]:
            os.kill(worker, signal.SIGKILL)
        out, _ = driver.communicate()
        if driver.returncode or "retry 1 of 3" not in out:
            sys.exit(f"failed:\n{out}")


@contextlib.contextmanager
def _cluster(folder: pathlib.Path) -> Iterator[tuple[str, int]]:
    cluster = subprocess.Popen(
        [sys.executable, "-m", "experiments.scaling.two_nodes"],
        env=_environment(folder),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert cluster.stdout is not None
        yield cluster.stdout.readline().strip(), cluster.pid
    finally:
        cluster.communicate()


def _workers(ancestor: int) -> list[int]:
    """Processes of a cluster that are at a task."""
    busy = []
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (path / "cmdline").read_bytes().startswith(b"ray::run_task"):
                busy.append(int(path.name))
    return [pid for pid in busy if _descends(pid, ancestor)]


def _descends(pid: int, ancestor: int) -> bool:
    while pid > 1:
        if pid == ancestor:
            return True
        try:
            stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return False
        pid = int(stat.rpartition(")")[2].split()[1])
    return False


def _accuracies(folder: pathlib.Path) -> dict[str, float]:
    whole, problems = records.read_all(folder / "work")
    if problems:
        sys.exit("\n".join(problems))
    return {record.name: record.accuracy for record in whole}


_WAYS = {
    "one process, one run at a time": _single,
    "groups of 4": _grouped,
    "8 virtual devices": _eight_devices,
    "2 processes on one workdir": _two_processes,
    "4 shards, one after another": _four_shards,
    "Ray, 2 nodes of 1 CPU, a worker killed": _two_nodes_and_a_kill,
}


def main() -> int:
    """Prints a row for each way."""
    print("| way | seconds | runs/hour | equal accuracies | largest difference |")
    print("|---|---|---|---|---|", flush=True)
    expected: dict[str, float] = {}
    is_good = True
    with tempfile.TemporaryDirectory() as name:
        for number, (way, run) in enumerate(_WAYS.items()):
            if run is _two_nodes_and_a_kill and not importlib.util.find_spec("ray"):
                continue
            folder = pathlib.Path(name) / str(number)
            started = time.monotonic()
            run(folder)
            seconds = time.monotonic() - started
            accuracies = _accuracies(folder)
            expected = expected or accuracies
            gaps = [
                abs(accuracies[key] - expected[key])
                for key in expected.keys() & accuracies.keys()
            ]
            is_good &= accuracies.keys() == expected.keys() and max(gaps) <= _LIMIT
            equal = f"{sum(gap == 0 for gap in gaps)} of {len(expected)}"
            speed = 3600 * len(accuracies) / seconds
            row = [way, f"{seconds:.0f}", f"{speed:.0f}", equal, f"{max(gaps):.2f} %"]
            print("|", " | ".join(row), "|", flush=True)
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
