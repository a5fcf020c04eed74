"""The table and the figure of the README, from the records under experiments/.

    python -m experiments.summary

reads the records of experiments/headline, draws experiments/summary.png and puts the
table between its two markers in README.md.
"""

import pathlib
import statistics
from typing import Any, NamedTuple

import matplotlib
from matplotlib import figure
from matplotlib.backends import backend_agg

from experiments.headline import headline
from ffjax import commandline, config, files, paper, results

FOLDER = pathlib.Path(__file__).parent
README = FOLDER.parent / "README.md"
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


def gather(folder: pathlib.Path = FOLDER / "headline") -> dict[str, dict[str, Entry]]:
    """Method -> dataset -> entry, of the networks of 2x500."""
    records, _ = results.read_all(folder)
    table: dict[str, dict[str, Entry]] = {}
    for dataset in DATASETS:
        for cell in config.expand(headline.get_config(dataset)):
            found = [r["accuracy"] for r in records if r["cell"] == cell.id]
            spec: dict[str, Any] = vars(cell.spec)
            row = paper.orientation(spec) if is_paper(cell.spec) else None
            entry = Entry(tuple(found), row.accuracy if row else None)
            table.setdefault(name(cell.spec), {})[dataset] = entry
    return table


def is_paper(spec: config.RunSpec) -> bool:
    """Whether a run is one of the paper's methods."""
    return spec.trainer == "ff" and spec.normalisation == "l2"


def name(spec: config.RunSpec) -> str:
    """How a method is called."""
    if spec.trainer == "backprop":
        return "backpropagation, GELU"
    if not is_paper(spec):
        return "Hinton's Forward-Forward"
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
    lines = [
        "| 2x500, test accuracy in % | " + " | ".join(map(paper.label, shown)) + " |",
        "|---|" + "---|" * len(shown),
    ]
    for method, row in table.items():
        cells = [row[d].text if d in row else "" for d in shown]
        if any(cells):
            lines.append(f"| {method} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def draw(table: dict[str, dict[str, Entry]], path: pathlib.Path) -> None:
    """A panel for each dataset: the seeds' accuracies, and the paper's."""
    shown = measured(table)
    methods = list(table)
    style = {"font.size": 8, "axes.spines.top": False, "axes.spines.right": False}
    with matplotlib.rc_context(style):
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


OURS, PAPER = "#0072b2", "#d55e00"


def draw_entry(panel: Any, place: int, entry: Entry | None) -> None:
    """One method's seeds as dots, and the paper's number as a diamond."""
    if entry is None:
        return
    seeds = list(entry.accuracies)
    panel.plot(seeds, [place] * len(seeds), "o", color=OURS, ms=4, alpha=0.7)
    if entry.paper and seeds:
        panel.plot([entry.paper], [place], "D", color=PAPER, ms=4, mfc="none")


def insert(readme: str, table: str) -> str:
    """The README with the table between its markers."""
    first, last = (readme.index(marker) for marker in MARKERS)
    return readme[: first + len(MARKERS[0])] + "\n" + table + "\n" + readme[last:]


def main() -> int:
    """Writes the figure and the table."""
    table = gather()
    draw(table, FOLDER / "summary.png")
    files.write_text(
        README, insert(README.read_text(encoding="utf-8"), make_table(table))
    )
    print(make_table(table))
    return 0


if __name__ == "__main__":
    commandline.run(main, lambda argv: None)
