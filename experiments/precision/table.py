"""The table of the precisions: float32 beside bfloat16."""

import dataclasses
import pathlib
import statistics

from experiments import tables
from experiments.headline import headline
from experiments.precision import precision
from experiments.tables import Entry
from ffjax import config
from ffjax.config import RunSpec
from ffjax.paper import names

HEADS = ("method", "seeds", "float32", "bfloat16", "difference")


def pairs(
    folder: str | pathlib.Path = "precision",
    float32: str | pathlib.Path = "headline",
) -> list[tuple[Entry, Entry]]:
    """Each method in float32 and in bfloat16, over the seeds that have both."""
    plain = config.expand(headline.get_config("fashion_mnist"))
    whole = {entry.spec: entry for entry in tables.entries(plain, float32)}
    chosen = []
    for half in tables.entries(config.expand(precision.get_config()), folder):
        full = whole.get(dataclasses.replace(half.spec, precision="float32"))
        seeds = half.accuracies.keys() & full.accuracies.keys() if full else set()
        if full and seeds:
            chosen.append((_of_seeds(full, seeds), _of_seeds(half, seeds)))
    return chosen


def _of_seeds(entry: Entry, seeds: set[int]) -> Entry:
    kept = {seed: entry.accuracies[seed] for seed in sorted(seeds)}
    return Entry(entry.spec, kept)


def accuracy(
    folder: str | pathlib.Path = "precision",
    float32: str | pathlib.Path = "headline",
) -> str:
    """The methods as rows; the difference is that of the means."""
    shown = pairs(folder, float32)
    if not shown:
        return tables.NOTHING
    lines = [
        [
            names.method(half.spec),
            tables.numbers_text(half.accuracies),
            _text(full),
            _text(half),
            f"{half.mean - full.mean:+.2f}",
        ]
        for full, half in shown
    ]
    caption = f"Test accuracy in %; {_runs(shown[0][1].spec)}; mean ± standard "
    caption += "deviation over the seeds, difference of the means in points."
    return f"{caption}\n\n{tables.markdown(HEADS, lines)}"


def _runs(spec: RunSpec) -> str:
    epochs = names.count(spec.epochs, "epoch")
    return f"{tables.dataset(spec)}, {spec.size}, {epochs}"


def _text(entry: Entry) -> str:
    """Without the paper's number, which would stand beside one precision alone."""
    values = list(entry.accuracies.values())
    spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{entry.mean:.2f}{spread}"


TABLES = {"accuracy": accuracy}
