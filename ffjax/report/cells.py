"""Records of the same cell, gathered over its seeds, and the setting that they share.

A cell is a method (pathway, goodness, activation, ...) at a setting (dataset, sizes,
epochs, ...). Nothing here imports jax.
"""

import dataclasses
import json
import math
import statistics
from collections.abc import Iterable, Mapping
from typing import Any

from ffjax import paper, records

METHOD = (
    "trainer",
    "pathway",
    "goodness",
    "activation",
    "norm_gate",
    *paper.PARAMETERS,
    "goodness_params",
)
# Fields that say where data come from or which runs to do, not what is measured.
_NOT_A_SETTING = ("data_dir", "seed", "seeds")


@dataclasses.dataclass(frozen=True)
class Cell:
    """One method at one setting, with all its seeds."""

    id: str
    spec: Mapping[str, Any]
    seeds: tuple[int, ...]
    accuracies: tuple[float, ...]  # one a seed, in percent
    std: float | None  # over the seeds, ddof = 1; None with fewer than two
    runs: tuple[records.Record, ...] = ()

    @property
    def mean(self) -> float | None:
        """Mean test accuracy over the seeds, in percent."""
        return statistics.fmean(self.accuracies) if self.accuracies else None

    @property
    def text(self) -> str:
        """Mean ± standard deviation, or the one accuracy."""
        if self.mean is None:
            return "n/a"
        spread = f" ± {self.std:.2f}" if self.std is not None else ""
        return f"{self.mean:.2f}{spread}"

    @property
    def num_diverged(self) -> int:
        """How many of the seeds diverged."""
        return sum(run["status"] == "diverged" for run in self.runs)

    @property
    def size(self) -> str:
        """Layers x units."""
        return f"{self.spec.get('num_layers')}x{self.spec.get('width')}"

    @property
    def train_s(self) -> float | None:
        """Mean training time of a seed in seconds, without compilation."""
        times = [number(run["time"].get("train_s")) for run in self.runs]
        known = [time for time in times if time is not None]
        return statistics.fmean(known) if known else None

    @property
    def devices(self) -> frozenset[str]:
        """What the seeds ran on."""
        return frozenset(run["device"] for run in self.runs)


@dataclasses.dataclass(frozen=True)
class Setting:
    """Everything about a cell but its method."""

    fields: tuple[tuple[str, str], ...]  # name and JSON of the value, sorted

    def get(self, name: str) -> Any:
        """The value of a field, or None."""
        return json.loads(dict(self.fields).get(name, "null"))

    @property
    def size(self) -> str:
        """Layers x units."""
        return f"{self.get('num_layers')}x{self.get('width')}"

    @property
    def is_paper(self) -> bool:
        """Whether this is the paper's full setting on one of its datasets."""
        return (
            self.size == "4x2000"
            and self.get("dataset") in {row.dataset for row in paper.rows()}
            and paper.at_settings({name: self.get(name) for name, _ in self.fields})
        )


def number(value: Any) -> float | None:
    """``value`` as a float, or None where it is no finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def gather(records: Iterable[records.Record]) -> list[Cell]:
    """Groups records into cells, in the order in which the cells first appear."""
    groups: dict[tuple[str, str], list[records.Record]] = {}
    for record in records:
        key = (record["cell"], json.dumps(record["spec"], sort_keys=True))
        groups.setdefault(key, []).append(record)
    cells = []
    for (cell_id, _), runs in groups.items():
        runs.sort(key=lambda run: run["seed"])
        found = [number(run["accuracy"]) for run in runs]
        accuracies = tuple(value for value in found if value is not None)
        cells.append(
            Cell(
                id=cell_id,
                spec={key: flat(value) for key, value in runs[0]["spec"].items()},
                seeds=tuple(run["seed"] for run in runs),
                accuracies=accuracies,
                std=statistics.stdev(accuracies) if len(accuracies) > 1 else None,
                runs=tuple(runs),
            )
        )
    return cells


def flat(value: Any) -> Any:
    """The fields of a spec are flat; anything else counts as its text."""
    scalar = value is None or isinstance(value, str | int | float)
    return value if scalar else json.dumps(value, sort_keys=True)


def setting(spec: Mapping[str, Any]) -> Setting:
    """The setting of a spec: all fields that are not part of the method.

    A field that is younger than the record has the paper's value.
    """
    given = {name: value for name, value in spec.items() if value is not None}
    unset = {name: paper.SETTINGS[name] for name in paper.MAY_BE_UNSET}
    full = {**spec, **unset, **given}
    return Setting(
        tuple(
            (name, json.dumps(full[name], sort_keys=True))
            for name in sorted(full)
            if name not in METHOD and name not in _NOT_A_SETTING
        )
    )


def by_setting(found: Iterable[Cell]) -> dict[Setting, list[Cell]]:
    """Cells grouped by setting: the paper's first, then those with most cells."""
    groups: dict[Setting, list[Cell]] = {}
    for cell in found:
        groups.setdefault(setting(cell.spec), []).append(cell)
    return dict(
        sorted(groups.items(), key=lambda item: (not item[0].is_paper, -len(item[1])))
    )


def setting_texts(settings: Iterable[Setting]) -> dict[Setting, str]:
    """A short name for each setting: what it is, and what tells it from the others."""
    settings = list(settings)
    names = sorted({name for one in settings for name, _ in one.fields})
    shown = {"dataset", "num_layers", "width", "epochs"}
    texts = {}
    for one in settings:
        parts = [
            paper.label(one.get("dataset")),
            one.size,
            f"{one.get('epochs')} epochs",
        ]
        for name in names:
            if name in shown:
                continue
            if name in paper.SETTINGS:
                tells = one.get(name) != paper.SETTINGS[name]
            else:
                tells = len({dict(other.fields).get(name) for other in settings}) > 1
            if tells:
                parts.append(f"{name.replace('_', ' ')} {one.get(name)}")
        texts[one] = ", ".join(parts)
    return texts
