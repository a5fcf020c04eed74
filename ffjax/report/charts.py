"""The charts of a setting as plain data, for the page and for the figures.

Nothing here imports jax.
"""

import dataclasses
import statistics
from collections.abc import Iterable, Sequence
from typing import Literal

from ffjax.paper import names, numbers
from ffjax.report import cells as cells_lib
from ffjax.report import tables
from ffjax.report.cells import Cell, Setting

_MAX_POINTS = 120  # of a curve over all layers; more cannot be seen
_OUTLIER = 0.55  # of a curve's highest point: what is lower may be cut off
_MAX_SERIES = 8  # lines in a chart; more cannot be distinguished

Point = tuple[float, float, float | None]  # x, y and the spread of y


@dataclasses.dataclass(frozen=True)
class Series:
    """A line of a chart.

    Attributes:
      name: for the legend.
      color: a pathway, or a number that stands for a colour.
      points: from left to right.
      paper: whether it is the paper's.
    """

    name: str
    color: str | int
    points: list[Point]
    paper: bool = False


@dataclasses.dataclass(frozen=True)
class Chart:
    """Lines over a common axis.

    Attributes:
      title: above it.
      x: name of the axis.
      y: name of the axis.
      series: the lines.
      kind: a sweep has its points for ticks; layers have dots, a loss has none.
      log: whether the x axis is logarithmic.
      floor: where the y axis is cut, or None.
      marks: x of the lines between layers.
    """

    title: str
    x: str
    y: str
    series: list[Series]
    kind: Literal["sweep", "layers", "loss"]
    log: bool = False
    floor: float | None = None
    marks: list[int] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Bar:
    """The best cell of a goodness function on a pathway."""

    cell: Cell

    @property
    def detail(self) -> str:
        """Activation and parameters."""
        spec = self.cell.spec
        parts = (names.activation(spec), names.parameter_text(spec))
        return ", ".join(filter(None, parts))


@dataclasses.dataclass(frozen=True)
class Bars:
    """The bars of a goodness function, one for each pathway."""

    label: str
    bars: list[Bar]


@dataclasses.dataclass(frozen=True)
class HeatLine:
    """A goodness function with each activation."""

    label: str
    cells: list[Cell | None]


@dataclasses.dataclass(frozen=True)
class HeatMap:
    """Goodness x activation on a pathway; the colours span low to high."""

    title: str
    columns: list[str]
    lines: list[HeatLine]
    low: float
    high: float


@dataclasses.dataclass(frozen=True)
class Charts:
    """All charts of a setting.

    Attributes:
      bars: the best of each goodness function.
      paper_run: what the paper's numbers beside most bars are of, if of another run.
      sweeps: over a parameter.
      heat: goodness x activation.
      layers: each layer alone.
      losses: learning curves.
    """

    bars: list[Bars]
    paper_run: str
    sweeps: list[Chart]
    heat: list[HeatMap]
    layers: list[Chart]
    losses: list[Chart]


def build(setting: Setting, cells: list[Cell]) -> Charts:
    """The charts of a setting."""
    bars = _bars(cells)
    known = [bar.cell.reference for line in bars for bar in line.bars]
    runs = [reference.differs for reference in known if reference]
    return Charts(
        bars=bars,
        paper_run=statistics.mode(runs) if runs else "",
        sweeps=_sweeps(setting, cells),
        heat=_heat_maps(cells),
        layers=_layer_charts(cells),
        losses=[*_loss_charts(cells), *_accuracy_charts(cells)],
    )


def _pathways(cells: Iterable[Cell]) -> list[str]:
    """The pathways of cells, the paper's first."""
    used = dict.fromkeys(cell.spec.pathway for cell in cells)
    known = [name for name in tables.PATHWAYS if name in used]
    return known + [name for name in used if name not in known]


def _champions(cells: Iterable[Cell], pathway: str) -> list[Cell]:
    """The best cell of each goodness function, best first."""
    best: dict[str, Cell] = {}
    for cell in cells_lib.ranked(cells):
        if cell.spec.pathway == pathway:
            best.setdefault(cell.spec.goodness, cell)
    return list(best.values())


def _bars(cells: list[Cell]) -> list[Bars]:
    """The best of each goodness function on each pathway, best first."""
    lines: dict[str, list[Bar]] = {}
    for pathway in _pathways(cells):
        for cell in _champions(cells, pathway):
            lines.setdefault(cell.spec.goodness, []).append(Bar(cell))
    ranked = sorted(lines.items(), key=lambda item: -max(b.cell.mean for b in item[1]))
    return [Bars(names.label(goodness), bars) for goodness, bars in ranked]


def _sweeps(setting: Setting, cells: list[Cell]) -> list[Chart]:
    """For each goodness function and parameter with several values, its curves."""
    axes: dict[tuple[str, str], dict[float, list[Cell]]] = {}
    for cell in cells:
        for name, value in names.parameters(cell.spec).items():
            values = axes.setdefault((cell.spec.goodness, name), {})
            values.setdefault(value, []).append(cell)
    return [
        _sweep(setting, name, [cell for near in values.values() for cell in near])
        for (_, name), values in axes.items()
        if len(values) >= 3
    ]


def _sweep(setting: Setting, name: str, members: list[Cell]) -> Chart:
    """One activation and gate a chart: those with most points, the paper's first."""
    kinds: dict[tuple[str, bool], int] = {}
    for cell in members:
        kind = (cell.spec.activation, cell.spec.norm_gate)
        kinds[kind] = kinds.get(kind, 0) + 1
    activation, gate = min(kinds, key=lambda k: (-kinds[k], k[0] != "gelu", k[1]))
    scale = 100 if name == "k_fraction" else 1
    shown = [
        c
        for c in members
        if (c.spec.activation, c.spec.norm_gate) == (activation, gate)
    ]
    series = []
    for pathway in _pathways(shown):
        swept = [cell for cell in shown if cell.spec.pathway == pathway]
        points = sorted(
            (scale * names.parameters(cell.spec)[name], cell.mean, cell.std)
            for cell in swept
        )
        label = names.label(pathway)
        series.append(Series(f"ours, {label}", pathway, points))
        papers, run = _paper_curve(setting, swept[0], name, scale)
        if papers:
            whose = f"paper ({run}), {label}" if run else f"paper, {label}"
            series.append(Series(whose, pathway, papers, paper=True))
    spec = shown[0].spec
    head = {"k_fraction": "k (% of the width)"}.get(name, name)
    over = f"{names.label(spec.goodness)} over {head.split(' ')[0]}"
    return Chart(
        title=f"{over} ({names.activation(spec)})",
        x=head,
        y="test accuracy (%)",
        series=series,
        kind="sweep",
        log=name == "k_fraction",
        floor=_floor(series),
    )


def _floor(series: list[Series]) -> float | None:
    """Where to cut a sweep's axis, lest an end at chance flatten all the rest."""
    kept, values = [], []
    for line in series:
        heights = [point[1] for point in line.points]
        values += heights
        kept += [height for height in heights if height >= _OUTLIER * max(heights)]
    if len(kept) == len(values):
        return None
    if 2 * (max(kept) - min(kept)) > max(values) - min(values):
        return None
    return min(kept) - 0.08 * (max(kept) - min(kept))


def _paper_curve(
    setting: Setting, like: Cell, name: str, scale: float
) -> tuple[list[Point], str]:
    """The paper's points for a curve of ours, and of what run if not of the same."""
    spec = like.spec
    values = {
        value
        for row in numbers.rows()
        if row.goodness == spec.goodness
        and (value := getattr(row, name, None)) is not None
    }
    points: list[Point] = []
    for value in sorted(values):
        wanted = dataclasses.replace(spec, **{name: value})
        if row := numbers.orientation(wanted):
            points.append((scale * value, row.accuracy, None))
    if len(points) < 2:
        return [], ""
    if setting.is_paper:
        return points, ""
    theirs = "fashion_mnist" if spec.dataset == "fashion_mini" else spec.dataset
    other = [] if theirs == spec.dataset else [names.label(theirs)]
    return points, ", ".join([*other, "4x2000", "60 epochs"])


def _heat_maps(cells: list[Cell]) -> list[HeatMap]:
    """Goodness x activation, the best over parameters and the norm gate."""
    best: dict[str, dict[str, dict[str, Cell]]] = {}
    for cell in cells_lib.ranked(cells):
        lines = best.setdefault(cell.spec.pathway, {})
        line = lines.setdefault(cell.spec.goodness, {})
        line.setdefault(cell.spec.activation, cell)
    shown = [
        cell.mean
        for lines in best.values()
        for line in lines.values()
        for cell in line.values()
    ]
    order = list(names.LABELS)
    maps = []
    for pathway in _pathways(cells):
        lines = best[pathway]
        columns = sorted({a for line in lines.values() for a in line}, key=order.index)
        if len(lines) < 2 or len(columns) < 2:
            continue
        maps.append(
            HeatMap(
                title=names.label(pathway),
                columns=[names.label(name) for name in columns],
                lines=[
                    HeatLine(names.label(goodness), [line.get(a) for a in columns])
                    for goodness, line in lines.items()
                ],
                low=min(shown),
                high=max(shown),
            )
        )
    return maps


def _layer_charts(cells: list[Cell]) -> list[Chart]:
    """The accuracy of each layer alone, for the best cell of each goodness function."""
    charts = []
    for pathway in _pathways(cells):
        series = []
        for i, cell in enumerate(_champions(cells, pathway)[:_MAX_SERIES]):
            layers = zip(*(run.accuracy_layers for run in cell.runs), strict=False)
            points: list[Point] = []
            for number, values in enumerate(layers, start=1):
                kept = [value for value in values if value is not None]
                if kept:
                    points.append((number, statistics.fmean(kept), None))
            series.append(Series(names.goodness(cell.spec), i, points))
        if any(len(line.points) > 1 for line in series):
            title = f"Each layer alone, {names.label(pathway)}"
            y = "test accuracy (%)"
            charts.append(Chart(title, "layer (from 1)", y, series, "layers"))
    return charts


def _loss_charts(cells: list[Cell]) -> list[Chart]:
    """The loss, layer after layer, for the best cell of each goodness function."""
    charts = []
    for pathway in _pathways(cells):
        series = []
        marks: list[int] = []
        for i, cell in enumerate(_champions(cells, pathway)[:_MAX_SERIES]):
            points: list[Point] = []
            ends: list[int] = []
            losses = cell.runs[0].losses
            for layer in losses:
                start = ends[-1] if ends else 0
                points += [
                    (start + epoch, rounded(loss), None)
                    for epoch, loss in thinned(layer, _MAX_POINTS // len(losses) or 1)
                    if loss is not None
                ]
                ends.append(start + len(layer))
            marks = max(marks, ends[:-1], key=len)
            series.append(Series(names.goodness(cell.spec), i, points))
        if any(len(line.points) > 1 for line in series):
            title, x = (
                f"Training loss, {names.label(pathway)}",
                "epoch, layer after layer",
            )
            charts.append(Chart(title, x, "loss", series, "loss", marks=marks))
    return charts


def _accuracy_charts(cells: list[Cell]) -> list[Chart]:
    """The ensemble's accuracy during training, where ``eval_every`` asked for it."""
    charts = []
    for pathway in _pathways(cells):
        series, images = [], set()
        for i, cell in enumerate(_champions(cells, pathway)[:_MAX_SERIES]):
            run = cell.runs[0]
            if run.curve is None:
                continue
            images.add(run.curve.images)
            points: list[Point] = [
                (point.layer * run.spec.epochs + point.epochs, point.ensemble, None)
                for point in run.curve.points
                if point.ensemble is not None
            ]
            series.append(Series(names.goodness(cell.spec), i, points))
        if any(len(line.points) > 1 for line in series):
            title = f"Accuracy of the layers so far, {names.label(pathway)}"
            x, y = "epoch, layer after layer", f"{' or '.join(images)} accuracy (%)"
            charts.append(Chart(title, x, y, series, "layers"))
    return charts


def rounded(loss: float) -> float:
    """A loss with as many digits as can be seen."""
    return float(f"{loss:.4g}")


def thinned(
    losses: Sequence[float | None], most: int
) -> list[tuple[int, float | None]]:
    """(epoch from 1, loss) pairs, about ``most`` of them, with the last."""
    step = max(1, -(-len(losses) // most))
    kept = list(range(0, len(losses), step))
    if losses and kept[-1] != len(losses) - 1:
        kept.append(len(losses) - 1)
    return [(i + 1, losses[i]) for i in kept]
