"""Records of the same cell, gathered over its seeds, and the setting that they share.

A cell is a method (pathway, goodness, activation, ...) at a setting (dataset, size,
epochs, ...). Nothing here imports jax.
"""

import dataclasses
import functools
import statistics
from collections.abc import Iterable
from typing import Any

from ffjax.config import spec as spec_lib
from ffjax.config.spec import RunSpec
from ffjax.paper import names, numbers
from ffjax.paper.numbers import Row
from ffjax.records import Record

# Backpropagation stands beside the methods that it is compared with.
_METHOD = ("trainer", *(n for n in spec_lib.names("method") if n != "dataset"))
_AT_DEFAULTS = {name: spec_lib.DEFAULTS[name] for name in _METHOD}


@dataclasses.dataclass(frozen=True, eq=False)
class Cell:
    """A method at a setting, with all its seeds; a number of the paper's is one, too.

    Attributes:
      id: of the cell.
      spec: what was run.
      seeds: in increasing order.
      accuracies: of the seeds, in percent; of a number of the paper's, the mean alone.
      std: over the seeds (ddof = 1); None for a single seed.
      runs: the records, in the order of the seeds.
    """

    id: str
    spec: RunSpec
    seeds: tuple[int, ...]
    accuracies: tuple[float, ...]
    std: float | None
    runs: tuple[Record, ...] = ()

    @functools.cached_property
    def mean(self) -> float:
        """Mean test accuracy over the seeds, in percent."""
        return statistics.fmean(self.accuracies)

    @property
    def text(self) -> str:
        """Mean ± standard deviation, or the accuracy of the only seed."""
        spread = f" ± {self.std:.2f}" if self.std is not None else ""
        return f"{self.mean:.2f}{spread}"

    @property
    def num_diverged(self) -> int:
        """How many of the seeds diverged."""
        return sum(run.is_diverged for run in self.runs)

    @property
    def train_s(self) -> float:
        """Mean training time of a seed in seconds, without compilation."""
        return statistics.fmean(run.time.train_s for run in self.runs)

    @functools.cached_property
    def reference(self) -> "Reference | None":
        """The paper's number to hold it against, if there is one."""
        exact = [row for row in numbers.matching(self.spec) if row.activation != "best"]
        if not exact:
            row = numbers.orientation(self.spec)
            return Reference(row, _differences(row, self.spec)) if row else None
        # A table over seeds is compared with where we have several seeds, too.
        several = len(self.seeds) > 1
        nearest = min(
            exact,
            key=lambda row: ((len(row.seeds) > 1) != several, numbers.trust(row.table)),
        )
        return Reference(nearest, "")


@dataclasses.dataclass(frozen=True)
class Reference:
    """A number of the paper's beside a cell of ours.

    Attributes:
      row: the number.
      differs: how the paper's run differs, such as "4x2000, 60 epochs"; "" if it does
        not. Where it does, the number is for orientation only.
    """

    row: Row
    differs: str

    @property
    def is_exact(self) -> bool:
        """Whether it is of the very same run."""
        return not self.differs

    @property
    def text(self) -> str:
        """The number and, if it is of another run, what differs."""
        return f"({self.number}: {self.differs})" if self.differs else self.number

    @property
    def number(self) -> str:
        """The number alone."""
        return f"{self.row.accuracy:.2f}"


@dataclasses.dataclass(frozen=True)
class Setting:
    """All of a cell but its method.

    Attributes:
      spec: a run at this setting, with defaults in place of the method.
    """

    spec: RunSpec

    @property
    def is_paper(self) -> bool:
        """Whether this is the paper's full setting on one of its datasets."""
        return (
            self.spec.size == "4x2000"
            and self.spec.dataset in {row.dataset for row in numbers.rows()}
            and numbers.at_settings(self.spec)
        )

    @functools.cached_property
    def title(self) -> str:
        """Dataset, size and epochs."""
        spec = self.spec
        epochs = names.count(spec.epochs, "epoch")
        return f"{names.label(spec.dataset)}, {spec.size}, {epochs}"

    @functools.cached_property
    def rest(self) -> str:
        """Every other field that is not the paper's; "" if there is none."""
        other = {k: v for k, v in differing(self.spec).items() if k != "epochs"}
        return ", ".join(names.setting(*item) for item in other.items())

    @property
    def text(self) -> str:
        """All of it."""
        return ", ".join(filter(None, (self.title, self.rest)))


def differing(spec: RunSpec) -> dict[str, Any]:
    """The settings of a run that are not the paper's, by field."""
    return {
        name: getattr(spec, name)
        for name in spec_lib.names("setting")
        if not numbers.close(getattr(spec, name), spec_lib.DEFAULTS[name])
    }


def setting_of(spec: RunSpec) -> Setting:
    """The setting of a run."""
    return Setting(dataclasses.replace(spec, **_AT_DEFAULTS))


def spec_of(row: Row) -> RunSpec:
    """The run behind a number of the paper's, without the gate unless it has it."""
    return RunSpec(
        dataset=row.dataset,
        pathway=row.pathway,
        goodness=row.goodness,
        activation=row.activation,
        norm_gate=bool(row.norm_gate),
        k_fraction=row.k_fraction,
        alpha=row.alpha,
        p=row.p,
        num_layers=row.num_layers,
        width=row.width,
    )


def gather(records: Iterable[Record]) -> list[Cell]:
    """Groups records into cells, in the order in which the cells first appear."""
    groups: dict[tuple[str, RunSpec], list[Record]] = {}
    for record in records:
        groups.setdefault((record.cell, record.spec.identity()), []).append(record)
    return [_cell(name, spec, runs) for (name, spec), runs in groups.items()]


def _cell(name: str, spec: RunSpec, runs: list[Record]) -> Cell:
    runs.sort(key=lambda run: run.seed)
    accuracies = tuple(run.accuracy for run in runs)
    return Cell(
        id=name,
        spec=spec,
        seeds=tuple(run.seed for run in runs),
        accuracies=accuracies,
        std=statistics.stdev(accuracies) if len(accuracies) > 1 else None,
        runs=tuple(runs),
    )


def by_setting(cells: Iterable[Cell]) -> dict[Setting, list[Cell]]:
    """Cells by setting: the paper's first, then those with most cells."""
    groups: dict[Setting, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(setting_of(cell.spec), []).append(cell)
    return dict(
        sorted(groups.items(), key=lambda item: (not item[0].is_paper, -len(item[1])))
    )


def ranked(cells: Iterable[Cell]) -> list[Cell]:
    """The best first."""
    return sorted(cells, key=lambda cell: cell.mean, reverse=True)


def best(cells: Iterable[Cell]) -> Cell | None:
    """The cell with the highest mean accuracy."""
    return max(cells, key=lambda cell: cell.mean, default=None)


def _differences(row: Row, spec: RunSpec) -> str:
    """What the paper's run has that ours has not; small things only if alone."""
    large = []
    if row.dataset != spec.dataset:
        large.append(names.label(row.dataset))
    if row.goodness != spec.goodness:
        large.append(names.label(row.goodness))
    if row.size != spec.size:
        large.append(row.size)
    other = {name: spec_lib.DEFAULTS[name] for name in differing(spec)}
    if epochs := other.pop("epochs", None):
        large.append(names.count(epochs, "epoch"))
    small = [names.setting(*item) for item in other.items()]
    if row.norm_gate is not None and row.norm_gate != spec.norm_gate:
        small.append("norm gate" if row.norm_gate else "no norm gate")
    return ", ".join(large or small) or "another run"
