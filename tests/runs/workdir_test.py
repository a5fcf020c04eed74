"""What is taken as done, what is set aside, what is written."""

import json
import os
import re
import shutil
import subprocess
import sys
import time

import pytest
import small_runs
from small_runs import a_run, all_lasting, cells

import ffjax
from ffjax import atomic, records
from ffjax.config.spec import Way
from ffjax.errors import UserError
from ffjax.runs import locks, run
from ffjax.runs.datasets import DatasetError
from ffjax.runs.display import Display
from ffjax.runs.provenance import provenance
from ffjax.runs.workdir import Workdir, prepare, writing


def _workdir(path, *runs, is_grid=True):
    claims = locks.Claims(path / "claims")
    display = Display(len(runs), is_grid=is_grid)
    return Workdir(str(path), runs, display, claims)


def _change(path, **changes):
    """Changes keys of a record's file."""
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, **changes}))


# What is taken.


def test_a_record_that_appears_with_the_claim_is_not_run_again(tmp_path, monkeypatch):
    one = a_run()
    acquire = locks.Claims.acquire

    def late(self, name):
        records.write(tmp_path, small_runs.record(one))
        return acquire(self, name)

    folder = _workdir(tmp_path, one)
    assert folder.open() == [one]
    monkeypatch.setattr(locks.Claims, "acquire", late)
    assert folder.claim([one]) == ([], [])
    assert len(folder.records) == 1
    assert list((tmp_path / "claims").iterdir()) == []


def _cut(path):
    path.write_text(path.read_text()[:100])


def _other_spec(path):
    content = json.loads(path.read_text())
    _change(path, spec={**content["spec"], "threshold": 1.0})


def _garbage(path):
    path.write_bytes(b"\xff\x00 no record")


def _wrong_accuracy(path):
    _change(path, accuracy=99.0)


def _accuracy_beyond_numbers(path):
    path.write_text(path.read_text().replace('"accuracy":', '"accuracy":1e400,"a":'))


def _other_seed(path):
    _change(path, seed=43)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (_cut, "not readable as JSON"),
        (_other_spec, "of another spec"),
        (_garbage, "not readable as JSON"),
        (_wrong_accuracy, "'accuracy' is 99, but 'confusion' says 54"),
        (_accuracy_beyond_numbers, ""),
        (_other_seed, "holds the record of"),
    ],
)
def test_a_broken_record_is_kept_under_another_name_and_run_again(
    tmp_path, trained, capsys, damage, reason
):
    made = cells(goodness=("sos", "topk"))
    run.run(made, str(tmp_path), Way())
    before = all_lasting(tmp_path)
    path = records.record_path(tmp_path, made[0].id, 42)
    damage(path)
    content = path.read_bytes()
    capsys.readouterr()
    assert run.run(made, str(tmp_path), Way()) == 0
    assert trained == [("sos", 42), ("topk", 42), ("sos", 42)]
    (line,) = [s for s in capsys.readouterr().out.splitlines() if str(path) in s]
    assert reason in line
    assert line.endswith(f"; it runs again, the file becomes {path}.old")
    assert path.with_name(f"{path.name}.old").read_bytes() == content
    assert all_lasting(tmp_path) == before


def test_a_second_broken_record_does_not_replace_the_first(tmp_path, trained):
    made = cells(goodness=("sos",))
    path = records.record_path(tmp_path, made[0].id, 42)
    for text in ("first", "second"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        assert run.run(made, str(tmp_path), Way()) == 0
    assert path.with_name(f"{path.name}.old").read_text() == "first"
    assert path.with_name(f"{path.name}.old2").read_text() == "second"


def test_a_record_older_than_a_field_counts(tmp_path, trained):
    made = cells(goodness=("sos",))
    run.run(made, str(tmp_path), Way())
    path = records.record_path(tmp_path, made[0].id, 42)
    content = json.loads(path.read_text())
    del content["spec"]["valid_fraction"]
    path.write_text(json.dumps(content))
    assert run.run(made, str(tmp_path), Way()) == 0
    assert len(trained) == 1


@pytest.mark.parametrize(
    ("versions", "device", "said"),
    [
        ({"ffjax": "0.0.1"}, None, f"ffjax 0.0.1 (here {ffjax.__version__})"),
        ({"jax": "0.1"}, None, "jax 0.1 (here "),
        ({}, "NVIDIA H100", "device NVIDIA H100 (here cpu)"),
    ],
)
def test_records_made_with_something_else_count_and_are_named_in_a_line(
    tmp_path, capsys, versions, device, said
):
    runs = [a_run(), a_run(seed=43), a_run(seed=44)]
    here = provenance()
    for each in runs[:2]:
        records.write(
            tmp_path,
            small_runs.record(
                each,
                versions={**here["versions"], **versions},
                device=device or here["device"],
            ),
        )
    records.write(tmp_path, small_runs.record(runs[2], **here))
    assert _workdir(tmp_path, *runs).open() == []
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith(f"2 records made with {said}")
    assert "taken as done" in lines[0]


def test_records_made_with_the_same_say_nothing(tmp_path, capsys):
    one = a_run()
    records.write(tmp_path, small_runs.record(one, **provenance()))
    assert _workdir(tmp_path, one).open() == []
    assert capsys.readouterr().out == "1 of 1 done before\n"


# Failures.


def test_a_failure_is_written_whole_and_removed_by_the_record(tmp_path):
    one = a_run()
    folder = _workdir(tmp_path, one, a_run(seed=43))
    assert folder.claim([one]) == ([one], [])
    try:
        raise MemoryError("RESOURCE_EXHAUSTED: out of memory")
    except MemoryError as error:
        folder.fail(one, error, 0.1)
    (path,) = (tmp_path / "failures").iterdir()
    failure = json.loads(path.read_text())
    # With the place, because this file is no part of ffjax.
    text, _, place = failure["error"].partition(" (")
    assert text == "MemoryError: RESOURCE_EXHAUSTED: out of memory"
    assert re.fullmatch(r"workdir_test\.py, line \d+\)", place)
    assert (failure["cell"], failure["seed"]) == (one.cell.id, 42)
    assert records.read_spec(failure["spec"]) == one.spec
    assert "workdir_test.py" in failure["traceback"]
    assert folder.write(one, small_runs.record(one), 0.1)
    assert not path.exists()


def test_a_run_that_failed_in_another_process_is_not_tried_again_here(tmp_path):
    one, two = a_run(), a_run(seed=43)
    folder = _workdir(tmp_path, one, two)
    assert folder.open() == [one, two]
    other = _workdir(tmp_path, one, two)
    other.fail(one, ValueError("odd"), 0.1)
    assert folder.claim([one, two]) == ([two], [])
    assert "in another process" in folder.failed[one]
    # The next start tries again.
    assert _workdir(tmp_path, one).claim([one]) == ([one], [])


@pytest.mark.parametrize(
    "content", ["[1]", "null", '{"error": [1, 2]}', "garbage", '{"seed": "x"}', ""]
)
def test_a_failure_of_odd_content_does_no_harm(tmp_path, trained, content):
    made = cells(goodness=("sos", "topk"))
    path = tmp_path / "failures" / f"{made[0].id}-seed42.json"
    path.parent.mkdir()
    path.write_text(content)
    assert run.run(made, str(tmp_path), Way()) == 0
    assert not path.exists()


def test_what_no_run_could_do_better_ends_the_command(tmp_path):
    one, two = a_run(), a_run(seed=43)
    with pytest.raises(UserError, match="gone"):
        _workdir(tmp_path, one, two).fail(one, DatasetError("gone"), 0.1)
    with pytest.raises(UserError, match="batch"):
        _workdir(tmp_path, one, is_grid=False).fail(one, UserError("batch"), 0.1)
    assert not (tmp_path / "failures").exists()
    # Of a grid with another dataset, the others go on.
    other = a_run(train_limit=60)
    folder = _workdir(tmp_path, one, other)
    folder.fail(one, DatasetError("gone"), 0.1)
    assert folder.failed == {one: "gone"}


# The folder.


def test_scratch_files_of_killed_writers_are_removed(tmp_path):
    names = ("results", "failures", "partial/run", "report")
    left = [tmp_path / name / f".x{atomic._SCRATCH}1" for name in names]
    for path in left:
        path.parent.mkdir(parents=True)
        path.write_text("half")
        old = time.time() - 4000
        os.utime(path, (old, old))
    fresh = tmp_path / "results" / f".y{atomic._SCRATCH}2"
    fresh.write_text("at work")
    prepare(str(tmp_path))
    assert not any(path.exists() for path in left)
    assert fresh.exists(), "its writer may be at work"


_WRITER = """
import os, pathlib, sys, time
from ffjax import atomic

def wait(*_):
    print("half", flush=True)
    time.sleep(60)

os.replace = wait
atomic.write_text(pathlib.Path(sys.argv[1], "results", "x.json"), "whole")
"""


def test_the_next_start_removes_what_a_killed_writer_left(tmp_path):
    writer = subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(tmp_path)], stdout=subprocess.PIPE
    )
    assert writer.stdout is not None
    with writer, writer.stdout:
        assert writer.stdout.readline() == b"half\n"
        prepare(str(tmp_path))
        (scratch,) = (tmp_path / "results").iterdir()
        assert "x.json" in scratch.name, "its writer lives"
        writer.kill()
    prepare(str(tmp_path))
    assert list((tmp_path / "results").iterdir()) == []


def test_a_full_disk_is_one_line(tmp_path):
    prepare(str(tmp_path))
    with (
        pytest.raises(UserError, match=r"cannot write there \(.*No space.*kept"),
        writing(str(tmp_path)),
    ):
        raise OSError(28, "No space left on device")


def test_a_workdir_that_is_removed_in_the_middle_is_one_line(
    tmp_path, trained, before_training
):
    path = tmp_path / "w"

    def remove(runs):
        if trained:
            shutil.rmtree(path)

    before_training(remove)
    made = cells(goodness=("sos", "topk", "variance"))
    with pytest.raises(UserError, match=r"was removed while .* records in it are gone"):
        run.run(made, str(path), Way())
    assert len(trained) == 2


def test_lines_are_printed_once(tmp_path, capsys):
    folder = _workdir(tmp_path, a_run())
    for _ in range(3):
        folder.say_once("news")
    assert capsys.readouterr().out == "news\n"
