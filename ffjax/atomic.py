"""Files that are whole or not there at all."""

import contextlib
import functools
import hashlib
import os
import pathlib
import platform
import re
import tempfile
import time

_SCRATCH = ".ffjax-scratch-"  # in the names of files that are being written
_SCRATCH_SECONDS = 3600.0


def write_bytes(
    path: pathlib.Path, content: bytes, *, make_folder: bool = True
) -> None:
    """Writes a file beside ``path``, then renames it."""
    if make_folder:
        path.parent.mkdir(parents=True, exist_ok=True)
    handle, scratch = tempfile.mkstemp(
        dir=path.parent, prefix=f".{path.name}{_SCRATCH}{_writer()}-"
    )
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(scratch, 0o644)  # mkstemp's 0600 would hide results from a group
        os.replace(scratch, path)
    except BaseException:
        pathlib.Path(scratch).unlink(missing_ok=True)
        raise


def write_text(path: pathlib.Path, text: str) -> None:
    """``write_bytes`` for text."""
    write_bytes(path, text.encode("utf-8"))


def remove_scratch(folder: pathlib.Path) -> None:
    """Removes what killed writers left in a folder and below.

    Whether a writer lives is known of those on this machine. Others need seconds; an
    hour leaves alone those that are at work.
    """
    limit = time.time() - _SCRATCH_SECONDS
    for path in folder.rglob(f".*{_SCRATCH}*"):
        with contextlib.suppress(OSError):
            is_left = _is_dead(path.name) or path.stat().st_mtime < limit
            if is_left and path.is_file():
                path.unlink()


@functools.cache
def system() -> str:
    """What makes process numbers comparable: the same boot and the same container.

    Empty where that is unknown.
    """
    try:
        boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _writer() -> str:
    """This process, as the names of its scratch files have it."""
    return f"{_machine()}-{os.getpid()}"


def _machine() -> str:
    return hashlib.sha256(f"{platform.node()} {system()}".encode()).hexdigest()[:12]


def _is_dead(name: str) -> bool:
    """Whether the writer of a scratch file surely is dead."""
    made = re.search(rf"{re.escape(_SCRATCH)}(\w+)-(\d+)-", name)
    if not made or not system() or made.group(1) != _machine():
        return False
    return not pathlib.Path("/proc", made.group(2)).exists()
