"""What the time of a run went to: compiling, training, and other processes."""

import contextlib
import os
import pathlib
import time
from collections.abc import Iterator

import jax

from ffjax.records import Busy


class CompileClock:
    """Seconds that XLA compiled."""

    seconds = 0.0


@contextlib.contextmanager
def compile_clock() -> Iterator[CompileClock]:
    """Adds up the time that XLA compiles while it is open."""
    clock = CompileClock()

    def listen(event: str, duration_secs: float, **_: str | int) -> None:
        if event.endswith(("backend_compile_duration", "to_mlir_module_duration")):
            clock.seconds += duration_secs

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield clock
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


class BusyClock:
    """How busy this process and the others kept the cores since its start."""

    def __init__(self):
        """Starts now."""
        self._wall = time.monotonic()
        self._own = time.process_time()
        self._all = _core_seconds()

    def read(self) -> Busy | None:
        """Shares of the cores; None where the system does not tell."""
        busy = _core_seconds()
        wall = time.monotonic() - self._wall
        if busy is None or self._all is None or wall <= 0:
            return None
        own = time.process_time() - self._own
        others = max(0.0, busy - self._all - own)
        mine = len(os.sched_getaffinity(0)) * wall
        cores = (os.cpu_count() or 1) * wall
        return Busy(own=round(own / mine, 3), others=round(others / cores, 3))


def _core_seconds() -> float | None:
    """Seconds that all cores together have worked since the machine started."""
    try:
        line = pathlib.Path("/proc/stat").read_text().partition("\n")[0]
        user, nice, system = map(int, line.split()[1:4])
    except (OSError, ValueError):
        return None
    return (user + nice + system) / os.sysconf("SC_CLK_TCK")
