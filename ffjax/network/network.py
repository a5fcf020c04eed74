"""A trained network: what it predicts, how well, and how it is kept."""

import dataclasses
import os
import pathlib
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from numpy.typing import ArrayLike

from ffjax import atomic
from ffjax.errors import UserError
from ffjax.model import evaluate, pathway
from ffjax.model.evaluate import Evaluation
from ffjax.network import arrays, files
from ffjax.network.arrays import Label
from ffjax.network.history import History
from ffjax.records import Point
from ffjax.training.program import TrainedLayer

# Images are scored so many at a time, the last ones filled up: one compiled program
# serves any number of them.
_CHUNK = 128


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Network:
    """A trained network, with the normalisation of its training images.

    Attributes:
      arch: its architecture.
      layers: its trained layers.
      image_shape: the shape of one image.
      mean: per channel, of the training images / 255.
      std: per channel, of the training images / 255.
      classes: what ``predict`` answers with.
      class_names: the same for people.
      points: accuracies that were measured during training.
    """

    arch: pathway.Architecture
    layers: tuple[TrainedLayer, ...]
    image_shape: tuple[int, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    classes: tuple[Label, ...]
    class_names: tuple[str, ...]
    points: tuple[Point, ...] = ()

    @property
    def history(self) -> History:
        """How its training went."""
        return History(tuple(layer.losses for layer in self.layers), self.points)

    def scores(self, images: ArrayLike) -> np.ndarray:
        """Total goodness of each image (N, ...) under each label, (N, C)."""
        return self._ensemble(self._score(images))

    def predict(self, images: ArrayLike) -> np.ndarray:
        """The label of highest total goodness for each image, (N,)."""
        return np.asarray(self.classes)[np.argmax(self.scores(images), axis=-1)]

    def predict_proba(self, images: ArrayLike) -> np.ndarray:
        """exp(g_c) / sum_k exp(g_k) of the total goodness g of each label, (N, C).

        The label that ``predict`` gives has the highest one. They are no frequencies:
        no loss asks for that, not even softmax, which is that of each layer alone.
        """
        scores = self.scores(images).astype(np.float64)
        raised = np.exp(scores - scores.max(axis=-1, keepdims=True))
        return raised / raised.sum(axis=-1, keepdims=True)

    def evaluate(self, images: ArrayLike, labels: ArrayLike) -> Evaluation:
        """How well it predicts: accuracies in percent, and the confusion matrix.

        Row and column k of the matrix belong to ``classes[k]``: row = true label.
        """
        scores = self._score(images)
        known = arrays.check_labels("labels", labels, len(scores))
        codes = arrays.encode("labels", known, self.classes)
        return evaluate.evaluate(scores, codes, self.arch.ensemble)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the network to one safetensors file, whole or not at all."""
        atomic.write_bytes(pathlib.Path(path), self.to_bytes())

    def to_bytes(self) -> bytes:
        """The content of the file that ``save`` writes."""
        return files.pack(self._parts())

    def __repr__(self) -> str:
        """In one line."""
        arch = self.arch
        widths = "-".join(map(str, arch.widths))
        params = "".join(f" {name}={value}" for name, value in arch.goodness.params)
        method = f"{arch.pathway} {arch.goodness.definition.name}{params}"
        return (
            f"Network({widths}, {method} {arch.activation}, images "
            f"{self.image_shape}, {arch.num_classes} classes)"
        )

    def __eq__(self, other: object) -> bool:
        """Whether another network is the same in all its numbers."""
        if not isinstance(other, Network):
            return NotImplemented
        mine, theirs = self._parts(), other._parts()
        if files.header(mine) != files.header(theirs):
            return False
        tensors = [list(map(files.layer_tensors, own.layers)) for own in (mine, theirs)]
        leaves = zip(*map(jax.tree.leaves, tensors), strict=True)
        return all(np.array_equal(one, another) for one, another in leaves)

    def __hash__(self) -> int:
        """The same for networks that are equal."""
        return hash((self.arch, self.mean, self.std, self.classes))

    def __reduce__(self) -> tuple[Callable[[bytes], "Network"], tuple[bytes]]:
        """Pickled and copied as its file: without code."""
        return from_bytes, (self.to_bytes(),)

    def _score(self, images: ArrayLike) -> np.ndarray:
        """Goodness of images by layer and label, (N, L + 1, C)."""
        checked = arrays.check_images("images", images)
        if checked.shape[1:] != self.image_shape:
            raise UserError(
                f"images: each has shape {checked.shape[1:]}, but the network was "
                f"trained on {self.image_shape}"
            )
        flat = arrays.normalise("images", checked, self.mean, self.std)
        params, states = jax.device_put(
            [
                [layer.params for layer in self.layers],
                [layer.goodness_state for layer in self.layers],
            ]
        )
        scores: list[Any] = []
        for start in range(0, len(flat), _CHUNK):
            chunk = flat[start : start + _CHUNK]
            missing = _CHUNK - len(chunk)
            padded = np.pad(chunk, ((0, missing), (0, 0)), mode="edge")
            scores.append(evaluate.score_images(self.arch, params, states, padded))
        return np.concatenate([np.asarray(part) for part in scores])[: len(flat)]

    def _ensemble(self, scores: np.ndarray) -> np.ndarray:
        return evaluate.ENSEMBLES[self.arch.ensemble](scores)

    def _parts(self) -> files.Parts:
        facts = files.Facts(
            image_shape=self.image_shape,
            mean=self.mean,
            std=self.std,
            classes=self.classes,
            class_names=self.class_names,
            points=self.points,
        )
        return files.Parts(self.arch, self.layers, facts)


def load(path: str | os.PathLike[str]) -> Network:
    """Reads a network that ``Network.save`` wrote; it predicts bit for bit as before.

    A network with a goodness function of your own needs its module to be imported
    first, as it was then: reading a file never imports code.
    """
    name = os.fspath(path)
    try:
        return from_bytes(pathlib.Path(path).read_bytes())
    except OSError as error:
        raise UserError(f"{name}: cannot read it ({error})") from None
    except UserError as error:
        raise UserError(f"{name}: {error}") from None


def from_bytes(content: bytes) -> Network:
    """The network of a file with this content; a UserError if it is none."""
    try:
        arch, layers, facts = files.unpack(content)
    except UserError:
        raise
    except ValueError as error:
        reason = " ".join(str(error).split())
        raise UserError(f"not a network saved by ffjax ({reason})") from None
    return Network(
        arch,
        layers,
        facts.image_shape,
        facts.mean,
        facts.std,
        facts.classes,
        facts.class_names,
        facts.points,
    )
