"""Several worker processes end as one process would, whatever happens to them."""

import dataclasses
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest
import small_runs
from small_runs import a_run, cells, hearing_ctrl_c

from ffjax.config.spec import Way
from ffjax.errors import UserError
from ffjax.runs import cost, run, workers
from ffjax.training import machine

_ROOT = pathlib.Path(__file__).parents[2]
needs_cores = pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity") or len(os.sched_getaffinity(0)) < 2,
    reason="needs two cores",
)


# Whole commands, with a grid of four runs.


def _start(workdir, cache):
    command = [sys.executable, "-m", "ffjax.main", "--config=tests/tiny_grid.py"]
    variables = {"JAX_PLATFORMS": "cpu", "FFJAX_CACHE_DIR": str(cache)}
    with hearing_ctrl_c():
        return subprocess.Popen(
            # So many epochs that a signal comes before the end of it on any machine.
            [*command, "--workers=2", "--config.epochs=300", f"--workdir={workdir}"],
            cwd=_ROOT,
            env={**os.environ, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,  # so that Ctrl-C reaches all of its processes
        )


def _finish(process):
    out, _ = process.communicate(timeout=600)
    assert process.returncode == 0, out
    return out


def _worker_pids(process):
    """The processes of the workers; Python's resource tracker is no worker."""
    found = []
    for path in pathlib.Path(f"/proc/{process.pid}/task").glob("*/children"):
        for pid in path.read_text().split():
            command = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
            if b"spawn_main" in command:
                found.append(int(pid))
    return found


def _is_deaf_to_ctrl_c(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    (mask,) = re.findall(r"^SigBlk:\s*([0-9a-f]+)$", status, re.M)
    return bool(int(mask, 16) & 1 << signal.SIGINT - 1)


def _wait_for_layer(process, workdir):
    while not any(workdir.glob("partial/*/*.safetensors")):
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.005)


def _wait_for_end(pids):
    deadline = time.monotonic() + 60
    while any(os.path.exists(f"/proc/{pid}") for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    out = _finish(_start(folder / "work", folder / "cache"))
    return folder, out


def _check_same(workdir, undisturbed):
    folder, _ = undisturbed
    made = small_runs.all_lasting(workdir)
    assert len(made) == 4
    assert made == small_runs.all_lasting(folder / "work")
    for name in ("claims", "partial"):
        assert list((workdir / name).iterdir()) == [], name


@needs_cores
def test_two_workers_do_each_run_once(undisturbed):
    folder, out = undisturbed
    assert "2 workers of 1 core each\n" in out
    assert out.count("data: fashion_mini") == 1
    done = re.findall(r"^\[\d/4\] (\S+ seed \d+): ", out, re.M)
    assert len(done) == len(set(done)) == 4
    assert (folder / "work" / "report" / "index.html").exists()
    _check_same(folder / "work", undisturbed)


@needs_cores
def test_a_killed_worker_is_replaced_and_its_layers_are_used(tmp_path, undisturbed):
    process = _start(tmp_path, undisturbed[0] / "cache")
    _wait_for_layer(process, tmp_path)
    pids = _worker_pids(process)
    assert len(pids) == 2
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    out = _finish(process)
    assert out.count("its worker died (SIGKILL); retry 1 of 3\n") == 2
    _check_same(tmp_path, undisturbed)


@needs_cores
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_of_a_command_that_ends_early(tmp_path, undisturbed, number):
    process = _start(tmp_path, undisturbed[0] / "cache")
    _wait_for_layer(process, tmp_path)
    pids = _worker_pids(process)
    assert len(pids) == 2
    assert all(map(_is_deaf_to_ctrl_c, pids))
    if number == signal.SIGINT:
        os.killpg(process.pid, number)  # as a terminal does
    else:
        process.send_signal(number)
    out, _ = process.communicate(timeout=60)
    _wait_for_end(pids)
    if number != signal.SIGKILL:
        assert process.returncode == 130, out
        assert "Traceback" not in out
        assert "finished layers of unfinished runs are kept\nto go on:\n" in out
        assert list((tmp_path / "claims").iterdir()) == []
    _finish(_start(tmp_path, undisturbed[0] / "cache"))
    _check_same(tmp_path, undisturbed)


# Errors inside of a worker.

_FUNCTIONS = """
import multiprocessing, os, signal
from ffjax.goodness import register

@register
def deadly(h):
    if multiprocessing.parent_process() is not None:
        os.kill(os.getpid(), signal.SIGKILL)
    return h.mean(-1)

@register
def faulty(h):
    raise LookupError("nothing there")
"""


@needs_cores
def test_runs_that_fail_or_kill_their_worker_leave_the_others_alone(
    tmp_path, monkeypatch, capsys
):
    (tmp_path / "mine.py").write_text(_FUNCTIONS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("FFJAX_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(workers, "_MAX_RETRIES", 1)
    made = cells(goodness=("mine:deadly", "mine:faulty", "sos"))
    assert run.run(made, str(tmp_path / "out"), Way(), workers=2) == 1
    assert [cell for cell, _ in small_runs.whole(tmp_path / "out")] == [made[2].id]
    failed = re.findall("^failed: (.*)", capsys.readouterr().out, re.M)
    assert len(failed) == 2
    died = "its worker died (SIGKILL), 2 times in a row"
    assert any(died in text for text in failed)
    assert any(re.search(r": LookupError: nothing.*mine\.py", s) for s in failed)
    assert list((tmp_path / "out" / "claims").iterdir()) == []


# How many.


@dataclasses.dataclass(frozen=True)
class _Device:
    platform: str = "cpu"
    device_kind: str = "cpu"


@pytest.fixture
def here(monkeypatch):
    """Sets the machine that is asked: its devices, memory and cores."""

    def put(device=_Device(), *, devices=1, memory=16e9, cores=2):
        made = machine.Machine((device,) * devices, memory)
        monkeypatch.setattr(machine, "here", lambda _: made)
        monkeypatch.setattr(workers, "_cores", lambda: list(range(cores)))

    put()
    return put


def _quick(number=17, **fields):
    size = {"width": 300, "epochs": 30, "batch_size": 100}
    whole = {**size, "train_limit": 0, "test_limit": 0, **fields}
    return [a_run(seed, **whole) for seed in range(number)]


def test_small_networks_have_a_worker_a_core(here):
    assert workers.choose(0, _quick(), Way()) == 2
    assert workers.choose(0, _quick(width=500), Way()) == 2
    assert workers.choose(1, _quick(), Way()) == 1
    here(cores=8)
    assert workers.choose(0, _quick(), Way()) == 8
    assert workers.choose(0, _quick(5, epochs=300), Way()) == 5
    assert workers.choose(3, _quick(), Way()) == 3
    assert workers.choose(8, _quick(3), Way()) == 3


@pytest.mark.parametrize(
    ("runs", "way"),
    [
        (_quick(1), Way()),
        (_quick(4, epochs=1, train_limit=100), Way()),  # over before workers start
        (_quick(width=1000), Way()),
        ([*_quick(), *_quick(1, width=2000)], Way()),
        (_quick(), Way(group_size=2)),
    ],
)
def test_other_runs_stay_in_one_process(here, runs, way):
    assert workers.choose(0, runs, way) == 1


def test_graphics_cards_and_virtual_devices_have_no_workers(here):
    for device, number in ((_Device("gpu", "A100"), 1), (_Device(), 4)):
        here(device, devices=number)
        assert workers.choose(0, _quick(), Way()) == 1
        with pytest.raises(UserError, match="workers=2: only for one CPU device"):
            workers.choose(2, _quick(), Way())


def test_memory_limits_the_workers(here):
    here(memory=3e9, cores=4)
    automatic = workers.choose(0, _quick(), Way())
    assert 1 < automatic < 4
    here(memory=2e9, cores=4)
    with pytest.raises(UserError, match=r"need about 2\.\d+ GB, but .* 2 GB; at most"):
        workers.choose(4, _quick(), Way())


def test_a_number_that_cannot_be(here):
    workers.check(0, on_ray=True)
    workers.check(2, on_ray=False)
    with pytest.raises(UserError, match="workers=3: there are 2 cores for them"):
        workers.check(3, on_ray=False)
    with pytest.raises(UserError, match="workers=2: not with --runner=ray"):
        workers.check(2, on_ray=True)


def test_cores_are_shared_evenly(here):
    here(cores=5)
    crew = workers.Crew(None, Way(), 2)  # pyright: ignore[reportArgumentType]
    assert [crew._cores(place) for place in (0, 1)] == [[0, 1], [2, 3, 4]]


def test_the_quick_grid_is_worth_workers():
    assert workers.is_small(_quick()[0].spec)
    assert sum(cost.cpu_seconds(run.spec) for run in _quick()) > 60
