"""Records -> a page, tables and figures that put our numbers beside the paper's.

    python -m ffjax.report --workdir=DIR

writes DIR/report/index.html (one file that opens offline), report.md, tables/*.csv
and *.tex, figures/*.png and *.pdf. A running grid redraws the page alone. Nothing here
imports jax, and matplotlib is imported only to draw figures.
"""

import base64
import datetime
import functools
import hashlib
import json
import os
import pathlib
import re
from collections.abc import Iterable, Sequence
from typing import Any

import jinja2
import markupsafe
from rich import table as rich_table
from rich import text as rich_text

from ffjax import atomic, paper, records
from ffjax.errors import UserError
from ffjax.report import cells as cells_lib
from ffjax.report import claims, export, tables
from ffjax.report import contents as contents_lib
from ffjax.report import views as views_lib

_TEMPLATES = pathlib.Path(__file__).parent / "templates"


def write(workdir: str | os.PathLike[str], *, figures: bool = True) -> pathlib.Path:
    """Writes the report of ``workdir`` and returns the path of its page.

    Args:
      workdir: the folder of a grid, with its ``results``.
      figures: False while the grid runs: writes the page alone, and lets it reload
        itself.

    Raises:
      UserError: the workdir holds no results, or cannot be written.
    """
    return write_contents(contents_lib.read(workdir), workdir, figures=figures)


def write_contents(
    contents: contents_lib.Contents,
    workdir: str | os.PathLike[str],
    *,
    figures: bool = True,
) -> pathlib.Path:
    """``write`` for a workdir that has been read."""
    folder = pathlib.Path(workdir) / "report"
    try:
        return _write_files(contents, folder, figures=figures)
    except OSError as error:
        raise UserError(
            f"workdir={str(workdir)!r}: cannot write its folder 'report' "
            f"({error.strerror}); make it writable"
        ) from None


def _write_files(
    contents: contents_lib.Contents, folder: pathlib.Path, *, figures: bool
) -> pathlib.Path:
    views = {one: views_lib.build(one, found) for one, found in contents.groups.items()}
    extra: list[str] = []
    if figures:
        for name, text in export.texts(contents).items():
            atomic.write_bytes(folder / name, _encoded(text))
            extra.append(name)
        from ffjax.report import figures as figures_lib  # matplotlib takes its time

        labels = {one: contents.texts[one] for one in views}
        extra += figures_lib.write(folder / "figures", views, labels)
    path = folder / "index.html"
    page = _page(contents, views, live=not figures, extra=extra)
    atomic.write_bytes(path, _encoded(page))
    return path


def _encoded(text: str) -> bytes:
    """UTF-8; half a character, which JSON can hold, becomes a question mark."""
    return text.encode("utf-8", "replace")


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["label"] = paper.label
    environment.filters["ident"] = id
    environment.filters["parameters"] = paper.parameter_text
    environment.filters["times"] = _with_times_sign
    environment.globals["shade"] = _shade
    environment.globals["reference"] = tables.reference
    environment.globals["lift"] = tables.lift
    environment.globals["orientation_text"] = paper.ORIENTATION
    environment.globals["HOLDS"] = claims.HOLDS
    environment.globals["FAILS"] = claims.FAILS
    environment.globals["AGAINST"] = claims.AGAINST
    return environment


def _with_times_sign(text: str) -> str:
    return re.sub(r"(?<=\d)x(?=\d)|(?<= )x(?= )", "\u00d7", text)


def _page(
    contents: contents_lib.Contents,
    views: dict[cells_lib.Setting, dict[str, Any]],
    *,
    live: bool,
    extra: Sequence[str] = (),
) -> str:
    numbers = {id(cell): i for i, cell in enumerate(contents.cells)}
    charts: list[dict[str, Any]] = []
    settings = []
    for one, view in views.items():
        drawn = {}
        for kind in ("sweeps", "layers", "curves"):
            drawn[kind] = list(range(len(charts), len(charts) + len(view[kind])))
            charts += view[kind]
        settings.append(
            {
                "text": contents.texts[one],
                "is_paper": one.is_paper,
                "cells": sorted(
                    contents.groups[one], key=tables.accuracy, reverse=True
                ),
                "bars": view["bars"],
                "heat": view["heat"],
                "charts": drawn,
            }
        )
    script = (_TEMPLATES / "report.js").read_text(encoding="utf-8")
    data = {
        "charts": charts,
        "cells": [_cell_data(cell, contents) for cell in contents.cells],
        "live": live,
    }
    run = [table for table in contents.tables if table.num_run]
    return (
        _environment()
        .get_template("report.html")
        .render(
            contents=contents,
            numbers=numbers,
            settings=settings,
            tables=run,
            tables_not_run=[table for table in contents.tables if not table.num_run],
            num_idle=sum(
                table.num_entries
                for table in contents.tables
                if not table.num_run and table.id in paper.TABLES
            ),
            judged=[v for v in contents.verdicts if v.verdict != claims.OPEN],
            not_judged=[v for v in contents.verdicts if v.verdict == claims.OPEN],
            other_audits=[
                (contents.texts[one], verdicts)
                for one, verdicts in contents.other_verdicts.items()
            ],
            best=max(contents.cells, key=tables.accuracy, default=None),
            devices=sorted({run["device"] for run in contents.records}),
            versions=_versions(contents.records),
            diverged=sum(run["status"] == "diverged" for run in contents.records),
            citation=paper.CITATION,
            extra=extra,
            live=live,
            drawn=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
            css=markupsafe.Markup(
                (_TEMPLATES / "report.css").read_text(encoding="utf-8")
            ),
            script=markupsafe.Markup(script),
            # Only this very script may run, whatever else got onto the page.
            script_hash=base64.b64encode(
                hashlib.sha256(script.encode("utf-8")).digest()
            ).decode("ascii"),
            data=_embedded(data),
        )
    )


def _embedded(data: Any) -> markupsafe.Markup:
    """JSON that cannot end the script element that holds it."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return markupsafe.Markup(text)


def _cell_data(cell: cells_lib.Cell, contents: contents_lib.Contents) -> dict[str, Any]:
    """What the page shows of a cell on click."""
    known = tables.reference(cell)
    first = cell.runs[0]
    names = first.get("class_names")
    return {
        "title": " ".join(
            [
                paper.label(cell.spec.get("pathway")),
                views_lib.short_name(cell),
                paper.label(cell.spec.get("activation")),
            ]
        ),
        "setting": contents.texts[cells_lib.setting(cell.spec)],
        "id": cell.id,
        "text": cell.text,
        "paper": f"{known[0].accuracy:.2f}" if known else None,
        "exact": bool(known and known[1]),
        "note": known[0].note if known else "",
        "names": [str(name) for name in names] if isinstance(names, list) else None,
        "spec": {str(name): _plain(value) for name, value in cell.spec.items()},
        "runs": [_run_data(run) for run in cell.runs],
    }


def _run_data(run: records.Record) -> dict[str, Any]:
    facts = {
        "accuracy of the concatenation alone": _percent(run["accuracy_concat"]),
        "validation accuracy": _percent(run.get("accuracy_valid")),
        "training images": run["train_size"],
        "test images": run["test_size"],
        "device": run["device"],
        "finished": run.get("finished"),
        "commit": run["commit"],
        "data": run.get("data"),
    }
    for name, label in (
        ("compile_s", "compilation"),
        ("train_s", "training"),
        ("eval_s", "evaluation"),
    ):
        seconds = cells_lib.number(run["time"].get(name))
        if seconds is not None:
            facts[label] = f"{seconds:.1f} s"
    return {
        "seed": run["seed"],
        "status": _status(run),
        "accuracy": cells_lib.number(run["accuracy"]),
        "layers": [cells_lib.number(value) for value in run["accuracy_layers"]],
        "losses": [
            [
                [epoch, None if loss is None else float(f"{loss:.4g}")]
                for epoch, loss in views_lib.thinned(layer, 1)
            ]
            for layer in views_lib.loss_lists(run)
        ],
        "confusion": [
            [cells_lib.number(count) or 0 for count in row]
            for row in run["confusion"]
            if isinstance(row, list)
        ],
        "facts": {
            name: _plain(value) for name, value in facts.items() if value is not None
        },
    }


def _status(run: records.Record) -> str:
    """The status, with layer and epoch from 1 where it diverged."""
    place = run.get("diverged_at")
    if run["status"] != "diverged" or not isinstance(place, dict):
        return run["status"]
    parts = [
        f"{name} {place[name] + 1}"
        for name in ("layer", "epoch")
        if isinstance(place.get(name), int)
    ]
    return f"diverged at {', '.join(parts)}" if parts else "diverged"


def _percent(value: Any) -> str | None:
    number = cells_lib.number(value)
    return None if number is None else f"{number:.2f} %"


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _versions(records: Iterable[records.Record]) -> str:
    """The versions, where all records agree on them."""
    found = {
        ", ".join(f"{name} {version}" for name, version in run["versions"].items())
        for run in records
    }
    return found.pop() if len(found) == 1 else f"{len(found)} different sets"


def _shade(value: float, low: float, high: float) -> dict[str, str]:
    """Background and ink for a value in a range: pale yellow to dark blue."""
    share = 0.5 if high <= low else min(1.0, max(0.0, (value - low) / (high - low)))
    stops = ((255, 247, 205), (127, 205, 187), (44, 127, 184), (24, 44, 110))
    place = share * (len(stops) - 1)
    i = min(int(place), len(stops) - 2)
    mixed = [
        round(a + (place - i) * (b - a))
        for a, b in zip(stops[i], stops[i + 1], strict=True)
    ]
    return {
        "background": f"rgb({mixed[0]},{mixed[1]},{mixed[2]})",
        "ink": "#fff" if share > 0.55 else "#111",
    }


def summary_table(records: Iterable[records.Record]) -> rich_table.Table:
    """A small table for the terminal: ours, best first, and the paper's number."""
    found = cells_lib.gather(records)
    groups = cells_lib.by_setting(found)
    texts = cells_lib.setting_texts(groups)
    single = len(groups) == 1
    table = rich_table.Table(
        title=rich_text.Text(next(iter(texts.values()))) if single else None
    )
    if not single:
        table.add_column("setting")
    for head in ("pathway", "goodness", "activation", "parameter"):
        table.add_column(head)
    table.add_column("ours (%)", justify="right")
    table.add_column(f"{paper.ORIENTATION} (%)", justify="right")
    for one, members in groups.items():
        for cell in sorted(members, key=tables.accuracy, reverse=True):
            known = paper.orientation(cell.spec)
            gate = ", norm gate" if cell.spec.get("norm_gate") else ""
            texts_of_line = [
                paper.label(cell.spec.get("pathway")),
                paper.label(cell.spec.get("goodness")),
                paper.label(cell.spec.get("activation")) + gate,
                paper.parameter_text(cell.spec),
                cell.text + (" (diverged)" if cell.num_diverged else ""),
                f"{known.accuracy:.2f}" if known else "",
            ]
            if not single:
                texts_of_line.insert(0, texts[one])
            # Text, not str: a name with brackets must not be read as markup.
            table.add_row(*(rich_text.Text(text) for text in texts_of_line))
    return table
