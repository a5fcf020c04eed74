"""Decoded datasets on disk, so that only the first start has to decode anything.

One safetensors file a dataset and source: memory-mappable, no pickle, written to a
temporary file and renamed. Its header holds a checksum of the arrays, so a damaged file
is found and made anew. Two processes that write at once write the same bytes, and the
later rename wins.
"""

import hashlib
import json
import os
import pathlib
from typing import Any

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


def read(entry: str) -> tuple[official.Arrays, dict[str, Any]] | None:
    """The arrays and facts stored under ``entry``; None if absent or damaged."""
    import safetensors  # here: a start with the embedded dataset needs none of it

    path = _path(entry)
    if not path.exists():
        return None
    try:
        with safetensors.safe_open(path, framework="np") as file:
            facts = json.loads((file.metadata() or {}).get("facts", "{}"))
            arrays = official.Arrays(
                *(file.get_tensor(key) for key in official.Arrays._fields)
            )
        if facts.pop("sha256", None) != _checksum(arrays):
            raise ValueError("checksum differs")
    except (OSError, ValueError, safetensors.SafetensorError) as error:
        logging.warning("%s: damaged (%s), made anew", path, error)
        return None
    return arrays, facts


def write(entry: str, arrays: official.Arrays, facts: dict[str, Any]) -> None:
    """Stores arrays and facts under ``entry``, whole or not at all.

    Where that fails, a run goes on without a cache, after a warning; it is an error
    only if the user named the folder.
    """
    import safetensors.numpy

    path = _path(entry)
    # Serialised by the library, written by us: an OSError says what went wrong.
    content = safetensors.numpy.save(
        {key: np.ascontiguousarray(a) for key, a in arrays._asdict().items()},
        # One entry, since the library writes several in any order.
        metadata={"facts": json.dumps({**facts, "sha256": _checksum(arrays)})},
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


def _path(entry: str) -> pathlib.Path:
    return folder() / f"{entry}.safetensors"


def _checksum(arrays: official.Arrays) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
