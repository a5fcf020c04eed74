"""Which runs there are, in which order, in which groups, and in which shard.

Nothing here runs anything: a grid is put in order, cut into groups that one program can
train, and split into shards for machines that know nothing of each other.
"""

import dataclasses
import itertools
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import NamedTuple

from ffjax.config import Cell, RunSpec
from ffjax.errors import UserError
from ffjax.paper import numbers
from ffjax.runs import cost


class Run(NamedTuple):
    """A cell with one of its seeds."""

    cell: Cell
    seed: int

    @property
    def spec(self) -> RunSpec:
        """What is run."""
        return self.cell.spec

    @property
    def name(self) -> str:
        """The name of the run's files."""
        return f"{self.cell.id}-seed{self.seed}"

    @property
    def title(self) -> str:
        """The name of the run for people."""
        return f"{self.cell.id} seed {self.seed}"


class DatasetKey(NamedTuple):
    """What runs on the same arrays have in common."""

    name: str
    train_limit: int
    test_limit: int
    valid_fraction: float


def dataset_key(spec: RunSpec) -> DatasetKey:
    """The arrays of a run."""
    return DatasetKey(
        spec.dataset, spec.train_limit, spec.test_limit, spec.valid_fraction
    )


def program(spec: RunSpec) -> RunSpec:
    """What runs of the same compiled programs have in common."""
    # These two are numbers to the compiled programs, not a part of them.
    return dataclasses.replace(spec, learning_rate=1.0, threshold=0.0)


def family(spec: RunSpec) -> Hashable:
    """What runs have in common that can be trained in one program, see ``group``."""
    return dataclasses.replace(program(spec), norm_gate=False)


def can_group(spec: RunSpec) -> bool:
    """Whether a run can be trained together with its family."""
    return spec.trainer == "ff"


def ordered(cells: Iterable[Cell]) -> list[Run]:
    """All runs; those of one dataset adjacent, and in it those of one family."""
    cells = list(cells)
    keys = (dataset_key, family, program)
    ranks = [
        {key: rank for rank, key in reversed(list(enumerate(found)))}
        for found in ([key(cell.spec) for cell in cells] for key in keys)
    ]
    by_rank = sorted(
        cells,
        key=lambda cell: [
            rank[key(cell.spec)] for key, rank in zip(keys, ranks, strict=True)
        ],
    )
    return [Run(cell, seed) for cell in by_rank for seed in cell.seeds]


def by_value(cells: Iterable[Cell]) -> list[Run]:
    """All runs, those first that settle most of the paper's numbers per hour.

    A number that several runs measure, such as the better of two gates, is settled by
    the first of them; a mean over seeds, in equal parts by its seeds. So whoever stops
    early has as much of the paper as the time allows. Of two runs that are worth the
    same, the one without the norm gate comes first.
    """
    left = sorted(ordered(cells), key=lambda run: run.spec.norm_gate)
    hours = [cost.cpu_seconds(run.spec) / 3600 for run in left]
    rows = [_settled(run) for run in left]
    known: set[tuple[int, int]] = set()
    chosen: list[Run] = []
    while left:
        values = [
            sum(share for key, share in of_run.items() if key not in known) / hour
            for of_run, hour in zip(rows, hours, strict=True)
        ]
        best = values.index(max(values))  # the first of equals, so that programs stay
        known |= set(rows.pop(best))
        hours.pop(best)
        chosen.append(left.pop(best))
    return chosen


def _settled(run: Run) -> dict[tuple[int, int], float]:
    """Which numbers of the paper a run settles, and what part of each."""
    return {
        (row.number, run.seed if len(row.seeds) > 1 else 0): 1 / len(row.seeds)
        for row in numbers.matching(run.spec)
        if run.seed in row.seeds
    }


def groups(
    runs: Iterable[Run], size_of: Callable[[RunSpec], int]
) -> Iterator[list[Run]]:
    """Adjacent runs of one family, as many at a time as ``size_of`` says of one."""
    for _, found in itertools.groupby(runs, lambda run: family(run.spec)):
        left = list(found)
        while left:
            size = size_of(left[0].spec) if can_group(left[0].spec) else 1
            yield left[:size]
            left = left[size:]


def parse_shard(text: str) -> tuple[int, int]:
    """The two numbers of ``--shard=i/n``."""
    match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text)
    index, count = map(int, match.groups()) if match else (0, 0)
    if not 1 <= index <= count:
        raise UserError(f"shard={text!r}: must be i/n with i from 1 to n, such as 1/4")
    return index, count


def shard(cells: Sequence[Cell], index: int, count: int) -> list[Cell]:
    """The cells of shard ``index`` of ``count``, with those of their seeds in it.

    The shards are disjoint, complete, the same every time, and of about equal expected
    cost. Runs that can be trained together stay together unless they are more than half
    of a shard, and the seeds of a cell unless they are more than a shard.
    """
    costs = {cell.id: cost.cpu_seconds(cell.spec) for cell in cells}
    share = sum(costs[cell.id] * len(cell.seeds) for cell in cells) / count
    pieces: list[list[Run]] = []
    families: dict[Hashable, list[Run]] = {}
    for run in ordered(cells):
        families.setdefault(family(run.spec), []).append(run)

    def total(runs: Iterable[Run]) -> float:
        return sum(costs[run.cell.id] for run in runs)

    for together in families.values():
        if total(together) <= share / 2:
            pieces.append(together)
            continue
        for _, found in itertools.groupby(together, lambda run: run.cell.id):
            seeds = list(found)
            is_whole = total(seeds) <= share * (1 + 1e-9)
            pieces += [seeds] if is_whole else [[run] for run in seeds]
    # Longest first, each to the shard that has least; the sort keeps ties in order.
    loads = [0.0] * count
    mine: dict[str, set[int]] = {}
    for piece in sorted(pieces, key=total, reverse=True):
        lightest = loads.index(min(loads))
        loads[lightest] += total(piece)
        if lightest == index - 1:
            for run in piece:
                mine.setdefault(run.cell.id, set()).add(run.seed)
    return [
        dataclasses.replace(
            cell, seeds=tuple(seed for seed in cell.seeds if seed in mine[cell.id])
        )
        for cell in cells
        if cell.id in mine
    ]
