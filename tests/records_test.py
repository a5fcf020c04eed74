import json
import math
import os

import pytest
import records

from ffjax import records
from ffjax.errors import UserError


def test_round_trip(tmp_path):
    record = records.record(losses=[[1.0, math.nan], [math.inf, 0.5]])
    path = records.write(tmp_path, record)
    assert path == records.record_path(tmp_path, record["cell"], record["seed"])
    (found,), problems = records.read_all(tmp_path)
    assert problems == []
    assert found["losses"] == [[1.0, None], [None, 0.5]]
    assert found["spec"] == record["spec"]
    assert (
        records.find(tmp_path, record["cell"], record["seed"], record["spec"]) == found
    )
    assert [child.name for child in path.parent.iterdir()] == [path.name]


def test_nothing_half_written(tmp_path, monkeypatch):
    record = records.record()
    path = records.write(tmp_path, record)
    before = path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        records.write(tmp_path, {**record, "accuracy": 1.0})
    assert path.read_bytes() == before
    assert [child.name for child in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda text: text[: len(text) // 2], "not readable as JSON"),
        (lambda text: "", "not readable as JSON"),
        (lambda text: "[1, 2]", "holds a list"),
        (
            lambda text: text.replace('"accuracy":', '"accuracies":', 1),
            "has no 'accuracy'",
        ),
        (lambda text: text.replace('"status": "ok"', '"status": "so-so"'), "'so-so'"),
        (lambda text: text.replace('"seed": 42', '"seed": 43'), "holds the record of"),
        (lambda text: text.replace('"seed": 42', '"seed": "x"'), "wrong type"),
    ],
)
def test_broken_records_are_told_and_not_used(tmp_path, damage, message):
    record = records.record()
    path = records.write(tmp_path, record)
    path.write_text(damage(path.read_text()))
    with pytest.raises(records.BrokenRecord, match=message):
        records.find(tmp_path, record["cell"], record["seed"], record["spec"])
    found, problems = records.read_all(tmp_path)
    assert found == []
    assert path.name in problems[0]


def test_bytes_that_are_no_text(tmp_path):
    path = records.write(tmp_path, records.record())
    path.write_bytes(b"\xff\xfe\x00")
    assert records.read_all(tmp_path)[0] == []


def test_a_record_of_another_spec_is_not_taken(tmp_path):
    record = records.record()
    records.write(tmp_path, record)
    other = {**record["spec"], "epochs": record["spec"]["epochs"] + 1}
    with pytest.raises(records.BrokenRecord, match="another spec"):
        records.find(tmp_path, record["cell"], record["seed"], other)
    assert records.find(tmp_path, "no-such-cell", 42, other) is None


def test_a_record_without_a_newer_field_still_counts(tmp_path):
    record = records.record()
    records.write(tmp_path, record)
    newer = {**record["spec"], "momentum": 0.9}
    args = (tmp_path, record["cell"], record["seed"], newer)
    assert records.find(*args, defaults={"momentum": 0.9}) is not None
    with pytest.raises(records.BrokenRecord):
        records.find(*args, defaults={"momentum": 0.5})


def test_incomplete_records_are_not_written(tmp_path):
    record = records.record()
    del record["confusion"]
    with pytest.raises(ValueError, match="has no 'confusion'"):
        records.write(tmp_path, record)
    assert not (tmp_path / "results").exists()


def test_an_unwritable_workdir_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"workdir=.*file.*cannot write there"):
        records.prepare_workdir(tmp_path / "file")
    assert records.prepare_workdir(tmp_path / "new").is_dir()


def test_records_are_json_that_any_tool_reads(tmp_path):
    path = records.write(tmp_path, records.record(losses=[[math.nan]]))
    assert "NaN" not in path.read_text()
    assert json.loads(path.read_text())["losses"] == [[None]]
