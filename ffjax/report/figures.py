"""The report's figures for a paper: PNG and PDF, drawn with matplotlib."""

import io
import logging
import pathlib
import re
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import matplotlib
from matplotlib import figure, ticker
from matplotlib.backends import backend_agg

from ffjax import atomic

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
_COLORS += ("#8a6d3b",)
_PATHWAYS = {"standard": "#2563eb", "ffcl": "#d9480f"}
_WIDTH = 7.0  # inches: the text width of a page
_LONGEST = 26  # characters of a name before it is cut


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
    # fontTools tells every glyph that it embeds, which absl would print.
    logging.getLogger("fontTools").setLevel(logging.WARNING)
    written = []
    used: set[str] = set()
    with matplotlib.rc_context(_STYLE), warnings.catch_warnings():
        # A user's name may hold characters that the font lacks: boxes, not noise.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        for i, (one, view) in enumerate(views.items()):
            slug = re.sub(r"[^A-Za-z0-9.]+", "-", labels[one]).strip("-.")[:80]
            while slug in used or not slug:
                slug += "-2"
            used.add(slug)
            for kind, draw in (
                ("sweeps", _draw_sweep),
                ("heat", _draw_heat),
                ("layers", _draw_lines),
                ("curves", _draw_lines),
            ):
                # Of the first setting everything; of the others what a paper shows.
                if view[kind] and (i == 0 or kind == "sweeps"):
                    charts, label = view[kind], labels[one]
                    written += _save(folder, f"{kind}-{slug}", charts, draw, label)
    return written


def _save(
    folder: pathlib.Path,
    name: str,
    charts: list[dict[str, Any]],
    draw: Callable[[Any, dict[str, Any]], None],
    label: str,
) -> list[str]:
    columns = 3 if len(charts) > 2 and draw is _draw_sweep else min(2, len(charts))
    lines = -(-len(charts) // columns)
    height = 2.0
    if draw is _draw_heat:
        height = 0.5 + 0.17 * max(len(chart["lines"]) for chart in charts)
    width = _WIDTH if len(charts) > 1 else _WIDTH * 0.6
    sheet = figure.Figure(figsize=(width, height * lines + 0.4), layout="constrained")
    backend_agg.FigureCanvasAgg(sheet)
    sheet.suptitle(_plain(label, 90), fontsize=8)
    for i, chart in enumerate(charts):
        draw(sheet.add_subplot(lines, columns, i + 1), chart)
    if draw is _draw_sweep:  # the same four lines in every panel
        handles, names = sheet.axes[0].get_legend_handles_labels()
        columns = 4 if all(len(name) < 20 for name in names) else 2
        sheet.legend(handles, names, loc="outside lower center", ncols=columns)
    for ending in ("png", "pdf"):
        out = io.BytesIO()
        # No date, so that the same records give the same file.
        metadata = {"CreationDate": None} if ending == "pdf" else None
        sheet.savefig(out, format=ending, metadata=metadata)
        sheet.set_layout_engine("none")  # laid out once is enough, and it takes long
        atomic.write_bytes(folder / f"{name}.{ending}", out.getvalue())
    return [f"figures/{name}.{ending}" for ending in ("png", "pdf")]


def _draw_lines(axes: Any, chart: dict[str, Any]) -> None:
    for line in chart["series"]:
        key = line["color"]
        color = (
            _COLORS[key % len(_COLORS)]
            if isinstance(key, int)
            else _PATHWAYS.get(key, "#7048a8")
        )
        paper = line.get("paper", False)
        x, y, spread = (
            zip(*line["points"], strict=True) if line["points"] else ((),) * 3
        )
        axes.plot(
            x,
            y,
            color=color,
            linestyle="--" if paper else "-",
            linewidth=1.0 if paper else 1.4,
            marker=None if chart.get("dots") is False else "o",
            markerfacecolor="white" if paper else color,
            label=_plain(line["name"], 40),
        )
        if any(spread):
            bars = [value or 0 for value in spread]
            axes.errorbar(x, y, yerr=bars, fmt="none", ecolor=color, elinewidth=1.0)
    axes.set_title(_plain(chart["title"], 60))
    axes.set_xlabel(_plain(chart["x"], 60))
    axes.set_ylabel(_plain(chart["y"], 60))
    heights = [point[1] for line in chart["series"] for point in line["points"]]
    if chart["y"] == "loss" and 0 < 30 * min(heights) < max(heights):
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(ticker.FormatStrFormatter("%g"))
        axes.yaxis.set_minor_locator(ticker.NullLocator())
    if chart.get("log") is None:
        axes.xaxis.set_major_locator(ticker.MaxNLocator(integer=True, nbins=5))
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.02), borderaxespad=0.2)
    for mark in chart.get("marks", ()):
        axes.axvline(mark + 0.5, color="#c5cbd3", linewidth=0.8)


def _draw_sweep(axes: Any, chart: dict[str, Any]) -> None:
    _draw_lines(axes, chart)
    if (floor := chart["floor"]) is not None:
        axes.set_ylim(bottom=floor)
        cut: dict[float, list[str]] = {}
        for line in chart["series"]:
            for x, y, _ in line["points"]:
                if y < floor and not line.get("paper"):
                    cut.setdefault(x, []).append(f"{y:.0f}")
        for x, texts in cut.items():
            text = ", ".join(texts) + " below"
            axes.annotate(
                text, (x, floor), (0, 3), textcoords="offset points", fontsize=6
            )
    if chart["log"]:
        axes.set_xscale("log")
    ticks = sorted({point[0] for line in chart["series"] for point in line["points"]})
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.xaxis.set_minor_locator(ticker.NullLocator())


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
    columns = [_plain(column) for column in chart["columns"]]
    axes.set_xticks(range(len(columns)), columns)
    axes.set_yticks(
        range(len(values)), [_plain(line["label"]) for line in chart["lines"]]
    )
    axes.tick_params(length=0, labelsize=6.5)
    axes.grid(False)
    axes.set_title(_plain(chart["title"]))


def _plain(text: str, longest: int = _LONGEST) -> str:
    """Short text that matplotlib neither reads as mathematics nor hides."""
    if len(text) > longest:
        text = text[: longest - 3] + "..."
    # Half a character, which JSON can hold, is more than a font can bear.
    text = text.encode("utf-8", "replace").decode("utf-8").replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text
