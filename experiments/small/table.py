"""The paper's 22 numbers of small networks beside ours."""

import pathlib

from configs import grid
from experiments import tables
from ffjax import config
from ffjax.paper import names, numbers
from ffjax.paper.numbers import Row

TOLERANCE = 2  # points


def against_paper(folder: str | pathlib.Path = "small") -> str:
    """Each number with and without the norm gate, and how many were reached."""
    cells = config.expand(grid.get_config("small"))
    shown = tables.entries(cells, folder)
    if not shown:
        return tables.NOTHING
    measured: dict[Row, dict[bool, float]] = {
        row: {} for cell in cells for row in _rows(cell.spec)
    }
    for entry in shown:
        for row in _rows(entry.spec):
            measured[row][entry.spec.norm_gate] = entry.mean
    lines = [_line(row, gates) for row, gates in measured.items()]
    run = [
        max(gates.values()) - row.accuracy for row, gates in measured.items() if gates
    ]
    reached = sum(difference >= -TOLERANCE for difference in run)
    left = f", of which {len(run)} have been run" if len(run) < len(lines) else ""
    gated = sum(entry.spec.norm_gate for entry in shown)
    settings = "; ".join(dict.fromkeys(", ".join(entry.settings) for entry in shown))
    heads = ("dataset", "goodness", "activation", "no gate", "norm gate", "paper", "")
    return (
        f"Within {TOLERANCE} points of the paper or better: {reached} of {len(lines)}"
        f"{left}. Test accuracy in %; {len(shown) - gated} runs without and {gated} "
        f"with the norm gate: {settings}.\n\n{tables.markdown(heads, lines)}"
    )


def _rows(spec: config.RunSpec) -> list[Row]:
    return [row for row in numbers.matching(spec) if row.table == "tab:2x500"]


def _line(row: Row, gates: dict[bool, float]) -> list[str]:
    difference = f"{max(gates.values()) - row.accuracy:+.2f}" if gates else ""
    return [
        *map(names.label, (row.dataset, row.goodness, row.activation)),
        *(f"{gates[gate]:.2f}" if gate in gates else "" for gate in (False, True)),
        f"{row.accuracy:.2f}",
        difference,
    ]


TABLES = {"against_paper": against_paper}
