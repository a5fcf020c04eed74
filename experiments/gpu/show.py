"""Rows of compiled programs as Markdown."""

from collections import Counter
from typing import Any

from configs import grid
from experiments.gpu import programs

Row = dict[str, Any]

PATHWAYS = ("standard", "ffcl")

_KINDS = {"train": "a training step", "advance": "a chunk", "evaluate": "a chunk"}
_CARD_BYTES = (40e9, 80e9)
# What JAX takes of a GPU's memory unless XLA_CLIENT_MEM_FRACTION says otherwise.
_JAX_SHARE = 0.75


def render(rows: list[Row]) -> str:
    """All tables of these rows."""
    parts = []
    for card in dict.fromkeys(row["card"] for row in rows):
        own = [row for row in rows if row["card"] == card]
        parts += [f"# Programs compiled for {card.upper()}, jax {own[0]['jax']}\n"]
        parts += [_coverage(own)]
        parts += [_table(own, kind) for kind in _KINDS]
        parts += [_groups(own)]
    return "\n".join(part for part in parts if part)


def _coverage(rows: list[Row]) -> str:
    """Which programs there are, and for which functions."""
    covered: dict[tuple, dict[str, set[str]]] = {}
    for row in rows:
        what = f"{row['kind']}, layer {row['layer']}" if row["layer"] else row["kind"]
        key = row["members"], row["devices"], row["precision"], what
        own = covered.setdefault(key, {pathway: set() for pathway in PATHWAYS})
        own[row["pathway"]].add(row["goodness"])
    lines = [
        "| " + " | ".join(map(str, [*key, *map(_functions, own.values())])) + " |\n"
        for key, own in sorted(covered.items())
    ]
    return (
        f"{len(rows)} of the grid's {len(programs.all_cases())} programs of the "
        "paper's size, compiled without a GPU. Two networks are one with and one "
        "without the norm gate, five and eight are seeds. What is not in this list "
        "was not compiled for this page.\n\n"
        "| networks | devices | precision | kind | "
        + " | ".join(f"functions, {pathway}" for pathway in PATHWAYS)
        + " |\n"
        + "|---" * (4 + len(PATHWAYS))
        + "|\n"
        + "".join(lines)
    )


def _functions(names: set[str]) -> str:
    """The functions of some programs; a program without one serves them all."""
    if names == set(grid.GOODNESS):
        return f"all {len(names)}"
    if names == {""}:
        return "serves all"
    return ", ".join(sorted(names)) or "none"


def _table(rows: list[Row], kind: str) -> str:
    """The programs of a kind."""
    own = sorted((row for row in rows if row["kind"] == kind), key=_order)
    if not own:
        return ""
    header = (
        f"## {kind}: launches in {_KINDS[kind]}\n\n"
        "| goodness | pathway | layer | precision | networks | devices | launches | "
        "in loops (turns x launches) | loops that wait | sorts | MB moved | products | "
        "temporaries, MB | arguments, GB |\n" + "|---" * 14 + "|\n"
    )
    return header + "".join(_line(row) for row in own)


def _order(row: Row) -> tuple:
    """A row's place in its table, whenever it was compiled."""
    functions = ("", *grid.GOODNESS)
    return (
        row["members"],
        row["precision"] != "float32",
        -row["layer"],
        PATHWAYS.index(row["pathway"]),
        functions.index(row["goodness"]),
    )


def _line(row: Row) -> str:
    counts = Counter(row["products"])
    products = ", ".join(
        f"{number} x {name}" if number > 1 else name for name, number in counts.items()
    )
    cells = [
        row["goodness"],
        row["pathway"],
        row["layer"] or "all",
        row["precision"],
        row["members"],
        row["devices"],
        row["launches"],
        ", ".join(f"{turns} x {launches}" for turns, launches in row["loops"]),
        row["unknown_loops"],
        row["sorts"],
        f"{row['moved_bytes'] / 1e6:.0f}",
        products,
        f"{row['temp_bytes'] / 1e6:.0f}",
        f"{row['argument_bytes'] / 1e9:.2f}",
    ]
    return "| " + " | ".join(map(str, cells)) + " |\n"


def needed_bytes(rows: list[Row]) -> dict[int, int]:
    """For each number of networks, what the largest program takes of a device."""
    needed: dict[int, int] = {}
    for row in rows:
        total = row["temp_bytes"] + row["argument_bytes"] + row["output_bytes"]
        needed[row["members"]] = max(total, needed.get(row["members"], 0))
    return needed


def largest_group(needed: dict[int, int], memory: float) -> int:
    """How many networks fit, every further one like those between 1 and 5."""
    step = (needed[5] - needed[1]) / 4
    return max(0, int(1 + (memory - needed[1]) / step))


def _groups(rows: list[Row]) -> str:
    """The largest groups that fit, where a network and a group of 5 were compiled."""
    lines = []
    kinds = {"train", "advance"}
    for pathway in PATHWAYS:
        for precision in ("float32", "bfloat16"):
            own = [
                row
                for row in rows
                if row["kind"] in kinds
                and (row["pathway"], row["precision"], row["devices"])
                == (pathway, precision, 1)
            ]
            counts = Counter((row["members"], row["kind"]) for row in own)
            if any(not counts[number, kind] for number in (1, 5) for kind in kinds):
                continue
            needed = needed_bytes(own)
            fits = [largest_group(needed, _JAX_SHARE * size) for size in _CARD_BYTES]
            cells = [pathway, precision, *(f"{needed[n] / 1e9:.2f}" for n in (1, 5))]
            lines.append("| " + " | ".join(map(str, [*cells, *fits])) + " |\n")
    if not lines:
        return ""
    share = f"{100 * _JAX_SHARE:.0f} %"
    return (
        "## The largest group that fits\n\n"
        "Bytes of the largest program (inputs of two layers are there while the next "
        f"ones are computed); JAX takes {share} of a card's memory. Further networks "
        "take as much as those from 1 to 5.\n\n"
        "| pathway | precision | one network, GB | group of 5, GB | fit 40 GB | "
        "fit 80 GB |\n" + "|---" * 6 + "|\n" + "".join(lines)
    )
