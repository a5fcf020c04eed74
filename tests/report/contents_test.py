"""What a workdir may hold: broken and odd files are listed, and stop nothing."""

import json
import os

import msgspec
import pytest
import records as made_up

from ffjax import records, report
from ffjax.errors import UserError
from ffjax.report import contents

# A value in JSON that contradicts the rest of the record, or that no reader can hold.
BROKEN = {
    "accuracy above 100": {"accuracy": "200"},
    "accuracy below 0": {"accuracy": "-1"},
    "accuracy not a number": {"accuracy": "NaN"},
    "accuracy against the confusion matrix": {"accuracy": "87.99"},
    "accuracy of 401 digits": {"accuracy": "1" + "0" * 400},
    "accuracy of 5000 digits": {"accuracy": "1" * 5000},
    "accuracy as text": {"accuracy": '"88"'},
    "confusion of 5000 digits": {"confusion": f"[[{'1' * 5000}]]"},
    "confusion not square": {"confusion": "[[1, 2]]"},
    "confusion empty": {"confusion": "[]"},
    "confusion of other images": {"confusion": "[[10000]]", "accuracy": "88"},
    "losses too deep": {"losses": "[" * 2000 + "]" * 2000},
    "losses of no epochs": {"losses": "[]"},
    "losses not finite": {"losses": "[[Infinity]]"},
    "time as text": {"time": '"long"'},
    "spec empty of sense": {"spec": '{"width": "wide"}'},
    "spec of a later version": {"spec": '{"wings": 2}'},
    "spec out of range": {"spec": '{"dropout": 7.0}'},
    "status unknown": {"status": '"fine"'},
    "seed missing": {"seed": "null"},
}


def write_json(folder, name, text):
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.json").write_text(text)


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_record_is_reported_and_the_rest_is_shown(tmp_path, name):
    whole, other = made_up.record(), made_up.record(seed=43)
    records.write(tmp_path, whole)
    fields = json.loads(msgspec.json.encode(other))
    texts = {key: json.dumps(value) for key, value in fields.items()} | BROKEN[name]
    body = ", ".join(f'"{key}": {value}' for key, value in texts.items())
    write_json(tmp_path / "results", other.name, f"{{{body}}}")
    read = contents.read(tmp_path)
    assert read.records == [whole]
    (problem,) = read.problems
    assert other.name in problem
    assert "\n" not in problem
    page = report.write(tmp_path, figures=False).read_text()
    assert other.name in page
    assert "88.00" in page


FAILURE = {"cell": "a", "seed": 1, "spec": {}, "error": "no memory"}
ODD_FAILURES = {
    "cut": "{",
    "list": "[]",
    "number": "3",
    "null": "null",
    "no fields": "{}",
    "null cell": json.dumps({**FAILURE, "cell": None}),
    "null seed": json.dumps({**FAILURE, "seed": None}),
    "list of errors": json.dumps({**FAILURE, "error": ["no", "memory"]}),
    "spec a number": json.dumps({**FAILURE, "spec": 3}),
    "seed of 5000 digits": json.dumps(FAILURE).replace("1", "1" * 5000),
    "deep": "[" * 100_000,
    "deep spec": '{"cell": "a", "seed": 1, "error": "e", "spec": {"a": '
    + "[" * 5000
    + "]" * 5000
    + "}}",
    "not text": "\udcff",
}


@pytest.mark.parametrize("name", ODD_FAILURES)
def test_an_odd_failure_is_reported(tmp_path, name):
    records.write(tmp_path, made_up.record())
    (tmp_path / "failures").mkdir()
    text = ODD_FAILURES[name].encode("utf-8", "surrogateescape")
    (tmp_path / "failures/odd.json").write_bytes(text)
    read = contents.read(tmp_path)
    assert read.failures == []
    (problem,) = read.problems
    assert "odd.json: not readable as a failure" in problem
    assert "\n" not in problem
    assert "odd.json" in report.write(tmp_path, figures=False).read_text()


@pytest.mark.parametrize("spec", [{"goodness": ["x"]}, {"width": -1}, {"a": None}])
def test_a_failure_with_an_odd_spec_still_shows_its_error(tmp_path, spec):
    write_json(tmp_path / "failures", "a", json.dumps({**FAILURE, "spec": spec}))
    (failure,) = contents.read(tmp_path).failures
    assert (failure.spec, failure.error) == (None, "no memory")
    assert "no memory" in report.write(tmp_path, figures=False).read_text()


def test_an_endless_error_is_cut(tmp_path):
    long = {**FAILURE, "error": "x" * 100_000, "cell": "y" * 100_000}
    write_json(tmp_path / "failures", "a", json.dumps(long))
    assert report.write(tmp_path, figures=False).stat().st_size < 100_000


def test_hundreds_of_problems_leave_the_page_readable(tmp_path):
    records.write(tmp_path, made_up.record())
    for i in range(300):
        write_json(tmp_path / "results", f"bad-seed{i}", "{")
        failure = {**FAILURE, "seed": i, "error": "x" * 1000}
        write_json(tmp_path / "failures", f"a-seed{i}", json.dumps(failure))
    page = report.write(tmp_path, figures=False).read_text()
    assert "and 100 more files" in page
    assert "and 100 more failed runs" in page
    assert len(page) < 500_000


def test_a_failure_that_was_mended_is_not_shown(tmp_path):
    made = made_up.record()
    records.write(tmp_path, made)
    failure = {**FAILURE, "cell": made.cell, "seed": 42}
    write_json(tmp_path / "failures", "a", json.dumps(failure))
    assert contents.read(tmp_path).failures == []


def test_other_things_in_the_folders_do_no_harm(tmp_path):
    records.write(tmp_path, made_up.record())
    (tmp_path / "results/notes.txt").write_text("mine")
    (tmp_path / "results/folder.json").mkdir()
    (tmp_path / "failures").mkdir()
    (tmp_path / "failures/folder.json").mkdir()
    os.mkfifo(tmp_path / "failures/pipe.json")
    (tmp_path / "failures/gone.json").symlink_to("nowhere")
    read = contents.read(tmp_path)
    assert len(read.records) == 1
    assert len(read.problems) == 4
    report.write(tmp_path, figures=False)


@pytest.mark.parametrize("name", ["", "nowhere"])
def test_a_workdir_without_results_is_one_clear_line(tmp_path, name):
    with pytest.raises(UserError, match="no results") as caught:
        report.write(tmp_path / name)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "report").exists()


def test_a_workdir_with_garbage_alone_says_what_is_wrong(tmp_path):
    write_json(tmp_path / "results", "a-seed1", "garbage")
    with pytest.raises(UserError, match="1 broken"):
        report.write(tmp_path)
