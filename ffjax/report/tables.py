"""The paper's tables with our cells beside its numbers. Nothing here imports jax."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence

from ffjax.config.spec import RunSpec
from ffjax.paper import names, numbers
from ffjax.paper.numbers import Row
from ffjax.report import cells as cells_lib
from ffjax.report.cells import Cell, spec_of

PATHWAYS = ("standard", "ffcl")
NEAR = 2.0  # points below the paper's number that still count as having reached it
_LIFT = "tab:ffcl_lift"


@dataclasses.dataclass(frozen=True)
class Entry:
    """A number of a table: ours, the paper's, or both."""

    row: Row | None
    cell: Cell | None

    @property
    def ours(self) -> float | None:
        """Our mean accuracy."""
        return self.cell.mean if self.cell else None

    @property
    def difference(self) -> float | None:
        """Ours minus the paper's, in percentage points."""
        if self.cell is None or self.row is None:
            return None
        return self.cell.mean - self.row.accuracy

    @property
    def paper_text(self) -> str:
        """The paper's number."""
        if self.row is None:
            return ""
        spread = f" ± {self.row.std:.2f}" if self.row.std is not None else ""
        return f"{self.row.accuracy:.2f}{spread}"

    @property
    def seeds_text(self) -> str:
        """How many of the paper's seeds ours rests on, if it is fewer."""
        if self.cell is None or self.row is None:
            return ""
        ours, wanted = len(self.cell.seeds), len(self.row.seeds)
        return f"{ours} of {wanted} seeds" if ours < wanted else ""


@dataclasses.dataclass(frozen=True)
class Line:
    """A line of a table: what it is about, and its numbers (None: neither has one)."""

    labels: tuple[str, ...]
    entries: tuple[Entry | None, ...]

    @property
    def is_run(self) -> bool:
        """Whether we have any of its numbers."""
        return any(map(_is_run, self.entries))

    @property
    def lift(self) -> tuple[str, str]:
        """The second number minus the first: ours and the paper's."""
        before, after = (entry or Entry(None, None) for entry in self.entries)
        return (
            _change(before.ours, after.ours),
            _change(
                before.row.accuracy if before.row else None,
                after.row.accuracy if after.row else None,
            ),
        )


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
        return self.id.removeprefix("tab:")

    @property
    def is_lift(self) -> bool:
        """Whether its lines end in what FFCL adds."""
        return self.id == _LIFT

    @property
    def run_part(self) -> "Table":
        """The lines and columns with something of ours in them."""
        lines = [line for line in self.lines if line.is_run]
        kept = [
            i
            for i in range(len(self.columns))
            # What FFCL adds needs both.
            if self.is_lift or any(_is_run(line.entries[i]) for line in lines)
        ]
        return dataclasses.replace(
            self,
            columns=tuple(self.columns[i] for i in kept),
            lines=tuple(
                Line(line.labels, tuple(line.entries[i] for i in kept))
                for line in lines
            ),
        )

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


@dataclasses.dataclass(frozen=True)
class Agreement:
    """How many numbers of the paper have been measured, and how they came out.

    Attributes:
      total: numbers in the paper's tables.
      entries: those that were measured at their own settings.
    """

    total: int
    entries: tuple[Entry, ...]

    @property
    def num_near(self) -> int:
        """How many are at most ``NEAR`` points below the paper's number."""
        return sum((entry.difference or 0.0) >= -NEAR for entry in self.entries)

    @property
    def span(self) -> tuple[float, float]:
        """A range of accuracies with all of them in it, in whole tens."""
        values = [entry.cell.mean for entry in self.entries if entry.cell]
        values += [entry.row.accuracy for entry in self.entries if entry.row]
        low, high = min(values, default=0.0) - 1, max(values, default=100.0) + 1
        return max(0.0, 10.0 * (low // 10)), min(100.0, 10.0 * (high // 10 + 1))

    @property
    def text(self) -> str:
        """A line of progress."""
        return (
            f"{len(self.entries)} of {self.total} numbers of the paper measured at "
            f"their own settings, {self.num_near} within {NEAR:g} points or better"
        )


def agreement(tables: Iterable[Table]) -> Agreement:
    """Every number of the paper's own tables, once."""
    entries = [
        entry
        for table in tables
        if table.id in numbers.TABLES  # not what is computed from another
        for entry in table.entries
        if entry.row
    ]
    measured = tuple(entry for entry in entries if entry.cell)
    return Agreement(len(entries), measured)


class _Index:
    """Finds our cell for a number of the paper without trying all cells."""

    def __init__(self, cells: Iterable[Cell]):
        self._cells: dict[tuple[str, str, str, str], list[Cell]] = {}
        for cell in cells:
            self._cells.setdefault(self._key(cell.spec), []).append(cell)

    @staticmethod
    def _key(spec: RunSpec | Row) -> tuple[str, str, str, str]:
        return spec.dataset, spec.size, spec.pathway, spec.goodness

    def find(self, row: Row) -> Cell | None:
        """The best of our cells that ``row`` reports, as the paper takes the best."""
        near = self._cells.get(self._key(row), ())
        return cells_lib.best(c for c in near if numbers.matches(row, c.spec))

    def others(self, row: Row) -> list[Cell]:
        """Cells on the row's dataset and size whose function the paper lacks."""
        known = {row.goodness for row in numbers.rows()}
        return [
            cell
            for (dataset, size, _, goodness), near in self._cells.items()
            if (dataset, size) == (row.dataset, row.size) and goodness not in known
            for cell in near
            if numbers.at_settings(cell.spec)
        ]


_Layout = Callable[[list[Row], _Index], Table]


def paper_tables(cells: Iterable[Cell]) -> list[Table]:
    """The paper's tables, in its order, with our cells beside its numbers."""
    index = _Index(cells)
    methods = _matrix(_method, _dataset, "method")
    layouts: dict[str, _Layout] = {
        "tab:goodness": _goodness_table,
        "tab:interaction": _interaction_table,
        "tab:cross_dataset": methods,
        "tab:seeds": methods,
        "tab:sweep_full": _matrix(_swept, _pathway, "sweep"),
        "tab:scaling": _matrix(_variant, _scale, "goodness"),
    }
    tables = []
    for table_id in numbers.TABLES:
        rows = [row for row in numbers.rows() if row.table == table_id]
        tables.append(layouts.get(table_id, _ranked)(rows, index))
        if table_id == "tab:goodness":
            tables.append(_lift_table(tables[-1]))
    return tables


def _ranked(rows: list[Row], index: _Index) -> Table:
    """A number a line, in the paper's order; then functions that it lacks."""
    several = len({row.dataset for row in rows}) > 1
    lines = [_line(spec_of(row), Entry(row, index.find(row)), several) for row in rows]
    table_id = rows[0].table
    if table_id in ("tab:mnist_full", "tab:fashion_full", "tab:2x500"):
        for row in {row.dataset: row for row in rows}.values():
            for cell in _best_gate(index.others(row)):
                lines.append(_line(cell.spec, Entry(None, cell), several))
    heads = ("pathway", "goodness", "parameter", "activation")
    return Table(
        table_id,
        numbers.TABLES[table_id],
        ("dataset", *heads) if several else heads,
        ("accuracy",),
        tuple(lines),
    )


def _line(spec: RunSpec, entry: Entry, with_dataset: bool) -> Line:
    labels = (
        names.label(spec.pathway),
        names.label(spec.goodness),
        names.parameter_text(spec),
        names.label(spec.activation),
    )
    first = (names.label(spec.dataset),) if with_dataset else ()
    return Line((*first, *labels), (entry,))


def _goodness_table(rows: list[Row], index: _Index) -> Table:
    table = _matrix(_goodness, _pathway, "goodness")(rows, index)
    lines = list(table.lines)
    # What the paper does not have: the other game-theoretic formula, and the user's.
    others = index.others(rows[0])
    for goodness in dict.fromkeys(cell.spec.goodness for cell in others):
        entries = []
        for pathway in PATHWAYS:
            method = (goodness, pathway)
            cell = cells_lib.best(
                c for c in others if (c.spec.goodness, c.spec.pathway) == method
            )
            entries.append(Entry(None, cell) if cell else None)
        lines.append(Line((names.label(goodness),), tuple(entries)))
    return dataclasses.replace(table, lines=tuple(lines))


def _interaction_table(rows: list[Row], index: _Index) -> Table:
    """Goodness x activation; ours also where the paper has no number."""
    table = _matrix(_activation, _goodness, "activation")(rows, index)
    methods = {_goodness(row): row for row in rows}
    activations = {_activation(row): row.activation for row in rows}

    def entry_of(line: Line, column: str, entry: Entry | None) -> Entry | None:
        if entry is not None:
            return entry
        activation = activations[line.labels[0]]
        row = dataclasses.replace(methods[column], activation=activation)
        cell = index.find(row)
        return Entry(None, cell) if cell else None

    lines = []
    for line in table.lines:
        pairs = zip(table.columns, line.entries, strict=True)
        entries = tuple(entry_of(line, *pair) for pair in pairs)
        lines.append(Line(line.labels, entries))
    return dataclasses.replace(table, lines=tuple(lines))


def _lift_table(goodness: Table) -> Table:
    """What FFCL adds; the paper prints it, and it follows from the table before."""
    return dataclasses.replace(
        goodness,
        id=_LIFT,
        title="What FFCL adds to each goodness function (computed)",
    )


def _matrix(
    line_name: Callable[[Row], str], column_name: Callable[[Row], str], head: str
) -> _Layout:
    """A table with a number for each pair of a line and a column."""

    def build(rows: list[Row], index: _Index) -> Table:
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
        return Table(table_id, numbers.TABLES[table_id], (head,), columns, lines)

    return build


def _dataset(row: Row) -> str:
    return names.label(row.dataset)


def _pathway(row: Row) -> str:
    return names.label(row.pathway)


def _activation(row: Row) -> str:
    return names.label(row.activation)


def _goodness(row: Row) -> str:
    return names.label(row.goodness)


def _variant(row: Row) -> str:
    return f"{names.label(row.goodness)} ({names.label(row.activation)})"


def _method(row: Row) -> str:
    return names.phrase(row.pathway, row.goodness, row.activation)


def _swept(row: Row) -> str:
    return names.goodness(spec_of(row))


def _scale(row: Row) -> str:
    return f"{names.label(row.dataset)} {row.size}"


def _best_gate(cells: Iterable[Cell]) -> list[Cell]:
    """The better of norm gate on and off for each method, best first."""
    pairs: dict[RunSpec, list[Cell]] = {}
    for cell in cells:
        ungated = dataclasses.replace(cell.spec, norm_gate=False)
        pairs.setdefault(ungated, []).append(cell)
    return cells_lib.ranked(cells_lib.ranked(pair)[0] for pair in pairs.values())


def _is_run(entry: Entry | None) -> bool:
    return entry is not None and entry.cell is not None


def _change(before: float | None, after: float | None) -> str:
    return "" if before is None or after is None else f"{after - before:+.2f}"


def run_first(tables: Sequence[Table]) -> tuple[list[Table], list[Table]]:
    """Tables with something of ours in them, and the others."""
    return [t for t in tables if t.num_run], [t for t in tables if not t.num_run]
