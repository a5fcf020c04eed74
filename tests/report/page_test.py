"""The page: what it says, what it survives, what it weighs and what it never does."""

import html.parser
import json
import os
import re
import subprocess
import sys

import pytest
import records as made_up

from ffjax import records, report
from ffjax.errors import UserError
from ffjax.records import Place
from ffjax.report import audit, cells, contents, details

EVIL = "mine:<script>alert(1)</script>"


def fill(workdir, made):
    for one in made:
        records.write(workdir, one)
    return workdir


def page(workdir):
    return (workdir / "report/index.html").read_text(encoding="utf-8")


def drawn(workdir, made):
    report.write(fill(workdir, made), figures=False)
    return _Page(page(workdir))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The paper's whole grid, and everything that can go wrong once."""
    workdir = tmp_path_factory.mktemp("paper")
    made = made_up.paper_grid(made_up.near_paper)
    made += [
        made_up.record(made_up.spec(goodness=EVIL, pathway=pathway), accuracy=80.0)
        for pathway in ("standard", "ffcl")
    ]
    made.append(
        made_up.record(
            made_up.spec(goodness="moment", p=10),
            accuracy=10.0,
            status="diverged",
            diverged_at=Place(layer=1, epoch=3),
        )
    )
    fill(workdir, made)
    (workdir / "results/cut-seed1.json").write_text('{"cell": "cu')
    failure = {
        "cell": "oom<b>",
        "seed": 42,
        "spec": {"goodness": "entmax", "width": 10**6},
        "error": "out of memory <img src=x onerror=alert(1)>",
    }
    (workdir / "failures").mkdir()
    (workdir / "failures/oom.json").write_text(json.dumps(failure))
    report.write(workdir, figures=False)
    return workdir


class _Page(html.parser.HTMLParser):
    """The text of each section, the tags and what a browser would run or load."""

    def __init__(self, text):
        super().__init__()
        self.raw = text
        self.sections, self.scripts, self.loads, self.handlers = {}, [], [], []
        self._section, self._tag = "", ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self._tag = tag
        if tag in ("section", "header"):
            self._section = found.get("id", tag)
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

    @property
    def data(self):
        (packed,) = re.findall(r'id="data">([^<]*)<', self.raw)
        return details.unpacked(packed)


def test_the_page_opens_with_how_much_of_the_paper_was_measured(whole):
    opening = _Page(page(whole)).text("header")
    assert "282 of 282 numbers of the paper measured at their own settings" in opening
    picture = page(whole).split('<figure class="agreement">')[1].split("</figure>")[0]
    assert picture.count("<circle") == 282
    assert 'class="band"' in picture
    assert 'class="diagonal"' in picture


def test_a_page_without_the_papers_settings_says_so(tmp_path):
    parsed = drawn(tmp_path, made_up.quick_grid())
    assert "None of the 282 numbers" in parsed.text("header")
    assert "<circle" not in parsed.raw
    assert "12 tables not run yet" in parsed.text("tables")


def test_every_number_of_the_paper_is_on_the_page_with_ours(whole):
    text = _Page(page(whole)).text("tables")
    entries = [e for t in contents.read(whole).tables for e in t.entries if e.row]
    assert len(entries) > 282  # what FFCL adds is computed from others
    for entry in entries:
        assert entry.cell is not None
        assert entry.cell.text in text
        assert entry.paper_text in text
    assert "not run" not in text


def test_lines_that_were_run_come_first_and_the_others_are_folded(tmp_path):
    made = made_up.spec(goodness="moment", p=6)
    parsed = drawn(tmp_path, [made_up.record(made, accuracy=87.0)])
    text = parsed.text("tables")
    assert "89.04 -2.04" in text  # ours minus the paper's
    first, _, rest = text.partition("The whole table, with 13 numbers not run yet")
    assert "moment" in first
    assert "not run" not in first
    assert "SoS" in rest


def test_a_single_column_that_was_run_keeps_its_name(tmp_path):
    made = made_up.record(made_up.spec(dataset="usps"))
    text = drawn(tmp_path, [made]).text("tables")
    assert "method USPS, ours USPS, paper difference FFCL burstiness GELU" in text


def test_several_seeds_are_mean_and_sample_deviation(tmp_path):
    accuracies = ((42, 88.0), (43, 89.0), (44, 90.0))
    made = [made_up.record(seed=seed, accuracy=a) for seed, a in accuracies]
    text = drawn(tmp_path, made).text("tables")
    assert "89.00 ± 1.00" in text
    assert "3 of 5 seeds" in text


def test_the_papers_numbers_of_another_run_say_so_beside_them(tmp_path):
    parsed = drawn(tmp_path, made_up.quick_grid())
    other = "Fashion-MNIST, 4\u00d72000, 60 epochs"
    assert f"in brackets: paper, but {other}" in parsed.text("setting1")
    assert "paper (89.04)" in parsed.text("setting1")
    assert f"(89.04: {other}" in parsed.text("cells")
    assert f"paper {other}" in parsed.text("claims")


def test_settings_that_are_not_the_papers_are_named(tmp_path):
    made = made_up.spec(learning_rate=0.01, dropout=0.2)
    parsed = drawn(tmp_path, [made_up.record(made)])
    wanted = "learning rate 0.01, dropout 0.2"
    assert wanted in parsed.text("setting1")
    assert f"4\u00d72000, 60 epochs, {wanted}" in parsed.text("cells")
    (cell,) = parsed.data["cells"]
    assert cell["fields"] == {"learning_rate": "0.01", "dropout": "0.2"}


def test_names_with_html_are_text_everywhere(whole):
    parsed = _Page(page(whole))
    assert parsed.scripts == ["application/octet-stream", "run"]
    assert parsed.handlers == []
    assert parsed.loads == []
    assert EVIL in parsed.text("cells")
    assert "oom<b>" in parsed.text("warnings")
    assert "<script>alert" not in parsed.raw
    assert any(EVIL in cell["title"] for cell in parsed.data["cells"])


def test_the_page_allows_nothing_but_its_own_script(whole):
    text = page(whole)
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)
    assert "default-src 'none'" in policy
    assert "script-src 'sha256-" in policy
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in text


def test_divergence_and_failures_are_shown(whole):
    parsed = _Page(page(whole))
    assert "failed" in parsed.text("warnings")
    assert "out of memory" in parsed.text("warnings")
    assert "cut-seed1.json" in parsed.text("warnings")
    assert "1 diverged" in parsed.text("cells")
    runs = [run for cell in parsed.data["cells"] for run in cell["runs"]]
    statuses = {run["status"] for run in runs}
    assert statuses == {"ok", "diverged at layer 2, epoch 4"}  # counted from 1


def test_claims_are_on_the_page_with_their_verdicts(whole):
    text = _Page(page(whole)).text("claims").replace("\u00d7", "x")
    verdicts = contents.read(whole).verdicts
    assert len(verdicts) == 29
    for verdict in verdicts:
        assert verdict.claim.text in text
        assert verdict.claim.note in text
        assert verdict.text in text
    assert {audit.HOLDS, audit.FAILS} <= {verdict.kind for verdict in verdicts}


def test_details_are_what_the_record_says(tmp_path):
    made = made_up.record(losses=[[1.23456] * 60] * 4, class_names=made_up.NAMES)
    (cell,) = drawn(tmp_path, [made]).data["cells"]
    (run,) = cell["runs"]
    assert cell["names"] == made_up.NAMES
    assert run["confusion"] == made.confusion
    assert run["losses"][0] == {"epochs": 60, "step": 1, "values": [1.23] * 60}
    assert run["layers"] == made.accuracy_layers


def test_odd_facts_about_the_data_are_text(tmp_path):
    made = made_up.record(data={"bytes": 10**400, "parts": [None, {"a": "<b>"}]})
    ((run,),) = [cell["runs"] for cell in drawn(tmp_path, [made]).data["cells"]]
    assert json.loads(run["facts"]["data"]) == made.data


def test_a_page_of_hundreds_of_runs_stays_small(tmp_path):
    """At most 1,000 bytes a run beyond a page of a single run, at 4 layers of 60."""
    made = made_up.paper_grid(made_up.near_paper)[:300]
    assert len(made) == 300
    assert made[0].spec.size == "4x2000"
    small = len(drawn(tmp_path / "small", made[:1]).raw)
    large = len(drawn(tmp_path / "large", made).raw)
    # The tables and claims of the paper grow with it, but only once.
    assert large - small < 300 * 1000 + 250_000


def test_thousands_of_runs_have_thinner_curves(monkeypatch):
    gathered = cells.gather([made_up.record()])
    monkeypatch.setattr(details, "_MANY_POINTS", 30)
    packed = details.packed(gathered, cells.by_setting(gathered), [])
    data = details.unpacked(packed)
    loss = data["cells"][0]["runs"][0]["losses"][0]
    assert loss["step"] == 2
    assert len(loss["values"]) == 31  # every second of 60, and the last


def test_a_live_page_is_cheap_and_reloads_itself(tmp_path):
    fill(tmp_path, [made_up.record()])
    report.write(tmp_path, figures=False)
    assert [path.name for path in (tmp_path / "report").iterdir()] == ["index.html"]
    assert '<html lang="en" data-live>' in page(tmp_path)
    assert "● running" in page(tmp_path)
    report.write(tmp_path)
    assert '<html lang="en">' in page(tmp_path)
    assert "● running" not in page(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_an_unwritable_workdir_is_one_clear_line(tmp_path):
    fill(tmp_path, [made_up.record()])
    tmp_path.chmod(0o555)
    with pytest.raises(UserError, match="cannot write"):
        report.write(tmp_path)


def test_a_file_in_the_way_is_one_clear_line(tmp_path):
    fill(tmp_path, [made_up.record()])
    (tmp_path / "report").write_text("a file")
    with pytest.raises(UserError, match="cannot write its folder 'report'"):
        report.write(tmp_path, figures=False)


def test_a_failed_write_leaves_the_old_page(tmp_path, monkeypatch):
    fill(tmp_path, [made_up.record()])
    report.write(tmp_path, figures=False)
    before = page(tmp_path)

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(UserError, match="No space left"):
        report.write(tmp_path, figures=False)
    assert page(tmp_path) == before
    assert [path.name for path in (tmp_path / "report").iterdir()] == ["index.html"]


def _command(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "ffjax.report", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_command_prints_the_path_and_the_warnings(tmp_path):
    fill(tmp_path, [made_up.record()])
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
        "print([n for n in ('jax', 'matplotlib', 'flax') if n in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
