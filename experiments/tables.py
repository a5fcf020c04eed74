"""Tables of an experiment's records, each with its own sizes, epochs and seeds.

An experiment's ``table.py`` declares ``TABLES``, name -> function that gives Markdown,
and perhaps ``FIGURES``; ``python -m experiments.summary`` puts them where they belong.
"""

import collections
import dataclasses
import pathlib
import statistics
import string
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from ffjax import records
from ffjax.config import Cell, RunSpec
from ffjax.config import spec as spec_lib
from ffjax.errors import UserError
from ffjax.paper import names, numbers

FOLDER = pathlib.Path(__file__).parent
TEST = "test accuracy in %"
NOTHING = "No records yet.\n"


class Settings(NamedTuple):
    """What the caption of a table says of its runs."""

    size: str
    epochs: str
    seeds: str


@dataclasses.dataclass(frozen=True)
class Entry:
    """A cell with what was measured of it: seed -> accuracy in percent."""

    spec: RunSpec
    accuracies: dict[int, float]

    @property
    def mean(self) -> float:
        """Over the seeds."""
        return statistics.fmean(self.accuracies.values())

    @property
    def paper(self) -> float | None:
        """The paper's number for the same method at its full size, if it has any."""
        settings = set(spec_lib.names("setting")) - {"epochs"}
        if any(
            getattr(self.spec, name) != spec_lib.DEFAULTS[name] for name in settings
        ):
            return None
        row = numbers.orientation(self.spec)
        return row.accuracy if row else None

    @property
    def text(self) -> str:
        """Mean ± standard deviation over the seeds (the paper's)."""
        text = f"{self.mean:.2f}"
        if len(self.accuracies) > 1:
            text += f" ± {statistics.stdev(self.accuracies.values()):.2f}"
        return text if self.paper is None else f"{text} ({self.paper:.2f})"

    @property
    def settings(self) -> Settings:
        """Size, epochs and seeds."""
        epochs = names.count(self.spec.epochs, "epoch")
        return Settings(self.spec.size, epochs, seeds_text(self.accuracies))


def entries(
    cells: Iterable[Cell], folder: str | pathlib.Path, field: str = "accuracy"
) -> list[Entry]:
    """The cells that have records in a folder of experiments/, in their order.

    Args:
      cells: of the experiment.
      folder: its name, or a path.
      field: the accuracy to take of a record.
    """
    whole, problems = records.read_all(FOLDER / folder)
    if problems:
        raise UserError(f"{FOLDER / folder}: {problems[0]}")
    measured: dict[str, dict[int, float]] = {}
    for record in sorted(whole, key=lambda record: record.seed):
        measured.setdefault(record.cell, {})[record.seed] = getattr(record, field)
    return [Entry(c.spec, measured[c.id]) for c in cells if c.id in measured]


def pivot(
    shown: Sequence[Entry],
    corner: str,
    row: Callable[[RunSpec], str],
    column: Callable[[RunSpec], str],
    what: str = TEST,
) -> str:
    """A caption, and a table of entries by what two functions say of their runs.

    The caption has the settings of most entries; others are marked with a letter.
    """
    if not shown:
        return NOTHING
    usual, marks = _marks(shown)
    rows = dict.fromkeys(row(entry.spec) for entry in shown)
    columns = dict.fromkeys(column(entry.spec) for entry in shown)
    texts: dict[tuple[str, str], str] = {}
    for entry in shown:
        place = row(entry.spec), column(entry.spec)
        if place in texts:
            raise ValueError(f"two runs at {place}: the table needs another row name")
        mark = marks.get(entry.settings)
        texts[place] = entry.text + (f" <sup>{mark}</sup>" if mark else "")
    lines = [[name, *(texts.get((name, c), "") for c in columns)] for name in rows]
    caption = _caption(shown, what, usual, marks)
    return f"{caption}\n\n{markdown([corner, *columns], lines)}"


def listing(
    shown: Sequence[Entry], corner: str, row: Callable[[RunSpec], str], what: str = TEST
) -> str:
    """A table with a line for each entry, where they differ in everything."""
    if not shown:
        return NOTHING
    heads = [corner, "dataset", "network", "epochs", "seeds", what]
    lines = [
        [
            row(entry.spec),
            dataset(entry.spec),
            entry.spec.size,
            str(entry.spec.epochs),
            numbers_text(entry.accuracies),
            entry.text,
        ]
        for entry in shown
    ]
    note = "; ".join(_meanings(shown))
    return (f"{note[0].upper()}{note[1:]}.\n\n" if note else "") + markdown(
        heads, lines
    )


def _marks(shown: Sequence[Entry]) -> tuple[Settings, dict[Settings, str]]:
    """The settings of most entries, and a letter for each of the others."""
    counts = collections.Counter(entry.settings for entry in shown)
    usual, _ = counts.most_common(1)[0]
    others = [settings for settings in counts if settings != usual]
    return usual, dict(zip(others, string.ascii_lowercase, strict=False))


def _caption(
    shown: Sequence[Entry], what: str, usual: Settings, marks: dict[Settings, str]
) -> str:
    settings = ", ".join(usual)
    for other, mark in marks.items():
        differing = [a for a, b in zip(other, usual, strict=True) if a != b]
        settings += f"; <sup>{mark}</sup> {', '.join(differing)}"
    meanings = "; ".join([what, *_meanings(shown)])
    return f"{meanings[0].upper()}{meanings[1:]}. Runs: {settings}."


def _meanings(shown: Sequence[Entry]) -> list[str]:
    """What else stands in the entries than an accuracy."""
    meanings = []
    if any(len(entry.accuracies) > 1 for entry in shown):
        meanings.append("mean ± standard deviation over the seeds")
    if any(entry.paper is not None for entry in shown):
        meanings.append(f"in brackets: {numbers.ORIENTATION}")
    return meanings


def markdown(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    rows = [heads, ["---"] * len(heads), *lines]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def seeds_text(seeds: Iterable[int]) -> str:
    """Seeds as words: "seed 42", "seeds 42 to 44"."""
    ordered = sorted(seeds)
    return f"{'seed' if len(ordered) == 1 else 'seeds'} {numbers_text(ordered)}"


def numbers_text(values: Iterable[int]) -> str:
    """Whole numbers in a few words: "42", "42 to 44", "42, 45"."""
    ordered = sorted(values)
    if len(ordered) > 1 and ordered == list(range(ordered[0], ordered[-1] + 1)):
        return f"{ordered[0]} to {ordered[-1]}"
    return ", ".join(map(str, ordered))


def dataset(spec: RunSpec) -> str:
    """The dataset's name, for a column."""
    return names.label(spec.dataset)
