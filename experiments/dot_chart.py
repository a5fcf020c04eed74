"""Goodness functions in the order of their accuracy, with the spread of the seeds."""

import io
import statistics
from collections.abc import Callable, Sequence

import matplotlib
from matplotlib import figure
from matplotlib.backends import backend_agg

from experiments.tables import TEST, Entry
from ffjax.config import RunSpec
from ffjax.paper import names

COLOURS = {"standard": "#d55e00", "ffcl": "#0072b2", "groups": "#009e73"}


def draw(
    shown: Sequence[Entry], name: Callable[[RunSpec], str], what: str = TEST
) -> bytes:
    """A PNG with a line for each function, in the order of the entries.

    A dot is the mean over the seeds, its bar the standard deviation to both sides.

    Args:
      shown: cells of one or more pathways.
      name: of a function, from its run.
      what: was measured.
    """
    functions = list(dict.fromkeys(name(entry.spec) for entry in shown))
    with matplotlib.rc_context(
        {"font.size": 8, "axes.spines.top": False, "axes.spines.right": False}
    ):
        drawing = figure.Figure(
            figsize=(6.4, 1.2 + 0.2 * len(functions)), layout="constrained"
        )
        backend_agg.FigureCanvasAgg(drawing)
        panel = drawing.subplots()
        for pathway, colour in COLOURS.items():
            own = [entry for entry in shown if entry.spec.pathway == pathway]
            if not own:
                continue
            panel.errorbar(
                [entry.mean for entry in own],
                [functions.index(name(entry.spec)) for entry in own],
                xerr=[_spread(entry) for entry in own],
                fmt="o",
                ms=4,
                capsize=2,
                color=colour,
                label=names.label(pathway),
            )
        panel.set_yticks(range(len(functions)), functions)
        panel.invert_yaxis()
        panel.grid(axis="x", color="#e3e6ea")
        panel.set_axisbelow(True)
        has_spread = any(len(entry.accuracies) > 1 for entry in shown)
        spread = ", mean ± standard deviation over the seeds" if has_spread else ""
        panel.set_xlabel(f"{what}{spread}")
        if shown:
            drawing.legend(loc="outside upper left", ncols=3, frameon=False)
        scratch = io.BytesIO()
        drawing.savefig(scratch, format="png", dpi=160)
    return scratch.getvalue()


def _spread(entry: Entry) -> float:
    values = list(entry.accuracies.values())
    return statistics.stdev(values) if len(values) > 1 else 0.0
