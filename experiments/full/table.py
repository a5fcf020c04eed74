"""What has been run at the paper's own size, beside its numbers."""

import pathlib

from experiments import tables
from experiments.full import full
from ffjax import config
from ffjax.paper import names

FULL_SIZE = "4x2000"


def methods(folder: str | pathlib.Path = "full") -> str:
    """The methods as rows, the datasets as columns."""
    cells = [c for c in config.expand(full.get_config()) if c.spec.size == FULL_SIZE]
    shown = tables.entries(cells, folder)
    shown.sort(key=lambda entry: names.method(entry.spec))
    return tables.pivot(shown, "method", names.method, tables.dataset)


TABLES = {"methods": methods}
