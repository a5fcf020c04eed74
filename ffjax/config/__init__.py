"""Runs as data: the fields of a run, and the cells of a grid. Nothing here needs jax.

A config file writes ``from ffjax import config`` and returns ``config.default()`` with
some fields changed, or ``config.grid(SECTIONS, section)``.
"""

from ffjax.config.cells import Cell, default, expand, grid, product
from ffjax.config.spec import RunSpec, make_spec

__all__ = ["Cell", "RunSpec", "default", "expand", "grid", "make_spec", "product"]
