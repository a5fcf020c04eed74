"""By what a dataset is known: its name, or the content of its file."""

import difflib
import functools
import hashlib
import os
import pathlib
import stat
from typing import Literal, NotRequired, TypedDict

from ffjax.data import catalog
from ffjax.errors import UserError


class Source(TypedDict):
    """Where a dataset came from, fit for a JSON record."""

    kind: Literal["embedded", "raw", "tfds", "npz"]  # raw: the official files
    files: dict[str, str]  # name -> SHA-256
    verified: NotRequired[bool]  # whether it is known to be the official dataset


def check_name(name: str) -> None:
    """Raises UserError unless ``name`` is a known dataset or a path ending in .npz."""
    if name in catalog.DATASETS or name.endswith(".npz"):
        return
    close = difflib.get_close_matches(name, catalog.DATASETS, n=1)
    hint = f" (did you mean {close[0]!r}?)" if close else ""
    raise UserError(
        f"dataset={name!r}: unknown{hint}; known are {', '.join(catalog.DATASETS)}, "
        "and the path of a .npz file"
    )


def canonical_name(name: str) -> str:
    """The name itself, or the absolute path of a user's own file.

    All spellings of a path (relative, with ~, through a linked folder) give the same.
    The file need not exist, and a link to a file keeps its own name.
    """
    check_name(name)
    if name in catalog.DATASETS:
        return name
    path = own_path(name)
    return str(path.parent.resolve() / path.name)


def fingerprint(name: str) -> str | None:
    """SHA-256 of a user's own file, None for a dataset that has a name.

    Cheap to ask again: a file of the same size and time is not read twice.
    """
    check_name(name)
    if name in catalog.DATASETS:
        return None
    path = own_path(name)
    facts = check_regular(path)
    return _remembered(path.resolve(), facts.st_ino, facts.st_size, facts.st_mtime_ns)


def own_path(name: str) -> pathlib.Path:
    """The path of a user's own file."""
    try:
        return pathlib.Path(name).expanduser()
    except RuntimeError:  # ~ of a user who is not known
        return pathlib.Path(name)


def check_regular(path: pathlib.Path) -> os.stat_result:
    """The facts of a regular file; UserError for all else, at which open might hang."""
    try:
        facts = path.stat()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    except ValueError as error:  # a null byte
        raise UserError(f"{str(path)!r}: cannot be read ({error})") from None
    if not stat.S_ISREG(facts.st_mode):
        what = "folder" if stat.S_ISDIR(facts.st_mode) else "pipe, socket or device"
        raise UserError(f"{path}: is a {what}, expected a file")
    return facts


def checksum(path: pathlib.Path, algorithm: str = "sha256") -> str:
    """The hexadecimal digest of a file as it is."""
    check_regular(path)
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, algorithm).hexdigest()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None


@functools.lru_cache(maxsize=32)
def _remembered(path: pathlib.Path, *facts: int) -> str:
    del facts  # part of the key
    return checksum(path)
