"""A grid that is killed again and again ends as if nothing had happened.

As a script it kills more often, and a larger grid if asked to:

    python tests/runs/kill_test.py --kills=20 --config=configs/grid.py:quick
"""

import argparse
import collections
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import time

import pytest
import small_runs

_ROOT = pathlib.Path(__file__).parents[2]
_TINY = "tests/tiny_grid.py"


def _start(config, workdir, cache):
    command = [sys.executable, "-m", "ffjax.main", f"--config={config}"]
    return subprocess.Popen(
        [*command, f"--workdir={workdir}"],
        cwd=_ROOT,
        env={**os.environ, "JAX_PLATFORMS": "cpu", "FFJAX_CACHE_DIR": str(cache)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _finish(process):
    out, _ = process.communicate(timeout=1800)
    assert process.returncode == 0, out
    return out


def _check_left_over(workdir):
    for folder in ("claims", "partial"):
        assert list((workdir / folder).iterdir()) == [], folder
    assert list(workdir.rglob(".*")) == []
    assert (workdir / "report" / "index.html").stat().st_size > 1000


# What a process has done when it is killed, by what lies in the workdir then.
_SIGNS = ("claims/*", "partial/*/*", "results/*.json")


def _wait_for(process, workdir, sign):
    """Waits until there is a file that ``sign`` matches, or the process is over.

    An empty file does not count: a claim whose owner was killed before it could write
    its name into it is respected for a lease of two minutes.
    """

    def is_there():
        try:
            return any(path.stat().st_size for path in workdir.glob(sign))
        except OSError:  # removed meanwhile
            return False

    while process.poll() is None and not is_there():
        time.sleep(0.002)


def _kill_often(config, workdir, cache, kills, seconds=None, seed=0):
    """Kills the grid again and again, then lets it finish.

    Without ``seconds`` at its first claim, then after a layer, then after a run; with
    it, after random times below that.
    """
    moments = random.Random(seed)
    killed = []
    for number in range(kills):
        process = _start(config, workdir, cache)
        if seconds is None:
            _wait_for(process, workdir, _SIGNS[number % len(_SIGNS)])
        else:
            time.sleep(moments.uniform(0.5, seconds))
        # A kill tells most where it leaves something half done; both are counted.
        is_alive = process.poll() is None
        process.kill()
        process.communicate()
        left = [len(list(workdir.glob(p))) for p in ("claims/*", "partial/*/*")]
        killed.append((is_alive, *left))
    return killed, _finish(_start(config, workdir, cache))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    _finish(_start(_TINY, folder / "work", folder / "cache"))
    return folder


def test_killed_and_restarted(tmp_path, undisturbed):
    # The compiled programs are there, so that kills hit the training as well.
    killed, _ = _kill_often(_TINY, tmp_path, undisturbed / "cache", len(_SIGNS))
    assert all(is_alive for is_alive, *_ in killed)
    assert killed[1][2] > 0, "a layer was kept"
    assert small_runs.all_lasting(tmp_path) == small_runs.all_lasting(
        undisturbed / "work"
    )
    _check_left_over(tmp_path)


def test_two_processes_share_the_work(tmp_path, undisturbed):
    _check_shared(_TINY, tmp_path, undisturbed / "cache")
    assert small_runs.all_lasting(tmp_path) == small_runs.all_lasting(
        undisturbed / "work"
    )


def _check_shared(config, workdir, cache):
    pair = [_start(config, workdir, cache) for _ in range(2)]
    outs = [_finish(process) for process in pair]
    done = [re.findall(r"^\[\d+/\d+\] (\S+ seed \d+): ", out, re.M) for out in outs]
    counts = collections.Counter(done[0] + done[1])
    whole = {f"{cell} seed {seed}" for cell, seed in small_runs.all_lasting(workdir)}
    assert set(counts) == whole
    assert set(counts.values()) == {1}
    assert all(done), "one of the processes did nothing"
    _check_left_over(workdir)
    return [len(part) for part in done]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--config", default=_TINY)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    config = arguments.config
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        started = time.monotonic()
        _finish(_start(config, folder / "whole", folder / "cache1"))
        seconds = time.monotonic() - started
        whole = small_runs.all_lasting(folder / "whole")
        print(f"undisturbed: {len(whole)} records in {seconds:.0f} s", flush=True)
        # Times that let some progress be made between kills, from the first import on.
        killed, _ = _kill_often(
            config,
            folder / "killed",
            folder / "cache2",
            arguments.kills,
            max(10.0, 3.0 * seconds / arguments.kills),
            arguments.seed,
        )
        assert small_runs.all_lasting(folder / "killed") == whole
        _check_left_over(folder / "killed")
        alive, claimed, layers = (
            sum(map(bool, part)) for part in zip(*killed, strict=True)
        )
        print(
            f"{len(killed)} kills, {alive} of a live process, {claimed} left a claim, "
            f"{layers} left layers: equal records",
            flush=True,
        )
        shares = _check_shared(config, folder / "shared", folder / "cache3")
        assert small_runs.all_lasting(folder / "shared") == whole
        print(f"two processes did {shares[0]} + {shares[1]}: equal records, each once")


if __name__ == "__main__":
    main()
