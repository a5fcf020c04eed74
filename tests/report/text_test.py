"""The text files and the terminal's table: odd names stay text, numbers numbers."""

import csv
import io
import re

import pytest
import records as made_up
import rich.console

from ffjax import records, report
from ffjax.report import contents, text

EVIL = "mine:<script>alert(1)</script>"


def files(workdir, made):
    for one in made:
        records.write(workdir, one)
    return text.files(contents.read(workdir))


def printed(table):
    out = io.StringIO()
    rich.console.Console(width=200, file=out).print(table)
    return out.getvalue()


@pytest.fixture(scope="module")
def grid(tmp_path_factory):
    made = made_up.paper_grid(made_up.near_paper)
    made.append(made_up.record(made_up.spec(goodness=EVIL), accuracy=80.0))
    return files(tmp_path_factory.mktemp("grid"), made)


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r"])
def test_no_text_is_a_formula_in_a_spreadsheet(tmp_path, start):
    evil = f"{start}HYPERLINK(1)"
    made = made_up.record(made_up.spec(goodness=evil))
    content = files(tmp_path, [made])["tables/cells.csv"]
    (line,) = csv.DictReader(io.StringIO(content, newline=""))
    assert line["goodness"] in (f"'{evil}", "HYPERLINK(1)")


def test_csv_numbers_stay_numbers(grid):
    lines = list(csv.DictReader(io.StringIO(grid["tables/ffcl_lift.csv"])))
    ours = [float(line["ours"]) for line in lines if line["ours"]]
    assert len(ours) == 23
    lines = list(csv.DictReader(io.StringIO(grid["tables/cells.csv"])))
    assert "0.0025" in {line["k_fraction"] for line in lines}


def test_the_papers_number_of_another_run_says_so(tmp_path):
    made = files(tmp_path, [made_up.record(made_up.spec(epochs=5))])
    (line,) = csv.DictReader(io.StringIO(made["tables/cells.csv"]))
    assert (line["paper"], line["paper_differs"]) == ("88.4100", "60 epochs")
    assert "| (88.41: 60 epochs) |" in made["report.md"]


def test_the_papers_own_small_network_is_not_called_another_run(tmp_path):
    size = {"num_layers": 2, "width": 500, "pathway": "standard"}
    small = made_up.spec(goodness="sos", activation="relu", **size)
    other = made_up.spec(activation="swish", **size)
    made = files(tmp_path, [made_up.record(small), made_up.record(other)])
    lines = made["report.md"].splitlines()
    sos = [line for line in lines if line.startswith("| standard | SoS |")]
    assert any(line.endswith("| 61.07 |") for line in sos)
    (absent,) = [line for line in lines if line.startswith("| standard | burst")]
    assert absent.endswith(": 4x2000) |")


@pytest.mark.parametrize(
    "evil", ["a|b", "a\nb", "`x`", "[x](y)", "\\", "100 % & $x_1$"]
)
def test_markdown_and_latex_survive_odd_names(tmp_path, evil):
    made = files(tmp_path, [made_up.record(made_up.spec(goodness=evil))])
    rows = [x for x in made["report.md"].splitlines() if "| FFCL |" in x]
    assert rows
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {8}
    body = made["tables/cells.tex"].split("\\midrule\n")[1].split("\\bottomrule")[0]
    assert body.count("\n") == 1
    assert len(re.findall(r"(?<!\\)&", body)) == 6
    assert not re.search(r"(?<!\\)[%$#_]", body.replace(r"$\pm$", ""))


def test_names_with_html_are_text(grid):
    assert "<script" not in grid["report.md"]
    assert r"mine:\textless{}script\textgreater{}" in grid["tables/goodness.tex"]


def test_latex_has_as_many_columns_as_it_says(grid):
    sheets = {name: made for name, made in grid.items() if name.endswith(".tex")}
    assert len(sheets) == 13
    for name, made in sheets.items():
        for part in made.split(r"\begin{tabular}")[1:]:
            (align,) = re.findall(r"^\{([lr]+)\}", part)
            rows = [line for line in part.splitlines() if line.endswith(r"\\")]
            counts = {len(re.findall(r"(?<!\\)&", row)) + 1 for row in rows}
            assert counts == {len(align)}, name


def test_claims_are_listed_with_setting_verdict_and_whose_numbers(tmp_path):
    made = files(tmp_path, made_up.quick_grid())
    lines = list(csv.DictReader(io.StringIO(made["tables/claims.csv"])))
    settings = {line["setting"] for line in lines}
    assert len(settings) == 2
    (sweep,) = [
        line
        for line in lines
        if "moment order" in line["claim"] and "2x500" in line["setting"]
    ]
    assert sweep["verdict"].startswith("no counterexample in 8 of 12 comparisons")
    assert sweep["paper_run"] == "Fashion-MNIST, 4x2000, 60 epochs"
    assert "Fashion-MNIST, 4x2000, 60 epochs: " in made["report.md"]


def test_of_many_comparisons_the_decisive_ones_are_in_the_text_and_all_in_csv(tmp_path):
    made = files(tmp_path, made_up.quick_grid())
    lines = csv.DictReader(io.StringIO(made["tables/claims.csv"]))
    many = {
        line["claim"]: line["paper"].split("; ")
        for line in lines
        if line["paper"].count("; ") > 20
    }
    assert many
    for claim, comparisons in many.items():
        rows = [x for x in made["report.md"].splitlines() if x.startswith(f"| {claim}")]
        assert rows
        for row in rows:
            assert f"; {comparisons[3]}; and {len(comparisons) - 4} more |" in row
            assert comparisons[4] not in row


def test_the_terminal_table_has_ours_and_the_papers():
    made = made_up.quick_grid()
    made.append(made_up.record(made_up.spec(goodness="[red]x[/red]", epochs=10)))
    shown = printed(report.summary_table(made))
    assert "Fashion-MNIST, 4x2000, 60 epochs" in shown
    assert "89.04" in shown
    assert "[red]x[/red]" in shown
    assert f"{made[0].accuracy:.2f}" in shown


def test_the_terminal_table_pools_what_the_page_pools(tmp_path):
    """A command that ran a third seed shows the mean of all three, as its page does."""
    made = [
        made_up.record(seed=seed, accuracy=accuracy)
        for seed, accuracy in ((42, 88.0), (43, 89.0), (44, 90.0))
    ]
    other = made_up.record(made_up.spec(activation="swish"), accuracy=70.0)
    for one in [*made, other]:
        records.write(tmp_path, one)
    shown = printed(report.summary_table(made[2:], tmp_path))
    assert "89.00 ± 1.00" in shown
    assert "70.00" not in shown  # not a cell of this command
    page = report.write(tmp_path, figures=False).read_text()
    assert "89.00 ± 1.00" in page
    assert "90.00" in printed(report.summary_table(made[2:]))
