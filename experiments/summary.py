"""Tables and the figure of the READMEs, from the records under experiments/.

    python -m experiments.summary

draws experiments/summary.png and puts each table between the two markers of its README:
the project's, and those of the experiments.
"""

import pathlib
import statistics
from collections.abc import Callable
from typing import Any, NamedTuple

import matplotlib
from matplotlib import figure
from matplotlib.backends import backend_agg

from experiments.headline import headline
from experiments.record import record
from experiments.small import small
from experiments.sweeps import sweeps
from ffjax import atomic, cli, config, paper, records
from ffjax.model.pathway import PATHWAYS
from ffjax.report.export import markdown_table

FOLDER = pathlib.Path(__file__).parent
MARKERS = "<!-- results -->", "<!-- end of results -->"
DATASETS = ("mnist", "fashion_mnist", "usps", "cifar10")


class Entry(NamedTuple):
    """A method on a dataset: what was measured, and what the paper has at 4x2000."""

    accuracies: tuple[float, ...]
    paper: float | None

    @property
    def text(self) -> str:
        """Mean ± standard deviation over the seeds (the paper's)."""
        if not self.accuracies:
            return ""
        text = f"{statistics.fmean(self.accuracies):.2f}"
        if len(self.accuracies) > 1:
            text += f" ± {statistics.stdev(self.accuracies):.2f}"
        return text + (f" ({self.paper:.2f})" if self.paper else "")


def accuracies(
    folder: str | pathlib.Path, field: str = "accuracy"
) -> dict[str, tuple[float, ...]]:
    """Cell -> the accuracies of its seeds, of an experiment's records."""
    found: dict[str, tuple[float, ...]] = {}
    records, _ = records.read_all(FOLDER / folder)
    for one in sorted(records, key=lambda one: one["seed"]):
        found[one["cell"]] = (*found.get(one["cell"], ()), one[field])
    return found


def gather(folder: str | pathlib.Path = "headline") -> dict[str, dict[str, Entry]]:
    """Method -> dataset -> entry, of the networks of 2x500."""
    found = accuracies(folder)
    table: dict[str, dict[str, Entry]] = {}
    for dataset in DATASETS:
        for cell in config.expand(headline.get_config(dataset)):
            table.setdefault(name(cell.spec), {})[dataset] = entry_of(cell, found)
    return table


def entry_of(cell: config.Cell, found: dict[str, tuple[float, ...]]) -> Entry:
    """A cell's accuracies, beside the paper's where it is one of its methods."""
    row = paper.orientation(vars(cell.spec)) if is_paper(cell.spec) else None
    return Entry(found.get(cell.id, ()), row.accuracy if row else None)


def is_paper(spec: config.RunSpec) -> bool:
    """Whether a run is one of the paper's methods."""
    return spec.trainer == "ff" and spec.normalisation == "l2"


def name(spec: config.RunSpec) -> str:
    """How a method is called."""
    if spec.trainer == "backprop":
        return "backpropagation, GELU"
    return describe(spec) if is_paper(spec) else "Hinton's Forward-Forward"


def describe(spec: config.RunSpec) -> str:
    """Pathway, goodness and activation."""
    parts = paper.label(spec.goodness), paper.parameter_text(vars(spec))
    goodness = " ".join(filter(None, parts))
    return ", ".join(
        (paper.label(spec.pathway), goodness, paper.label(spec.activation))
    )


def measured(table: dict[str, dict[str, Entry]]) -> list[str]:
    """The datasets that have records."""
    rows = table.values()
    return [d for d in DATASETS if any(d in row and row[d].accuracies for row in rows)]


def make_table(table: dict[str, dict[str, Entry]]) -> str:
    """The methods as rows, the datasets as columns."""
    shown = measured(table)
    lines = {
        method: [row[d].text if d in row else "" for d in shown]
        for method, row in table.items()
    }
    return markdown_table(
        ["2x500, test accuracy in %", *map(paper.label, shown)],
        [[method, *texts] for method, texts in lines.items() if any(texts)],
    )


def size(spec: config.RunSpec) -> str:
    """Layers and units."""
    return f"{spec.num_layers}x{spec.width}"


def larger_table() -> str:
    """The larger networks, and the best that were found."""
    found = accuracies("headline")
    lines = []
    for section in ("hinton", "large"):
        for cell in config.expand(headline.get_config(section)):
            dataset = paper.label(cell.spec.dataset)
            text = entry_of(cell, found).text
            lines.append([f"{name(cell.spec)}, {size(cell.spec)}", dataset, text])
    return markdown_table(
        LARGER, [*lines, *([f"record: {text}", *rest] for text, *rest in best_lines())]
    )


LARGER = ("larger networks", "dataset", "test accuracy in %")


def headline_tables() -> str:
    """The methods at 2x500, and what larger networks reach."""
    return f"{make_table(gather())}\n{larger_table()}"


def candidate(spec: config.RunSpec) -> str:
    """How a network of the record's search is called."""
    return f"{describe(spec)}, {size(spec)}, {spec.epochs} epochs, dropout {spec.dropout:g}"


def best_lines(folder: str | pathlib.Path = "record") -> list[list[str]]:
    """The best networks that were found: what, dataset, test accuracy."""
    found = accuracies(folder)
    return [
        [
            candidate(cell.spec),
            paper.label(cell.spec.dataset),
            entry_of(cell, found).text,
        ]
        for cell in config.expand(record.get_config())
    ]


def record_tables(folder: str | pathlib.Path = "record") -> str:
    """The candidates on the validation part, and those chosen on the test set."""
    found = accuracies(FOLDER / folder / "search", "accuracy_valid")
    rows: dict[str, dict[str, str]] = {}
    for cell in config.expand(record.get_config("search")):
        row = rows.setdefault(candidate(cell.spec), {})
        row[cell.spec.dataset] = entry_of(cell, found).text
    search = markdown_table(
        ["candidates, validation accuracy in %", *map(paper.label, record.CHOSEN)],
        [
            [text, *(row.get(dataset, "") for dataset in record.CHOSEN)]
            for text, row in rows.items()
        ],
    )
    heads = ("chosen, 3 seeds", *LARGER[1:])
    return f"{search}\n{markdown_table(heads, best_lines(folder))}"


def small_table(folder: str | pathlib.Path = "small") -> str:
    """The paper's 22 numbers of 2x500 beside ours, and how many were reached."""
    found = accuracies(folder)
    ours: dict[paper.Row, dict[bool, float]] = {}
    for cell in config.expand(small.get_config()):
        rows = [r for r in paper.matching(vars(cell.spec)) if r.table == "tab:2x500"]
        for row in rows:
            gates = ours.setdefault(row, {})
            if cell.id in found:
                gates[cell.spec.norm_gate] = statistics.fmean(found[cell.id])
    lines, reached = [], 0
    for row, gates in ours.items():
        difference = max(gates.values()) - row.accuracy if gates else None
        reached += difference is not None and difference >= -TOLERANCE
        lines.append(
            [
                *map(paper.label, (row.dataset, row.goodness, row.activation)),
                *(f"{gates[g]:.2f}" if g in gates else "" for g in (False, True)),
                f"{row.accuracy:.2f}",
                "" if difference is None else f"{difference:+.2f}",
            ]
        )
    head = ("dataset", "goodness", "activation", "no gate", "norm gate", "paper", "")
    run = sum(map(bool, ours.values()))
    left = f", of which {run} have been run" if run < len(lines) else ""
    return (
        f"Within {TOLERANCE} points of the paper or better: {reached} of {len(lines)}"
        f"{left}.\n\n{markdown_table(head, lines)}"
    )


TOLERANCE = 2


def sweep_tables(folder: str | pathlib.Path = "sweeps") -> str:
    """Each sweep: its parameter as rows, the pathways as columns."""
    found = accuracies(folder)
    grid: dict[str, dict[str, dict[str, Entry]]] = {}
    for cell in config.expand(sweeps.get_config()):
        sweep = grid.setdefault(paper.label(cell.spec.goodness), {})
        value = sweep.setdefault(paper.parameter_text(vars(cell.spec)), {})
        value[cell.spec.pathway] = entry_of(cell, found)
    return "\n".join(
        markdown_table(
            [goodness, *map(paper.label, PATHWAYS)],
            [
                [value, *(pathways[p].text for p in PATHWAYS)]
                for value, pathways in sweep.items()
            ],
        )
        for goodness, sweep in grid.items()
    )


def draw(table: dict[str, dict[str, Entry]], path: pathlib.Path) -> None:
    """A panel for each dataset: the seeds' accuracies, and the paper's.

    Accuracies stand as far apart as the logarithms of their errors: on an even scale
    the weakest method would press all others into one point.
    """
    shown = measured(table)
    methods = list(table)
    with matplotlib.rc_context(STYLE):
        drawing = figure.Figure(
            figsize=(2 + 1.7 * len(shown), 0.6 + 0.28 * len(methods))
        )
        backend_agg.FigureCanvasAgg(drawing)
        panels = drawing.subplots(1, len(shown), sharey=True, squeeze=False)[0]
        for panel, dataset in zip(panels, shown, strict=True):
            for place, method in enumerate(methods):
                draw_entry(panel, place, table[method].get(dataset))
            panel.set_title(paper.label(dataset), fontsize=8)
            panel.set_xlabel("test accuracy (%)")
            panel.set_xscale("log")
            panel.invert_xaxis()
            errors = ticks(*sorted(panel.get_xlim()))
            panel.set_xticks(errors, [f"{100 - error:g}" for error in errors])
            panel.minorticks_off()
            panel.grid(axis="x", color="#e3e6ea")
            panel.set_axisbelow(True)
        panels[0].set_yticks(range(len(methods)), methods)
        panels[0].invert_yaxis()
        panels[0].plot([], [], "o", color=OURS, ms=4, label="ffjax, 2x500")
        panels[0].plot(
            [], [], "D", color=PAPER, ms=4, mfc="none", label="paper, 4x2000"
        )
        drawing.legend(loc="lower left", fontsize=7, frameon=False)
        drawing.tight_layout()
        drawing.savefig(path, dpi=160)


STYLE: dict[Any, Any] = {
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
OURS, PAPER = "#0072b2", "#d55e00"
ERRORS = (0.5, 1, 2, 5, 10, 20, 40, 80)  # of the axis, in percent
FINE_ERRORS = range(5, 100, 5)  # where the axis is short


def ticks(low: float, high: float) -> list[float]:
    """The errors that an axis from ``low`` to ``high`` names."""
    chosen = ERRORS if high > 4 * low else FINE_ERRORS
    return [error for error in chosen if low <= error <= high]


def draw_entry(panel: Any, place: int, entry: Entry | None) -> None:
    """One method's seeds as dots, and the paper's number as a diamond."""
    if entry is None:
        return
    errors = [100 - accuracy for accuracy in entry.accuracies]
    panel.plot(errors, [place] * len(errors), "o", color=OURS, ms=4, alpha=0.7)
    if entry.paper and errors:
        panel.plot([100 - entry.paper], [place], "D", color=PAPER, ms=4, mfc="none")


def insert(readme: str, table: str) -> str:
    """The README with the table between its markers."""
    first, last = (readme.index(marker) for marker in MARKERS)
    return readme[: first + len(MARKERS[0])] + "\n" + table + readme[last:]


# README -> what stands between its markers.
PAGES: dict[pathlib.Path, Callable[[], str]] = {
    FOLDER.parent / "README.md": headline_tables,
    FOLDER / "headline" / "README.md": headline_tables,
    FOLDER / "small" / "README.md": small_table,
    FOLDER / "sweeps" / "README.md": sweep_tables,
    FOLDER / "record" / "README.md": record_tables,
}


def main() -> int:
    """Writes the figure and the tables."""
    draw(gather(), FOLDER / "summary.png")
    for page, make in PAGES.items():
        table = make()
        atomic.write_text(page, insert(page.read_text(encoding="utf-8"), table))
        print(f"{page.relative_to(FOLDER.parent)}\n\n{table}\n")
    return 0


if __name__ == "__main__":
    cli.run(main, lambda argv: None)
