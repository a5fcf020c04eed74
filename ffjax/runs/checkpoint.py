"""Trained layers of unfinished runs, so that a kill loses at most the running layer."""

import json
import os
import pathlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec
import safetensors
from safetensors import numpy as safetensors_numpy

from ffjax import atomic
from ffjax.network import files
from ffjax.records import Point, Times
from ffjax.training.program import TrainedLayer

_FORMAT = "ffjax-partial-1"
_POINTS = msgspec.json.Decoder(list[Point])


class Kept(NamedTuple):
    """What is left of an interrupted run."""

    layers: list[TrainedLayer]
    times: Times  # that they took
    points: list[Point]  # accuracies that were measured meanwhile


class Layers:
    """The layers of one run: ``<workdir>/partial/<name>/layer<k>.safetensors``."""

    def __init__(
        self,
        workdir: str | os.PathLike[str],
        name: str,
        identity: Mapping[str, object],
        report: Callable[[str], None],
    ):
        """The layers of run ``name``.

        Args:
          workdir: the folder of the grid.
          name: of the run.
          identity: all that the layers depend on; layers of another one are not used.
          report: called with a line about a file that cannot be used or written.
        """
        self._folder = _folder(workdir, name)
        self._identity = json.dumps(identity, sort_keys=True)
        self._report = report

    def load(self) -> Kept:
        """The layers up to the first missing one."""
        layers: list[TrainedLayer] = []
        times, points = Times(), []
        while (path := self._path(len(layers))).exists():
            try:
                with safetensors.safe_open(path, framework="numpy") as file:
                    facts = file.metadata() or {}
                    if facts.get("format") != _FORMAT:
                        raise ValueError("not written by this version")
                    if facts["identity"] != self._identity:
                        raise ValueError("of another run")
                    spent = Times(float(facts["compile_s"]), float(facts["train_s"]))
                    seen = _POINTS.decode(facts.get("points", "[]"))
                    tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
                layers.append(files.layer_from_tensors(tensors))
            except (
                OSError,
                ValueError,
                KeyError,
                safetensors.SafetensorError,
            ) as error:
                self._report(f"{path}: not used ({error}); the layer is trained again")
                break
            times = spent
            points += seen
        return Kept(layers, times, points)

    def save(
        self,
        index: int,
        layer: TrainedLayer,
        times: Times,
        points: Sequence[Point] = (),
    ) -> None:
        """Stores a layer.

        Args:
          index: which.
          layer: as it was trained.
          times: that the run took so far.
          points: accuracies while this layer was trained.
        """
        facts = {
            "format": _FORMAT,
            "identity": self._identity,
            "train_s": repr(times.train_s),
            "compile_s": repr(times.compile_s),
            "points": msgspec.json.encode(points).decode(),
        }
        content = safetensors_numpy.save(files.layer_tensors(layer), facts)
        try:
            atomic.write_bytes(self._path(index), content)
        except OSError as error:
            self._report(f"{self._path(index)}: not kept ({error.strerror})")

    def remove(self) -> None:
        """Forgets the run, once its record is written."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _path(self, index: int) -> pathlib.Path:
        return self._folder / f"layer{index}.safetensors"


def forget(workdir: str | os.PathLike[str], name: str) -> None:
    """Removes the layers of a run that has its record, if a kill left them behind."""
    shutil.rmtree(_folder(workdir, name), ignore_errors=True)


def _folder(workdir: str | os.PathLike[str], name: str) -> pathlib.Path:
    return pathlib.Path(workdir) / "partial" / name
