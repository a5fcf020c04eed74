"""Puts the tables of the experiments into the READMEs, and draws their figures.

    python -m experiments.summary

An experiment declares tables in its ``table.py``. A README shows any of them between

    <!-- table: EXPERIMENT.NAME -->
    <!-- end of table -->

Figures go to experiments/.
"""

import importlib
import pathlib
import re
from collections.abc import Callable, Mapping

from experiments.tables import FOLDER
from ffjax import atomic, cli
from ffjax.errors import UserError

_BLOCK = re.compile(
    r"(<!-- table: (\w+)\.(\w+) -->\n).*?(<!-- end of table -->)", re.DOTALL
)

Tables = Mapping[str, Callable[[], str]]
Figures = Mapping[str, Callable[[], bytes]]


def pages() -> list[pathlib.Path]:
    """The READMEs that show tables: the project's and those of experiments."""
    candidates = [FOLDER.parent / "README.md", *sorted(FOLDER.rglob("README.md"))]
    return [page for page in candidates if _BLOCK.search(_read(page))]


def fill(text: str) -> str:
    """A README with the tables of today's records."""
    return _BLOCK.sub(
        lambda block: f"{block[1]}{_table(block[2], block[3])}{block[4]}", text
    )


def figures() -> dict[pathlib.Path, Callable[[], bytes]]:
    """Where the figures of all experiments go, and what draws them."""
    return {
        FOLDER / name: draw
        for path in sorted(FOLDER.glob("*/table.py"))
        for name, draw in _figures(path.parent.name).items()
    }


def _table(experiment: str, name: str) -> str:
    tables: Tables = importlib.import_module(f"experiments.{experiment}.table").TABLES
    if name not in tables:
        raise UserError(
            f"table {experiment}.{name}: must be one of {', '.join(tables)}"
        )
    return tables[name]()


def _figures(experiment: str) -> Figures:
    module = importlib.import_module(f"experiments.{experiment}.table")
    return getattr(module, "FIGURES", {})


def _read(page: pathlib.Path) -> str:
    return page.read_text(encoding="utf-8")


def main() -> int:
    """Writes the figures and the tables."""
    for path, draw in figures().items():
        atomic.write_bytes(path, draw())
        print(path.relative_to(FOLDER.parent))
    for page in pages():
        atomic.write_text(page, fill(_read(page)))
        print(page.relative_to(FOLDER.parent))
    return 0


if __name__ == "__main__":
    cli.run(main, lambda argv: None)
