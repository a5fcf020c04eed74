"""The store: one JSON record per run, written whole or not at all.

A run is a cell of a grid with one seed. Its record is
``<workdir>/results/<cell-id>-seed<seed>.json``. Nothing here imports jax, so that a
report can be drawn on any machine.
"""

import json
import math
import os
import pathlib
import tempfile
from collections.abc import Mapping
from typing import Any

from ffjax import atomic
from ffjax.errors import UserError

Record = dict[str, Any]

# A record must have these keys, of these types, to count as whole.
_KEYS: dict[str, type | tuple[type, ...]] = {
    "cell": str,  # the cell's id, which is also in the file's name
    "spec": dict,  # the flat fields of the run
    "seed": int,
    "status": str,  # "ok" or "diverged"
    "accuracy": (int, float),  # of the ensemble on the test set, in percent
    "accuracy_layers": list,  # of each layer alone, first layer first
    # Of the concatenated activations alone; null where labels are not judged by them.
    "accuracy_concat": (int, float, type(None)),
    "confusion": list,  # C x C counts: row = true label, column = predicted label
    "losses": list,  # layer x epoch, null where the loss was not finite
    "time": dict,  # compile_s, train_s, eval_s
    "train_size": int,
    "test_size": int,
    "device": str,
    "versions": dict,
    "commit": (str, type(None)),
}
_STATUSES = ("ok", "diverged")


class BrokenRecord(ValueError):
    """A file in the store that is not a whole record; the message says why."""


def record_path(workdir: str | os.PathLike[str], cell: str, seed: int) -> pathlib.Path:
    """Where the record of ``cell`` with ``seed`` lives."""
    return pathlib.Path(workdir) / "results" / f"{cell}-seed{seed}.json"


def write(workdir: str | os.PathLike[str], record: Record) -> pathlib.Path:
    """Writes one record and returns its path. Numbers that JSON lacks become null."""
    record = _finite(record)
    _check(record)
    path = record_path(workdir, record["cell"], record["seed"])
    atomic.write_text(path, json.dumps(record, allow_nan=False) + "\n")
    return path


def read(path: pathlib.Path) -> Record:
    """Reads one record; raises BrokenRecord where it is cut, garbled or incomplete."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise BrokenRecord(f"{path}: not readable as JSON ({error})") from None
    try:
        _check(record)
    except ValueError as error:
        raise BrokenRecord(f"{path}: {error}") from None
    expected = f"{record['cell']}-seed{record['seed']}.json"
    if path.name != expected:
        raise BrokenRecord(f"{path}: holds the record of {expected}")
    return record


def read_all(workdir: str | os.PathLike[str]) -> tuple[list[Record], list[str]]:
    """All whole records, sorted by file name, and what is wrong with the others."""
    records, problems = [], []
    for path in sorted((pathlib.Path(workdir) / "results").glob("*.json")):
        try:
            records.append(read(path))
        except BrokenRecord as error:
            problems.append(str(error))
    return records, problems


def find(
    workdir: str | os.PathLike[str],
    cell: str,
    seed: int,
    spec: Mapping[str, Any],
    defaults: Mapping[str, Any] | None = None,
) -> Record | None:
    """The whole record of this very run, or None if it has not been run.

    Args:
      workdir: the folder of the store.
      cell: the cell's id.
      seed: of the run.
      spec: the flat fields of the run.
      defaults: what a field was worth to records that are older than the field.

    Raises:
      BrokenRecord: there is a file, but it is not a whole record of ``spec``.
    """
    path = record_path(workdir, cell, seed)
    if not path.exists():
        return None
    record = read(path)
    if {**(defaults or {}), **record["spec"]} != json.loads(json.dumps(dict(spec))):
        raise BrokenRecord(f"{path}: is of another spec than the run that it names")
    return record


def prepare_workdir(workdir: str | os.PathLike[str]) -> pathlib.Path:
    """Makes the results folder, or says in one line why it cannot be written."""
    folder = pathlib.Path(workdir) / "results"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UserError(
            f"workdir={str(workdir)!r}: cannot write there ({error.strerror}); "
            "name a folder that you may write to with --workdir=DIR"
        ) from None
    return folder


def _check(record: Any) -> None:
    if not isinstance(record, dict):
        raise ValueError(f"holds a {type(record).__name__}, not a record")
    for key, kind in _KEYS.items():
        if key not in record:
            raise ValueError(f"has no {key!r}")
        if not isinstance(record[key], kind) or isinstance(record[key], bool):
            raise ValueError(f"{key!r} is of the wrong type")
    if record["status"] not in _STATUSES:
        raise ValueError(f"'status' is {record['status']!r}, not one of {_STATUSES}")


def _finite(value: Any) -> Any:
    """The same value with null for NaN and infinity, which JSON cannot hold."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
