"""Layers of interrupted runs: used to the bit, or not at all."""

import errno

import numpy as np
import pytest
from small_runs import lasting

from ffjax import atomic
from ffjax.runs import attempt
from ffjax.runs.checkpoint import Layers
from ffjax.training import machine


def _layers(folder, said=None, **identity):
    said = [] if said is None else said
    return Layers(folder, "run", {"seed": 42, **identity}, said.append)


def _train(real, kept):
    (record,) = attempt.run_group([real.run], real.dataset, machine.here(), kept=[kept])
    return record


def _interrupted(folder, real, number):
    """Stores the first layers of the run, as if it was killed then."""
    kept = _layers(folder)
    save = kept.save

    def save_and_stop(index, *rest):
        save(index, *rest)
        if index + 1 == number:
            raise KeyboardInterrupt

    kept.save = save_and_stop  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(KeyboardInterrupt):
        _train(real, kept)


@pytest.mark.parametrize("number", [1, 2])
def test_a_resumed_run_is_bit_identical(tmp_path, real, trained_layers, number):
    _interrupted(tmp_path, real, number)
    trained_layers.clear()
    said = []
    record = _train(real, _layers(tmp_path, said))
    assert trained_layers == list(range(number, real.run.spec.num_layers))
    assert said == []
    assert lasting(record) == lasting(real.record)
    assert record.time.train_s > 0


def test_the_state_of_the_goodness_function_and_the_time_are_kept(tmp_path, real):
    _interrupted(tmp_path, real, 1)
    (layer,), times, _ = _layers(tmp_path).load()
    assert np.asarray(layer.goodness_state) != 0
    assert layer.losses.shape == (real.run.spec.epochs,)
    assert times.train_s > 0
    assert times.compile_s >= 0


def _cut(path):
    path.write_bytes(path.read_bytes()[:-10])


def _garble(path):
    path.write_bytes(b"garbage")


@pytest.mark.parametrize("damage", [_cut, _garble])
def test_a_broken_layer_is_named_and_trained_again(
    tmp_path, real, trained_layers, damage
):
    _interrupted(tmp_path, real, 2)
    damage(tmp_path / "partial" / "run" / "layer0.safetensors")
    trained_layers.clear()
    said = []
    record = _train(real, _layers(tmp_path, said))
    assert trained_layers == [0, 1]
    (line,) = said
    assert "layer0.safetensors: not used (" in line
    assert lasting(record) == lasting(real.record)


def test_layers_of_another_run_are_not_used(tmp_path, real):
    _interrupted(tmp_path, real, 1)
    said = []
    layers, *_ = _layers(tmp_path, said, data="changed").load()
    assert layers == []
    (line,) = said
    assert "of another run" in line


def test_a_layer_that_cannot_be_kept_is_named_and_the_run_goes_on(
    tmp_path, real, monkeypatch
):
    def full(path, content):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(atomic, "write_bytes", full)
    said = []
    record = _train(real, _layers(tmp_path, said))
    assert lasting(record) == lasting(real.record)
    assert [line.rpartition(": ")[2] for line in said] == [
        "not kept (No space left on device)"
    ] * 2


def test_removed_layers_are_gone(tmp_path, real):
    _interrupted(tmp_path, real, 1)
    _layers(tmp_path).remove()
    assert list((tmp_path / "partial").iterdir()) == []
    assert _layers(tmp_path).load()[0] == []
