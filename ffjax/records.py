"""The store: a JSON record for each run, written whole or not at all.

A run is a cell of a grid with one seed. Its record is
``<workdir>/results/<cell-id>-seed<seed>.json``. A record that does not fit together, or
that its own confusion matrix contradicts, is broken: it is never taken for a result.
Nothing here imports jax, so that a report can be drawn on any machine.
"""

import math
import os
import pathlib
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

from ffjax import atomic
from ffjax.config import spec as spec_lib
from ffjax.config.spec import RunSpec
from ffjax.errors import UserError, shown

_Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]  # what a float counts exactly
_LONG_SECONDS = 5.0  # of training; less says more of starting than of training
_Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e12)]
_Percent = Annotated[float, msgspec.Meta(ge=0, le=100)]


class Times(msgspec.Struct, frozen=True):
    """Seconds of a run; of a group of runs, its share."""

    compile_s: _Seconds = 0.0
    train_s: _Seconds = 0.0
    eval_s: _Seconds = 0.0


class Busy(msgspec.Struct, frozen=True):
    """How busy the cores were during a run, as shares of their time."""

    own: float  # this process, of the cores that it may use
    others: float  # all other processes, of all cores


class Place(msgspec.Struct, frozen=True):
    """Where training diverged, counted from 0."""

    layer: _Count
    epoch: _Count


class Point(msgspec.Struct, frozen=True):
    """How well a network did while one of its layers was in training, in percent."""

    layer: _Count  # counted from 0; those below are trained
    epochs: _Count  # of that layer, so far
    accuracy: _Percent  # of that layer alone
    ensemble: _Percent | None  # of the layers so far; null where none of them votes


class Curve(msgspec.Struct, frozen=True):
    """Accuracies during training, and which images they were measured on."""

    images: Literal["validation", "test"]
    points: list[Point]


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run and what came of it; optional fields are left out where they say nothing.

    Attributes:
      cell: the cell's id, which is also in the file's name.
      spec: what was run.
      seed: of the run.
      status: whether the loss stayed finite.
      accuracy: of the ensemble on the test set, in percent.
      accuracy_layers: of each layer alone, first layer first; null if not trained.
      accuracy_concat: of the concatenated activations alone; null where labels are not
        judged by them.
      confusion: C x C counts: row = true label, column = predicted label.
      losses: layer x epoch, null where the loss was not finite.
      time: how long it took.
      train_size: training images.
      test_size: test images.
      device: on which it ran.
      versions: of the packages that it ran with.
      commit: of ffjax's checkout, with a plus if files differed from it.
      class_names: of the dataset.
      data: where the images came from, with checksums.
      diverged_at: where, if it diverged.
      accuracy_valid: on the validation part of the training images, in percent.
      valid_size: images in that part.
      group_size: how many runs shared a program; times are shares, rounding differs.
      busy: how busy the machine was; times of a busy one are not compared.
      goodness_source: hash of the source of a user's own goodness function.
      finished: when, in UTC.
      curve: accuracies during training, if ``eval_every`` asked for them.
      network: the file of the network in the workdir, if ``--save`` asked for it.
    """

    cell: str
    spec: RunSpec
    seed: _Count
    status: Literal["ok", "diverged"]
    accuracy: _Percent
    accuracy_layers: list[_Percent | None]
    accuracy_concat: _Percent | None
    confusion: list[list[_Count]]
    losses: list[list[float | None]]
    time: Times
    train_size: _Count
    test_size: _Count
    device: str
    versions: dict[str, str]
    commit: str | None
    class_names: list[str] = []
    data: dict[str, Any] = {}
    diverged_at: Place | None = None
    accuracy_valid: _Percent | None = None
    valid_size: _Count = 0
    group_size: Annotated[int, msgspec.Meta(ge=1)] = 1
    busy: Busy | None = None
    goodness_source: str = ""
    finished: str = ""
    curve: Curve | None = None
    network: str = ""

    @property
    def name(self) -> str:
        """The name of its file, without the ending."""
        return f"{self.cell}-seed{self.seed}"

    @property
    def is_diverged(self) -> bool:
        """Whether the loss was not finite at some point."""
        return self.status == "diverged"

    @property
    def is_timed(self) -> bool:
        """Whether its time can be compared: it had the machine, and took long enough.

        A process that was stopped for a while, or shared its cores, used less of them.
        """
        if self.busy is None or self.time.train_s < _LONG_SECONDS:
            return False
        has_cores = self.busy.own > 0.5 or "cpu" not in self.device.lower()
        return has_cores and self.busy.others < 0.1


class BrokenRecord(ValueError):
    """A file in the store that is not a whole record; the message says why."""


def record_path(workdir: str | os.PathLike[str], cell: str, seed: int) -> pathlib.Path:
    """Where the record of ``cell`` with ``seed`` lives."""
    return pathlib.Path(workdir) / "results" / f"{cell}-seed{seed}.json"


def write(workdir: str | os.PathLike[str], record: Record) -> pathlib.Path:
    """Writes a record and returns its path. Numbers that JSON lacks become null."""
    check(record)
    path = record_path(workdir, record.cell, record.seed)
    # All fields of a run are written, whatever their defaults will be one day.
    content = msgspec.json.encode(record)
    atomic.write_bytes(path, content + b"\n")
    return path


def read(path: pathlib.Path) -> Record:
    """Reads a record; raises BrokenRecord where it is cut, garbled or contradictory."""
    try:
        record = decode(path.read_bytes())
    except OSError as error:
        raise BrokenRecord(f"{path}: not readable ({error.strerror})") from None
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise BrokenRecord(f"{path}: {reason}") from None
    if path.name != f"{record.name}.json":
        raise BrokenRecord(f"{path}: holds the record of {shown(record.name)}")
    return record


def decode(content: bytes) -> Record:
    """A record from its JSON text; raises a ValueError that says what is wrong."""
    try:
        raw = _RAW.decode(content)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"not readable as JSON ({error})") from None
    record = msgspec.structs.replace(raw.rest(), spec=read_spec(raw.spec))
    check(record)
    return record


def read_spec(fields: Mapping[str, Any]) -> RunSpec:
    """The run of a record; a field that it is older than has its default.

    Raises:
      ValueError: a field is unknown, as in a record of a later version, or its value is
        not allowed.
    """
    known = spec_lib.names("method", "size", "setting")
    for name in fields:
        if name not in known:
            raise ValueError(f"spec has the unknown field {shown(name)}")
    try:
        spec = msgspec.convert(dict(fields), RunSpec)
        spec_lib.check_fields(spec)
    except (msgspec.ValidationError, UserError) as error:
        raise ValueError(f"spec: {error}") from None
    return spec


def check(record: Record) -> None:
    """Raises a ValueError if the parts of a record contradict each other."""
    matrix, spec = record.confusion, record.spec
    if any(len(row) != len(matrix) for row in matrix) or not matrix:
        raise ValueError("'confusion' is not square")
    total = sum(map(sum, matrix))
    if total != record.test_size:
        raise ValueError(
            f"'confusion' counts {total} images, 'test_size' is {record.test_size}"
        )
    right = 100 * sum(row[label] for label, row in enumerate(matrix)) / max(total, 1)
    if not math.isclose(right, record.accuracy, abs_tol=1e-6):
        raise ValueError(
            f"'accuracy' is {record.accuracy:g}, but 'confusion' says {right:g}"
        )
    if spec.widths and len(spec.widths) != spec.num_layers:
        raise ValueError(
            f"spec: 'widths' has {len(spec.widths)} entries for {spec.num_layers} "
            "layers"
        )
    if len(record.accuracy_layers) != spec.num_layers and spec.trainer == "ff":
        raise ValueError(
            f"'accuracy_layers' has {len(record.accuracy_layers)} entries for "
            f"{spec.num_layers} layers"
        )
    for point in record.curve.points if record.curve else ():
        if point.layer >= spec.num_stages or not 1 <= point.epochs <= spec.epochs:
            raise ValueError("'curve' has more layers or epochs than the run")
    lengths = [len(losses) for losses in record.losses]
    if len(lengths) > spec.num_stages or any(n > spec.epochs for n in lengths):
        raise ValueError("'losses' has more layers or epochs than the run")
    if record.status == "ok" and (
        lengths != [spec.epochs] * spec.num_stages
        or any(loss is None for losses in record.losses for loss in losses)
    ):
        raise ValueError("'losses' is not whole, but 'status' is 'ok'")


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
    workdir: str | os.PathLike[str], cell: str, seed: int, spec: RunSpec
) -> Record | None:
    """The whole record of this very run, or None if it has not been run.

    Args:
      workdir: the folder of the store.
      cell: the cell's id.
      seed: of the run.
      spec: what is run.

    Raises:
      BrokenRecord: there is a file, but it is not a whole record of ``spec``.
    """
    path = record_path(workdir, cell, seed)
    if not path.exists():
        return None
    record = read(path)
    if record.spec.identity() != spec.identity():
        raise BrokenRecord(f"{path}: is of another spec than the run that it names")
    return record


class _Raw(Record, frozen=True, kw_only=True):
    """A record as its file has it: the run is checked by ``read_spec``."""

    spec: dict[str, Any]  # type: ignore[assignment]

    def rest(self) -> Record:
        fields = {name: getattr(self, name) for name in self.__struct_fields__}
        return Record(**fields)


_RAW = msgspec.json.Decoder(_Raw)
