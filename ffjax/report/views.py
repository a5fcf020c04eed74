"""The charts of one setting as plain data, for the page and for the figures.

A chart is a dict: title, x and y (names of the axes), series (name, color, points as
[x, y, spread], paper: whether it is the paper's) and, for a sweep, log (of the x axis)
and floor (where the y axis is cut, or None). Nothing here imports jax.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from ffjax import paper, records
from ffjax.report import cells as cells_lib
from ffjax.report import tables

Cell = cells_lib.Cell

_MAX_POINTS = 120  # of a learning curve; more cannot be seen
_OUTLIER = 0.55  # of a curve's highest point: what is lower may be cut off
_MAX_SERIES = 8  # lines in one chart; more cannot be told apart


def build(one: cells_lib.Setting, found: list[Cell]) -> dict[str, Any]:
    """The charts of one setting, as plain data for the page and for figures."""
    return {
        "bars": _bars(found),
        "sweeps": _sweeps(one, found),
        "heat": _heat_maps(found),
        "layers": _layer_charts(found),
        "curves": _curve_charts(found),
    }


def _goodness_key(cell: Cell) -> str:
    return str(cell.spec.get("goodness"))


def _pathways(found: Iterable[Cell]) -> list[str]:
    names = dict.fromkeys(str(cell.spec.get("pathway")) for cell in found)
    known = [name for name in tables.PATHWAYS if name in names]
    return known + [name for name in names if name not in tables.PATHWAYS]


def _champions(found: Iterable[Cell], pathway: str) -> list[Cell]:
    """The best cell of each goodness function, best first."""
    best: dict[str, Cell] = {}
    for cell in found:
        key = _goodness_key(cell)
        if cell.mean is None or str(cell.spec.get("pathway")) != pathway:
            continue
        if key not in best or tables.accuracy(cell) > tables.accuracy(best[key]):
            best[key] = cell
    return sorted(best.values(), key=tables.accuracy, reverse=True)


def _bars(found: list[Cell]) -> list[dict[str, Any]]:
    """The best of each goodness function on each pathway, best first."""
    lines: dict[str, dict[str, Any]] = {}
    for pathway in _pathways(found):
        for cell in _champions(found, pathway):
            known = tables.reference(cell)
            detail = [
                paper.label(cell.spec.get("activation")),
                paper.parameter_text(cell.spec),
                "norm gate" if cell.spec.get("norm_gate") else "",
            ]
            key = _goodness_key(cell)
            line = lines.setdefault(key, {"label": paper.label(key), "items": []})
            line["items"].append(
                {
                    "pathway": pathway,
                    "label": paper.label(pathway),
                    "detail": ", ".join(filter(None, detail)),
                    "cell": cell,
                    "mean": cell.mean,
                    "paper": known[0].accuracy if known else None,
                    "exact": bool(known and known[1]),
                }
            )
    return sorted(
        lines.values(),
        key=lambda line: max(item["mean"] for item in line["items"]),
        reverse=True,
    )


def _chart(title: str, x: str, y: str, series: list[dict[str, Any]], **more: Any):
    return {"title": title, "x": x, "y": y, "series": series, **more}


def _sweeps(one: cells_lib.Setting, found: list[Cell]) -> list[dict[str, Any]]:
    """For each goodness function and parameter with several values, its curves."""
    axes: dict[tuple[str, str], list[Cell]] = {}
    for cell in found:
        for name, value in paper.parameters(cell.spec).items():
            if cells_lib.number(value) is not None and cell.mean is not None:
                axes.setdefault((_goodness_key(cell), name), []).append(cell)
    whose = "paper" if one.is_paper else "paper (4x2000, 60 epochs)"
    charts = []
    for (goodness, name), members in axes.items():
        if len({paper.parameters(cell.spec)[name] for cell in members}) < 3:
            continue
        scale = 100 if name == "k_fraction" else 1
        # One activation and gate a chart: those with most points, the paper's first.
        kinds: dict[tuple[str, bool], int] = {}
        for cell in members:
            kind = (str(cell.spec.get("activation")), bool(cell.spec.get("norm_gate")))
            kinds[kind] = kinds.get(kind, 0) + 1
        activation, gate = min(
            kinds, key=lambda kind: (-kinds[kind], kind[0] != "gelu", kind[1])
        )
        series = []
        for pathway in _pathways(members):
            points = sorted(
                (scale * paper.parameters(cell.spec)[name], cell.mean, cell.std)
                for cell in members
                if str(cell.spec.get("pathway")) == pathway
                and str(cell.spec.get("activation")) == activation
                and bool(cell.spec.get("norm_gate")) == gate
            )
            if points:
                series.append(
                    {
                        "name": f"ours, {paper.label(pathway)}",
                        "color": pathway,
                        "points": [list(point) for point in points],
                    }
                )
            papers = _paper_curve(one, pathway, goodness, name, activation, scale)
            if points and papers:
                series.append(
                    {
                        "name": f"{whose}, {paper.label(pathway)}",
                        "color": pathway,
                        "paper": True,
                        "points": papers,
                    }
                )
        head = {"k_fraction": "k (% of the width)"}.get(name, name)
        detail = f"{paper.label(activation)}{', norm gate' if gate else ''}"
        charts.append(
            _chart(
                f"{paper.label(goodness)} over {head.split(' ')[0]} ({detail})",
                head,
                "test accuracy (%)",
                series,
                log=name == "k_fraction",
                floor=_floor(series),
            )
        )
    return charts


def _floor(series: list[dict[str, Any]]) -> float | None:
    """Where to cut a sweep's axis, lest an end at chance flatten all the rest."""
    kept, values = [], []
    for line in series:
        heights = [point[1] for point in line["points"]]
        values += heights
        kept += [height for height in heights if height >= _OUTLIER * max(heights)]
    if len(kept) == len(values):
        return None
    if 2 * (max(kept) - min(kept)) > max(values) - min(values):
        return None
    return min(kept) - 0.08 * (max(kept) - min(kept))


def _paper_curve(
    one: cells_lib.Setting,
    pathway: str,
    goodness: str,
    name: str,
    activation: str,
    scale: float,
) -> list[list[float | None]]:
    values = {
        getattr(row, name)
        for row in paper.rows()
        if row.goodness == goodness and getattr(row, name, None) is not None
    }
    points = []
    for value in sorted(values):
        row = paper.orientation(
            {
                "dataset": one.get("dataset"),
                "pathway": pathway,
                "goodness": goodness,
                "activation": activation,
                name: value,
            }
        )
        if row:
            points.append([scale * value, row.accuracy, None])
    return points if len(points) > 1 else []


def _heat_maps(found: list[Cell]) -> list[dict[str, Any]]:
    """Goodness x activation, the best over parameters and the norm gate."""
    best: dict[str, dict[str, dict[str, Cell]]] = {}
    for cell in sorted(found, key=tables.accuracy):
        if cell.mean is not None:  # a better one takes the place of the one before
            lines = best.setdefault(str(cell.spec.get("pathway")), {})
            line = lines.setdefault(_goodness_key(cell), {})
            line[str(cell.spec.get("activation"))] = cell
    shown = [
        tables.accuracy(cell)
        for lines in best.values()
        for line in lines.values()
        for cell in line.values()
    ]
    order = list(paper.LABELS)
    maps = []
    for pathway in _pathways(found):
        lines = best.get(pathway, {})
        columns = sorted(
            {name for line in lines.values() for name in line},
            key=lambda name: order.index(name) if name in order else len(order),
        )
        if len(lines) < 2 or len(columns) < 2:
            continue
        ranked = sorted(
            lines.items(),
            key=lambda item: max(map(tables.accuracy, item[1].values())),
            reverse=True,
        )
        maps.append(
            {
                "title": paper.label(pathway),
                "columns": [paper.label(name) for name in columns],
                "lines": [
                    {
                        "label": paper.label(goodness),
                        "cells": [line.get(name) for name in columns],
                    }
                    for goodness, line in ranked
                ],
                "low": min(shown),
                "high": max(shown),
            }
        )
    return maps


def _layer_charts(found: list[Cell]) -> list[dict[str, Any]]:
    """The accuracy of each layer alone, for the best cell of each goodness function."""
    charts = []
    for pathway in _pathways(found):
        series = []
        for i, cell in enumerate(_champions(found, pathway)[:_MAX_SERIES]):
            layers = zip(*(run["accuracy_layers"] for run in cell.runs), strict=False)
            points = []
            for number, values in enumerate(layers, start=1):
                kept = [v for v in map(cells_lib.number, values) if v is not None]
                if kept:
                    points.append([number, sum(kept) / len(kept), None])
            name = short_name(cell)
            series.append({"name": name, "color": i, "points": points})
        if any(len(line["points"]) > 1 for line in series):
            charts.append(
                _chart(
                    f"Each layer alone, {paper.label(pathway)}",
                    "layer (from 1)",
                    "test accuracy (%)",
                    series,
                )
            )
    return charts


def _curve_charts(found: list[Cell]) -> list[dict[str, Any]]:
    """The loss, layer after layer, for the best cell of each goodness function."""
    charts = []
    for pathway in _pathways(found):
        series, marks = [], []
        for i, cell in enumerate(_champions(found, pathway)[:_MAX_SERIES]):
            losses = loss_lists(cell.runs[0])
            points, start = [], 0
            marks = []
            for layer in losses:
                points += [
                    [epoch, loss, None]
                    for epoch, loss in thinned(layer, start + 1)
                    if loss is not None
                ]
                start += len(layer)
                marks.append(start)
            series.append({"name": short_name(cell), "color": i, "points": points})
        if any(len(line["points"]) > 1 for line in series):
            charts.append(
                _chart(
                    f"Training loss, {paper.label(pathway)}",
                    "epoch, layer after layer",
                    "loss",
                    series,
                    marks=marks[:-1],
                    dots=False,
                )
            )
    return charts


def short_name(cell: Cell) -> str:
    """The goodness function and its parameter."""
    name = paper.label(cell.spec.get("goodness"))
    parameter = paper.parameter_text(cell.spec)
    return f"{name}, {parameter}" if parameter else name


def loss_lists(run: records.Record) -> list[list[float | None]]:
    """The losses, layer by epoch; None where one was not finite."""
    return [
        [cells_lib.number(loss) for loss in layer]
        for layer in run["losses"]
        if isinstance(layer, list)
    ]


def thinned(
    losses: Sequence[float | None], start: int
) -> list[tuple[int, float | None]]:
    """(epoch, loss) pairs, at most about _MAX_POINTS of them, with the last one."""
    step = max(1, -(-len(losses) // _MAX_POINTS))
    kept = list(range(0, len(losses), step))
    if losses and kept[-1] != len(losses) - 1:
        kept.append(len(losses) - 1)
    return [(start + i, losses[i]) for i in kept]
