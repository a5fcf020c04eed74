"""Everything that a workdir holds for a report. Nothing here imports jax."""

import dataclasses
import os
import pathlib
from collections.abc import Iterable
from typing import Any

import msgspec

from ffjax import records as records_lib
from ffjax.config.spec import RunSpec
from ffjax.errors import UserError
from ffjax.paper import names
from ffjax.records import Record
from ffjax.report import audit, claims, tables
from ffjax.report import cells as cells_lib
from ffjax.report.cells import Cell, Setting

_MAX_ERROR = 2000  # characters of an error that are shown


@dataclasses.dataclass(frozen=True)
class Failure:
    """A run that ended in an error; its spec is None where it cannot be read."""

    cell: str
    seed: int
    spec: RunSpec | None
    error: str


@dataclasses.dataclass(frozen=True)
class Contents:
    """All that a report is drawn from.

    Attributes:
      records: all whole records.
      cells: the same, gathered over their seeds.
      groups: the cells by setting.
      failures: runs that ended in an error and were not run again.
      problems: files that are not what they should be.
      tables: the paper's tables with ours.
      verdicts: the paper's claims at its own settings.
      other_verdicts: the claims that can be judged at other settings.
    """

    records: list[Record]
    cells: list[Cell]
    groups: dict[Setting, list[Cell]]
    failures: list[Failure]
    problems: list[str]
    tables: list[tables.Table]
    verdicts: list[audit.Verdict]
    other_verdicts: dict[Setting, list[audit.Verdict]]


def read(workdir: str | os.PathLike[str]) -> Contents:
    """Reads a workdir; what cannot be read is listed, not fatal."""
    records, problems = records_lib.read_all(workdir)
    failures, more = _read_failures(pathlib.Path(workdir), records)
    problems += more
    if not records and not failures:
        broken = f" ({len(problems)} broken: {problems[0]})" if problems else ""
        raise UserError(
            f"workdir={str(workdir)!r}: no results in its folder 'results'{broken}; "
            "run a grid with the same --workdir first"
        )
    cells = cells_lib.gather(records)
    return Contents(
        records=records,
        cells=cells,
        groups=cells_lib.by_setting(cells),
        failures=failures,
        problems=problems,
        tables=tables.paper_tables(cells),
        verdicts=audit.at_paper_settings(claims.CLAIMS, cells),
        other_verdicts=audit.at_other_settings(claims.CLAIMS, cells),
    )


class _RawFailure(msgspec.Struct):
    """A failure as its file has it; what else is there is not looked at."""

    cell: str
    seed: int
    error: str
    spec: dict[str, Any] = {}


def _read_failures(
    workdir: pathlib.Path, records: Iterable[Record]
) -> tuple[list[Failure], list[str]]:
    done = {(record.cell, record.seed) for record in records}
    failures, problems = [], []
    for path in sorted((workdir / "failures").glob("*.json")):
        try:
            failure = _read_failure(path)
        except OSError as error:
            problems.append(f"{path}: not readable ({error.strerror})")
        except (ValueError, msgspec.MsgspecError, RecursionError) as error:
            reason = " ".join(str(error).split())
            problems.append(f"{path}: not readable as a failure ({reason})")
        else:
            # If there is a record, the run was tried again and worked.
            if (failure.cell, failure.seed) not in done:
                failures.append(failure)
    return failures, problems


def _read_failure(path: pathlib.Path) -> Failure:
    if not path.is_file():
        raise ValueError("not a file")
    raw = msgspec.json.decode(path.read_bytes(), type=_RawFailure)
    try:
        spec = records_lib.read_spec(raw.spec)
    except ValueError:  # the error matters more
        spec = None
    error = names.shortened(raw.error, _MAX_ERROR)
    return Failure(names.shortened(raw.cell), raw.seed, spec, error)
