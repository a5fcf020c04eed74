import os
import time

import jax
import jax.numpy as jnp
import pytest

from ffjax.runs import clock


def test_the_compile_clock_counts_compiling_and_nothing_else():
    @jax.jit
    def program(x):
        return jnp.sin(x) @ jnp.cos(x)

    x = jnp.ones((3, 3))
    with clock.compile_clock() as first:
        program(x).block_until_ready()
        time.sleep(0.05)
    assert first.seconds > 0
    counted = first.seconds
    with clock.compile_clock() as second:
        program(x).block_until_ready()
    assert second.seconds == 0
    assert first.seconds == counted, "a closed clock stands still"


def test_the_busy_clock_tells_work_from_rest(monkeypatch):
    """Half of our cores for us, and a quarter of all cores for others."""
    now = {"wall": 0.0, "own": 0.0, "all": 0.0}
    monkeypatch.setattr(clock.time, "monotonic", lambda: now["wall"])
    monkeypatch.setattr(clock.time, "process_time", lambda: now["own"])
    monkeypatch.setattr(clock, "_core_seconds", lambda: now["all"])
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    busy = clock.BusyClock()
    now.update(wall=10.0, own=10.0, all=20.0)
    assert busy.read() == clock.Busy(own=0.5, others=0.25)


@pytest.mark.parametrize("moment", ["start", "end"])
def test_where_the_system_does_not_tell(monkeypatch, moment):
    answers = iter([None, 1.0] if moment == "start" else [1.0, None])
    monkeypatch.setattr(clock, "_core_seconds", lambda: next(answers))
    assert clock.BusyClock().read() is None


@pytest.mark.skipif(not os.path.exists("/proc/stat"), reason="no /proc/stat")
def test_the_cores_of_this_machine_work():
    before = clock._core_seconds()
    assert before is not None
    deadline = time.monotonic() + 10
    while clock._core_seconds() == before:  # ticks of 10 ms, by this very loop
        assert time.monotonic() < deadline
