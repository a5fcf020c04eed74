"""The report's figures, for a paper: PNG and PDF, drawn with matplotlib."""

import io
import logging
import pathlib
import re
import warnings
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import matplotlib
from matplotlib import axes as mpl_axes
from matplotlib import figure, ticker
from matplotlib.backends import backend_agg

from ffjax import atomic
from ffjax.report.cells import Setting
from ffjax.report.charts import Chart, Charts, HeatMap, Series
from ffjax.report.tables import NEAR, Agreement

Axes = mpl_axes.Axes
_Drawn = TypeVar("_Drawn", Chart, HeatMap)

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
# Readers with colour-blindness can distinguish them, too.
_COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#333333")
_COLORS += ("#8a6d3b",)
_PATHWAYS = {"standard": "#2563eb", "ffcl": "#d9480f"}
_WIDTH = 7.0  # inches: the text width of a page
_LONGEST = 26  # characters of a name before it is cut


def write(
    folder: pathlib.Path, charts: Mapping[Setting, Charts], agreement: Agreement
) -> list[str]:
    """Draws every setting's charts and returns the files, relative to the report.

    Args:
      folder: where to write.
      charts: of each setting.
      agreement: the paper's numbers that were measured.
    """
    # fontTools logs every glyph that it embeds, which absl would print.
    logging.getLogger("fontTools").setLevel(logging.WARNING)
    written: list[str] = []
    with matplotlib.rc_context(_STYLE), warnings.catch_warnings():
        # A user's name may hold characters that the font lacks: boxes, not noise.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        if agreement.entries:
            written += _save(folder, "agreement", _agreement_sheet(agreement))
        for i, (slug, setting) in enumerate(_slugs(charts).items()):
            sheets = _sheets(charts[setting], setting.text, only_sweeps=i > 0)
            for kind, sheet in sheets.items():
                written += _save(folder, f"{kind}-{slug}", sheet)
    return written


def _slugs(charts: Mapping[Setting, Charts]) -> dict[str, Setting]:
    """A name for the files of each setting."""
    slugs: dict[str, Setting] = {}
    for setting in charts:
        slug = re.sub(r"[^A-Za-z0-9.]+", "-", setting.text).strip("-.")[:80]
        while slug in slugs or not slug:
            slug += "-2"
        slugs[slug] = setting
    return slugs


def _sheets(
    charts: Charts, title: str, *, only_sweeps: bool
) -> dict[str, figure.Figure]:
    """Of the first setting all figures; of the others what a paper shows."""
    sheets = {}
    if charts.sweeps:
        sheet = _sheet(charts.sweeps, _draw_sweep, title, columns=3)
        # The same lines in every panel need a single legend.
        handles, texts = sheet.axes[0].get_legend_handles_labels()
        columns = 4 if all(len(text) < 20 for text in texts) else 2
        sheet.legend(handles, texts, loc="outside lower center", ncols=columns)
        sheets["sweeps"] = sheet
    if only_sweeps:
        return sheets
    if charts.heat:
        height = 0.5 + 0.17 * max(len(heat.lines) for heat in charts.heat)
        sheets["heat"] = _sheet(charts.heat, _draw_heat, title, height=height)
    if charts.layers:
        sheets["layers"] = _sheet(charts.layers, _draw_curves, title)
    if charts.losses:
        sheets["curves"] = _sheet(charts.losses, _draw_curves, title)
    return sheets


def _sheet(
    charts: list[_Drawn],
    draw: Callable[[Axes, _Drawn], None],
    title: str,
    *,
    columns: int = 2,
    height: float = 2.0,
) -> figure.Figure:
    columns = min(columns, len(charts))
    lines = -(-len(charts) // columns)
    width = _WIDTH if len(charts) > 1 else _WIDTH * 0.6
    sheet = _new_figure(width, height * lines + 0.4)
    sheet.suptitle(_plain(title, 90), fontsize=8)
    for i, chart in enumerate(charts):
        draw(sheet.add_subplot(lines, columns, i + 1), chart)
    return sheet


def _new_figure(width: float, height: float) -> figure.Figure:
    sheet = figure.Figure(figsize=(width, height), layout="constrained")
    backend_agg.FigureCanvasAgg(sheet)
    return sheet


def _save(folder: pathlib.Path, name: str, sheet: figure.Figure) -> list[str]:
    for ending in ("png", "pdf"):
        out = io.BytesIO()
        # No date, so that the same records give the same file.
        metadata = {"CreationDate": None} if ending == "pdf" else None
        sheet.savefig(out, format=ending, metadata=metadata)
        sheet.set_layout_engine("none")  # laid out once is enough, and it takes long
        atomic.write_bytes(folder / f"{name}.{ending}", out.getvalue())
    return [f"figures/{name}.{ending}" for ending in ("png", "pdf")]


def _agreement_sheet(agreement: Agreement) -> figure.Figure:
    """Ours against the paper's: a dot a number, the diagonal, the band around it."""
    sheet = _new_figure(4.2, 4.0)
    axes = sheet.add_subplot()
    low, high = agreement.span
    axes.fill_between(
        [low, high],
        [low - NEAR, high - NEAR],
        [low + NEAR, high + NEAR],
        color="#e3e6ea",
    )
    axes.plot([low, high], [low, high], color="#8a939e", linewidth=1.0)
    for pathway, color in _PATHWAYS.items():
        dots = [
            (entry.row.accuracy, entry.cell.mean)
            for entry in agreement.entries
            if entry.row and entry.cell and entry.row.pathway == pathway
        ]
        if dots:
            x, y = zip(*dots, strict=True)
            label = "FFCL" if pathway == "ffcl" else pathway
            axes.scatter(x, y, s=12, color=color, alpha=0.75, linewidths=0, label=label)
    axes.set_xlim(low, high)
    axes.set_ylim(low, high)
    axes.set_aspect("equal")
    axes.set_xlabel("paper: test accuracy (%)")
    axes.set_ylabel("ours: test accuracy (%)")
    axes.legend(loc="upper left")
    first, second = agreement.text.split(", ")
    axes.set_title(f"{first},\n{second} (grey band)", fontsize=7)
    return sheet


def _color(series: Series) -> str:
    if isinstance(series.color, int):
        return _COLORS[series.color % len(_COLORS)]
    return _PATHWAYS.get(series.color, "#7048a8")


def _draw_lines(axes: Axes, chart: Chart) -> None:
    longest = 60 if chart.kind == "sweep" else 40  # its legend is below, not beside
    for line in chart.series:
        color = _color(line)
        x = [point[0] for point in line.points]
        y = [point[1] for point in line.points]
        axes.plot(
            x,
            y,
            color=color,
            linestyle="--" if line.paper else "-",
            linewidth=1.0 if line.paper else 1.4,
            marker=None if chart.kind == "loss" else "o",
            markerfacecolor="white" if line.paper else color,
            label=_plain(line.name, longest),
        )
        spread = [point[2] or 0.0 for point in line.points]
        if any(spread):
            axes.errorbar(x, y, yerr=spread, fmt="none", ecolor=color, elinewidth=1.0)
    axes.set_title(_plain(chart.title, 60))
    axes.set_xlabel(_plain(chart.x, 60))
    axes.set_ylabel(_plain(chart.y, 60))


def _draw_curves(axes: Axes, chart: Chart) -> None:
    _draw_lines(axes, chart)
    heights = [point[1] for line in chart.series for point in line.points]
    if chart.kind == "loss" and 0 < 30 * min(heights) < max(heights):
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(ticker.FormatStrFormatter("%g"))
        axes.yaxis.set_minor_locator(ticker.NullLocator())
    axes.xaxis.set_major_locator(ticker.MaxNLocator(integer=True, nbins=5))
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.02), borderaxespad=0.2)
    for mark in chart.marks:
        axes.axvline(mark + 0.5, color="#c5cbd3", linewidth=0.8)


def _draw_sweep(axes: Axes, chart: Chart) -> None:
    _draw_lines(axes, chart)
    if (floor := chart.floor) is not None:
        axes.set_ylim(bottom=floor)
        cut: dict[float, list[str]] = {}
        for line in chart.series:
            for x, y, _ in line.points:
                if y < floor and not line.paper:
                    cut.setdefault(x, []).append(f"{y:.0f}")
        for x, texts in cut.items():
            text = ", ".join(texts) + " below"
            axes.annotate(
                text, (x, floor), (0, 3), textcoords="offset points", fontsize=6
            )
    if chart.log:
        axes.set_xscale("log")
    ticks = sorted({point[0] for line in chart.series for point in line.points})
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.xaxis.set_minor_locator(ticker.NullLocator())


def _draw_heat(axes: Axes, heat: HeatMap) -> None:
    values = [
        [float("nan") if cell is None else cell.mean for cell in line.cells]
        for line in heat.lines
    ]
    axes.imshow(values, cmap="YlGnBu", vmin=heat.low, vmax=heat.high, aspect="auto")
    middle = (heat.low + heat.high) / 2
    for i, line in enumerate(values):
        for j, value in enumerate(line):
            if value == value:  # not NaN: the cell has been run
                ink = "white" if value > middle else "black"
                text = f"{value:.1f}"
                axes.text(j, i, text, ha="center", va="center", color=ink, fontsize=6.5)
    columns = [_plain(column) for column in heat.columns]
    axes.set_xticks(range(len(columns)), columns)
    axes.set_yticks(range(len(values)), [_plain(line.label) for line in heat.lines])
    axes.tick_params(length=0, labelsize=6.5)
    axes.grid(False)
    axes.set_title(_plain(heat.title))


def _plain(text: str, longest: int = _LONGEST) -> str:
    """Short text that matplotlib neither reads as mathematics nor hides."""
    if len(text) > longest:
        text = text[: longest - 3] + "..."
    text = text.replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text
