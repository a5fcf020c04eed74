"""Records -> a page, tables and figures that put our numbers beside the paper's.

    python -m ffjax.report --workdir=DIR

writes DIR/report/index.html (a single file that opens offline), report.md, tables/*.csv
and *.tex, figures/*.png and *.pdf. A running grid redraws the page alone. Nothing here
imports jax, and matplotlib is imported only to draw figures.
"""

import base64
import datetime
import functools
import hashlib
import os
import pathlib
import re
from collections.abc import Iterable, Mapping, Sequence

import jinja2
import markupsafe

from ffjax import atomic
from ffjax.errors import UserError
from ffjax.paper import names, numbers
from ffjax.records import Record
from ffjax.report import audit, details, tables, text
from ffjax.report import cells as cells_lib
from ffjax.report import charts as charts_lib
from ffjax.report import contents as contents_lib
from ffjax.report.cells import Setting
from ffjax.report.charts import Charts
from ffjax.report.contents import Contents

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
    contents: Contents, workdir: str | os.PathLike[str], *, figures: bool = True
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
    contents: Contents, folder: pathlib.Path, *, figures: bool
) -> pathlib.Path:
    charts = {
        setting: charts_lib.build(setting, cells)
        for setting, cells in contents.groups.items()
    }
    extra: list[str] = []
    if figures:
        for name, content in text.files(contents).items():
            atomic.write_bytes(folder / name, _encoded(content))
            extra.append(name)
        from ffjax.report import figures as figures_lib  # matplotlib takes its time

        agreement = tables.agreement(contents.tables)
        extra += figures_lib.write(folder / "figures", charts, agreement)
    path = folder / "index.html"
    page = _page(contents, charts, live=not figures, extra=extra)
    atomic.write_bytes(path, _encoded(page))
    return path


def _encoded(content: str) -> bytes:
    """UTF-8; half a character, which a file's name can hold, is replaced."""
    return content.encode("utf-8", "replace")


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["times"] = _with_times_sign
    environment.filters["squeezed"] = _squeezed
    environment.globals.update(
        names=names,
        audit=audit,
        near=tables.NEAR,
        shade=_shade,
    )
    return environment


def _with_times_sign(content: str) -> str:
    return re.sub(r"(?<=\d)x(?=\d)|(?<= )x(?= )", "\u00d7", content)


def _squeezed(content: markupsafe.Markup) -> markupsafe.Markup:
    """HTML without the template's indentation, which is a tenth of a large page."""
    return markupsafe.Markup(re.sub(r"\n\s+", "\n", content))


def _page(
    contents: Contents,
    charts: Mapping[Setting, Charts],
    *,
    live: bool,
    extra: Sequence[str] = (),
) -> str:
    script = (_TEMPLATES / "report.js").read_text(encoding="utf-8")
    style = (_TEMPLATES / "report.css").read_text(encoding="utf-8")
    run, idle = tables.run_first(contents.tables)
    drawn, listed = _drawn_charts(charts)
    template = _environment().get_template("report.html")
    return template.render(
        contents=contents,
        agreement=tables.agreement(contents.tables),
        cell_numbers={cell: i for i, cell in enumerate(contents.cells)},
        settings=[
            (setting, cells_lib.ranked(cells), charts[setting], drawn[setting])
            for setting, cells in contents.groups.items()
        ],
        tables=run,
        idle_tables=idle,
        judged=[v for v in contents.verdicts if v.kind != audit.OPEN],
        not_judged=[v for v in contents.verdicts if v.kind == audit.OPEN],
        outcome=_outcome(contents.verdicts),
        best=cells_lib.best(contents.cells),
        devices=sorted({run.device for run in contents.records}),
        versions=_versions(contents.records),
        num_diverged=sum(run.is_diverged for run in contents.records),
        citation=numbers.CITATION,
        extra=extra,
        live=live,
        now=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        style=markupsafe.Markup(style),
        script=markupsafe.Markup(script),
        # Only this very script may run, whatever else got onto the page.
        script_hash=_sha256(script),
        data=details.packed(contents.cells, contents.groups, listed),
    )


def _drawn_charts(
    charts: Mapping[Setting, Charts],
) -> tuple[dict[Setting, dict[str, list[int]]], list[charts_lib.Chart]]:
    """The charts that the page draws, and their numbers by setting and kind."""
    listed: list[charts_lib.Chart] = []
    drawn: dict[Setting, dict[str, list[int]]] = {}
    for setting, its in charts.items():
        drawn[setting] = {}
        for kind, shown in (("sweeps", its.sweeps), ("runs", its.layers + its.losses)):
            first = len(listed)
            listed += shown
            drawn[setting][kind] = list(range(first, len(listed)))
    return drawn, listed


def _outcome(verdicts: Iterable[audit.Verdict]) -> str:
    """How many claims came to what."""
    kinds = [verdict.kind for verdict in verdicts]
    words = {
        audit.HOLDS: "hold",
        audit.FAILS: "do not hold",
        audit.UNDECIDED: "are within the spread of the seeds",
        audit.PARTLY: "have no counterexample so far",
        audit.OPEN: "are not judged yet",
    }
    parts = [f"{kinds.count(k)} {text}" for k, text in words.items() if k in kinds]
    return ", ".join(parts)


def _sha256(content: str) -> str:
    digest = hashlib.sha256(content.encode("utf-8")).digest()
    return base64.b64encode(digest).decode("ascii")


def _versions(records: Iterable[Record]) -> str:
    """The versions, where all records agree on them."""
    sets = {
        ", ".join(f"{name} {version}" for name, version in run.versions.items())
        for run in records
    }
    return sets.pop() if len(sets) == 1 else f"{len(sets)} different sets of versions"


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
