"""The tables of the record: candidates by validation, those chosen by the test set."""

import pathlib

from experiments import tables
from experiments.record import record
from experiments.tables import Entry
from ffjax import config
from ffjax.config import RunSpec
from ffjax.paper import names


def candidate(spec: RunSpec) -> str:
    """How a network of the search is called."""
    return f"{names.method(spec)}, dropout {spec.dropout:g}"


def chosen_entries(folder: str | pathlib.Path = "record") -> list[Entry]:
    """The networks chosen, on the test set."""
    return tables.entries(config.expand(record.get_config()), folder)


def search(folder: str | pathlib.Path = "record/search") -> str:
    """The candidates on the validation part."""
    cells = config.expand(record.get_config("search"))
    shown = tables.entries(cells, folder, "accuracy_valid")
    return tables.listing(shown, "candidate", candidate, "validation accuracy in %")


def chosen(folder: str | pathlib.Path = "record") -> str:
    """The networks chosen, on the test set."""
    return tables.listing(chosen_entries(folder), "chosen", candidate)


TABLES = {"search": search, "chosen": chosen}
