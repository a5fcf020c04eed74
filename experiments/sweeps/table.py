"""The tables of the three sweeps: the parameter as rows, the pathways as columns."""

import functools
import pathlib

from configs import grid
from experiments import tables
from ffjax import config
from ffjax.paper import names

SIZE = {"num_layers": 2, "width": 500, "epochs": 20}


def sweep(section: str, folder: str | pathlib.Path = "sweeps") -> str:
    """A section of the grid at the size of this experiment."""
    shown = tables.entries(config.expand(grid.get_config(section), SIZE), folder)
    return tables.pivot(
        shown,
        names.label(shown[0].spec.goodness) if shown else "",
        names.parameter_text,
        lambda spec: names.label(spec.pathway),
    )


TABLES = {
    name: functools.partial(sweep, name)
    for name in ("alpha_sweep", "k_sweep", "p_sweep")
}
