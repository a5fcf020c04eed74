"""The table and the figure of all goodness functions, the best first."""

import pathlib

from experiments import dot_chart, tables
from experiments.functions import functions
from experiments.tables import Entry
from ffjax import config
from ffjax.config import RunSpec
from ffjax.paper import names


def name(spec: RunSpec) -> str:
    """A function with its threshold: "SoS, threshold 1"."""
    return f"{names.goodness(spec)}, threshold {spec.threshold:g}"


def measured(folder: str | pathlib.Path = "functions") -> list[Entry]:
    """The functions on both pathways, by the better of the two."""
    shown = tables.entries(config.expand(functions.get_config()), folder)
    best: dict[str, float] = {}
    for entry in shown:
        best[name(entry.spec)] = max(best.get(name(entry.spec), 0), entry.mean)

    def rank(entry: Entry) -> tuple[float, str, bool]:
        own = name(entry.spec)
        return -best[own], own, entry.spec.pathway == "ffcl"

    return sorted(shown, key=rank)


def ranking(folder: str | pathlib.Path = "functions") -> str:
    """The functions as rows, the pathways as columns."""
    return tables.pivot(
        measured(folder), "goodness", name, lambda spec: names.label(spec.pathway)
    )


def draw() -> bytes:
    """The figure of the same."""
    return dot_chart.draw(measured(), name)


TABLES = {"ranking": ranking}
FIGURES = {"functions/functions.png": draw}
