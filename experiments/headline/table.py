"""The tables and the figure of the headline experiment."""

import pathlib

from experiments import tables
from experiments.headline import figure, headline
from experiments.record import table as record_table
from experiments.tables import Entry
from ffjax import config
from ffjax.config import RunSpec
from ffjax.paper import names

DATASETS = ("mnist", "fashion_mnist", "usps", "cifar10")
SHORT = (
    "FFCL, moment p = 6, GELU",
    "FFCL, burstiness, GELU",
    "backpropagation, GELU",
    "standard, SoS, ReLU",
)


def name(spec: RunSpec) -> str:
    """How a method is called."""
    is_hinton = spec.trainer == "ff" and spec.normalisation == "rms"
    return "Hinton's Forward-Forward" if is_hinton else names.method(spec)


def measured(folder: str | pathlib.Path = "headline") -> list[Entry]:
    """The methods on each dataset, at 2x500."""
    cells = [c for name in DATASETS for c in config.expand(headline.get_config(name))]
    return tables.entries(cells, folder)


def methods(folder: str | pathlib.Path = "headline") -> str:
    """The methods as rows, the datasets as columns."""
    return tables.pivot(measured(folder), "method", name, tables.dataset)


def short(folder: str | pathlib.Path = "headline") -> str:
    """Four of the methods: the paper's best, and what they are compared with."""
    shown = [entry for entry in measured(folder) if name(entry.spec) in SHORT]
    shown.sort(key=lambda entry: SHORT.index(name(entry.spec)))
    return tables.pivot(shown, "method", name, tables.dataset)


def larger(folder: str | pathlib.Path = "headline") -> str:
    """The larger networks, and those of the record."""
    own = tables.entries(config.expand(headline.get_config("hinton,large")), folder)
    best = record_table.chosen_entries()

    def row(spec: RunSpec) -> str:
        is_record = any(spec == entry.spec for entry in best)
        return f"record: {record_table.candidate(spec)}" if is_record else name(spec)

    return tables.listing([*own, *best], "larger networks", row)


def summary() -> bytes:
    """The figure of the methods."""
    return figure.draw(measured(), name)


TABLES = {"methods": methods, "short": short, "larger": larger}
FIGURES = {"summary.png": summary}
