"""The tables of convolutions: functions by validation, networks by the test set."""

import pathlib

from experiments import dot_chart, tables
from experiments.conv import conv
from experiments.tables import Entry
from ffjax import config
from ffjax.config import RunSpec
from ffjax.config import spec as spec_lib
from ffjax.paper import names
from ffjax.runs import cost

VALID = "validation accuracy in %"


def compared(folder: str | pathlib.Path = "conv/compare") -> list[Entry]:
    """Of each function and pathway the setting that is best in validation."""
    cells = config.expand(conv.get_config("compare"))
    best: dict[tuple[str, str], Entry] = {}
    for entry in tables.entries(cells, folder, "accuracy_valid"):
        key = entry.spec.pathway, entry.spec.goodness
        if key not in best or entry.mean > best[key].mean:
            best[key] = entry
    return sorted(best.values(), key=lambda entry: -entry.mean)


def compare(folder: str | pathlib.Path = "conv/compare") -> str:
    """The functions as rows, the pathways as columns, on validation images."""
    return tables.pivot(
        compared(folder),
        "goodness",
        names.goodness,
        lambda spec: names.label(spec.pathway),
        VALID,
    )


def draw(folder: str | pathlib.Path = "conv/compare") -> bytes:
    """The figure of the same."""
    return dot_chart.draw(compared(folder), names.goodness, VALID)


def _setting(spec: RunSpec) -> str:
    images = cost.sizes(spec).train
    parts = [f"{images:,} images", f"normalisation {spec.normalisation}"]
    for field in ("weight_decay", "dropout", "learning_rate", "batch_size"):
        value = getattr(spec, field)
        if value != conv.DEEP.get(field, spec_lib.DEFAULTS[field]):
            parts.append(f"{field.replace('_', ' ')} {value:g}")
    return ", ".join(parts)


def search(folder: str | pathlib.Path = "conv/search") -> str:
    """Settings of a network, on validation images."""
    cells = config.expand(conv.get_config("depth,regularise"))
    shown = tables.entries(cells, folder, "accuracy_valid")
    return tables.listing(shown, "setting", _setting, VALID)


def pathways(folder: str | pathlib.Path = "conv/search") -> str:
    """The best function of each pathway, on validation images."""
    cells = config.expand(conv.get_config("pathways"))
    shown = tables.entries(cells, folder, "accuracy_valid")
    return tables.listing(shown, "method", names.method, VALID)


def best(folder: str | pathlib.Path = "conv") -> str:
    """The network of each dataset, and the same trained by backpropagation."""
    shown = tables.entries(config.expand(conv.get_config()), folder)
    datasets = list(conv.NETWORKS)
    shown.sort(
        key=lambda entry: (
            datasets.index(entry.spec.dataset),
            entry.spec.trainer == "backprop",
        )
    )
    return tables.listing(shown, "method", names.method)


TABLES = {
    "compare": compare,
    "search": search,
    "pathways": pathways,
    "best": best,
}
FIGURES = {"conv/compare.png": draw}
