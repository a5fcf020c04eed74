"""The worker of this process: groups, kept layers, compiled programs."""

import json
import threading

import jax
import pytest
from small_runs import a_run, as_cell, cells, lasting, whole

from ffjax.config.spec import Way
from ffjax.errors import UserError
from ffjax.runs import attempt, local, run, workdir


def test_a_run_leaves_a_record_and_no_layers(tmp_path, real):
    assert run.run([real.run.cell], str(tmp_path), Way()) == 0
    (record,) = whole(tmp_path).values()
    assert lasting(record) == lasting(real.record)
    assert list((tmp_path / "partial").iterdir()) == []


def test_a_divergence_is_named(tmp_path, real, capsys):
    cell = as_cell(real.run, learning_rate=1e30)
    assert run.run([cell], str(tmp_path), Way()) == 0
    (record,) = whole(tmp_path).values()
    assert record.is_diverged
    assert "diverged in layer 1, epoch 1" in capsys.readouterr().out


def test_a_run_that_was_interrupted_goes_on_after_its_last_layer(
    tmp_path, real, trained_layers, before_training, monkeypatch
):
    with monkeypatch.context() as patch:

        def stop(runs, dataset, machine, *, kept, **more):
            (layers,) = kept
            save = layers.save
            patch.setattr(layers, "save", lambda *a: (save(*a), _interrupt()))
            return before(runs, dataset, machine, kept=kept, **more)

        before = attempt.run_group
        patch.setattr(attempt, "run_group", stop)
        with pytest.raises(KeyboardInterrupt):
            run.run([real.run.cell], str(tmp_path), Way())
    assert trained_layers == [0]
    assert run.run([real.run.cell], str(tmp_path), Way()) == 0
    assert trained_layers == [0, 1]
    (record,) = whole(tmp_path).values()
    assert lasting(record) == lasting(real.record)


def _interrupt():
    raise KeyboardInterrupt


def test_compiled_programs_do_not_pile_up(tmp_path, trained, monkeypatch):
    cleared = []
    monkeypatch.setattr(local, "_MAX_PROGRAMS", 2)
    monkeypatch.setattr(jax, "clear_caches", lambda: cleared.append(len(trained)))
    made = cells(goodness=("sos", "topk", "variance", "burstiness"), seeds=(1, 2))
    run.run(made, str(tmp_path), Way())
    assert cleared == [4]


# Groups.


@pytest.fixture
def asked(trained, monkeypatch):
    """The groups that were tried, as lists of seeds."""
    groups, fake = [], attempt.run_group

    def look(runs, *rest, **more):
        groups.append([run.seed for run in runs])
        return fake(runs, *rest, **more)

    monkeypatch.setattr(attempt, "run_group", look)
    return groups


def test_runs_are_grouped_as_asked_for(tmp_path, asked, capsys):
    made = cells(seeds=(42, 43), goodness=("sos",), norm_gate=(False, True))
    assert run.run(made, str(tmp_path), Way(group_size=3)) == 0
    assert asked == [[42, 43, 42], [43]]
    assert len(whole(tmp_path)) == 4
    assert sum(s.startswith("[") for s in capsys.readouterr().out.splitlines()) == 4
    for name in ("claims", "partial"):
        folder = tmp_path / name
        assert not folder.exists() or list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("error", "then"),
    [
        # The next ones are no larger than what memory was enough for.
        (MemoryError("no"), [2, 2, 1]),
        (ValueError("odd"), [5, 3, 2, 1, 2]),
    ],
)
def test_memory_that_was_too_small_is_remembered(
    tmp_path, asked, before_training, capsys, error, then
):
    def limit(runs):
        if len(runs) > 2:
            asked.append([run.seed for run in runs])
            raise error

    before_training(limit)
    made = cells(seeds=range(10), goodness=("sos",))
    assert run.run(made, str(tmp_path), Way(group_size=5)) == 0
    assert [len(group) for group in asked] == [5, 3, 2, 1, 2, *then]
    assert len(whole(tmp_path)) == 10
    assert "tried again with at most 3 at once" in capsys.readouterr().out


def test_a_group_leaves_out_what_others_have(tmp_path, asked, monkeypatch):
    monkeypatch.setattr(workdir, "_POLL_SECONDS", 0.01)
    made = cells(seeds=range(4), goodness=("sos",))
    claim = tmp_path / "claims" / f"{made[0].id}-seed1.1"
    claim.parent.mkdir(parents=True)
    claim.write_text(json.dumps({"host": "other", "system": "x", "pid": 7}))
    timer = threading.Timer(0.5, claim.unlink)
    timer.start()
    assert run.run(made, str(tmp_path), Way(group_size=4)) == 0
    timer.join()
    assert asked == [[0, 2, 3], [1]]


# What cannot be run.


def test_a_missing_dataset_fails_its_runs_and_the_others_go_on(tmp_path, trained):
    made = cells(dataset=("usps", "fashion_mini"), goodness=("sos", "topk"))
    assert run.run(made, str(tmp_path), Way(data_dir=str(tmp_path / "none"))) == 1
    assert len(trained) == 2
    assert len(list((tmp_path / "failures").iterdir())) == 2


def test_a_missing_dataset_that_all_runs_need_ends_the_command(tmp_path, trained):
    made = cells(dataset=("usps",), goodness=("sos", "topk"))
    with pytest.raises(UserError, match="data_dir"):
        run.run(made, str(tmp_path), Way(data_dir=str(tmp_path / "none")))
    assert list((tmp_path / "claims").iterdir()) == []


def test_more_devices_than_there_are(tmp_path, trained):
    with pytest.raises(UserError, match="num_devices=99: there are 1 on this machine"):
        run.run([a_run().cell], str(tmp_path), Way(num_devices=99))
