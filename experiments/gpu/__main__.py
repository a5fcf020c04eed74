"""Compiles the grid's programs for a GPU that need not be there, and counts.

python -m experiments.gpu [--card=a100|h100] [--json=FILE] [--goodness=NAMES] ...

Needs the extra 'gpu-check' (550 MB), no GPU and no CUDA. All programs of a card take
hours on 2 cores; what is in the JSON file already is not compiled again, so that a run
can be interrupted. A Markdown table is written beside it.
"""

import json
import pathlib
import sys
import time
from typing import Any

from absl import flags

from experiments.gpu import programs, show
from ffjax import atomic, cli
from ffjax.errors import UserError
from ffjax.paper import names

_FOLDER = pathlib.Path(__file__).parent / "results"
_NUMBERS = ("layer", "members", "devices")
_WORDS = ("kind", "goodness", "pathway", "precision")


def define_flags(argv: list[str]) -> None:
    """The flags of this command."""
    del argv
    flags.DEFINE_enum("card", "a100", programs.CARDS, "The GPU to compile for.")
    flags.DEFINE_string(
        "json", "", f"The file of rows [{_FOLDER.parent.name}/results/CARD.json]."
    )
    flags.DEFINE_bool("list", False, "Print the programs and compile none.")
    for name in (*_WORDS, *_NUMBERS):
        flags.DEFINE_list(
            name, [], f"Only the programs with this {name}; all if empty."
        )


def main() -> int:
    """Compiles what is missing, and shows everything that was asked for."""
    values = flags.FLAGS
    cases = _chosen(values)
    if values.list:
        for case in cases:
            print(_describe(case))
        print(names.count(len(cases), "program"))
        return 0
    programs.topology(values.card, 1)  # says now what is not installed
    path = pathlib.Path(values.json or _FOLDER / f"{values.card}.json")
    rows = _read(path)
    compile_missing(cases, values.card, rows, path)
    wanted = [rows[_key(values.card, case)] for case in cases]
    print(show.render(wanted))
    print(f"Written to {path} and {path.with_suffix('.md').name}")
    return 0


def _chosen(values: flags.FlagValues) -> list[programs.Case]:
    """The programs that the flags leave."""
    pins: dict[str, list[Any]] = {name: values[name].value or [] for name in _WORDS}
    try:
        pins |= {name: list(map(int, values[name].value or [])) for name in _NUMBERS}
    except ValueError as error:
        raise UserError(f"{', '.join(_NUMBERS)}: must be integers ({error})") from None
    everything = programs.all_cases()
    for name, kept in pins.items():
        known = list(dict.fromkeys(getattr(case, name) for case in everything))
        for value in kept:
            if value not in known:
                allowed = ", ".join(str(own) for own in known if own != "")
                raise UserError(f"{name}={value!r}: must be one of {allowed}")
    cases = programs.all_cases(**pins)
    if not cases:
        raise UserError("the flags leave no program; --list shows those there are")
    return cases


def compile_missing(
    cases: list[programs.Case],
    card: str,
    rows: dict[tuple, dict[str, Any]],
    path: pathlib.Path,
) -> None:
    """Adds the rows of all cases; the file is written after each."""
    spent, compiled = 0.0, 0
    missing = [
        case
        for case in cases
        if rows.get(_key(card, case), {}).get("source") != programs.source()
    ]
    for position, case in enumerate(missing):
        started = time.perf_counter()
        lowered = programs.lower(case, card)
        row = rows.get(_key(card, case))
        if row and row["program"] == programs.digest(lowered, card):
            row["source"] = programs.source()  # other code, the same program
        else:
            row = programs.describe(case, card, lowered)
        rows[_key(card, case)] = row
        _write(path, rows)
        spent, compiled = spent + time.perf_counter() - started, compiled + 1
        left = spent / compiled * (len(missing) - position - 1)
        print(
            f"[{position + 1}/{len(missing)}] {_describe(case)}: {row['launches']} "
            f"launches, {names.duration(time.perf_counter() - started)}; about "
            f"{names.duration(left)} left",
            file=sys.stderr,
            flush=True,
        )
    _write(path, rows)


def _describe(case: programs.Case) -> str:
    parts = [case.kind, case.pathway, case.goodness, case.precision]
    parts += [f"layer {case.layer}"] if case.layer else []
    parts += [f"{case.members} networks"] if case.members > 1 else []
    parts += [f"{case.devices} devices"] if case.devices > 1 else []
    return " ".join(part for part in parts if part)


def _key(card: str, case: Any) -> tuple:
    """What a row is known by."""
    fields = (*_WORDS, *_NUMBERS)
    values = case if isinstance(case, dict) else vars(case)
    return (card, *(values[name] for name in fields))


def _read(path: pathlib.Path) -> dict[tuple, dict[str, Any]]:
    """The rows of an earlier run."""
    if not path.exists():
        return {}
    try:
        rows = json.loads(path.read_text())
        return {_key(row["card"], row): row for row in rows}
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"json={path}: not a file of this command ({error})") from None


def _write(path: pathlib.Path, rows: dict[tuple, dict[str, Any]]) -> None:
    content = ",\n".join(json.dumps(row) for row in rows.values())
    atomic.write_text(path, f"[\n{content}\n]\n")
    atomic.write_text(path.with_suffix(".md"), show.render(list(rows.values())))


if __name__ == "__main__":
    cli.run(main, define_flags)
