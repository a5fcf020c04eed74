"""Records -> a page, tables and figures that put our numbers beside the paper's.

    python -m ffjax.report --workdir=DIR

writes DIR/report/index.html (one file that opens offline), report.md, tables/*.csv
and *.tex, figures/*.png and *.pdf. A running grid redraws the page alone. Nothing here
imports jax, and matplotlib is imported only to draw figures.
"""

import base64
import csv
import dataclasses
import datetime
import functools
import hashlib
import io
import json
import os
import pathlib
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jinja2
import markupsafe
from absl import app, flags
from rich import table as rich_table
from rich import text as rich_text

from ffjax import cells as cells_lib
from ffjax import claims, paper, results
from ffjax.errors import UserError

Cell = cells_lib.Cell

_TEMPLATES = pathlib.Path(__file__).parent / "templates"
_ORIENTATION = "paper, 4x2000, 60 epochs"
_MAX_POINTS = 120  # of a learning curve on the page; more cannot be seen
_MAX_SERIES = 8  # lines in one chart; more cannot be told apart
_PATHWAYS = ("standard", "ffcl")


# Ours beside the paper's. ---------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Entry:
    """One number of a table: ours, the paper's, or both."""

    row: paper.Row | None
    cell: Cell | None
    variant: str = ""  # why ours is not the very run that the row names

    @property
    def ours(self) -> float | None:
        """Our mean accuracy."""
        return self.cell.mean if self.cell else None

    @property
    def difference(self) -> float | None:
        """Ours minus the paper's, in percentage points."""
        if self.ours is None or self.row is None:
            return None
        return self.ours - self.row.accuracy

    @property
    def paper_text(self) -> str:
        """The paper's number."""
        if self.row is None:
            return ""
        spread = f" ± {self.row.std:.2f}" if self.row.std is not None else ""
        return f"{self.row.accuracy:.2f}{spread}"


@dataclasses.dataclass(frozen=True)
class Line:
    """A line of a table: what it is about, and its numbers (None: neither has one)."""

    labels: tuple[str, ...]
    entries: tuple[Entry | None, ...]


@dataclasses.dataclass(frozen=True)
class Table:
    """A table of the paper, with ours beside it."""

    id: str
    title: str
    heads: tuple[str, ...]  # of the labels
    columns: tuple[str, ...]  # of the entries
    lines: tuple[Line, ...]

    @property
    def slug(self) -> str:
        """The name of its files."""
        return _slug(self.id.removeprefix("tab:"))

    @property
    def entries(self) -> list[Entry]:
        """All numbers."""
        return [entry for line in self.lines for entry in line.entries if entry]

    @property
    def num_entries(self) -> int:
        """How many numbers of the paper it has."""
        return sum(entry.row is not None for entry in self.entries)

    @property
    def num_run(self) -> int:
        """How many of the paper's numbers we have."""
        return sum(bool(entry.row and entry.cell) for entry in self.entries)


class _Index:
    """Finds our cell for a number of the paper without trying all cells."""

    def __init__(self, found: Iterable[Cell]):
        self._cells: dict[tuple[Any, ...], list[Cell]] = {}
        for cell in found:
            if cell.mean is not None:
                self._cells.setdefault(self._key(cell.spec), []).append(cell)

    @staticmethod
    def _key(spec: Mapping[str, Any]) -> tuple[Any, ...]:
        fields = ("dataset", "num_layers", "width", "pathway", "goodness")
        return tuple(spec.get(field) for field in fields)

    def find(self, row: paper.Row, goodness: str | None = None) -> Cell | None:
        """The best of our cells that ``row`` reports, as the paper takes the best."""
        if goodness is not None:
            row = dataclasses.replace(row, goodness=goodness)
        near = self._cells.get(self._key(dataclasses.asdict(row)), ())
        found = [cell for cell in near if paper.matches(row, cell.spec)]
        return max(found, key=_accuracy, default=None)

    def others(self, dataset: str, size: str) -> list[Cell]:
        """Cells at the paper's settings whose goodness function the paper lacks."""
        known = {row.goodness for row in paper.rows()}
        return [
            cell
            for near in self._cells.values()
            for cell in near
            if cell.spec.get("dataset") == dataset
            and cell.size == size
            and cell.spec.get("goodness") not in known
            and paper.at_settings(cell.spec)
        ]


def paper_tables(found: Iterable[Cell]) -> list[Table]:
    """The paper's tables, in its order, with our cells beside its numbers."""
    index = _Index(found)
    layouts: dict[str, Callable[[list[paper.Row], _Index], Table]] = {
        "tab:goodness": _goodness_table,
        "tab:interaction": _matrix(_activation_name, _goodness_name, "activation"),
        "tab:cross_dataset": _matrix(_method_name, _dataset_name, "method"),
        "tab:seeds": _matrix(_method_name, _dataset_name, "method"),
        "tab:sweep_full": _matrix(_sweep_name, _pathway_name, "sweep"),
        "tab:scaling": _matrix(_goodness_activation_name, _scale_name, "goodness"),
    }
    tables = []
    for table_id in paper.TABLES:
        rows = [row for row in paper.rows() if row.table == table_id]
        tables.append(layouts.get(table_id, _ranked)(rows, index))
        if table_id == "tab:goodness":
            tables.append(_lift_table(tables[-1]))
    return tables


def _ranked(rows: list[paper.Row], index: _Index) -> Table:
    """One number a line, in the paper's order."""
    several = len({row.dataset for row in rows}) > 1
    lines = []
    for row in rows:
        labels = [
            _pathway_name(row),
            _goodness_name(row),
            paper.parameter_text(dataclasses.asdict(row)),
            _activation_name(row),
        ]
        if several:
            labels.insert(0, _dataset_name(row))
        lines.append(Line(tuple(labels), (Entry(row, index.find(row)),)))
    table_id = rows[0].table
    if table_id in ("tab:mnist_full", "tab:fashion_full", "tab:2x500"):
        for dataset in dict.fromkeys(row.dataset for row in rows):
            for cell in _best_gate(index.others(dataset, rows[0].size)):
                labels = [
                    paper.label(cell.spec.get("pathway")),
                    paper.label(cell.spec.get("goodness")),
                    paper.parameter_text(cell.spec),
                    paper.label(cell.spec.get("activation")),
                ]
                if several:
                    labels.insert(0, paper.label(dataset))
                lines.append(Line(tuple(labels), (Entry(None, cell),)))
    heads = ("pathway", "goodness", "parameter", "activation")
    return Table(
        table_id,
        paper.TABLES[table_id],
        ("dataset", *heads) if several else heads,
        ("accuracy",),
        tuple(lines),
    )


def _goodness_table(rows: list[paper.Row], index: _Index) -> Table:
    table = _matrix(_goodness_name, _pathway_name, "goodness")(rows, index)
    lines = list(table.lines)
    # What the paper does not have: the other game-theoretic formula, and the user's.
    others = index.others(rows[0].dataset, rows[0].size)
    for goodness in dict.fromkeys(cell.spec.get("goodness") for cell in others):
        entries = []
        for pathway in _PATHWAYS:
            near = [
                cell
                for cell in others
                if cell.spec.get("goodness") == goodness
                and cell.spec.get("pathway") == pathway
            ]
            best = max(near, key=_accuracy, default=None)
            entries.append(Entry(None, best) if best else None)
        lines.append(Line((paper.label(goodness),), tuple(entries)))
    return dataclasses.replace(table, lines=tuple(lines))


def _lift_table(goodness: Table) -> Table:
    """What FFCL adds; the paper prints it, and it follows from the table before."""
    return dataclasses.replace(
        goodness,
        id="tab:ffcl_lift",
        title="What FFCL adds to each goodness function (computed)",
    )


def _matrix(
    line_name: Callable[[paper.Row], str],
    column_name: Callable[[paper.Row], str],
    head: str,
) -> Callable[[list[paper.Row], _Index], Table]:
    """A table with one number for each pair of a line and a column."""

    def build(rows: list[paper.Row], index: _Index) -> Table:
        columns = tuple(dict.fromkeys(column_name(row) for row in rows))
        grid: dict[str, dict[str, Entry]] = {}
        for row in rows:
            entry = Entry(row, index.find(row))
            grid.setdefault(line_name(row), {})[column_name(row)] = entry
        lines = tuple(
            Line((name,), tuple(entries.get(column) for column in columns))
            for name, entries in grid.items()
        )
        table_id = rows[0].table
        return Table(table_id, paper.TABLES[table_id], (head,), columns, lines)

    return build


def _dataset_name(row: paper.Row) -> str:
    return paper.label(row.dataset)


def _pathway_name(row: paper.Row) -> str:
    return paper.label(row.pathway)


def _activation_name(row: paper.Row) -> str:
    return paper.label(row.activation)


def _goodness_name(row: paper.Row) -> str:
    return paper.label(row.goodness)


def _goodness_activation_name(row: paper.Row) -> str:
    return f"{paper.label(row.goodness)} ({paper.label(row.activation)})"


def _method_name(row: paper.Row) -> str:
    return f"{_pathway_name(row)} {_goodness_activation_name(row)}"


def _sweep_name(row: paper.Row) -> str:
    return f"{_goodness_name(row)}, {paper.parameter_text(dataclasses.asdict(row))}"


def _scale_name(row: paper.Row) -> str:
    return f"{paper.label(row.dataset)} {row.size}"


def _accuracy(cell: Cell) -> float:
    return -1.0 if cell.mean is None else cell.mean


def _best_gate(found: Iterable[Cell]) -> list[Cell]:
    """The better of norm gate on and off for each method, best first."""
    best: dict[tuple[Any, ...], Cell] = {}
    for cell in found:
        key = tuple(
            cell.spec.get(name) for name in cells_lib.METHOD if name != "norm_gate"
        )
        if key not in best or _accuracy(cell) > _accuracy(best[key]):
            best[key] = cell
    return sorted(best.values(), key=_accuracy, reverse=True)


def reference(cell: Cell) -> tuple[paper.Row, bool] | None:
    """The paper's number for a cell, and whether it is of the very same run.

    Where it is not, it is the full-size number of the same method: orientation only.
    """
    exact = [row for row in paper.matching(cell.spec) if row.activation != "best"]
    if exact:
        # A table over seeds is compared with where we have several seeds, too.
        several = len(cell.seeds) > 1
        return min(
            exact,
            key=lambda row: ((len(row.seeds) > 1) != several, paper.trust(row.table)),
        ), True
    row = paper.orientation(cell.spec)
    return (row, False) if row else None


# What a workdir holds. ------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Failure:
    """A run that ended in an error."""

    cell: str
    seed: Any
    spec: Mapping[str, Any]
    error: str


@dataclasses.dataclass(frozen=True)
class Contents:
    """Everything that a report is drawn from."""

    records: list[results.Record]
    cells: list[Cell]
    groups: dict[cells_lib.Setting, list[Cell]]
    texts: dict[cells_lib.Setting, str]  # the settings' names
    failures: list[Failure]
    problems: list[str]
    tables: list[Table]
    verdicts: list[claims.Verdict]
    other_verdicts: dict[cells_lib.Setting, list[claims.Verdict]]


def collect(workdir: str | os.PathLike[str]) -> Contents:
    """Reads a workdir; what cannot be read is listed, not fatal."""
    records, problems = results.read_all(workdir)
    failures, more = _read_failures(pathlib.Path(workdir), records)
    problems += more
    if not records and not failures:
        broken = f" ({len(problems)} broken: {problems[0]})" if problems else ""
        raise UserError(
            f"workdir={str(workdir)!r}: no results in its folder 'results'{broken}; "
            "run a grid with the same --workdir first"
        )
    found = cells_lib.gather(records)
    groups = cells_lib.by_setting(found)
    return Contents(
        records=records,
        cells=found,
        groups=groups,
        texts=cells_lib.setting_texts(groups),
        failures=failures,
        problems=problems,
        tables=paper_tables(found),
        verdicts=claims.audit(records),
        other_verdicts=claims.audit_settings(records),
    )


def _read_failures(
    workdir: pathlib.Path, records: Iterable[results.Record]
) -> tuple[list[Failure], list[str]]:
    done = {(record["cell"], record["seed"]) for record in records}
    failures, problems = [], []
    for path in sorted((workdir / "failures").glob("*.json")):
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            spec = found.get("spec") or {}
            failure = Failure(
                cell=str(found["cell"]),
                seed=found["seed"],
                spec={str(name): cells_lib.flat(spec[name]) for name in spec},
                error=str(found["error"]),
            )
        except (OSError, ValueError, KeyError, AttributeError, RecursionError) as error:
            problems.append(f"{path}: not readable as a failure ({error!r})")
            continue
        if (failure.cell, failure.seed) not in done:  # else it was run again and worked
            failures.append(failure)
    return failures, problems


# Views of one setting. ------------------------------------------------------------


def _views(one: cells_lib.Setting, found: list[Cell]) -> dict[str, Any]:
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
    known = [name for name in _PATHWAYS if name in names]
    return known + [name for name in names if name not in _PATHWAYS]


def _champions(found: Iterable[Cell], pathway: str) -> list[Cell]:
    """The best cell of each goodness function, best first."""
    best: dict[str, Cell] = {}
    for cell in found:
        key = _goodness_key(cell)
        if cell.mean is None or str(cell.spec.get("pathway")) != pathway:
            continue
        if key not in best or _accuracy(cell) > _accuracy(best[key]):
            best[key] = cell
    return sorted(best.values(), key=_accuracy, reverse=True)


def _bars(found: list[Cell]) -> list[dict[str, Any]]:
    """The best of each goodness function on each pathway, best first."""
    lines: dict[str, dict[str, Any]] = {}
    for pathway in _pathways(found):
        for cell in _champions(found, pathway):
            known = reference(cell)
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
            )
        )
    return charts


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
        if row.goodness == goodness and getattr(row, name) is not None
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
    known = [cell.mean for cell in found if cell.mean is not None]
    maps = []
    for pathway in _pathways(found):
        best: dict[str, dict[str, Cell]] = {}
        for cell in found:
            if str(cell.spec.get("pathway")) != pathway or cell.mean is None:
                continue
            line = best.setdefault(_goodness_key(cell), {})
            activation = str(cell.spec.get("activation"))
            if activation not in line or _accuracy(cell) > _accuracy(line[activation]):
                line[activation] = cell
        order = list(paper.LABELS)
        columns = sorted(
            {name for line in best.values() for name in line},
            key=lambda name: (name not in order, name in order and order.index(name)),
        )
        if len(best) < 2 or len(columns) < 2:
            continue
        lines = sorted(
            best.items(),
            key=lambda item: max(map(_accuracy, item[1].values())),
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
                    for goodness, line in lines
                ],
                "low": min(known),
                "high": max(known),
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
            name = _short_name(cell)
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
            losses = _loss_lists(cell.runs[0])
            points, start = [], 0
            marks = []
            for layer in losses:
                points += [
                    [epoch, loss, None]
                    for epoch, loss in _thinned(layer, start + 1)
                    if loss is not None
                ]
                start += len(layer)
                marks.append(start)
            series.append({"name": _short_name(cell), "color": i, "points": points})
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


def _short_name(cell: Cell) -> str:
    name = paper.label(cell.spec.get("goodness"))
    parameter = paper.parameter_text(cell.spec)
    return f"{name}, {parameter}" if parameter else name


def _loss_lists(run: results.Record) -> list[list[float | None]]:
    return [
        [cells_lib.number(loss) for loss in layer]
        for layer in run["losses"]
        if isinstance(layer, list)
    ]


def _thinned(
    losses: Sequence[float | None], start: int
) -> list[tuple[int, float | None]]:
    """(epoch, loss) pairs, at most about _MAX_POINTS of them, with the last one."""
    step = max(1, -(-len(losses) // _MAX_POINTS))
    kept = list(range(0, len(losses), step))
    if losses and kept[-1] != len(losses) - 1:
        kept.append(len(losses) - 1)
    return [(start + i, losses[i]) for i in kept]


# The page. ------------------------------------------------------------------------


def write(workdir: str | os.PathLike[str], *, figures: bool = True) -> pathlib.Path:
    """Writes the report of ``workdir`` and returns the path of its page.

    Args:
      workdir: the folder of a grid, with its ``results``.
      figures: False while the grid runs: writes the page alone, and lets it reload
        itself.

    Raises:
      UserError: the workdir holds no results.
    """
    contents = collect(workdir)
    folder = pathlib.Path(workdir) / "report"
    views = {one: _views(one, found) for one, found in contents.groups.items()}
    extra: list[str] = []
    if figures:
        for name, text in _texts(contents).items():
            results.write_bytes(folder / name, text.encode("utf-8"))
            extra.append(name)
        from ffjax import figures as figures_lib  # matplotlib takes its time

        labels = {one: contents.texts[one] for one in views}
        extra += figures_lib.write(folder / "figures", views, labels)
    path = folder / "index.html"
    page = _page(contents, views, live=not figures, extra=extra)
    results.write_bytes(path, page.encode("utf-8"))
    return path


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["label"] = paper.label
    environment.filters["ident"] = id
    environment.filters["parameters"] = paper.parameter_text
    environment.filters["times"] = lambda text: re.sub(
        r"(?<=\d)x(?=\d)", "\u00d7", text
    )
    environment.globals["shade"] = _shade
    environment.globals["reference"] = reference
    environment.globals["lift"] = _lift
    environment.globals["orientation_text"] = _ORIENTATION
    environment.globals["HOLDS"] = claims.HOLDS
    environment.globals["FAILS"] = claims.FAILS
    return environment


def _page(
    contents: Contents,
    views: dict[cells_lib.Setting, dict[str, Any]],
    *,
    live: bool,
    extra: Sequence[str] = (),
) -> str:
    numbers = {id(cell): i for i, cell in enumerate(contents.cells)}
    charts: list[dict[str, Any]] = []
    settings = []
    for one, view in views.items():
        drawn = {}
        for kind in ("sweeps", "layers", "curves"):
            drawn[kind] = list(range(len(charts), len(charts) + len(view[kind])))
            charts += view[kind]
        settings.append(
            {
                "text": contents.texts[one],
                "is_paper": one.is_paper,
                "cells": contents.groups[one],
                "bars": view["bars"],
                "heat": view["heat"],
                "charts": drawn,
            }
        )
    script = (_TEMPLATES / "report.js").read_text(encoding="utf-8")
    data = {
        "charts": charts,
        "cells": [_cell_data(cell, contents) for cell in contents.cells],
        "live": live,
    }
    run = [table for table in contents.tables if table.num_run]
    return (
        _environment()
        .get_template("report.html")
        .render(
            contents=contents,
            numbers=numbers,
            settings=settings,
            tables=run,
            tables_not_run=[table for table in contents.tables if not table.num_run],
            num_idle=sum(
                table.num_entries
                for table in contents.tables
                if not table.num_run and table.id in paper.TABLES
            ),
            judged=[v for v in contents.verdicts if v.verdict != claims.OPEN],
            not_judged=[v for v in contents.verdicts if v.verdict == claims.OPEN],
            other_audits=[
                (contents.texts[one], verdicts)
                for one, verdicts in contents.other_verdicts.items()
            ],
            best=max(contents.cells, key=_accuracy, default=None),
            devices=sorted({run["device"] for run in contents.records}),
            versions=_versions(contents.records),
            diverged=sum(run["status"] == "diverged" for run in contents.records),
            citation=paper.CITATION,
            extra=extra,
            live=live,
            drawn=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
            css=markupsafe.Markup(
                (_TEMPLATES / "report.css").read_text(encoding="utf-8")
            ),
            script=markupsafe.Markup(script),
            # Only this very script may run, whatever else got onto the page.
            script_hash=base64.b64encode(
                hashlib.sha256(script.encode("utf-8")).digest()
            ).decode("ascii"),
            data=_embedded(data),
        )
    )


def _embedded(data: Any) -> markupsafe.Markup:
    """JSON that cannot end the script element that holds it."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return markupsafe.Markup(text)


def _cell_data(cell: Cell, contents: Contents) -> dict[str, Any]:
    """What the page shows of a cell on click."""
    known = reference(cell)
    first = cell.runs[0]
    names = first.get("class_names")
    return {
        "title": " ".join(
            [
                paper.label(cell.spec.get("pathway")),
                _short_name(cell),
                paper.label(cell.spec.get("activation")),
            ]
        ),
        "setting": contents.texts[cells_lib.setting(cell.spec)],
        "id": cell.id,
        "text": cell.text,
        "paper": f"{known[0].accuracy:.2f}" if known else None,
        "exact": bool(known and known[1]),
        "note": known[0].note if known else "",
        "names": [str(name) for name in names] if isinstance(names, list) else None,
        "spec": {str(name): _plain(value) for name, value in cell.spec.items()},
        "runs": [_run_data(run) for run in cell.runs],
    }


def _run_data(run: results.Record) -> dict[str, Any]:
    facts = {
        "accuracy of the concatenation alone": _percent(run["accuracy_concat"]),
        "validation accuracy": _percent(run.get("accuracy_valid")),
        "training images": run["train_size"],
        "test images": run["test_size"],
        "device": run["device"],
        "finished": run.get("finished"),
        "commit": run["commit"],
        "data": run.get("data"),
    }
    for name, label in (
        ("compile_s", "compilation"),
        ("train_s", "training"),
        ("eval_s", "evaluation"),
    ):
        seconds = cells_lib.number(run["time"].get(name))
        if seconds is not None:
            facts[label] = f"{seconds:.1f} s"
    return {
        "seed": run["seed"],
        "status": _status(run),
        "accuracy": cells_lib.number(run["accuracy"]),
        "layers": [cells_lib.number(value) for value in run["accuracy_layers"]],
        "losses": [
            [
                [epoch, None if loss is None else float(f"{loss:.4g}")]
                for epoch, loss in _thinned(layer, 1)
            ]
            for layer in _loss_lists(run)
        ],
        "confusion": [
            [cells_lib.number(count) or 0 for count in row]
            for row in run["confusion"]
            if isinstance(row, list)
        ],
        "facts": {
            name: _plain(value) for name, value in facts.items() if value is not None
        },
    }


def _status(run: results.Record) -> str:
    """The status, with layer and epoch from 1 where it diverged."""
    place = run.get("diverged_at")
    if run["status"] != "diverged" or not isinstance(place, dict):
        return run["status"]
    parts = [
        f"{name} {place[name] + 1}"
        for name in ("layer", "epoch")
        if isinstance(place.get(name), int)
    ]
    return f"diverged at {', '.join(parts)}" if parts else "diverged"


def _percent(value: Any) -> str | None:
    number = cells_lib.number(value)
    return None if number is None else f"{number:.2f} %"


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _versions(records: Iterable[results.Record]) -> str:
    """The versions, where all records agree on them."""
    found = {
        ", ".join(f"{name} {version}" for name, version in run["versions"].items())
        for run in records
    }
    return found.pop() if len(found) == 1 else f"{len(found)} different sets"


def _shade(value: float, low: float, high: float) -> dict[str, str]:
    """Background and ink for a value in a range: pale yellow to dark blue."""
    share = 0.5 if high <= low else min(1.0, max(0.0, (value - low) / (high - low)))
    stops = ((255, 247, 205), (127, 205, 187), (44, 127, 184), (24, 44, 110))
    place = share * (len(stops) - 1)
    i = min(int(place), len(stops) - 2)
    mixed = [
        round(a + (place - i) * (b - a))
        for a, b in zip(stops[i], stops[i + 1], strict=True)
    ]
    return {
        "background": f"rgb({mixed[0]},{mixed[1]},{mixed[2]})",
        "ink": "#fff" if share > 0.55 else "#111",
    }


# Text files: Markdown, CSV, LaTeX. ------------------------------------------------


def _texts(contents: Contents) -> dict[str, str]:
    """The text files of the report, by name."""
    files = {"report.md": _markdown(contents), "tables/cells.csv": _cells_csv(contents)}
    for table in contents.tables:
        files[f"tables/{table.slug}.csv"] = _table_csv(table)
        files[f"tables/{table.slug}.tex"] = _table_tex(table)
    files["tables/cells.tex"] = _cells_tex(contents)
    files["tables/claims.csv"] = _claims_csv(contents)
    return files


def _slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-.") or "unnamed"


def _csv_text(lines: Iterable[Sequence[Any]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for line in lines:
        writer.writerow([_csv_safe(value) for value in line])
    return out.getvalue()


def _csv_safe(value: Any) -> Any:
    """Text that a spreadsheet would run as a formula gets a quote before it."""
    if isinstance(value, float):
        return f"{value:.4f}"
    if isinstance(value, str) and value[:1] in tuple("=+-@\t\r"):
        return f"'{value}"
    return "" if value is None else value


def _entry_values(entry: Entry) -> list[Any]:
    cell, row = entry.cell, entry.row
    return [
        cell.mean if cell else None,
        cell.std if cell else None,
        len(cell.seeds) if cell else 0,
        row.accuracy if row else None,
        row.std if row else None,
        entry.difference,
        row.note if row else "",
    ]


def _table_csv(table: Table) -> str:
    head = [*table.heads, "column", "ours", "ours_std", "ours_seeds"]
    head += ["paper", "paper_std", "difference", "note"]
    lines: list[list[Any]] = [head]
    for line in table.lines:
        for column, entry in zip(table.columns, line.entries, strict=True):
            if entry:
                lines.append([*line.labels, column, *_entry_values(entry)])
    return _csv_text(lines)


def _cells_csv(contents: Contents) -> str:
    fields = sorted({name for cell in contents.cells for name in cell.spec})
    known_as = ("paper", "paper_is_same_run")
    lines: list[list[Any]] = [
        ["cell", *fields, "accuracy", "std", "seeds", "diverged", "train_s", *known_as]
    ]
    for cell in contents.cells:
        known = reference(cell)
        lines.append(
            [
                cell.id,
                *(_raw(cell.spec.get(name)) for name in fields),
                cell.mean,
                cell.std,
                len(cell.seeds),
                cell.num_diverged,
                cell.train_s,
                known[0].accuracy if known else None,
                known[1] if known else None,
            ]
        )
    return _csv_text(lines)


def _raw(value: Any) -> Any:
    """A field of a spec as it is: 0.0025 must not be rounded to a few digits."""
    return repr(value) if isinstance(value, float) else value


def _claims_csv(contents: Contents) -> str:
    lines: list[list[Any]] = [
        ["setting", "claim", "where", "verdict", "ours", "paper_verdict", "paper"]
    ]
    audits = [("the paper's", contents.verdicts)]
    audits += [
        (contents.texts[one], verdicts)
        for one, verdicts in contents.other_verdicts.items()
    ]
    for text, verdicts in audits:
        for v in verdicts:
            ours, papers = "; ".join(v.numbers), "; ".join(v.paper_numbers)
            line = [text, v.claim.text, v.claim.where, v.verdict, ours]
            lines.append([*line, v.paper_verdict, papers])
    return _csv_text(lines)


_TEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "±": r"$\pm$",
    "→": r"$\to$",
}


def _tex(text: str) -> str:
    text = re.sub(r"\s+", " ", text)
    return "".join(_TEX.get(character, character) for character in text)


def _tex_table(heads: Sequence[str], align: str, lines: Iterable[Sequence[str]]) -> str:
    body = "".join(" & ".join(line) + r" \\" + "\n" for line in lines)
    return (
        "% needs \\usepackage{booktabs}\n"
        f"\\begin{{tabular}}{{{align}}}\n\\toprule\n"
        + " & ".join(heads)
        + f" \\\\\n\\midrule\n{body}\\bottomrule\n\\end{{tabular}}\n"
    )


def _difference_text(entry: Entry) -> str:
    return "" if entry.difference is None else f"{entry.difference:+.2f}"


def _lift(line: Line) -> tuple[str, str]:
    """What FFCL adds: ours and the paper's."""
    before, after = (entry or Entry(None, None) for entry in line.entries)
    return (
        _change(before.ours, after.ours),
        _change(
            before.row.accuracy if before.row else None,
            after.row.accuracy if after.row else None,
        ),
    )


def _change(before: float | None, after: float | None) -> str:
    return "" if before is None or after is None else f"{after - before:+.2f}"


def _wide_lines(table: Table) -> tuple[list[str], list[list[str]]]:
    """Heads and lines with ours, the paper's and the difference as text."""
    single = len(table.columns) == 1
    heads = list(table.heads)
    for column in table.columns:
        heads += (
            ["ours", "paper", "difference"]
            if single
            else [f"{column}, ours", f"{column}, paper"]
        )
    if table.id == "tab:ffcl_lift":
        heads += ["lift, ours", "lift, paper"]
    lines = []
    for line in table.lines:
        texts = list(line.labels)
        for entry in line.entries:
            if entry is None:
                texts += [""] * (3 if single else 2)
                continue
            texts += [entry.cell.text if entry.cell else "missing", entry.paper_text]
            if single:
                texts.append(_difference_text(entry))
        if table.id == "tab:ffcl_lift":
            texts += _lift(line)
        lines.append(texts)
    return heads, lines


def _table_tex(table: Table) -> str:
    heads, lines = _wide_lines(table)
    align = "l" * len(table.heads) + "r" * (len(heads) - len(table.heads))
    return _tex_table(
        [_tex(head) for head in heads],
        align,
        [
            ["--" if text == "missing" else _tex(text) for text in line]
            for line in lines
        ],
    )


_CELL_HEADS = ("pathway", "goodness", "parameter", "activation", "norm gate")


def _cell_lines(found: Iterable[Cell]) -> list[list[str]]:
    lines = []
    for cell in sorted(found, key=_accuracy, reverse=True):
        known = reference(cell)
        lines.append(
            [
                paper.label(cell.spec.get("pathway")),
                paper.label(cell.spec.get("goodness")),
                paper.parameter_text(cell.spec),
                paper.label(cell.spec.get("activation")),
                "on" if cell.spec.get("norm_gate") else "off",
                cell.text + (" (diverged)" if cell.num_diverged else ""),
                f"{known[0].accuracy:.2f}" if known else "",
            ]
        )
    return lines


def _paper_head(one: cells_lib.Setting) -> str:
    return "paper" if one.is_paper else f"orientation: {_ORIENTATION}"


def _cells_tex(contents: Contents) -> str:
    parts = []
    for one, found in contents.groups.items():
        heads = [*_CELL_HEADS, "ours", _paper_head(one)]
        lines = [[_tex(text) for text in line] for line in _cell_lines(found)]
        parts.append(f"% {_tex(contents.texts[one])}\n")
        parts.append(_tex_table([_tex(head) for head in heads], "lllllrr", lines))
    return "\n".join(parts)


def _md(text: str) -> str:
    text = re.sub(r"\s+", " ", text)
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\|`*\[\]])", r"\\\1", text)


def _md_table(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    parts = ["| " + " | ".join(map(_md, heads)) + " |", "|" + " --- |" * len(heads)]
    parts += ["| " + " | ".join(map(_md, line)) + " |" for line in lines]
    return "\n".join(parts) + "\n"


def _markdown(contents: Contents) -> str:
    parts = [
        "# Forward-Forward: ours beside the paper's\n",
        f"{len(contents.cells)} cells, {len(contents.records)} runs. "
        f"Accuracies in percent on the test set; the paper is {_md(paper.CITATION)}.\n",
    ]
    if contents.problems or contents.failures:
        parts.append("## Warnings\n")
        parts += [f"- {_md(problem)}" for problem in contents.problems]
        parts += [
            f"- failed: {_md(failure.cell)}, seed {_md(str(failure.seed))}: "
            f"{_md(failure.error)}"
            for failure in contents.failures
        ]
        parts.append("")
    for one, found in contents.groups.items():
        parts.append(f"## {_md(contents.texts[one])}\n")
        heads = [*_CELL_HEADS, "ours", _paper_head(one)]
        parts.append(_md_table(heads, _cell_lines(found)))
    parts.append("## Claims of the paper\n")
    parts.append(_md_claims("at the paper's own settings", contents.verdicts))
    for one, verdicts in contents.other_verdicts.items():
        parts.append(_md_claims(f"at this size: {contents.texts[one]}", verdicts))
    for table in contents.tables:
        if table.num_run:
            parts.append(f"## {_md(table.title)} ({table.id})\n")
            parts.append(_md_table(*_wide_lines(table)))
    idle = [table for table in contents.tables if not table.num_run]
    if idle:
        names = ", ".join(f"{table.id} ({table.num_entries})" for table in idle)
        parts.append(f"Not run yet (cells): {names}.\n")
    return "\n".join(parts)


def _md_claims(title: str, verdicts: Iterable[claims.Verdict]) -> str:
    lines = [
        [
            v.claim.text,
            v.verdict,
            "; ".join(v.numbers),
            "; ".join(v.paper_numbers),
            " ".join(filter(None, [f"{v.paper_verdict}.", v.claim.note])),
        ]
        for v in verdicts
    ]
    heads = ["claim", "verdict", "ours", "paper's numbers", "paper's own tables"]
    return f"### {_md(title)}\n\n{_md_table(heads, lines)}"


# The terminal. --------------------------------------------------------------------


def summary_table(records: Iterable[results.Record]) -> rich_table.Table:
    """A small table for the terminal: ours, best first, and the paper's number."""
    found = cells_lib.gather(records)
    groups = cells_lib.by_setting(found)
    texts = cells_lib.setting_texts(groups)
    single = len(groups) == 1
    table = rich_table.Table(
        title=rich_text.Text(next(iter(texts.values()))) if single else None
    )
    if not single:
        table.add_column("setting")
    for head in ("pathway", "goodness", "activation", "parameter"):
        table.add_column(head)
    table.add_column("ours (%)", justify="right")
    table.add_column(f"{_ORIENTATION} (%)", justify="right")
    for one, members in groups.items():
        for cell in sorted(members, key=_accuracy, reverse=True):
            known = paper.orientation(cell.spec)
            gate = ", norm gate" if cell.spec.get("norm_gate") else ""
            texts_of_line = [
                paper.label(cell.spec.get("pathway")),
                paper.label(cell.spec.get("goodness")),
                paper.label(cell.spec.get("activation")) + gate,
                paper.parameter_text(cell.spec),
                cell.text + (" (diverged)" if cell.num_diverged else ""),
                f"{known.accuracy:.2f}" if known else "",
            ]
            if not single:
                texts_of_line.insert(0, texts[one])
            # Text, not str: a name with brackets must not be read as markup.
            table.add_row(*(rich_text.Text(text) for text in texts_of_line))
    return table


def main(argv: Sequence[str]) -> None:
    """Writes the report of --workdir and says where it is."""
    try:
        if len(argv) > 1:
            raise UserError(f"{argv[1]!r}: not a flag; write --workdir=DIR")
        workdir = flags.FLAGS.workdir
        if not workdir:
            raise UserError("--workdir is missing; write --workdir=DIR")
        path = write(workdir)
        for problem in collect(workdir).problems:
            print(f"warning: {problem}", file=sys.stderr)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    print(path)


if __name__ == "__main__":
    # Defined here alone, so that another command may have a flag of the same name.
    flags.DEFINE_string(
        "workdir", None, "The folder of a grid, as given to ffjax.main --workdir."
    )
    app.run(main)
