"""Decoded datasets on disk, so that only the first start has to decode anything.

A safetensors file for each dataset and source: memory-mappable, no pickle, written to a
temporary file and renamed. Its header holds a checksum of the arrays, so a damaged file
is noticed and made anew. Two processes that write at once write the same bytes, and the
later rename wins.
"""

import hashlib
import json
import os
import pathlib

import numpy as np
from absl import logging

from ffjax import atomic
from ffjax.data import official
from ffjax.errors import UserError

VARIABLE = "FFJAX_CACHE_DIR"


def folder() -> pathlib.Path:
    """$FFJAX_CACHE_DIR, else ffjax in the user's cache folder."""
    if chosen := os.environ.get(VARIABLE):
        return pathlib.Path(chosen).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return pathlib.Path(base).expanduser() / "ffjax"


def read(entry: str) -> tuple[official.Arrays, bool] | None:
    """The arrays stored under ``entry``, and whether they are verified.

    None if the file is absent, or damaged in any way: then it is made anew.
    """
    import safetensors  # here: a start with the embedded dataset needs none of it

    path = _path(entry)
    if not path.is_file():
        return None
    try:
        with safetensors.safe_open(path, framework="np") as file:
            facts = json.loads((file.metadata() or {}).get("facts", "{}"))
            arrays = official.Arrays(*map(file.get_tensor, official.Arrays._fields))
        verified = _check_facts(facts, arrays)
    except Exception as error:  # a damaged file can raise nearly anything
        logging.warning("%s: damaged (%s), made anew", path, error)
        return None
    return arrays, verified


def write(entry: str, arrays: official.Arrays, *, verified: bool) -> None:
    """Stores arrays under ``entry``, whole or not at all.

    Where that fails, a run goes on without a cache, after a warning; it is an error
    only if the user named the folder.
    """
    import safetensors.numpy

    path = _path(entry)
    facts = {"verified": verified, "sha256": _checksum(arrays)}
    # Serialised by the library, written by us: an OSError says what went wrong.
    content = safetensors.numpy.save(
        {key: np.ascontiguousarray(a) for key, a in arrays._asdict().items()},
        # A single entry, since the library writes several in any order.
        metadata={"facts": json.dumps(facts)},
    )
    try:
        atomic.write_bytes(path, content)
    except OSError as error:
        message = f"{path}: cannot write the cache ({error.strerror})"
        if os.environ.get(VARIABLE):
            raise UserError(
                f"{message}; set {VARIABLE} to a folder that you may write to, with "
                f"{len(content) // 2**20 + 1} MB free"
            ) from None
        logging.warning("%s; the next start will decode again", message)


def _check_facts(facts: object, arrays: official.Arrays) -> bool:
    """Whether the arrays are verified; ValueError if the facts are not about them."""
    match facts:
        case {"verified": bool(verified), "sha256": str(checksum)}:
            if checksum == _checksum(arrays):
                return verified
    raise ValueError("checksum differs")


def _path(entry: str) -> pathlib.Path:
    return folder() / f"{entry}.safetensors"


def _checksum(arrays: official.Arrays) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
