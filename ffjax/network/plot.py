"""The figure of a training; imported when it is asked for, because of matplotlib."""

import io
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ffjax.records import Point


class NotebookFigure(Figure):
    """A figure that a notebook draws without further ado."""

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png", dpi=100)
        return buffer.getvalue()


def draw(losses: Sequence[np.ndarray], points: Sequence[Point]) -> NotebookFigure:
    """The losses and, if there are any, the accuracies, over all epochs.

    The layers stand one after the other, as they are trained.
    """
    num_plots = 2 if points else 1
    figure = NotebookFigure(figsize=(5.0 * num_plots, 3.2), layout="constrained")
    axes = figure.subplots(1, num_plots, squeeze=False)[0]
    starts = np.cumsum([0, *map(len, losses)]).tolist()
    for index, of_layer in enumerate(losses):
        epochs = starts[index] + 1 + np.arange(len(of_layer))
        axes[0].plot(epochs, of_layer, label=f"layer {index + 1}")
    axes[0].set(xlabel="epoch", ylabel="loss")
    axes[0].legend()
    if points:
        _draw_accuracies(axes[1], starts, points)
    return figure


def _draw_accuracies(
    axes: Axes, starts: Sequence[int], points: Sequence[Point]
) -> None:
    for index in sorted({point.layer for point in points}):
        of_layer = [point for point in points if point.layer == index]
        epochs = [starts[index] + point.epochs for point in of_layer]
        accuracies = [point.accuracy for point in of_layer]
        axes.plot(epochs, accuracies, marker=".", label=f"layer {index + 1}")
    voted = [
        (starts[point.layer] + point.epochs, point.ensemble)
        for point in points
        if point.ensemble is not None
    ]
    if voted:
        axes.plot(*zip(*voted, strict=True), "k--", label="ensemble so far")
    axes.set(xlabel="epoch", ylabel="validation accuracy, %")
    axes.legend()
