import json
import os
import subprocess
import sys
import threading
import time

import pytest

from ffjax.runs import locks

_HOLD = """
import sys, time
from ffjax.runs import locks
with locks.Claims(sys.argv[1], lease=float(sys.argv[2])) as claims:
    print(claims.acquire("run"), flush=True)
    time.sleep(60)
"""


def _holder(folder, seconds):
    """A process that holds the claim "run" until it is killed."""
    process = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(folder), str(seconds)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "True\n"
    return process


def _foreign(folder, name="run.1", age=0.0, content=None):
    """A claim of another machine, last touched ``age`` seconds ago."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    owner = {"host": "elsewhere", "system": "x", "pid": 1, "started": "1"}
    path.write_text(json.dumps(owner) if content is None else content)
    os.utime(path, (time.time() - age, time.time() - age))
    return path


def test_one_of_two_gets_a_claim_and_the_other_after_release(tmp_path):
    with locks.Claims(tmp_path) as first, locks.Claims(tmp_path) as second:
        assert first.acquire("run")
        assert not second.acquire("run")
        assert second.acquire("run2")
        assert first.is_held("run")
        first.release("run")
        assert second.acquire("run")
    assert list(tmp_path.iterdir()) == []


def test_names_that_begin_alike_are_different(tmp_path):
    with locks.Claims(tmp_path) as claims:
        assert claims.acquire("run.1")
        assert claims.acquire("run")


def test_many_threads_one_winner(tmp_path):
    # A dead claim is there, so that all of them try to take over at the same time.
    for number in range(10):
        folder = tmp_path / str(number)
        _foreign(folder, age=1000)
        rivals = [locks.Claims(folder) for _ in range(8)]
        barrier, wins = threading.Barrier(len(rivals)), []

        def try_it(claims, barrier=barrier, wins=wins):
            barrier.wait()
            if claims.acquire("run"):
                wins.append(claims)

        threads = [threading.Thread(target=try_it, args=(c,)) for c in rivals]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(wins) == 1
        assert wins[0].is_held("run")


def test_the_claim_of_a_killed_process_is_taken_at_once(tmp_path):
    process = _holder(tmp_path, 1000)
    with locks.Claims(tmp_path, lease=1000) as claims:
        assert not claims.acquire("run")
        assert f"process {process.pid} on " in claims.owner("run")
        process.kill()  # not waited for: a zombie is dead, too
        deadline = time.monotonic() + 10
        while not claims.acquire("run"):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def test_a_live_process_keeps_its_claim_beyond_the_lease(tmp_path):
    process = _holder(tmp_path, 0.6)
    try:
        # To another machine, only the touches say that the owner lives.
        path = tmp_path / "run.1"
        owner = json.loads(path.read_text())
        path.write_text(json.dumps({**owner, "system": "another"}))
        with locks.Claims(tmp_path, lease=0.6) as claims:
            for _ in range(15):
                assert not claims.acquire("run")
                time.sleep(0.1)
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def test_a_reused_process_number_is_not_the_owner(tmp_path):
    with locks.Claims(tmp_path) as claims:
        assert claims.acquire("run")
        path = tmp_path / "run.1"
        owner = json.loads(path.read_text())
        path.write_text(json.dumps({**owner, "started": "1"}))
        with locks.Claims(tmp_path) as other:
            assert other.acquire("run")
            assert not claims.is_held("run")
        assert not path.exists()


@pytest.mark.parametrize(
    ("age", "content", "expected"),
    [
        (5, None, False),
        (1000, None, True),
        (-1000, None, True),  # the clock was set back
        (5, "", False),  # being written at this moment
        (1000, "", True),
        (1000, "[1]", True),
        (5, '{"pid": "x"}', False),
    ],
)
def test_the_claim_of_another_machine_lasts_for_a_lease(
    tmp_path, age, content, expected
):
    _foreign(tmp_path, age=age, content=content)
    with locks.Claims(tmp_path, lease=100) as claims:
        assert claims.acquire("run") == expected


def test_a_live_older_generation_wins_over_a_late_taker(tmp_path):
    _foreign(tmp_path, "run.1", age=5)
    _foreign(tmp_path, "run.2", age=1000)
    with locks.Claims(tmp_path, lease=100) as claims:
        assert not claims.acquire("run")


def test_clearing_leaves_what_lives_and_what_is_no_claim(tmp_path):
    _foreign(tmp_path, "dead.1", age=1000)
    _foreign(tmp_path, "alive.1")
    _foreign(tmp_path, ".clock-of-the-dead", age=1000, content="")
    (tmp_path / "notes.txt").write_text("mine")
    with locks.Claims(tmp_path, lease=100) as claims:
        claims.clear_void()
    assert {path.name for path in tmp_path.iterdir()} == {"alive.1", "notes.txt"}
