"""The report's figures for a paper: PNG and PDF, drawn with matplotlib."""

import io
import pathlib
import re
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import matplotlib
from matplotlib import figure, ticker
from matplotlib.backends import backend_agg

from ffjax import results

_STYLE: dict[Any, Any] = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e3e6ea",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "legend.fontsize": 6.5,
    "legend.frameon": False,
    "lines.linewidth": 1.4,
    "lines.markersize": 3.5,
    "pdf.fonttype": 42,  # text stays text
    "savefig.dpi": 200,
}
# Told apart by readers with colour-blindness, too.
_COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#333333")
_PATHWAYS = {"standard": "#2563eb", "ffcl": "#d9480f"}
_PANEL = (2.35, 2.1)  # inches
_MAX_SETTINGS = 3  # the settings drawn: the paper's first, then those with most cells
_OUTLIER = 0.55  # of the highest: a sweep's point below is cut off, or hides the rest


def write(
    folder: pathlib.Path,
    views: Mapping[Any, Mapping[str, Any]],
    labels: Mapping[Any, str],
) -> list[str]:
    """Draws every setting's charts and returns the files, relative to the report.

    Args:
      folder: where to write.
      views: of each setting: ``sweeps``, ``layers`` and ``curves``, lists of charts,
        and ``heat``, a list of maps.
      labels: the settings' names, for titles and file names.
    """
    written = []
    used: set[str] = set()
    with matplotlib.rc_context(_STYLE), warnings.catch_warnings():
        # A user's name may hold characters that the font lacks: boxes, not noise.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        for one in list(views)[:_MAX_SETTINGS]:
            view, label = views[one], labels[one]
            slug = re.sub(r"[^A-Za-z0-9.]+", "-", label).strip("-.")[:80] or "setting"
            while slug in used:
                slug += "-2"
            used.add(slug)
            for kind, draw in (
                ("sweeps", _draw_lines),
                ("heat", _draw_heat),
                ("layers", _draw_lines),
                ("curves", _draw_lines),
            ):
                if view[kind]:
                    written += _save(folder, f"{kind}-{slug}", view[kind], draw, label)
    return written


def _save(
    folder: pathlib.Path,
    name: str,
    charts: list[dict[str, Any]],
    draw: Callable[[Any, dict[str, Any]], None],
    label: str,
) -> list[str]:
    columns = min(3, len(charts))
    lines = -(-len(charts) // columns)
    sheet = figure.Figure(
        figsize=(_PANEL[0] * max(columns, 1.4), _PANEL[1] * lines + 0.25),
        layout="constrained",
    )
    backend_agg.FigureCanvasAgg(sheet)
    sheet.suptitle(_plain(label), fontsize=8)
    for i, chart in enumerate(charts):
        draw(sheet.add_subplot(lines, columns, i + 1), chart)
    for ending in ("png", "pdf"):
        out = io.BytesIO()
        # No date, so that the same records give the same file.
        metadata = {"CreationDate": None} if ending == "pdf" else None
        sheet.savefig(out, format=ending, metadata=metadata)
        results.write_bytes(folder / f"{name}.{ending}", out.getvalue())
    return [f"figures/{name}.{ending}" for ending in ("png", "pdf")]


def _draw_lines(axes: Any, chart: dict[str, Any]) -> None:
    sweep = "log" in chart
    values = [point[1] for line in chart["series"] for point in line["points"]]
    floor = _OUTLIER * max(values) if sweep else float("-inf")
    kept = [value for value in values if value >= floor]
    for line in chart["series"]:
        key = line["color"]
        color = (
            _COLORS[key % len(_COLORS)]
            if isinstance(key, int)
            else _PATHWAYS.get(key, "#7048a8")
        )
        paper = line.get("paper", False)
        axes.errorbar(
            [point[0] for point in line["points"]],
            [point[1] for point in line["points"]],
            yerr=[point[2] or 0 for point in line["points"]] if sweep else None,
            color=color,
            linestyle="--" if paper else "-",
            linewidth=1.0 if paper else 1.4,
            marker=None if chart.get("dots") is False else "o",
            markerfacecolor="white" if paper else color,
            label=_plain(line["name"]),
        )
    if sweep and len(kept) < len(values):
        margin = 0.08 * (max(kept) - min(kept)) or 1.0
        axes.set_ylim(min(kept) - margin, max(kept) + margin)
    if chart.get("log"):
        axes.set_xscale("log")
    if sweep:
        ticks = sorted(
            {point[0] for line in chart["series"] for point in line["points"]}
        )
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.xaxis.set_minor_locator(ticker.NullLocator())
    elif chart.get("whole"):
        axes.xaxis.set_major_locator(ticker.MaxNLocator(integer=True))
    for mark in chart.get("marks", ()):
        axes.axvline(mark + 0.5, color="#c5cbd3", linewidth=0.8)
    axes.set_title(_plain(chart["title"]))
    axes.set_xlabel(_plain(chart["x"]))
    axes.set_ylabel(_plain(chart["y"]))
    axes.legend()


def _draw_heat(axes: Any, chart: dict[str, Any]) -> None:
    values = [
        [float("nan") if cell is None else cell.mean for cell in line["cells"]]
        for line in chart["lines"]
    ]
    axes.imshow(
        values, cmap="YlGnBu", vmin=chart["low"], vmax=chart["high"], aspect="auto"
    )
    middle = (chart["low"] + chart["high"]) / 2
    for i, line in enumerate(values):
        for j, value in enumerate(line):
            if value == value:  # not NaN: the cell has been run
                ink = "white" if value > middle else "black"
                text = f"{value:.1f}"
                axes.text(j, i, text, ha="center", va="center", color=ink, fontsize=6.5)
    axes.set_xticks(range(len(chart["columns"])), map(_plain, chart["columns"]))
    axes.set_yticks(
        range(len(values)), [_plain(line["label"]) for line in chart["lines"]]
    )
    axes.tick_params(length=0, labelsize=6.5)
    axes.grid(False)
    axes.set_title(_plain(chart["title"]))


def _plain(text: str) -> str:
    """Text that matplotlib does not read as mathematics, nor hides from a legend."""
    text = text.replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text
