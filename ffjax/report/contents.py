"""Everything that a workdir holds for a report. Nothing here imports jax."""

import dataclasses
import json
import os
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

from ffjax import records
from ffjax.errors import UserError
from ffjax.report import cells as cells_lib
from ffjax.report import claims, tables


@dataclasses.dataclass(frozen=True)
class Failure:
    """A run that ended in an error."""

    cell: str
    seed: Any
    spec: Mapping[str, Any]
    error: str


@dataclasses.dataclass(frozen=True)
class Contents:
    """Everything that a report is drawn from."""

    records: list[records.Record]
    cells: list[cells_lib.Cell]
    groups: dict[cells_lib.Setting, list[cells_lib.Cell]]
    texts: dict[cells_lib.Setting, str]  # the settings' names
    failures: list[Failure]
    problems: list[str]
    tables: list[tables.Table]
    verdicts: list[claims.Verdict]
    other_verdicts: dict[cells_lib.Setting, list[claims.Verdict]]


def read(workdir: str | os.PathLike[str]) -> Contents:
    """Reads a workdir; what cannot be read is listed, not fatal."""
    records, problems = records.read_all(workdir)
    failures, more = _read_failures(pathlib.Path(workdir), records)
    problems += more
    if not records and not failures:
        broken = f" ({len(problems)} broken: {problems[0]})" if problems else ""
        raise UserError(
            f"workdir={str(workdir)!r}: no results in its folder 'results'{broken}; "
            "run a grid with the same --workdir first"
        )
    found = cells_lib.gather(records)
    groups = cells_lib.by_setting(found)
    return Contents(
        records=records,
        cells=found,
        groups=groups,
        texts=cells_lib.setting_texts(groups),
        failures=failures,
        problems=problems,
        tables=tables.paper_tables(found),
        verdicts=claims.audit(records),
        other_verdicts=claims.audit_settings(records),
    )


def _read_failures(
    workdir: pathlib.Path, records: Iterable[records.Record]
) -> tuple[list[Failure], list[str]]:
    done = {(record["cell"], record["seed"]) for record in records}
    failures, problems = [], []
    for path in sorted((workdir / "failures").glob("*.json")):
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            spec = found.get("spec") or {}
            failure = Failure(
                cell=str(found["cell"]),
                seed=found["seed"],
                spec={str(name): cells_lib.flat(spec[name]) for name in spec},
                error=str(found["error"]),
            )
        except (OSError, ValueError, KeyError, AttributeError, RecursionError) as error:
            problems.append(f"{path}: not readable as a failure ({error!r})")
            continue
        if (failure.cell, failure.seed) not in done:  # else it was run again and worked
            failures.append(failure)
    return failures, problems
