"""Records as event files of TensorBoard: losses, accuracies, and fields as HParams.

A run has a folder of its own, ``<workdir>/tensorboard/<run>``, written when its record
is; ``tensorboard --logdir=<workdir>/tensorboard`` compares them.
"""

import dataclasses
import math
import os
import pathlib
import shutil
from collections.abc import Iterable
from typing import Any

from ffjax.errors import UserError
from ffjax.records import Record


class Board:
    """The event files of a workdir."""

    def __init__(self, workdir: str | os.PathLike[str]):
        """Raises a UserError where tensorboardX is not installed."""
        try:
            import tensorboardX
            from tensorboardX import summary
        except ImportError:
            raise UserError(
                "tensorboard: tensorboardX is not installed; "
                "pip install 'ffjax[tensorboard]'"
            ) from None
        self._new_writer = tensorboardX.SummaryWriter
        self._hparams = summary.hparams
        self._folder = pathlib.Path(workdir) / "tensorboard"

    def complete(self, records: Iterable[Record]) -> None:
        """Writes the folders that are missing, as of runs that were done before."""
        for record in records:
            if not (self._folder / record.name).is_dir():
                self.write(record)

    def write(self, record: Record) -> None:
        """Writes the folder of a run, whole or not at all."""
        folder = self._folder / record.name
        scratch = self._folder / f".{record.name}.new"
        try:
            shutil.rmtree(scratch, ignore_errors=True)
            with self._new_writer(logdir=str(scratch)) as writer:
                self._add(writer, record)
            shutil.rmtree(folder, ignore_errors=True)
            scratch.rename(folder)
        except OSError as error:
            raise UserError(f"tensorboard: cannot write {folder} ({error})") from None

    def _add(self, writer: Any, record: Record) -> None:
        epochs = record.spec.epochs
        for index, losses in enumerate(record.losses):
            for epoch, loss in enumerate(losses, start=1):
                value = math.nan if loss is None else loss
                writer.add_scalar(f"loss/layer{index + 1}", value, epoch)
        if record.curve is not None:
            on = record.curve.images
            for point in record.curve.points:
                name = f"{on}_accuracy/layer{point.layer + 1}"
                writer.add_scalar(name, point.accuracy, point.epochs)
                if point.ensemble is not None:
                    step = point.layer * epochs + point.epochs
                    writer.add_scalar(f"{on}_accuracy/ensemble", point.ensemble, step)
        results = _results(record)
        for name, value in results.items():
            writer.add_scalar(name, value, epochs)
        for part in self._hparams(_fields(record), results):
            writer.file_writer.add_summary(part)


def _results(record: Record) -> dict[str, float]:
    """The accuracies of a finished run, by the names of their charts."""
    results = {
        f"test_accuracy_end/layer{index + 1}": accuracy
        for index, accuracy in enumerate(record.accuracy_layers)
    }
    results["test_accuracy_end/concatenation"] = record.accuracy_concat
    results["test_accuracy_end/ensemble"] = record.accuracy
    results["validation_accuracy_end/ensemble"] = record.accuracy_valid
    return {name: value for name, value in results.items() if value is not None}


def _fields(record: Record) -> dict[str, bool | float | str]:
    """The fields of a run as HParams has them: numbers, truth values and text."""
    fields = {**dataclasses.asdict(record.spec), "seed": record.seed}
    return {
        name: value if isinstance(value, bool | int | float | str) else str(value)
        for name, value in fields.items()
        if value is not None
    }
