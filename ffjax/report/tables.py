"""The paper's tables with our cells beside its numbers. Nothing here imports jax."""

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ffjax import paper
from ffjax.report import cells as cells_lib

Cell = cells_lib.Cell

PATHWAYS = ("standard", "ffcl")


@dataclasses.dataclass(frozen=True)
class Entry:
    """One number of a table: ours, the paper's, or both."""

    row: paper.Row | None
    cell: Cell | None

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

    def find(self, row: paper.Row) -> Cell | None:
        """The best of our cells that ``row`` reports, as the paper takes the best."""
        near = self._cells.get(self._key(dataclasses.asdict(row)), ())
        found = [cell for cell in near if paper.matches(row, cell.spec)]
        return max(found, key=accuracy, default=None)

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
        "tab:interaction": _interaction_table,
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
        for pathway in PATHWAYS:
            near = [
                cell
                for cell in others
                if cell.spec.get("goodness") == goodness
                and cell.spec.get("pathway") == pathway
            ]
            best = max(near, key=accuracy, default=None)
            entries.append(Entry(None, best) if best else None)
        lines.append(Line((paper.label(goodness),), tuple(entries)))
    return dataclasses.replace(table, lines=tuple(lines))


def _interaction_table(rows: list[paper.Row], index: _Index) -> Table:
    """Goodness x activation; ours also where the paper has no number."""
    table = _matrix(_activation_name, _goodness_name, "activation")(rows, index)
    methods = {_goodness_name(row): row for row in rows}
    activations = {_activation_name(row): row.activation for row in rows}
    lines = []
    for line in table.lines:
        entries = []
        for column, entry in zip(table.columns, line.entries, strict=True):
            if entry is None:
                activation = activations[line.labels[0]]
                row = dataclasses.replace(methods[column], activation=activation)
                cell = index.find(row)
                entry = Entry(None, cell) if cell else None
            entries.append(entry)
        lines.append(Line(line.labels, tuple(entries)))
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


def accuracy(cell: Cell) -> float:
    """The mean accuracy as a key to sort by: the unknown is lowest."""
    return -1.0 if cell.mean is None else cell.mean


def _best_gate(found: Iterable[Cell]) -> list[Cell]:
    """The better of norm gate on and off for each method, best first."""
    best: dict[tuple[Any, ...], Cell] = {}
    for cell in found:
        key = tuple(
            cell.spec.get(name) for name in cells_lib.METHOD if name != "norm_gate"
        )
        if key not in best or accuracy(cell) > accuracy(best[key]):
            best[key] = cell
    return sorted(best.values(), key=accuracy, reverse=True)


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


def lift(line: Line) -> tuple[str, str]:
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


def _slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-.") or "unnamed"
