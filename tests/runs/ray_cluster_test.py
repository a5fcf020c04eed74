"""A real Ray cluster of two nodes, with workers that are killed in the middle."""

import contextlib
import importlib.util
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time

import pytest
import small_runs

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="Ray is not installed: '.[ray]'"
)

_ROOT = pathlib.Path(__file__).parents[2]

# Functions of a user's own: workers must get this module, and the one beside it. On a
# worker, one tells its process for the test to kill, and the other never survives.
_MINE = """
import os, pathlib, signal
import beside
from ffjax.goodness import register

ON_WORKER = "working_dir_files" in os.getcwd()

@register
def told(h):
    if ON_WORKER:
        path = pathlib.Path(beside.FOLDER) / str(os.getpid())
        path.touch()
    return beside.mean_square(h)

@register
def deadly(h):
    if ON_WORKER:
        os.kill(os.getpid(), signal.SIGKILL)
    return beside.mean_square(h)
"""
_BESIDE = """
import jax.numpy as jnp
FOLDER = {folder!r}
def mean_square(h):
    return jnp.mean(h * h, axis=-1)
"""
_CONFIG = """
from ffjax import config
def get_config():
    fields = config.default()
    fields.update(
        dataset="fashion_mini", num_layers=1, width=16, epochs=2, batch_size=50,
        train_limit=500, test_limit=200, seeds=(42, 43),
    )
    fields.grid = {"all": config.product(goodness=("mine:told", "mine:deadly"))}
    return fields
"""


def _command(*arguments, cwd):
    return subprocess.Popen(
        [sys.executable, "-m", "ffjax.main", *arguments],
        cwd=cwd,
        env=_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _environment():
    return {**os.environ, "PYTHONPATH": str(_ROOT), "JAX_PLATFORMS": "cpu"}


@pytest.fixture
def address():
    cluster = subprocess.Popen(
        [sys.executable, "-m", "experiments.scaling.two_nodes"],
        env=_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert cluster.stdout is not None
    yield cluster.stdout.readline().strip()
    cluster.communicate(timeout=60)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "pids").mkdir()
    (tmp_path / "mine.py").write_text(_MINE)
    (tmp_path / "beside.py").write_text(_BESIDE.format(folder=str(tmp_path / "pids")))
    (tmp_path / "grid.py").write_text(_CONFIG)
    return tmp_path


def test_two_nodes_and_workers_that_die(folder, address):
    on_ray = ["--runner=ray", f"--ray_address={address}", "--max_retries=1"]
    driver = _command("--config=grid.py", *on_ray, "--workdir=far", cwd=folder)
    deadline = time.monotonic() + 120
    while not (pids := list((folder / "pids").iterdir())):
        assert driver.poll() is None, driver.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.kill(int(pids[0].name), signal.SIGKILL)  # it has just begun to train
    out, _ = driver.communicate(timeout=300)
    assert driver.returncode == 1, out
    assert "Ray: 2 nodes, 2 tasks at a time, 1 CPUs each" in out
    # The one that was killed is started again, and nothing is done twice.
    assert len(re.findall(r"told\S* seed \d+: the worker of 1 run died", out)) == 1
    done = re.findall(r"^\[\d/4\] (\S+ seed \d+): [\d.]+ %", out, re.MULTILINE)
    assert len(done) == len(set(done)) == 2
    # What kills every worker is given up, and told.
    assert len(re.findall(r"deadly\S* seed \d+: the worker of 1 run died", out)) == 2
    failures = [json.loads(path.read_text()) for path in folder.glob("far/failures/*")]
    assert len(failures) == 2
    for failure in failures:
        assert failure["spec"]["goodness"] == "mine:deadly"
        assert failure["error"] == "WorkerCrashedError, 2 times in a row"
    assert list((folder / "far" / "claims").iterdir()) == []
    # Bit for bit what this process would have found.
    near = _command(
        "--config=grid.py", "--config.goodness=mine:told", "--workdir=near", cwd=folder
    )
    out, _ = near.communicate(timeout=120)
    assert near.returncode == 0, out
    assert small_runs.all_lasting(folder / "far") == small_runs.all_lasting(
        folder / "near"
    )


def _descendants(pid):
    """A process and all that it started, directly or not."""
    children = {}
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parent = int(path.read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(path.parent.name))
    found = [pid]
    for each in found:
        found += children.get(each, [])
    return found


def _listening(pids):
    """The addresses at which some processes listen, as /proc writes them."""
    inodes = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            for handle in pathlib.Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    inodes.add(os.readlink(handle).removeprefix("socket:[")[:-1])
    addresses = set()
    for name in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            _, local, _, state, *rest = line.split()
            if state == "0A" and rest[5] in inodes:
                addresses.add(local.partition(":")[0])
    return addresses


_LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F"}


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_cluster_of_ones_own_is_closed_to_others(folder):
    """On loopback only, in a folder of mode 0700 that is gone afterwards."""
    small = ["--config.width=16", "--config.epochs=2", "--config.train_limit=500"]
    driver = _command(*small, "--runner=ray", "--workdir=w", cwd=folder)
    addresses, homes = set(), {}
    while driver.poll() is None:
        pids = _descendants(driver.pid)
        addresses |= _listening(pids)
        for pid in pids:
            with contextlib.suppress(OSError):
                line = pathlib.Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
                for home in re.findall(r"(/tmp/ffjax-(?!code)\w+)/ray", line):
                    homes[home] = os.stat(home).st_mode & 0o777
        time.sleep(0.2)
    out, _ = driver.communicate()
    assert driver.returncode == 0, out
    assert "Ray: 1 node" in out
    assert addresses
    assert addresses <= _LOOPBACK
    assert list(homes.values()) == [0o700]
    assert not any(map(os.path.exists, homes))


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("127.0.0.1:{free}", "nothing answers there"),
        ("nowhere", "must be HOST:PORT"),
    ],
)
def test_an_address_without_a_cluster_is_one_line(tmp_path, address, message):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = address.format(free=probe.getsockname()[1])
    run = _command(
        "--runner=ray", f"--ray_address={address}", "--workdir=w", cwd=tmp_path
    )
    out, _ = run.communicate(timeout=60)
    assert run.returncode == 2
    (line,) = out.splitlines()
    assert line.startswith(f"ffjax: ray_address={address!r}: {message}")
    assert not list(tmp_path.rglob("*.json"))


def test_flags_of_ray_without_ray_are_one_line(tmp_path):
    run = _command("--max_retries=2", cwd=tmp_path)
    out, _ = run.communicate(timeout=60)
    assert run.returncode == 2
    assert out == "ffjax: max_retries=2: needs --runner=ray\n"


_HUNG = """
import time
import jax.numpy as jnp
from ffjax import config, data
from ffjax.config.spec import cell_id
from ffjax.goodness import register
from ffjax.runs import ray_cluster
from ffjax.runs.order import Run

@register
def hangs(h):
    time.sleep(60)
    return jnp.mean(h, axis=-1)

ray_cluster.patience = lambda runs, cpus: 1.0
spec = config.make_spec(
    dataset="fashion_mini", goodness="hangs", num_layers=1, width=4, epochs=1,
    batch_size=50, train_limit=50,
)
print("started", flush=True)
run = Run(config.Cell(cell_id(spec), spec, (42,)), 42)
ray_cluster.run_task([run], data.load("fashion_mini", train_limit=50), 0, 1.0)
print("done")
"""


def test_a_worker_that_hangs_ends_itself():
    ended = subprocess.run(
        [sys.executable, "-c", _HUNG],
        env=_environment(),
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert ended.returncode == 1
    assert ended.stdout == "started\n"
    assert "Timeout" in ended.stderr
