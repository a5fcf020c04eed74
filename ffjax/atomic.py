"""Files that are whole or not there at all."""

import contextlib
import os
import pathlib
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
        dir=path.parent, prefix=f".{path.name}{_SCRATCH}"
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
    """Removes what killed writers left in a folder and below, if it is old enough.

    A writer needs seconds; an hour leaves alone those that are at work.
    """
    limit = time.time() - _SCRATCH_SECONDS
    for path in folder.rglob(f".*{_SCRATCH}*"):
        with contextlib.suppress(OSError):
            if path.is_file() and path.stat().st_mtime < limit:
                path.unlink()
