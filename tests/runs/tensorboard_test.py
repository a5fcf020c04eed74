"""Event files, read back."""

import struct
import sys

import msgspec
import pytest
from small_runs import a_run, cells, record
from tensorboardX.proto import event_pb2, plugin_hparams_pb2

from ffjax.config.spec import Way
from ffjax.errors import UserError
from ffjax.records import Curve, Point
from ffjax.runs import run
from ffjax.runs.tensorboard import Board

# Classes that protobuf makes when the modules are imported.
EVENT = vars(event_pb2)["Event"]
HPARAMS = vars(plugin_hparams_pb2)["HParamsPluginData"]


def read(folder):
    """The events of a run: (tag, value, step) of scalars, and HParams by tag."""
    (path,) = folder.glob("events.out.tfevents.*")
    content, scalars, hparams = path.read_bytes(), [], {}
    while content:
        (length,) = struct.unpack("<Q", content[:8])
        event = EVENT.FromString(content[12 : 12 + length])
        content = content[16 + length :]
        for value in event.summary.value:
            if value.metadata.plugin_data.plugin_name == "hparams":
                raw = value.metadata.plugin_data.content
                hparams[value.tag] = HPARAMS.FromString(raw)
            else:
                scalars.append((value.tag, value.simple_value, event.step))
    return scalars, hparams


@pytest.fixture
def made():
    points = [Point(0, 2, 40.0, 40.0), Point(1, 2, 50.0, 60.0)]
    curve = Curve("validation", points)
    return msgspec.structs.replace(
        record(a_run(seed=7)), curve=curve, accuracy_valid=60.0
    )


def test_losses_accuracies_and_fields_are_written(tmp_path, made):
    Board(tmp_path).write(made)
    scalars, hparams = read(tmp_path / "tensorboard" / made.name)
    expected = [
        ("loss/layer1", 0.5, 1),
        ("loss/layer1", 0.5, 2),
        ("loss/layer2", 0.5, 1),
        ("loss/layer2", 0.5, 2),
        ("validation_accuracy/layer1", 40.0, 2),
        ("validation_accuracy/ensemble", 40.0, 2),
        ("validation_accuracy/layer2", 50.0, 2),
        ("validation_accuracy/ensemble", 60.0, 4),
        ("test_accuracy_end/layer1", 50.0, 2),
        ("test_accuracy_end/layer2", 50.0, 2),
        ("test_accuracy_end/concatenation", 45.0, 2),
        ("test_accuracy_end/ensemble", made.accuracy, 2),
        ("validation_accuracy_end/ensemble", 60.0, 2),
    ]
    assert [(tag, round(value, 4), step) for tag, value, step in scalars] == expected
    given = hparams["_hparams_/session_start_info"].session_start_info.hparams
    assert given["goodness"].string_value == "burstiness"
    assert given["width"].number_value == 8
    assert given["seed"].number_value == 7
    assert given["norm_gate"].bool_value is False
    names = [
        metric.name.tag
        for metric in hparams["_hparams_/experiment"].experiment.metric_infos
    ]
    assert "test_accuracy_end/ensemble" in names


def test_a_run_again_replaces_its_folder(tmp_path, made):
    board = Board(tmp_path)
    board.write(made)
    board.write(msgspec.structs.replace(made, curve=None))
    (folder,) = (tmp_path / "tensorboard").iterdir()
    scalars, _ = read(folder)
    assert not any(tag.startswith("validation_accuracy/") for tag, *_ in scalars)


def test_every_run_of_a_grid_has_its_folder(tmp_path, trained, drawn):
    grid = cells(seeds=(1, 2), goodness=("sos", "burstiness"))
    run.run(grid[:1], str(tmp_path), Way(), is_grid=True)
    run.run(grid, str(tmp_path), Way(), is_grid=True, tensorboard=True)
    folders = sorted(path.name for path in (tmp_path / "tensorboard").iterdir())
    assert folders == sorted(path.stem for path in (tmp_path / "results").iterdir())
    assert len(folders) == 4


def test_what_is_missing_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(UserError, match=r"pip install 'ffjax\[tensorboard\]'"):
        Board(tmp_path)
