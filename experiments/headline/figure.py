"""Methods and datasets as a picture: the accuracy of each seed, and the paper's."""

import io
from collections.abc import Callable, Sequence

import matplotlib
from matplotlib import axes, figure
from matplotlib.backends import backend_agg

from experiments import tables
from experiments.tables import Entry
from ffjax.config import RunSpec

OURS, PAPER = "#0072b2", "#d55e00"
ERRORS = (0.5, 1, 2, 5, 10, 20, 40, 80)  # of the axis, in percent
FINE_ERRORS = range(5, 100, 5)  # where the axis is short


def draw(shown: Sequence[Entry], name: Callable[[RunSpec], str]) -> bytes:
    """A PNG with a panel for each dataset and a line for each method.

    Accuracies stand as far apart as the logarithms of their errors: on an even scale
    the weakest method would press all others into a point.
    """
    methods = list(dict.fromkeys(name(entry.spec) for entry in shown))
    datasets = list(dict.fromkeys(tables.dataset(entry.spec) for entry in shown))
    with matplotlib.rc_context(
        {"font.size": 8, "axes.spines.top": False, "axes.spines.right": False}
    ):
        drawing = figure.Figure(
            figsize=(2 + 1.7 * len(datasets), 1.1 + 0.28 * len(methods)),
            layout="constrained",
        )
        backend_agg.FigureCanvasAgg(drawing)
        panels = drawing.subplots(1, len(datasets), sharey=True, squeeze=False)[0]
        for panel, dataset in zip(panels, datasets, strict=True):
            of_dataset = [e for e in shown if tables.dataset(e.spec) == dataset]
            for entry in of_dataset:
                _draw_entry(panel, methods.index(name(entry.spec)), entry)
            _scale(panel)
            panel.set_title(dataset, fontsize=8)
        panels[0].set_yticks(range(len(methods)), methods)
        panels[0].invert_yaxis()
        sizes = ", ".join(dict.fromkeys(entry.spec.size for entry in shown))
        panels[0].plot([], [], "o", color=OURS, ms=4, label=f"ffjax, {sizes}")
        panels[0].plot(
            [], [], "D", color=PAPER, ms=4, mfc="none", label="paper, 4x2000"
        )
        drawing.legend(loc="outside upper left", ncols=2, fontsize=7, frameon=False)
        drawing.supxlabel(
            "test accuracy (%); spaced by the logarithm of the error, 100 - accuracy",
            fontsize=8,
        )
        scratch = io.BytesIO()
        drawing.savefig(scratch, format="png", dpi=160)
    return scratch.getvalue()


def _draw_entry(panel: axes.Axes, place: int, entry: Entry) -> None:
    """A method's seeds as dots, and the paper's number as a diamond."""
    errors = [100 - accuracy for accuracy in entry.accuracies.values()]
    panel.plot(errors, [place] * len(errors), "o", color=OURS, ms=4, alpha=0.7)
    if entry.paper is not None:
        panel.plot([100 - entry.paper], [place], "D", color=PAPER, ms=4, mfc="none")


def _scale(panel: axes.Axes) -> None:
    panel.set_xscale("log")
    panel.invert_xaxis()
    low, high = sorted(panel.get_xlim())
    errors = ticks(low, high)
    panel.set_xticks(errors, [f"{100 - error:g}" for error in errors])
    panel.minorticks_off()
    panel.grid(axis="x", color="#e3e6ea")
    panel.set_axisbelow(True)


def ticks(low: float, high: float) -> list[float]:
    """The errors that an axis from ``low`` to ``high`` names."""
    chosen = ERRORS if high > 4 * low else FINE_ERRORS
    return [error for error in chosen if low <= error <= high]
