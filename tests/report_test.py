"""The report: what it says, what it survives and what it never does."""

import csv
import html.parser
import io
import json
import os
import re
import subprocess
import sys
import time

import pytest
import records
import rich.console

from ffjax import paper, records, report
from ffjax.errors import UserError
from ffjax.report import cells, claims, contents, export, tables, views

EVIL = "mine:<script>alert(1)</script>"


def fill(workdir, made):
    for one in made:
        records.write(workdir, one)
    return workdir


@pytest.fixture(scope="module")
def paper_workdir(tmp_path_factory):
    """The paper's whole grid, and one of everything that can go wrong."""
    workdir = tmp_path_factory.mktemp("paper")
    made = records.paper_grid(records.near_paper)
    made += [
        records.record(records.spec(goodness=EVIL, pathway=pathway), accuracy=80.0)
        for pathway in ("standard", "ffcl")
    ]
    made.append(
        records.record(
            records.spec(goodness="moment", p=10),
            accuracy=10.0,
            status="diverged",
            diverged_at={"layer": 1, "epoch": 3},
        )
    )
    fill(workdir, made)
    (workdir / "results/cut-seed1.json").write_text('{"cell": "cu')
    failure = {
        "cell": "oom<b>",
        "seed": 42,
        "spec": records.spec(goodness="entmax", width=10**6),
        "error": "out of memory <img src=x onerror=alert(1)>",
    }
    (workdir / "failures").mkdir()
    (workdir / "failures/oom.json").write_text(json.dumps(failure))
    report.write(workdir)
    return workdir


@pytest.fixture(scope="module")
def quick_workdir(tmp_path_factory):
    workdir = fill(tmp_path_factory.mktemp("quick"), records.quick_grid())
    report.write(workdir)
    return workdir


class _Page(html.parser.HTMLParser):
    """The text of each section, the tags and what a browser would run or load."""

    def __init__(self, text):
        super().__init__()
        self.sections, self.scripts, self.loads, self.handlers = {}, [], [], []
        self._section, self._tag = "", ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self._tag = tag
        if tag == "section":
            self._section = found.get("id", "")
        if tag == "script":
            self.scripts.append(found.get("type", "run"))
        loading = ("src", "srcset", "data", "action")
        self.loads += [found[name] for name in loading if name in found]
        self.handlers += [name for name in found if name.startswith("on")]

    def handle_data(self, data):
        if self._tag not in ("script", "style"):
            before = self.sections.get(self._section, "")
            self.sections[self._section] = f"{before} {data}"

    def text(self, section):
        return re.sub(r"\s+", " ", self.sections[section])


def page(workdir):
    return (workdir / "report/index.html").read_text(encoding="utf-8")


def test_a_workdir_without_results_is_one_clear_line(tmp_path):
    for workdir in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(UserError, match="no results") as caught:
            report.write(workdir)
        assert "\n" not in str(caught.value)
    assert not (tmp_path / "report").exists()


def test_a_workdir_with_garbage_alone_says_what_is_wrong(tmp_path):
    (tmp_path / "results").mkdir()
    (tmp_path / "results/a-seed1.json").write_text("garbage")
    with pytest.raises(UserError, match="1 broken"):
        report.write(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_an_unwritable_workdir_is_one_clear_line(tmp_path):
    fill(tmp_path, [records.record()])
    tmp_path.chmod(0o555)
    with pytest.raises(UserError, match="cannot write"):
        report.write(tmp_path)


def test_a_file_in_the_way_is_one_clear_line(tmp_path):
    fill(tmp_path, [records.record()])
    (tmp_path / "report").write_text("a file")
    with pytest.raises(UserError, match="cannot write its folder 'report'"):
        report.write(tmp_path, figures=False)


def test_all_files_are_written(paper_workdir):
    folder = paper_workdir / "report"
    names = {path.name for path in (folder / "tables").iterdir()}
    for table_id in [*paper.TABLES, "tab:ffcl_lift"]:
        assert {f"{table_id[4:]}.csv", f"{table_id[4:]}.tex"} <= names
    assert {"cells.csv", "cells.tex", "claims.csv"} <= names
    figures = {path.name.split("-")[0] for path in (folder / "figures").iterdir()}
    assert figures == {"sweeps", "heat", "layers", "curves"}
    for path in (folder / "figures").iterdir():
        start = b"%PDF" if path.suffix == ".pdf" else b"\x89PNG"
        assert path.read_bytes().startswith(start)
    assert (folder / "report.md").exists()
    left = [path for path in folder.rglob(".*")]
    assert left == []


def test_every_number_of_the_paper_is_on_the_page_with_ours(paper_workdir):
    found = contents.read(paper_workdir)
    known = [table for table in found.tables if table.id in paper.TABLES]
    assert sum(table.num_entries for table in known) == 282
    assert sum(table.num_run for table in known) == 282
    text = _Page(page(paper_workdir)).text("tables")
    for table in known:
        assert table.title in text.replace("\u00d7", "x")
        for entry in table.entries:
            assert entry.cell.text in text
            if entry.row:
                assert entry.paper_text in text
    assert "missing" not in text


def test_the_difference_is_ours_minus_the_papers(tmp_path):
    made = records.spec(goodness="moment", p=6)
    fill(tmp_path, [records.record(made, accuracy=87.0)])
    report.write(tmp_path, figures=False)
    text = _Page(page(tmp_path)).text("tables")
    assert "89.04 -2.04" in text
    assert "missing" in text  # the other rows of the same table


def test_the_better_gate_is_taken_as_in_the_paper():
    made = [
        records.record(records.spec(norm_gate=gate), accuracy=accuracy)
        for gate, accuracy in ((False, 88.0), (True, 88.3))
    ]
    found = tables.paper_tables(cells.gather(made))
    main = next(table for table in found if table.id == "tab:main")
    (entry,) = [entry for entry in main.entries if entry.cell]
    assert entry.ours == 88.3
    assert entry.difference == pytest.approx(88.3 - 88.41)


def test_several_seeds_are_mean_and_sample_deviation(tmp_path):
    made = [
        records.record(seed=seed, accuracy=accuracy)
        for seed, accuracy in ((42, 88.0), (43, 89.0), (44, 90.0))
    ]
    report.write(fill(tmp_path, made), figures=False)
    assert "89.00 ± 1.00" in page(tmp_path)


def test_the_interaction_table_has_ours_where_the_paper_has_none():
    made = records.spec(goodness="topk", activation="relu", pathway="standard")
    found = tables.paper_tables(cells.gather([records.record(made, accuracy=70.0)]))
    table = next(one for one in found if one.id == "tab:interaction")
    (entry,) = [entry for entry in table.entries if entry.cell]
    assert (entry.row, entry.ours) == (None, 70.0)


def test_five_epochs_never_stand_beside_the_papers_sixty(tmp_path):
    short = records.spec(epochs=5)
    report.write(fill(tmp_path, [records.record(short)]))
    assert not any(table.num_run for table in contents.read(tmp_path).tables)
    parsed = _Page(page(tmp_path))
    assert "Not run yet: 12 tables (282 numbers)" in parsed.text("tables")
    assert "orientation only" in parsed.text("setting1")
    with (tmp_path / "report/tables/cells.csv").open(newline="") as file:
        (line,) = csv.DictReader(file)
    assert line["paper"] == "88.4100"
    assert line["paper_is_same_run"] == "False"
    assert "| (88.41) |" in (tmp_path / "report/report.md").read_text()


def test_the_papers_own_small_network_is_not_called_orientation(tmp_path):
    small = records.spec(
        pathway="standard", goodness="sos", activation="relu", num_layers=2, width=500
    )
    other = {**small, "goodness": "burstiness", "activation": "swish"}
    report.write(fill(tmp_path, [records.record(small), records.record(other)]))
    lines = (tmp_path / "report/report.md").read_text().splitlines()
    (exact,) = [line for line in lines if line.startswith("| standard | SoS |")]
    (absent,) = [line for line in lines if line.startswith("| standard | burst")]
    assert exact.endswith("| 61.07 |")  # the paper's table of small networks
    assert re.search(r"\| \(\d\d\.\d\d\) \|$", absent)
    assert "where it has no such run" in page(tmp_path)


def test_the_quick_grid_tells_its_story(quick_workdir):
    parsed = _Page(page(quick_workdir))
    setting = parsed.text("setting1")
    assert "2\u00d7500, 10 epochs" in setting
    for name in ("burstiness", "entmax", "top-k", "SoS", "Sweeps"):
        assert name in setting
    assert "Not run yet" in parsed.text("tables")
    assert "At this size" in parsed.text("claims")
    assert "17 of" not in parsed.text("cells")  # the count is the script's
    assert list((quick_workdir / "report/figures").glob("sweeps-*.pdf"))


def test_a_users_own_function_stands_in_the_papers_tables(paper_workdir):
    found = {table.id: table for table in contents.read(paper_workdir).tables}
    (line,) = [x for x in found["tab:goodness"].lines if x.labels == (EVIL,)]
    assert [entry.cell.mean for entry in line.entries] == [80.0, 80.0]
    ranked = [x for x in found["tab:fashion_full"].lines if EVIL in x.labels]
    assert len(ranked) == 2
    # ... and does not count as a number of the paper.
    assert found["tab:goodness"].num_entries == 22


def test_names_with_html_are_text_everywhere(paper_workdir):
    text = page(paper_workdir)
    parsed = _Page(text)
    assert parsed.scripts == ["application/json", "run"]
    assert parsed.handlers == []
    assert parsed.loads == []
    assert EVIL in parsed.text("cells")
    assert "oom<b>" in parsed.text("warnings")
    assert "<script>alert" not in text
    markdown = (paper_workdir / "report/report.md").read_text()
    assert "<script" not in markdown
    assert "<img" not in markdown
    tex = (paper_workdir / "report/tables/goodness.tex").read_text()
    assert r"mine:\textless{}script\textgreater{}" in tex


def test_the_embedded_json_is_whole_and_cannot_end_its_element(paper_workdir):
    text = page(paper_workdir)
    (inside,) = re.findall(
        r'<script type="application/json" id="data">(.*?)</scr', text
    )
    assert not set("<>&") & set(inside)
    data = json.loads(inside)
    assert any(cell["title"].count(EVIL) for cell in data["cells"])


def test_the_page_allows_nothing_but_its_own_script(quick_workdir):
    text = page(quick_workdir)
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)
    assert "default-src 'none'" in policy
    assert "script-src 'sha256-" in policy
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in text


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r"])
def test_no_text_is_a_formula_in_a_spreadsheet(tmp_path, start):
    evil = f"{start}HYPERLINK(1)"
    fill(tmp_path, [records.record(records.spec(goodness=evil))])
    text = export.texts(contents.read(tmp_path))["tables/cells.csv"]
    (line,) = csv.DictReader(io.StringIO(text, newline=""))
    assert line["goodness"] in (f"'{evil}", "HYPERLINK(1)")


def test_csv_numbers_stay_numbers(paper_workdir):
    with (paper_workdir / "report/tables/ffcl_lift.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert all(float(line["ours"]) for line in lines if line["ours"])
    with (paper_workdir / "report/tables/cells.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    fractions = {line["k_fraction"] for line in lines}
    assert "0.0025" in fractions


@pytest.mark.parametrize(
    "evil", ["a|b", "a\nb", "`x`", "[x](y)", "\\", "100 % & $x_1$"]
)
def test_markdown_and_latex_survive_odd_names(tmp_path, evil):
    fill(tmp_path, [records.record(records.spec(goodness=evil))])
    files = export.texts(contents.read(tmp_path))
    (line,) = [x for x in files["report.md"].splitlines() if "| FFCL |" in x]
    assert len(re.findall(r"(?<!\\)\|", line)) == 8
    body = files["tables/cells.tex"].split("\\midrule\n")[1].split("\\bottomrule")[0]
    assert body.count("\n") == 1
    assert len(re.findall(r"(?<!\\)&", body)) == 6
    assert not re.search(r"(?<!\\)[%$#_]", body.replace(r"$\pm$", ""))


def test_latex_has_as_many_columns_as_it_says(paper_workdir):
    for path in (paper_workdir / "report/tables").glob("*.tex"):
        for part in path.read_text().split(r"\begin{tabular}")[1:]:
            (align,) = re.findall(r"^\{([lr]+)\}", part)
            rows = [line for line in part.splitlines() if line.endswith(r"\\")]
            counts = {len(re.findall(r"(?<!\\)&", row)) + 1 for row in rows}
            assert counts == {len(align)}, path


def test_divergence_and_failures_are_shown(paper_workdir):
    parsed = _Page(page(paper_workdir))
    assert "failed" in parsed.text("warnings")
    assert "out of memory" in parsed.text("warnings")
    assert "cut-seed1.json" in parsed.text("warnings")
    assert "1 diverged" in parsed.text("cells")
    assert "diverged at layer 2, epoch 4" in page(paper_workdir)  # from 1
    markdown = (paper_workdir / "report/report.md").read_text()
    assert "10.00 (diverged)" in markdown
    assert "failed: oom" in markdown


def test_a_failure_that_was_mended_is_not_shown(tmp_path):
    made = records.record()
    fill(tmp_path, [made])
    (tmp_path / "failures").mkdir()
    failure = {"cell": made["cell"], "seed": 42, "spec": {}, "error": "once"}
    (tmp_path / "failures/a.json").write_text(json.dumps(failure))
    assert contents.read(tmp_path).failures == []


def test_failures_alone_make_a_report_and_garbage_among_them_is_listed(tmp_path):
    (tmp_path / "failures").mkdir()
    odd = {"cell": "a", "seed": 1, "spec": {"goodness": ["x"]}, "error": "no memory"}
    (tmp_path / "failures/a.json").write_text(json.dumps(odd))
    for i, garbage in enumerate(("{", "[]", "3", '{"cell": 1}', '{"spec": 3}')):
        (tmp_path / f"failures/b{i}.json").write_text(garbage)
    report.write(tmp_path)
    assert "no memory" in page(tmp_path)
    assert len(contents.read(tmp_path).problems) == 5


@pytest.mark.parametrize(
    "odd",
    [
        {"accuracy_layers": [], "confusion": [], "losses": [], "time": {}},
        {
            "accuracy_layers": [None, "x"],
            "confusion": [["x"], 3],
            "losses": [3, [None]],
        },
        {"losses": [[None] * 5] * 4, "status": "diverged"},
        {"losses": [[0.5]] * 4, "diverged_at": "here"},
        {"class_names": ["one"], "data": {"a": [1]}, "accuracy_valid": "x"},
        {"spec": {}},
        {"spec": {"goodness": "moment", "p": "six", "width": "wide", "epochs": None}},
        {
            "spec": {
                **records.spec(),
                "goodness": {"a": 1},
                "dataset": "../$x_\ud800.npz",
            }
        },
        {"spec": {**records.spec(), "trainer": "other", "loss": None}},
        {"spec": {**records.spec(), "goodness": "_$\\frac{"}},
        {"versions": {"a": {"b": []}}},
    ],
)
def test_odd_records_do_no_harm(tmp_path, odd):
    made = {**records.record(records.spec(goodness="moment", p=2)), **odd}
    other = records.record(records.spec(goodness="sos", num_layers=2), cell="other")
    fill(tmp_path, [made, other])
    report.write(tmp_path, figures=False)
    assert _Page(page(tmp_path)).text("cells")
    assert export.texts(contents.read(tmp_path))
    report.summary_table([made, other])


@pytest.mark.parametrize(
    "odd",
    [
        {"goodness": "_$\\frac{", "dataset": "../$x_\ud800.npz"},
        {"goodness": "\u2603\U0001f600 " * 30, "dataset": "/"},
    ],
)
def test_figures_survive_odd_names(tmp_path, odd):
    made = [
        records.record(records.spec(activation=activation, **odd))
        for activation in ("gelu", "$^")
    ]
    made.append(records.record(records.spec(dataset=odd["dataset"], goodness="sos")))
    report.write(fill(tmp_path, made))
    found = [path.name for path in (tmp_path / "report/figures").iterdir()]
    assert len(found) == 6
    assert all(re.fullmatch(r"[A-Za-z0-9.-]+", name) for name in found)
    inside = {path.name for path in tmp_path.iterdir()}
    assert inside == {"results", "report"}


def test_a_live_page_is_cheap_and_reloads_itself(tmp_path):
    fill(tmp_path, [records.record()])
    report.write(tmp_path, figures=False)
    assert sorted(path.name for path in (tmp_path / "report").iterdir()) == [
        "index.html"
    ]
    assert '"live":true' in page(tmp_path)
    assert "running" in page(tmp_path)
    report.write(tmp_path)
    assert '"live":false' in page(tmp_path)
    assert "● running" not in page(tmp_path)


def test_a_failed_write_leaves_the_old_page(tmp_path, monkeypatch):
    fill(tmp_path, [records.record()])
    report.write(tmp_path, figures=False)
    before = page(tmp_path)

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(UserError, match="No space left"):
        report.write(tmp_path, figures=False)
    assert page(tmp_path) == before
    assert [path.name for path in (tmp_path / "report").iterdir()] == ["index.html"]


def test_the_same_records_give_the_same_files(quick_workdir, tmp_path):
    report.write(fill(tmp_path, records.quick_grid()))
    for path in (quick_workdir / "report").rglob("*.*"):
        if path.name == "index.html":  # holds the time
            continue
        other = tmp_path / "report" / path.relative_to(quick_workdir / "report")
        assert other.read_bytes() == path.read_bytes(), path


def test_claims_are_on_the_page_with_their_verdicts(paper_workdir):
    text = _Page(page(paper_workdir)).text("claims")
    for verdict in contents.read(paper_workdir).verdicts:
        assert verdict.claim.text in text
        assert verdict.claim.note in text
    assert claims.HOLDS in text
    assert claims.FAILS in text


def test_references_say_whether_they_are_of_the_same_run():
    (exact,) = cells.gather([records.record()])
    row, same = tables.reference(exact)
    assert (row.accuracy, same) == (88.41, True)
    seeds = [records.record(seed=seed) for seed in range(42, 47)]
    (several,) = cells.gather(seeds)
    assert tables.reference(several)[0].table == "tab:seeds"
    (small,) = cells.gather([records.record(records.spec(width=500))])
    assert tables.reference(small)[1] is False
    (own,) = cells.gather([records.record(records.spec(goodness=EVIL))])
    assert tables.reference(own) is None


def test_a_sweep_has_both_curves_on_both_pathways(paper_workdir):
    found = contents.read(paper_workdir)
    one, members = next(iter(found.groups.items()))
    charts = {chart["x"]: chart for chart in views.build(one, members)["sweeps"]}
    assert set(charts) == {"k (% of the width)", "alpha", "p"}
    for chart in charts.values():
        assert [line["name"] for line in chart["series"]] == [
            "ours, standard",
            "paper, standard",
            "ours, FFCL",
            "paper, FFCL",
        ]
    papers = charts["p"]["series"][3]["points"]
    assert [2, 10.0, None] in papers
    assert [6, 89.04, None] in papers
    assert len(charts["k (% of the width)"]["series"][0]["points"]) == 7


@pytest.mark.parametrize(
    ("ours", "papers", "floor"),
    [
        ([10, 85, 89, 84], [10, 85, 88, 84], pytest.approx(83.6)),  # an end at chance
        ([30, 34, 33], [86, 89, 84], None),  # far below the paper, but no outlier
        ([14, 37, 31], [10, 86, 89], None),  # cutting would gain little
        ([5], [], None),
    ],
)
def test_a_sweep_is_cut_only_where_that_helps(ours, papers, floor):
    series = [
        {"points": [[x, y, None] for x, y in enumerate(values)]}
        for values in (ours, papers)
        if values
    ]
    assert views._floor(series) == floor


def test_long_learning_curves_are_thinned_and_keep_their_ends():
    found = views.thinned([float(i) for i in range(1000)], 1)
    assert len(found) <= 130
    assert found[0] == (1, 0.0)
    assert found[-1] == (1000, 999.0)
    assert views.thinned([], 1) == []


def test_the_terminal_table_has_ours_and_the_papers():
    made = records.quick_grid()
    made.append(records.record(records.spec(goodness="[red]x[/red]", epochs=10)))
    console = rich.console.Console(width=160, file=io.StringIO())
    console.print(report.summary_table(made))
    text = console.file.getvalue()
    assert "paper, 4x2000, 60 epochs" in text
    assert "89.04" in text
    assert "[red]x[/red]" in text
    assert f"{made[0]['accuracy']:.2f}" in text


def test_five_hundred_records_are_quick(tmp_path):
    made = records.paper_grid(records.near_paper)
    extra = [records.record(one["spec"], seed=99) for one in made[:85]]
    fill(tmp_path, made + extra)
    start = time.process_time()
    report.write(tmp_path, figures=False)
    assert time.process_time() - start < 3


def _command(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "ffjax.report", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_command_prints_the_path_and_the_warnings(tmp_path):
    fill(tmp_path, [records.record()])
    (tmp_path / "results/cut-seed1.json").write_text("{")
    done = _command(f"--workdir={tmp_path}")
    assert done.returncode == 0
    assert done.stdout.strip() == str(tmp_path / "report/index.html")
    assert "cut-seed1.json" in done.stderr
    assert done.stderr.count("\n") == 1  # and not a word from the libraries


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--workdir is missing"),
        (["--workdir=/nowhere/at/all"], "no results"),
        (["--workdir=/tmp", "stray"], "not a flag"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(arguments, message):
    done = _command(*arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_help_explains_every_flag_without_jax_or_matplotlib():
    done = _command("--help")
    assert "--workdir" in done.stdout
    code = (
        "import sys; from ffjax import report;"
        "print([n for n in ('jax', 'matplotlib', 'numpy') if n in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
