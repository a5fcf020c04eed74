"""The store: what is written is read, and what does not fit together is refused."""

import json
import math
import os
import pathlib

import msgspec
import pytest

from ffjax import records
from ffjax.config.spec import RunSpec, cell_id, make_spec
from ffjax.records import BrokenRecord, Busy, Curve, Place, Point, Record, Times

EXPERIMENTS = pathlib.Path(__file__).parents[1] / "experiments"
SPEC = make_spec(num_layers=2, epochs=3)


def make_record(spec=SPEC, **changes) -> Record:
    """A whole record of a run with 40 test images, 35 of them right."""
    fields = {
        "cell": cell_id(spec),
        "spec": spec,
        "seed": 42,
        "status": "ok",
        "accuracy": 87.5,
        "accuracy_layers": [80.0] * spec.num_layers,
        "accuracy_concat": 85.0,
        "confusion": [[18, 2], [3, 17]],
        "losses": [[1.0] * spec.epochs] * spec.num_stages,
        "time": Times(1.0, 2.0, 3.0),
        "train_size": 100,
        "test_size": 40,
        "device": "cpu",
        "versions": {"jax": "0.10.2"},
        "commit": None,
    }
    return Record(**{**fields, **changes})


def diverged() -> Record:
    return make_record(
        status="diverged",
        losses=[[1.0, 1.0, 1.0], [2.0, None]],
        diverged_at=Place(1, 1),
        accuracy_layers=[50.0, 50.0],
    )


def full() -> Record:
    """With every optional field set."""
    return make_record(
        class_names=["a", "b"],
        data={"kind": "npz", "files": {"x": "y"}},
        accuracy_valid=50.0,
        valid_size=10,
        group_size=3,
        busy=Busy(0.9, 0.0),
        goodness_source="abc",
        finished="2026-11-16T04:05:06+00:00",
        commit="0123abc+",
        network="networks/x-seed42.safetensors",
        curve=Curve("test", [Point(0, 3, 50.0, None), Point(1, 3, 60.0, 65.0)]),
    )


def edited(workdir, change) -> pathlib.Path:
    """A record whose JSON was changed; ``change`` takes and may return it."""
    path = records.write(workdir, make_record())
    content = json.loads(path.read_text())
    content = change(content) or content
    path.write_text(json.dumps(content))
    return path


# --- Written and read ----------------------------------------------------------------


@pytest.mark.parametrize("make", [make_record, diverged, full])
def test_round_trip(tmp_path, make):
    record = make()
    path = records.write(tmp_path, record)
    assert path == records.record_path(tmp_path, record.cell, record.seed)
    assert path.name == f"{record.name}.json"
    assert records.read(path) == record
    assert records.read_all(tmp_path) == ([record], [])
    assert records.find(tmp_path, record.cell, record.seed, record.spec) == record
    assert [child.name for child in path.parent.iterdir()] == [path.name]


def test_every_optional_field_is_tried_above():
    optional = [f.name for f in msgspec.structs.fields(Record) if not f.required]
    plain, all_set, broken = make_record(), full(), diverged()
    for name in optional:
        values = [getattr(record, name) for record in (all_set, broken)]
        assert any(value != getattr(plain, name) for value in values), name


def test_records_are_json_that_any_tool_reads(tmp_path):
    path = records.write(tmp_path, diverged())
    content = json.loads(path.read_text())
    assert content["losses"] == [[1.0, 1.0, 1.0], [2.0, None]]
    assert "NaN" not in path.read_text()
    assert path.read_text().endswith("}\n")


def test_all_fields_of_the_run_are_written(tmp_path):
    """Whatever their defaults will be one day."""
    content = json.loads(records.write(tmp_path, make_record()).read_text())
    assert content["spec"] == {**vars(SPEC), "widths": [], "pool": []}
    contract = ["seed", "status", "accuracy", "accuracy_layers", "accuracy_concat"]
    contract += ["confusion", "losses", "time", "train_size", "test_size", "device"]
    contract += ["versions", "commit", "cell", "spec"]
    assert set(contract) <= set(content)
    assert content["time"] == {"compile_s": 1.0, "train_s": 2.0, "eval_s": 3.0}


def test_nothing_half_written(tmp_path, monkeypatch):
    path = records.write(tmp_path, make_record())
    before = path.read_bytes()

    def no_space(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(OSError, match="No space"):
        records.write(tmp_path, make_record(train_size=7))
    assert path.read_bytes() == before
    assert [child.name for child in path.parent.iterdir()] == [path.name]


def test_contradictory_records_are_not_written(tmp_path):
    with pytest.raises(ValueError, match=r"'confusion' says 87\.5"):
        records.write(tmp_path, make_record(accuracy=88.0))
    assert not (tmp_path / "results").exists()


def test_committed_records_are_read_whole():
    folders = {path.parent.parent for path in EXPERIMENTS.rglob("results/*-seed*.json")}
    assert len(folders) >= 3
    count = 0
    for folder in sorted(folders):
        whole, problems = records.read_all(folder)
        assert problems == []
        for record in whole:
            # Their names are those that a run of today would have.
            assert cell_id(record.spec) == record.cell
            assert records.find(folder, record.cell, record.seed, record.spec)
        count += len(whole)
    assert count >= 100


# --- Broken --------------------------------------------------------------------------


def put(*keys, value):
    """A change of a record: the value at these keys."""

    def change(content):
        place = content
        for key in keys[:-1]:
            place = place[key]
        place[keys[-1]] = value

    return change


def without(key):
    def change(content):
        del content[key]

    return change


CONTRADICTIONS = {
    "accuracy 200": (put("accuracy", value=200.0), "<= 100"),
    "accuracy -1": (put("accuracy", value=-1.0), ">= 0"),
    "accuracy of another run": (put("accuracy", value=87.0), "'confusion' says 87.5"),
    "accuracy as text": (put("accuracy", value="87.5"), "Expected `float`"),
    "accuracy null": (put("accuracy", value=None), "Expected `float`"),
    "no accuracy": (without("accuracy"), "missing required field `accuracy`"),
    "no spec": (without("spec"), "missing required field `spec`"),
    "no confusion": (without("confusion"), "missing required field `confusion`"),
    "layer above 100": (put("accuracy_layers", value=[80.0, 101.0]), "<= 100"),
    "layers of another run": (put("accuracy_layers", value=[80.0]), "1 entries for 2"),
    "concat above 100": (put("accuracy_concat", value=1e9), "<= 100"),
    "valid above 100": (put("accuracy_valid", value=100.5), "<= 100"),
    "not square": (put("confusion", value=[[18, 2], [20]]), "not square"),
    "no classes": (put("confusion", value=[]), "not square"),
    "negative count": (put("confusion", 0, 1, value=-2), ">= 0"),
    "half an image": (put("confusion", 0, 1, value=0.5), "Expected `int`"),
    "another size": (put("test_size", value=41), "counts 40 images, 'test_size' is 41"),
    "negative size": (put("train_size", value=-1), ">= 0"),
    "a layer missing": (put("losses", value=[[1.0] * 3]), "not whole"),
    "an epoch missing": (put("losses", 0, value=[1.0] * 2), "not whole"),
    "a loss null": (put("losses", 0, 0, value=None), "not whole"),
    "an epoch too many": (put("losses", 0, value=[1.0] * 4), "more layers or epochs"),
    "a layer too many": (put("losses", value=[[1.0] * 3] * 3), "more layers or epochs"),
    "status": (put("status", value="so-so"), "Invalid enum value 'so-so'"),
    "seed as text": (put("seed", value="x"), "Expected `int`"),
    "another seed": (put("seed", value=43), "holds the record of '.*-seed43'"),
    "another cell": (put("cell", value="x" * 500), "holds the record of 'xxx.*…"),
    "group of none": (put("group_size", value=0), ">= 1"),
    "a later field": (put("spec", "momentum", value=0.9), "unknown field 'momentum'"),
    "widths of 3 layers": (put("spec", "widths", value=[3, 2, 1]), "3 entries for 2"),
    "width as text": (put("spec", "width", value="2000"), r"spec: Expected `int`"),
    "width 0": (put("spec", "width", value=0), "spec: width=0: must be"),
    "epochs 0": (put("spec", "epochs", value=0), "spec: epochs=0: must be"),
    "pathway": (put("spec", "pathway", value="x"), "spec: pathway='x': must be"),
    "activation": (put("spec", "activation", value=[1]), "spec: Expected `str`"),
    "spec a list": (put("spec", value=[1]), "Expected `object`"),
    "a time below 0": (put("time", "train_s", value=-1.0), ">= 0"),
    "times a list": (put("time", value=[1]), "Expected `object`"),
    "versions": (put("versions", value={"jax": 1}), "Expected `str`"),
    "place": (put("diverged_at", value={"layer": -1, "epoch": 0}), ">= 0"),
    "curve of a third layer": (
        put(
            "curve",
            value={
                "images": "test",
                "points": [
                    {"layer": 2, "epochs": 1, "accuracy": 1.0, "ensemble": None}
                ],
            },
        ),
        "'curve' has more layers or epochs",
    ),
    "curve before the first epoch": (
        put(
            "curve",
            value={
                "images": "test",
                "points": [
                    {"layer": 0, "epochs": 0, "accuracy": 1.0, "ensemble": None}
                ],
            },
        ),
        "'curve' has more layers or epochs",
    ),
    "a list": (lambda content: [content], "Expected `object`, got `array`"),
}


@pytest.mark.parametrize("case", CONTRADICTIONS)
def test_contradictions_are_broken_records(tmp_path, case):
    change, words = CONTRADICTIONS[case]
    path = edited(tmp_path, change)
    with pytest.raises(BrokenRecord, match=words) as error:
        records.read(path)
    message = str(error.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    assert len(message) - len(str(path)) < 300
    assert records.read_all(tmp_path) == ([], [message])
    with pytest.raises(BrokenRecord):
        records.find(tmp_path, make_record().cell, 42, SPEC)


TEXTS = {
    "nothing": b"",
    "half": b'{"cell": "a", "spe',
    "a word": b"hello",
    "no text": b"\xff\xfe\x00",
    "not UTF-8 inside": b'{"cell": "\xff"}',
    "NaN": b'{"accuracy": NaN}',
    "infinity": b'{"accuracy": Infinity}',
    "10**400": b'{"accuracy": 1' + b"0" * 400 + b"}",
    "1e400": b'{"accuracy": 1e400}',
    "5,000 digits": b'{"seed": ' + b"7" * 5000 + b"}",
    "deep": b"[" * 100_000,
    "deep inside": b'{"data": {"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}}",
    "zeros": b"\0" * 1000,
}


@pytest.mark.parametrize("case", TEXTS)
def test_texts_that_are_no_records(tmp_path, case):
    path = records.write(tmp_path, make_record())
    path.write_bytes(TEXTS[case])
    with pytest.raises(BrokenRecord) as error:
        records.read(path)
    message = str(error.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    assert len(message) - len(str(path)) < 300
    assert records.read_all(tmp_path) == ([], [message])


HUGE = {
    "accuracy": ["accuracy"],
    "a loss": ["losses", 0, 0],
    "a count": ["confusion", 0, 0],
    "the seed": ["seed"],
    "a time": ["time", "train_s"],
    "the width": ["spec", "width"],
    "the learning rate": ["spec", "learning_rate"],
    "in the data": ["data", "files"],
}


@pytest.mark.parametrize(
    "text",
    ["1" + "0" * 400, "7" * 5000, "NaN", "-Infinity"],
    ids=["10**400", "5,000 digits", "NaN", "-Infinity"],
)
@pytest.mark.parametrize("case", HUGE)
def test_numbers_that_nothing_can_hold(tmp_path, case, text):
    def mark(content):
        content["data"] = {"files": 0}
        put(*HUGE[case], value="HERE")(content)

    path = edited(tmp_path, mark)
    path.write_text(path.read_text().replace('"HERE"', text))
    if case == "in the data" and text.startswith("10"):
        # Nobody computes with it; but it must be possible to write it again.
        records.write(tmp_path, records.read(path))
        return
    with pytest.raises(BrokenRecord) as error:
        records.read(path)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) - len(str(path)) < 300


def test_one_broken_record_leaves_the_others(tmp_path):
    kept = make_record(seed=1)
    records.write(tmp_path, kept)
    records.write(tmp_path, make_record()).write_text("{")
    (tmp_path / "results" / "a-folder-seed1.json").mkdir()
    found, problems = records.read_all(tmp_path)
    assert found == [kept]
    assert len(problems) == 2
    assert "not readable" in problems[0]


def test_a_file_of_another_name_is_not_its_record(tmp_path):
    path = records.write(tmp_path, make_record())
    path = path.rename(path.with_name("other-seed42.json"))
    with pytest.raises(BrokenRecord, match="holds the record of"):
        records.read(path)


# --- Whose record it is --------------------------------------------------------------


def test_a_record_of_another_spec_is_not_taken(tmp_path):
    record = make_record()
    records.write(tmp_path, record)
    other = make_spec(num_layers=2, epochs=3, dropout=0.5)
    with pytest.raises(BrokenRecord, match="another spec"):
        records.find(tmp_path, record.cell, 42, other)
    assert records.find(tmp_path, "no-such-cell", 42, other) is None
    assert records.find(tmp_path, record.cell, 43, SPEC) is None


def test_a_file_in_another_folder_is_the_same_run(tmp_path):
    here, there = (make_spec(dataset=f"{at}/mine.npz", num_layers=2) for at in "ab")
    record = make_record(here)
    records.write(tmp_path, record)
    assert records.find(tmp_path, record.cell, 42, there) == record


@pytest.mark.parametrize(
    "name", ["dropout", "trainer", "p", "width", "goodness_params"]
)
def test_a_field_that_a_record_is_older_than_has_its_default(tmp_path, name):
    spec = RunSpec(num_layers=2, epochs=3)
    path = records.write(tmp_path, make_record(spec))
    content = json.loads(path.read_text())
    del content["spec"][name]
    path.write_text(json.dumps(content))
    assert records.read(path).spec == spec


def test_unknown_keys_of_a_record_do_no_harm(tmp_path):
    path = edited(tmp_path, put("invented", value=[1, 2]))
    assert records.read(path) == make_record()


# --- Times that can be compared ------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "busy", "device", "is_timed"),
    [
        (10.0, Busy(0.9, 0.0), "cpu", True),
        (4.0, Busy(0.9, 0.0), "cpu", False),  # says more of starting than of training
        (10.0, None, "cpu", False),
        (10.0, Busy(0.9, 0.3), "cpu", False),
        (10.0, Busy(0.2, 0.0), "cpu", False),  # it was stopped for a while
        (10.0, Busy(0.2, 0.0), "NVIDIA A100", True),
    ],
)
def test_times_of_a_busy_machine_are_not_compared(seconds, busy, device, is_timed):
    record = make_record(time=Times(0, seconds, 0), busy=busy, device=device)
    assert record.is_timed == is_timed


def test_accuracy_is_exact_but_for_its_last_digits(tmp_path):
    record = make_record(
        confusion=[[1, 1], [0, 1]], test_size=3, accuracy=100 * (2 / 3)
    )
    records.write(tmp_path, record)
    assert not math.isclose(66.6667, 100 * 2 / 3, abs_tol=1e-6)
    with pytest.raises(ValueError, match="'confusion' says"):
        records.check(make_record(
            confusion=[[1, 1], [0, 1]], test_size=3, accuracy=66.6667
        ))  # fmt: skip
