"""How a training went: the loss of each layer and epoch, and accuracies on the way."""

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from ffjax.model import evaluate
from ffjax.records import Point

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class History:
    """What was measured while a network was trained.

    Attributes:
      losses: of each layer, (epochs,): the mean loss of each epoch.
      points: accuracies on the validation images, in percent, in the order of training.
    """

    losses: tuple[np.ndarray, ...]
    points: tuple[Point, ...] = ()

    def __repr__(self) -> str:
        """In one line."""
        last = ", ".join(f"{losses[-1]:.4f}" for losses in self.losses)
        text = f"{len(self.losses)} layers, last losses {last}"
        if self.points and self.points[-1].ensemble is not None:
            text += f", validation accuracy {self.points[-1].ensemble:.2f} %"
        return f"History({text})"

    def plot(self) -> "Figure":
        """A figure of the losses and, if there are any, of the accuracies."""
        from ffjax.network import plot  # matplotlib takes long to import

        return plot.draw(self.losses, self.points)


def measure(
    layer: int, epochs: int, scores: ArrayLike, labels: np.ndarray, ensemble: str
) -> Point | None:
    """The accuracies of a network in training; None if it diverges.

    Args:
      layer: in training; those above it are not there yet.
      epochs: of that layer, so far.
      scores: (N, L + 1, C) of the layers so far and of their concatenation.
      labels: (N,) true labels.
      ensemble: a name in ``evaluate.ENSEMBLES``.
    """
    found = np.asarray(scores)
    if not np.isfinite(found).all():
        return None
    judged = evaluate.evaluate(found, labels, ensemble)
    has_votes = ensemble != "later" or layer > 0
    return Point(
        layer=layer,
        epochs=epochs,
        accuracy=judged.accuracy_layers[-1]
        if judged.accuracy_layers
        else judged.accuracy,
        ensemble=judged.accuracy if has_votes else None,
    )
