"""The table of the fast run."""

import pathlib

from experiments import tables
from experiments.fast import fast
from ffjax import config
from ffjax.paper import names


def run(folder: str | pathlib.Path = "fast") -> str:
    """The network over its seeds."""
    shown = tables.entries(config.expand(fast.get_config()), folder)
    return tables.listing(shown, "method", names.method)


TABLES = {"run": run}
