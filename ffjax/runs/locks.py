"""Who works on what: claims of processes that share a folder.

A claim is a file that only one process can create. Its owner touches it as long as it
lives; a claim that was not touched for a lease, or whose owner is known to be dead, is
taken over by creating the next generation of it, ``<name>.<generation>``. Creation is
the only step that decides who wins, so it works wherever exclusive creation does,
network folders included, and no clock but that of the file system is asked.
"""

import json
import os
import pathlib
import platform
import tempfile
import threading

from ffjax import atomic

_PROBE = ".clock"  # in front of the names of files that ask the file system's time
LEASE_SECONDS = 120.0  # twice as long as network file systems may show an old time


class Claims:
    """The claims of one folder, as seen and made by this process.

    Use it as a context manager: at its end all claims that are still held are released.
    """

    def __init__(self, folder: str | os.PathLike[str], lease: float = LEASE_SECONDS):
        """Claims in ``folder``, void when not touched for ``lease`` seconds."""
        self._folder = pathlib.Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._lease = lease
        self._owner = _this_process()
        self._held: dict[str, pathlib.Path] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._heart = threading.Thread(target=self._beat, daemon=True)

    def __enter__(self):
        """Starts to touch the claims that are held."""
        self._heart.start()
        return self

    def __exit__(self, *exception):
        """Releases what is still held."""
        self._stop.set()
        self._heart.join()
        for name in list(self._held):
            self.release(name)

    def acquire(self, name: str) -> bool:
        """Claims ``name``; False if another live process has it."""
        found = self._generations(name)
        if any(not self._is_void(path) for path in found.values()):
            return False
        path = self._path(name, max(found, default=0) + 1)
        try:
            with open(path, "x", encoding="utf-8") as file:
                file.write(json.dumps(self._owner))
        except FileExistsError:
            return False
        # Someone may have claimed a generation that was not there a moment ago.
        others = [p for p in self._generations(name).values() if p != path]
        if any(not self._is_void(other) for other in others):
            path.unlink(missing_ok=True)
            return False
        with self._lock:
            self._held[name] = path
        return True

    def is_held(self, name: str) -> bool:
        """Whether the claim is still ours: a stopped process may have lost it."""
        path = self._held.get(name)
        found = self._generations(name)
        return path is not None and bool(found) and found[max(found)] == path

    def release(self, name: str) -> None:
        """Gives ``name`` back, and clears what dead owners of it left."""
        with self._lock:
            path = self._held.pop(name)
        for other in self._generations(name).values():
            if other != path and self._is_void(other):
                other.unlink(missing_ok=True)
        path.unlink(missing_ok=True)

    def owner(self, name: str) -> str:
        """Who has ``name``, in words; empty if nobody."""
        found = self._generations(name)
        owner = _read(found[max(found)])[0] if found else None
        if owner is None:
            return ""
        return f"process {owner.get('pid')} on {owner.get('host')}"

    def clear_void(self) -> None:
        """Removes what dead processes left."""
        for pattern in ("*.[0-9]*", f"{_PROBE}*"):
            for path in self._folder.glob(pattern):
                if self._is_void(path):
                    path.unlink(missing_ok=True)

    def _path(self, name: str, generation: int) -> pathlib.Path:
        return self._folder / f"{name}.{generation}"

    def _generations(self, name: str) -> dict[int, pathlib.Path]:
        found = {}
        for entry in self._entries():
            stem, _, generation = entry.rpartition(".")
            if stem == name and generation.isdecimal():
                found[int(generation)] = self._folder / entry
        return found

    def _entries(self) -> list[str]:
        try:
            return os.listdir(self._folder)
        except FileNotFoundError:  # removed with all claims
            return []

    def _is_void(self, path: pathlib.Path) -> bool:
        owner, touched = _read(path)
        if touched is None:  # released while we looked
            return True
        if owner is not None and _is_dead(owner, self._owner):
            return True
        # The file system's clock, not ours: machines may disagree about the time. A
        # claim from the future was made before its clock was set back.
        with tempfile.NamedTemporaryFile(dir=self._folder, prefix=_PROBE) as probe:
            now = os.fstat(probe.fileno()).st_mtime
        return abs(now - touched) > self._lease

    def _beat(self) -> None:
        while not self._stop.wait(self._lease / 12):
            with self._lock:
                paths = list(self._held.values())
            for path in paths:
                try:
                    os.utime(path)
                except OSError:
                    continue  # lost, or the folder is away for a moment


def _read(path: pathlib.Path) -> tuple[dict[str, object] | None, float | None]:
    """The owner, if readable, and the last touch; None if the file is gone."""
    try:
        with open(path, encoding="utf-8") as file:  # opening asks the server anew
            touched = os.fstat(file.fileno()).st_mtime
            owner = json.loads(file.read())
    except FileNotFoundError:
        return None, None
    except (OSError, ValueError):
        try:
            return None, path.stat().st_mtime
        except OSError:
            return None, None
    return (owner if isinstance(owner, dict) else None), touched


def _this_process() -> dict[str, object]:
    pid = os.getpid()
    return {
        "host": platform.node(),
        "system": atomic.system(),
        "pid": pid,
        "started": _start_time(pid),
    }


def _is_dead(owner: dict[str, object], here: dict[str, object]) -> bool:
    """Whether the owner surely is dead, which only its own machine can tell."""
    if owner.get("system") != here["system"] or owner.get("host") != here["host"]:
        return False
    pid = owner.get("pid")
    if here["started"] is None or not isinstance(pid, int):
        return False
    # Another process may have got the number of a dead one, but not its start time.
    return owner.get("started") != _start_time(pid)


def _start_time(pid: int) -> str | None:
    """When a live process started, in ticks since boot; None where that is unknown."""
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The name in parentheses may hold spaces; state and start time follow it.
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else fields[19]
