"""The report as text files: Markdown, CSV and LaTeX. Nothing here imports jax."""

import csv
import io
import re
from collections.abc import Iterable, Sequence
from typing import Any

from ffjax import paper
from ffjax.report import cells as cells_lib
from ffjax.report import claims, tables
from ffjax.report import contents as contents_lib


def texts(contents: contents_lib.Contents) -> dict[str, str]:
    """The text files of the report, by name."""
    files = {"report.md": _markdown(contents), "tables/cells.csv": _cells_csv(contents)}
    for table in contents.tables:
        files[f"tables/{table.slug}.csv"] = _table_csv(table)
        files[f"tables/{table.slug}.tex"] = _table_tex(table)
    files["tables/cells.tex"] = _cells_tex(contents)
    files["tables/claims.csv"] = _claims_csv(contents)
    return files


def _csv_text(lines: Iterable[Sequence[Any]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for line in lines:
        writer.writerow([_csv_safe(value) for value in line])
    return out.getvalue()


def _csv_safe(value: Any) -> Any:
    """One line of text; what a spreadsheet would run as a formula gets a quote."""
    if isinstance(value, float):
        return f"{value:.4f}"
    if not isinstance(value, str):
        return "" if value is None else value
    text = " ".join(value.split())
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text


def _entry_values(entry: tables.Entry) -> list[Any]:
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
    head += ["paper", "paper_std", "difference", "note"]
    lines: list[list[Any]] = [head]
    for line in table.lines:
        for column, entry in zip(table.columns, line.entries, strict=True):
            if entry:
                lines.append([*line.labels, column, *_entry_values(entry)])
    return _csv_text(lines)


def _cells_csv(contents: contents_lib.Contents) -> str:
    fields = sorted({name for cell in contents.cells for name in cell.spec})
    known_as = ("paper", "paper_is_same_run")
    lines: list[list[Any]] = [
        ["cell", *fields, "accuracy", "std", "seeds", "diverged", "train_s", *known_as]
    ]
    for cell in contents.cells:
        known = tables.reference(cell)
        lines.append(
            [
                cell.id,
                *(_raw(cell.spec.get(name)) for name in fields),
                cell.mean,
                cell.std,
                len(cell.seeds),
                cell.num_diverged,
                cell.train_s,
                known[0].accuracy if known else None,
                known[1] if known else None,
            ]
        )
    return _csv_text(lines)


def _raw(value: Any) -> Any:
    """A field of a spec as it is: 0.0025 must not be rounded to a few digits."""
    return repr(value) if isinstance(value, float) else value


def _claims_csv(contents: contents_lib.Contents) -> str:
    lines: list[list[Any]] = [
        ["setting", "claim", "where", "verdict", "ours", "paper_verdict", "paper"]
    ]
    audits = [("the paper's", contents.verdicts)]
    audits += [
        (contents.texts[one], verdicts)
        for one, verdicts in contents.other_verdicts.items()
    ]
    for text, verdicts in audits:
        for v in verdicts:
            ours, papers = "; ".join(v.numbers), "; ".join(v.paper_numbers)
            line = [text, v.claim.text, v.claim.where, v.verdict, ours]
            lines.append([*line, v.paper_verdict, papers])
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
    if table.id == "tab:ffcl_lift":
        heads += ["lift, ours", "lift, paper"]
    lines = []
    for line in table.lines:
        texts = list(line.labels)
        for entry in line.entries:
            if entry is None:
                texts += [""] * (3 if single else 2)
                continue
            texts += [entry.cell.text if entry.cell else "missing", entry.paper_text]
            if single:
                texts.append(_difference_text(entry))
        if table.id == "tab:ffcl_lift":
            texts += tables.lift(line)
        lines.append(texts)
    return heads, lines


def _table_tex(table: tables.Table) -> str:
    heads, lines = _wide_lines(table)
    align = "l" * len(table.heads) + "r" * (len(heads) - len(table.heads))
    return _tex_table(
        [_tex(head) for head in heads],
        align,
        [
            ["--" if text == "missing" else _tex(text) for text in line]
            for line in lines
        ],
    )


def _cell_lines(found: Iterable[cells_lib.Cell]) -> list[list[str]]:
    lines = []
    for cell in sorted(found, key=tables.accuracy, reverse=True):
        known = tables.reference(cell)
        lines.append(
            [
                paper.label(cell.spec.get("pathway")),
                paper.label(cell.spec.get("goodness")),
                paper.parameter_text(cell.spec),
                paper.label(cell.spec.get("activation")),
                "on" if cell.spec.get("norm_gate") else "off",
                cell.text + (" (diverged)" if cell.num_diverged else ""),
                _known_text(*known) if known else "",
            ]
        )
    return lines


def _known_text(row: paper.Row, exact: bool) -> str:
    return f"{row.accuracy:.2f}" if exact else f"({row.accuracy:.2f})"


_CELL_HEADS = (
    "pathway",
    "goodness",
    "parameter",
    "activation",
    "norm gate",
    "ours",
    f"paper (in brackets, for orientation: {paper.ORIENTATION})",
)


def _cells_tex(contents: contents_lib.Contents) -> str:
    parts = []
    for one, found in contents.groups.items():
        lines = [[_tex(text) for text in line] for line in _cell_lines(found)]
        parts.append(f"% {_tex(contents.texts[one])}\n")
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


def _markdown(contents: contents_lib.Contents) -> str:
    parts = [
        "# Forward-Forward: ours beside the paper's\n",
        f"{len(contents.cells)} cells, {len(contents.records)} runs. "
        f"Accuracies in percent on the test set; the paper is {_md(paper.CITATION)}.\n",
    ]
    if contents.problems or contents.failures:
        parts.append("## Warnings\n")
        parts += [f"- {_md(problem)}" for problem in contents.problems]
        parts += [
            f"- failed: {_md(failure.cell)}, seed {_md(str(failure.seed))}: "
            f"{_md(failure.error)}"
            for failure in contents.failures
        ]
        parts.append("")
    for one, found in contents.groups.items():
        parts.append(f"## {_md(contents.texts[one])}\n")
        parts.append(markdown_table(_CELL_HEADS, _cell_lines(found)))
    parts.append("## Claims of the paper\n")
    parts.append(_md_claims("at the paper's own settings", contents.verdicts))
    for one, verdicts in contents.other_verdicts.items():
        parts.append(_md_claims(f"at this size: {contents.texts[one]}", verdicts))
    for table in contents.tables:
        if table.num_run:
            parts.append(f"## {_md(table.title)} ({table.id})\n")
            parts.append(markdown_table(*_wide_lines(table)))
    idle = [table for table in contents.tables if not table.num_run]
    if idle:
        names = ", ".join(f"{table.id} ({table.num_entries})" for table in idle)
        parts.append(f"Not run yet (cells): {names}.\n")
    return "\n".join(parts)


def _md_claims(title: str, verdicts: Iterable[claims.Verdict]) -> str:
    lines = [
        [
            v.claim.text,
            v.verdict,
            "; ".join(v.numbers),
            "; ".join(v.paper_numbers),
            " ".join(filter(None, [f"{v.paper_verdict}.", v.claim.note])),
        ]
        for v in verdicts
    ]
    heads = ["claim", "verdict", "ours", "paper's numbers", "paper's own tables"]
    return f"### {_md(title)}\n\n{markdown_table(heads, lines)}"
