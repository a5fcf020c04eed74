"""The report as text: Markdown, CSV, LaTeX, and a table for the terminal.

Nothing here imports jax.
"""

import csv
import io
import os
import re
from collections.abc import Iterable, Sequence

from rich import table as rich_table
from rich import text as rich_text

from ffjax import records as records_lib
from ffjax.config import spec as spec_lib
from ffjax.paper import names, numbers
from ffjax.records import Record
from ffjax.report import audit, tables
from ffjax.report import cells as cells_lib
from ffjax.report.cells import Cell
from ffjax.report.contents import Contents

Value = str | float | int | None  # of a field in a CSV file

_SHOWN = 4  # comparisons of a claim in report.md; some have dozens


def files(contents: Contents) -> dict[str, str]:
    """The text files of the report, by name."""
    made = {"report.md": _markdown(contents), "tables/cells.csv": _cells_csv(contents)}
    for table in contents.tables:
        made[f"tables/{table.slug}.csv"] = _table_csv(table)
        made[f"tables/{table.slug}.tex"] = _table_tex(table)
    made["tables/cells.tex"] = _cells_tex(contents)
    made["tables/claims.csv"] = _claims_csv(contents)
    return made


def _csv_text(lines: Iterable[Sequence[Value]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for line in lines:
        writer.writerow([_csv_safe(value) for value in line])
    return out.getvalue()


def _csv_safe(value: Value) -> Value:
    """A line of text; what a spreadsheet would run as a formula gets a quote."""
    if isinstance(value, float):
        return f"{value:.4f}"
    if not isinstance(value, str):
        return "" if value is None else value
    text = " ".join(value.split())
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text


def _entry_values(entry: tables.Entry) -> list[Value]:
    cell, row = entry.cell, entry.row
    return [
        cell.mean if cell else None,
        cell.std if cell else None,
        len(cell.seeds) if cell else 0,
        row.accuracy if row else None,
        row.std if row else None,
        entry.difference,
        row.note if row else "",
    ]


def _table_csv(table: tables.Table) -> str:
    head = [*table.heads, "column", "ours", "ours_std", "ours_seeds"]
    lines: list[list[Value]] = [[*head, "paper", "paper_std", "difference", "note"]]
    for line in table.lines:
        for column, entry in zip(table.columns, line.entries, strict=True):
            if entry:
                lines.append([*line.labels, column, *_entry_values(entry)])
    return _csv_text(lines)


def _cells_csv(contents: Contents) -> str:
    fields = spec_lib.names("method", "size", "setting")
    head = ["cell", *fields, "accuracy", "std", "seeds", "diverged", "train_s"]
    lines: list[list[Value]] = [[*head, "paper", "paper_differs"]]
    for cell in contents.cells:
        spec, known = cell.spec, cell.reference
        lines.append(
            [
                cell.id,
                *(_raw(getattr(spec, name)) for name in fields),
                cell.mean,
                cell.std,
                len(cell.seeds),
                cell.num_diverged,
                cell.train_s,
                known.row.accuracy if known else None,
                known.differs if known else None,
            ]
        )
    return _csv_text(lines)


def _raw(value: Value) -> Value:
    """A field of a run as it is: 0.0025 must not be rounded to a few digits."""
    return repr(value) if isinstance(value, float) else value


def _audits(contents: Contents) -> list[tuple[str, list[audit.Verdict]]]:
    """The settings that claims were judged at, with the verdicts."""
    others = contents.other_verdicts.items()
    return [
        ("the paper's own settings", contents.verdicts),
        *((setting.text, verdicts) for setting, verdicts in others),
    ]


def _claims_csv(contents: Contents) -> str:
    head = ["setting", "claim", "where", "verdict", "ours"]
    lines: list[list[Value]] = [[*head, "paper_verdict", "paper", "paper_run"]]
    for setting, verdicts in _audits(contents):
        for v in verdicts:
            ours, papers = "; ".join(v.numbers), "; ".join(v.paper_numbers)
            line = [setting, v.claim.text, v.claim.where, v.text, ours]
            lines.append([*line, v.paper_text, papers, v.paper_run])
    return _csv_text(lines)


_TEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "±": r"$\pm$",
    "→": r"$\to$",
}


def _tex(text: str) -> str:
    text = re.sub(r"\s+", " ", text)
    return "".join(_TEX.get(character, character) for character in text)


def _tex_table(heads: Sequence[str], align: str, lines: Iterable[Sequence[str]]) -> str:
    body = "".join(" & ".join(line) + r" \\" + "\n" for line in lines)
    return (
        "% needs \\usepackage{booktabs}\n"
        f"\\begin{{tabular}}{{{align}}}\n\\toprule\n"
        + " & ".join(heads)
        + f" \\\\\n\\midrule\n{body}\\bottomrule\n\\end{{tabular}}\n"
    )


def _difference_text(entry: tables.Entry) -> str:
    return "" if entry.difference is None else f"{entry.difference:+.2f}"


def _wide_lines(table: tables.Table) -> tuple[list[str], list[list[str]]]:
    """Heads and lines with ours, the paper's and the difference as text."""
    single = len(table.columns) == 1
    heads = list(table.heads)
    for column in table.columns:
        heads += (
            ["ours", "paper", "difference"]
            if single
            else [f"{column}, ours", f"{column}, paper"]
        )
    if table.is_lift:
        heads += ["lift, ours", "lift, paper"]
    lines = []
    for line in table.lines:
        texts = list(line.labels)
        for entry in line.entries:
            if entry is None:
                texts += [""] * (3 if single else 2)
                continue
            texts += [entry.cell.text if entry.cell else _NOT_RUN, entry.paper_text]
            if single:
                texts.append(_difference_text(entry))
        if table.is_lift:
            texts += line.lift
        lines.append(texts)
    return heads, lines


def _table_tex(table: tables.Table) -> str:
    heads, lines = _wide_lines(table)
    align = "l" * len(table.heads) + "r" * (len(heads) - len(table.heads))
    return _tex_table(
        [_tex(head) for head in heads],
        align,
        [["--" if text == _NOT_RUN else _tex(text) for text in line] for line in lines],
    )


def _cell_lines(cells: Iterable[Cell]) -> list[list[str]]:
    return [
        [
            names.label(cell.spec.pathway),
            names.label(cell.spec.goodness),
            names.parameter_text(cell.spec),
            names.label(cell.spec.activation),
            "on" if cell.spec.norm_gate else "off",
            _ours(cell),
            cell.reference.text if cell.reference else "",
        ]
        for cell in cells_lib.ranked(cells)
    ]


def _ours(cell: Cell) -> str:
    return cell.text + (" (diverged)" if cell.num_diverged else "")


_PAPER_HEAD = "paper (in brackets: of another run)"
_CELL_HEADS = ("pathway", "goodness", "parameter", "activation", "norm gate", "ours")
_CELL_HEADS += (_PAPER_HEAD,)
_NOT_RUN = "not run"


def _cells_tex(contents: Contents) -> str:
    parts = []
    for setting, cells in contents.groups.items():
        lines = [[_tex(text) for text in line] for line in _cell_lines(cells)]
        parts.append(f"% {_tex(setting.text)}\n")
        parts.append(_tex_table([_tex(head) for head in _CELL_HEADS], "lllllrr", lines))
    return "\n".join(parts)


def _md(text: str) -> str:
    text = re.sub(r"\s+", " ", text)
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\|`*\[\]])", r"\\\1", text)


def markdown_table(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    parts = ["| " + " | ".join(map(_md, heads)) + " |", "|" + " --- |" * len(heads)]
    parts += ["| " + " | ".join(map(_md, line)) + " |" for line in lines]
    return "\n".join(parts) + "\n"


def _markdown(contents: Contents) -> str:
    parts = [
        "# Forward-Forward: ours beside the paper's\n",
        f"{names.count(len(contents.cells), 'cell')}, "
        f"{names.count(len(contents.records), 'run')}. "
        f"{tables.agreement(contents.tables).text}.\n",
        f"Accuracies in percent on the test set; the paper is "
        f"{_md(numbers.CITATION)}.\n",
    ]
    if contents.problems or contents.failures:
        parts.append("## Warnings\n")
        parts += [f"- {_md(problem)}" for problem in contents.problems]
        parts += [
            f"- failed: {_md(failure.cell)}, seed {failure.seed}: {_md(failure.error)}"
            for failure in contents.failures
        ]
        parts.append("")
    run, idle = tables.run_first(contents.tables)
    for table in run:
        parts.append(f"## {_md(table.title)} ({table.id})\n")
        parts.append(markdown_table(*_wide_lines(table)))
    for setting, cells in contents.groups.items():
        parts.append(f"## {_md(setting.text)}\n")
        parts.append(markdown_table(_CELL_HEADS, _cell_lines(cells)))
    parts.append("## Claims of the paper\n")
    parts += [_md_claims(*one) for one in _audits(contents)]
    if idle:
        listed = ", ".join(f"{table.id} ({table.num_entries})" for table in idle)
        parts.append(f"Tables without a run yet (and their numbers): {listed}.\n")
    return "\n".join(parts)


def _md_claims(setting: str, verdicts: Iterable[audit.Verdict]) -> str:
    lines = []
    for v in verdicts:
        papers = _first(v.paper_numbers)
        if papers and v.paper_run:
            papers = f"{v.paper_run}: {papers}"
        notes = " ".join(filter(None, [f"{v.paper_text}.", v.claim.note]))
        lines.append([v.claim.text, v.text, _first(v.numbers), papers, notes])
    heads = ["claim", "verdict", "ours", "paper's numbers", "paper's own tables"]
    return f"### At {_md(setting)}\n\n{markdown_table(heads, lines)}"


def _first(comparisons: Sequence[str]) -> str:
    """Those that decide a verdict; claims.csv has all of them."""
    more = len(comparisons) - _SHOWN
    return "; ".join(
        [*comparisons[:_SHOWN], *([f"and {more} more"] if more > 0 else [])]
    )


def _paper(cell: Cell, common: str) -> str:
    """The paper's number beside a cell; what ``common`` says of it is left out."""
    if cell.reference is None:
        return ""
    return f"({cell.reference.number})" if common else cell.reference.text


def summary_table(
    records: Iterable[Record], workdir: str | os.PathLike[str] | None = None
) -> rich_table.Table:
    """A small table for the terminal: ours, best first, and the paper's number.

    Args:
      records: of the cells to show.
      workdir: where they are from. All seeds of a cell that it holds are pooled, as on
        the page; without it, those of ``records``.
    """
    records = list(records)
    if workdir is not None:
        shown = {record.cell for record in records}
        stored, _ = records_lib.read_all(workdir)
        records = [record for record in stored if record.cell in shown]
    cells = cells_lib.gather(records)
    groups = cells_lib.by_setting(cells)
    single = len(groups) == 1
    others = {cell.reference.differs for cell in cells if cell.reference}
    # What all of the paper's numbers have in common is said once.
    common = others.pop() if len(others) == 1 else ""
    title = next(iter(groups)).text if single else None
    table = rich_table.Table(title=rich_text.Text(title) if title else None)
    heads = ("pathway", "goodness", "activation")
    for head in heads if single else ("setting", *heads):
        table.add_column(head)
    table.add_column("ours (%)", justify="right")
    table.add_column("seeds", justify="right")
    table.add_column("paper (%)")
    if common:
        table.caption = rich_text.Text(f"(paper: {common})")
    for setting, members in groups.items():
        for cell in cells_lib.ranked(members):
            line = [
                names.label(cell.spec.pathway),
                names.goodness(cell.spec),
                names.activation(cell.spec),
                _ours(cell),
                str(len(cell.seeds)),
                _paper(cell, common),
            ]
            if not single:
                line.insert(0, setting.text)
            # Text, not str: a name with brackets must not be read as markup.
            table.add_row(*(rich_text.Text(text) for text in line))
    return table
