import dataclasses
import json
import os
import re
import signal
import threading
import time
import types

import jax
import numpy as np
import pytest

import ffjax
from ffjax import config, data, records, report
from ffjax.errors import UserError
from ffjax.runs import attempt, checkpoint, local, locks, machine, order, run, workdir
from ffjax.training import program

_SMALL = {
    "dataset": "fashion_mini",
    "num_layers": 2,
    "width": 8,
    "epochs": 2,
    "batch_size": 50,
    "train_limit": 100,
    "test_limit": 50,
}
_CHANGING = ("time", "finished", "commit")


def _cells(seeds=(42,), **axes):
    return [
        config.expand(_fields(**fields, seeds=tuple(seeds)))[0]
        for fields in config.product(**axes)
    ]


def _fields(**fields):
    made = config.default()
    made.update({**_SMALL, **fields})
    return made


def _records(workdir):
    found, problems = records.read_all(workdir)
    assert not problems
    return {(record["cell"], record["seed"]): record for record in found}


def _lasting(record):
    return {key: value for key, value in record.items() if key not in _CHANGING}


@pytest.fixture(autouse=True)
def drawn(monkeypatch, tmp_path):
    """Reports are not drawn here; what would have been is listed."""
    calls = []

    def write(workdir, *, figures=True):
        calls.append(figures)
        return tmp_path / "index.html"

    monkeypatch.setattr(report, "write", write)
    return calls


@pytest.fixture
def trained(monkeypatch):
    """Training replaced by something quick; the runs that were asked for are listed."""
    calls = []

    def fake(members, dataset, here, *, kept=None, on_epochs=None):
        ((spec, seed),) = members
        calls.append((spec.goodness, seed))
        outcome = {
            "status": "ok",
            "accuracy": 50.0 + seed / 10,
            "accuracy_layers": [50.0, 40.0],
            "accuracy_concat": 45.0,
            "confusion": [[1, 0], [0, 1]],
            "losses": [[1.0, 0.5], [1.0, 0.5]],
            "time": {"compile_s": 0.0, "train_s": 0.1, "eval_s": 0.0},
            "train_size": len(dataset.train_labels),
            "test_size": len(dataset.test_labels),
        }
        return [outcome]

    monkeypatch.setattr(attempt, "train_and_evaluate", fake)
    return calls


def _replace_training(monkeypatch, change):
    """Calls ``change(spec, seed)`` before what training is now."""
    before = attempt.train_and_evaluate

    def changed(members, *rest, **more):
        change(*members[0])
        return before(members, *rest, **more)

    monkeypatch.setattr(attempt, "train_and_evaluate", changed)


# Order.


def test_runs_that_share_a_dataset_and_a_program_are_adjacent():
    cells = _cells(
        seeds=(42, 43),
        learning_rate=(1e-3, 1e-2),
        goodness=("sos", "burstiness"),
        dataset=("mnist", "usps"),
    )
    runs = order.ordered(cells)
    assert len(runs) == 16
    assert len({run.name for run in runs}) == 16
    datasets = [run.spec.dataset for run in runs]
    assert datasets == ["mnist"] * 8 + ["usps"] * 8
    assert [run.spec.goodness for run in runs[:8]] == ["sos"] * 4 + ["burstiness"] * 4


# Done, skipped, shared.


def test_all_runs_get_a_record_and_a_second_start_runs_nothing(
    tmp_path, trained, drawn, capsys
):
    cells = _cells(seeds=(42, 43), goodness=("sos", "burstiness"))
    assert run.run(cells, str(tmp_path)) == 0
    assert len(trained) == len(_records(tmp_path)) == 4
    assert drawn == [True]
    trained.clear()
    capsys.readouterr()
    assert run.run(cells, str(tmp_path)) == 0
    assert trained == []
    assert "nothing was run" in capsys.readouterr().out
    assert list((tmp_path / "claims").iterdir()) == []


def test_a_finished_single_run_says_so(tmp_path, trained, capsys):
    cells = _cells(goodness=("sos",))
    assert run.run(cells, str(tmp_path)) == 0
    first = capsys.readouterr().out
    assert "54.20 %" in first
    assert "what to try next" in first
    assert "done before" not in first
    assert run.run(cells, str(tmp_path)) == 0
    second = capsys.readouterr().out
    assert "this run was done before; to run it again" in second
    assert "54.20 %" in second
    assert len(trained) == 1


def test_only_missing_runs_are_run(tmp_path, trained):
    assert run.run(_cells(goodness=("sos",)), str(tmp_path)) == 0
    run.run(_cells(seeds=(42, 43), goodness=("sos",)), str(tmp_path))
    assert trained == [("sos", 42), ("sos", 43)]


def test_the_report_is_drawn_while_a_grid_runs(tmp_path, trained, drawn, monkeypatch):
    monkeypatch.setattr(workdir, "_REPORT_SECONDS", 0.0)
    run.run(_cells(goodness=("sos", "burstiness")), str(tmp_path))
    assert False in drawn
    assert drawn[-1] is True


def test_waits_for_another_process_and_takes_its_record(
    tmp_path, trained, monkeypatch, capsys
):
    monkeypatch.setattr(workdir, "_POLL_SECONDS", 0.01)
    done, here = tmp_path / "done", tmp_path / "here"
    cells = _cells(goodness=("sos", "burstiness"))
    run.run(cells, str(done))
    trained.clear()
    (theirs,) = [cell for cell in cells if cell.spec.goodness == "sos"]
    claim = here / "claims" / f"{theirs.id}-seed42.1"
    claim.parent.mkdir(parents=True)
    claim.write_text(json.dumps({"host": "other", "system": "x", "pid": 7}))

    def finish():
        while not trained:  # first the runner does what is free
            time.sleep(0.01)
        time.sleep(0.1)
        records.write(here, _records(done)[theirs.id, 42])
        claim.unlink()

    thread = threading.Thread(target=finish)
    thread.start()
    assert run.run(cells, str(here)) == 0
    thread.join()
    assert trained == [("burstiness", 42)]
    assert len(_records(here)) == 2
    assert "waiting for 1 run of process 7 on other (" in capsys.readouterr().out


def test_a_record_that_appears_with_the_claim_is_not_run_again(
    tmp_path, trained, monkeypatch
):
    cells = _cells(goodness=("sos",))
    run.run(cells, str(tmp_path / "done"))
    (record,) = _records(tmp_path / "done").values()
    acquire = locks.Claims.acquire

    def late(self, name):
        records.write(tmp_path / "here", record)
        return acquire(self, name)

    monkeypatch.setattr(locks.Claims, "acquire", late)
    assert run.run(cells, str(tmp_path / "here")) == 0
    assert len(trained) == 1


def test_a_process_that_lost_its_claim_leaves_the_record_to_the_new_owner(
    tmp_path, trained, monkeypatch
):
    monkeypatch.setattr(workdir, "_POLL_SECONDS", 0.01)
    cells = _cells(goodness=("sos",))
    claim = tmp_path / "claims" / f"{cells[0].id}-seed42.2"

    def lose(spec, seed):
        if len(trained) == 0:
            claim.write_text(json.dumps({"host": "other", "system": "x", "pid": 7}))
            threading.Timer(0.2, claim.unlink).start()

    _replace_training(monkeypatch, lose)
    assert run.run(cells, str(tmp_path)) == 0
    # The new owner let go without a record, so the run was done here after all.
    assert len(trained) == 2
    assert len(_records(tmp_path)) == 1


# Failures.


def test_one_failing_run_is_recorded_and_the_rest_go_on(
    tmp_path, trained, monkeypatch, capsys
):
    cells = _cells(goodness=("sos", "burstiness", "topk"))
    with monkeypatch.context() as patch:

        def fail(spec, seed):
            if spec.goodness == "burstiness":
                raise MemoryError("RESOURCE_EXHAUSTED: out of memory")

        _replace_training(patch, fail)
        assert run.run(cells, str(tmp_path)) == 1
    assert trained == [("sos", 42), ("topk", 42)]
    (path,) = (tmp_path / "failures").iterdir()
    failure = json.loads(path.read_text())
    assert failure["error"] == "MemoryError: RESOURCE_EXHAUSTED: out of memory"
    assert failure["cell"] == cells[1].id
    assert failure["seed"] == 42
    assert failure["spec"] == dataclasses.asdict(cells[1].spec)
    last_lines = capsys.readouterr().out.splitlines()[-2:]
    assert "RESOURCE_EXHAUSTED" in last_lines[0]
    assert last_lines[1].startswith("1 run failed, see ")
    assert run.run(cells, str(tmp_path)) == 0
    assert trained[-1] == ("burstiness", 42)
    assert not path.exists()


def test_a_missing_dataset_fails_its_runs_and_the_others_go_on(tmp_path, trained):
    cells = _cells(dataset=("usps", "fashion_mini"), goodness=("sos", "topk"))
    assert run.run(cells, str(tmp_path), run.How(str(tmp_path / "none"))) == 1
    assert len(trained) == 2
    assert len(list((tmp_path / "failures").iterdir())) == 2


def test_a_missing_dataset_that_all_runs_need_is_told_at_once(tmp_path, trained):
    cells = _cells(dataset=("usps",), goodness=("sos", "topk"))
    with pytest.raises(UserError, match="data_dir"):
        run.run(cells, str(tmp_path), run.How(str(tmp_path / "none")))
    assert list((tmp_path / "claims").iterdir()) == []


def test_a_batch_larger_than_the_data(tmp_path):
    cells = _cells(batch_size=(6001,), train_limit=(0,))
    with pytest.raises(UserError, match="batch_size=6001"):
        run.run(cells, str(tmp_path))


@pytest.mark.parametrize("how", ["ctrl-c", "sigterm"])
def test_an_interruption_says_how_to_go_on(tmp_path, trained, monkeypatch, capsys, how):
    def interrupt(spec, seed):
        if trained:
            number = signal.SIGINT if how == "ctrl-c" else signal.SIGTERM
            os.kill(os.getpid(), number)
            time.sleep(5)

    _replace_training(monkeypatch, interrupt)
    cells = _cells(goodness=("sos", "topk"))
    arguments = ["--config=my file.py", "--workdir=w"]
    before = signal.getsignal(signal.SIGTERM)
    # A test run that was started in the background ignores Ctrl-C, as nohup asks for.
    of_ctrl_c = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            run.run(cells, str(tmp_path), arguments=arguments)
    finally:
        signal.signal(signal.SIGINT, of_ctrl_c)
    out = capsys.readouterr().out
    assert out.endswith("  python -m ffjax.main '--config=my file.py' --workdir=w\n")
    assert "stopped: 1 run done" in out
    assert list((tmp_path / "claims").iterdir()) == []
    assert not (tmp_path / "failures").exists()
    assert signal.getsignal(signal.SIGTERM) == before


# Workdirs with something in them.


def _damage_cut(path):
    path.write_text(path.read_text()[:100])


def _damage_other_spec(path):
    record = json.loads(path.read_text())
    record["spec"]["epochs"] = 60
    path.write_text(json.dumps(record))


def _damage_garbage(path):
    path.write_bytes(b"\xff\x00 no record")


@pytest.mark.parametrize("damage", [_damage_cut, _damage_other_spec, _damage_garbage])
def test_a_broken_record_is_told_kept_and_run_again(tmp_path, trained, capsys, damage):
    cells = _cells(goodness=("sos", "topk"))
    run.run(cells, str(tmp_path))
    whole = _records(tmp_path)
    path = records.record_path(tmp_path, cells[0].id, 42)
    damage(path)
    content = path.read_bytes()
    capsys.readouterr()
    assert run.run(cells, str(tmp_path)) == 0
    assert trained == [("sos", 42), ("topk", 42), ("sos", 42)]
    assert capsys.readouterr().out.count(str(path)) == 2  # itself, and its new name
    assert path.with_name(f"{path.name}.broken").read_bytes() == content
    again = _records(tmp_path)
    assert {key: _lasting(record) for key, record in again.items()} == {
        key: _lasting(record) for key, record in whole.items()
    }


def test_records_of_another_version_count_and_are_told(tmp_path, trained, capsys):
    cells = _cells(goodness=("sos",))
    run.run(cells, str(tmp_path))
    path = records.record_path(tmp_path, cells[0].id, 42)
    record = json.loads(path.read_text())
    record["versions"]["ffjax"] = "0.0.1"
    del record["spec"]["valid_fraction"]  # a field that came later
    path.write_text(json.dumps(record))
    assert run.run(cells, str(tmp_path)) == 0
    assert len(trained) == 1
    said = f"1 record of ffjax 0.0.1 (this is {ffjax.__version__}) taken as done"
    assert said in capsys.readouterr().out


def test_foreign_files_are_left_alone(tmp_path, trained):
    for name in ("results/notes.json", "claims/notes", "partial/x", "failures/y.json"):
        path = tmp_path / name
        path.parent.mkdir(parents=True)
        path.write_text("garbage")
    assert run.run(_cells(goodness=("sos", "topk")), str(tmp_path)) == 0
    assert (tmp_path / "results" / "notes.json").read_text() == "garbage"
    assert (tmp_path / "failures" / "y.json").read_text() == "garbage"


@pytest.mark.parametrize("name", ["", "results", "claims"])
def test_a_workdir_that_cannot_be_written(tmp_path, trained, name):
    workdir = tmp_path / "w"
    if name:
        workdir.mkdir()
    (workdir / name).write_text("a file, where a folder should be")
    with pytest.raises(UserError, match="cannot write there"):
        run.run(_cells(goodness=("sos",)), str(workdir))
    assert trained == []


# Real training: resumed inside a run.


@pytest.fixture(scope="module")
def spec():
    # Its goodness function has a state of its own that must survive, too.
    fields = {**_SMALL, "goodness": "softmax_energy_margin", "pathway": "standard"}
    return config.make_spec(**fields)


@pytest.fixture(scope="module")
def dataset():
    return data.load("fashion_mini", train_limit=100, test_limit=50)


def _alone(spec, dataset, kept=None):
    kept = None if kept is None else [kept]
    (outcome,) = attempt.train_and_evaluate(
        [(spec, 42)], dataset, machine.here(), kept=kept
    )
    return outcome


@pytest.fixture(scope="module")
def undisturbed(spec, dataset):
    return _alone(spec, dataset)


def _kept(folder, said=None, **identity):
    said = [] if said is None else said
    return checkpoint.Layers(folder, "run", {"seed": 42, **identity}, said.append)


def _interrupted(folder, spec, dataset, layers):
    """Stores the first layers of the run, as if it was killed then."""
    kept = _kept(folder)
    save = kept.save

    def save_and_stop(index, layer, *times):
        save(index, layer, *times)
        if index + 1 == layers:
            raise KeyboardInterrupt

    kept.save = save_and_stop
    with pytest.raises(KeyboardInterrupt):
        _alone(spec, dataset, kept=kept)


def _count_layers(monkeypatch):
    trained, train_layer = [], program.train_layer

    def counted(arch, index, *rest, **more):
        trained.append(index)
        return train_layer(arch, index, *rest, **more)

    monkeypatch.setattr(program, "train_layer", counted)
    return trained


@pytest.mark.parametrize("layers", [1, 2])
def test_a_resumed_run_is_bit_identical(
    tmp_path, spec, dataset, undisturbed, monkeypatch, layers
):
    _interrupted(tmp_path, spec, dataset, layers)
    trained, said = _count_layers(monkeypatch), []
    outcome = _alone(spec, dataset, kept=_kept(tmp_path, said))
    assert trained == list(range(layers, spec.num_layers))
    assert said == []
    assert _lasting(outcome) == _lasting(undisturbed)
    assert outcome["losses"] == undisturbed["losses"]
    assert outcome["time"]["train_s"] > 0


def test_the_state_of_the_goodness_function_is_kept(tmp_path, spec, dataset):
    _interrupted(tmp_path, spec, dataset, 1)
    (layer,), train_s, compile_s = _kept(tmp_path).load()
    assert np.asarray(layer.goodness_state) != 0
    assert layer.losses.shape == (spec.epochs,)
    assert train_s > 0
    assert compile_s >= 0


def _cut(path):
    path.write_bytes(path.read_bytes()[:-10])


def _garble(path):
    path.write_bytes(b"garbage")


@pytest.mark.parametrize("damage", [_cut, _garble])
def test_a_broken_layer_is_told_and_trained_again(
    tmp_path, spec, dataset, undisturbed, monkeypatch, damage
):
    _interrupted(tmp_path, spec, dataset, 2)
    damage(tmp_path / "partial" / "run" / "layer0.safetensors")
    trained, said = _count_layers(monkeypatch), []
    outcome = _alone(spec, dataset, kept=_kept(tmp_path, said))
    assert trained == [0, 1]
    assert len(said) == 1
    assert "layer0.safetensors: not used (" in said[0]
    assert _lasting(outcome) == _lasting(undisturbed)


def test_layers_of_another_run_are_not_used(tmp_path, spec, dataset):
    _interrupted(tmp_path, spec, dataset, 1)
    said = []
    layers, *_ = _kept(tmp_path, said, data="changed").load()
    assert layers == []
    assert "of another run" in said[0]


def test_a_run_leaves_a_record_and_no_layers(tmp_path, spec, undisturbed):
    cell = config.Cell(config.cell_id(spec), spec, (42,))
    assert run.run([cell], str(tmp_path)) == 0
    (record,) = _records(tmp_path).values()
    assert record["accuracy"] == undisturbed["accuracy"]
    assert record["losses"] == undisturbed["losses"]
    assert record["device"] == jax.local_devices()[0].device_kind
    assert list((tmp_path / "partial").iterdir()) == []


def test_a_divergence_is_a_record(tmp_path, spec, capsys):
    spec = dataclasses.replace(spec, threshold=3e38)  # their sum is infinite
    cell = config.Cell(config.cell_id(spec), spec, (42,))
    assert run.run([cell], str(tmp_path)) == 0
    (record,) = _records(tmp_path).values()
    assert record["status"] == "diverged"
    assert record["diverged_at"] == {"layer": 0, "epoch": 0}
    assert "diverged in layer 1, epoch 1" in capsys.readouterr().out


def test_compiled_programs_do_not_pile_up(tmp_path, trained, monkeypatch):
    cleared = []
    monkeypatch.setattr(local, "_MAX_PROGRAMS", 2)
    monkeypatch.setattr(jax, "clear_caches", lambda: cleared.append(len(trained)))
    cells = _cells(goodness=("sos", "topk", "variance", "burstiness"), seeds=(1, 2))
    run.run(cells, str(tmp_path))
    assert cleared == [4]


# Groups.


def _group_cells():
    return _cells(seeds=(42, 43), goodness=("sos",), norm_gate=(False, True))


@pytest.fixture
def alone(tmp_path):
    run.run(_group_cells(), str(tmp_path / "alone"))
    return _records(tmp_path / "alone")


def test_a_group_gives_each_run_its_record(tmp_path, alone, capsys):
    capsys.readouterr()
    how = run.How(group_size=3)
    assert run.run(_group_cells(), str(tmp_path / "group"), how) == 0
    found = _records(tmp_path / "group")
    assert found.keys() == alone.keys()
    for key, record in found.items():
        assert record["spec"] == alone[key]["spec"]
        assert abs(record["accuracy"] - alone[key]["accuracy"]) <= 2  # of 50 images
        np.testing.assert_allclose(record["losses"], alone[key]["losses"], rtol=1e-4)
    sizes = [record.get("group_size", 1) for record in found.values()]
    assert sorted(sizes) == [1, 3, 3, 3]
    assert len(re.findall(r"^\[\d/4\] ", capsys.readouterr().out, re.MULTILINE)) == 4
    for name in ("claims", "partial"):
        assert list((tmp_path / "group" / name).iterdir()) == []


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (MemoryError("no"), "not enough memory"),
        (RuntimeError("RESOURCE_EXHAUSTED: on the device"), "not enough memory"),
        (ValueError("odd"), "ValueError('odd')"),
    ],
)
def test_a_group_that_is_too_large_is_halved(
    tmp_path, trained, monkeypatch, capsys, error, said
):
    sizes = []
    fake = attempt.train_and_evaluate

    def limited(members, *rest, **more):
        sizes.append(len(members))
        if len(members) > 2:
            raise error
        return [fake([member], *rest, **more)[0] for member in members]

    monkeypatch.setattr(attempt, "train_and_evaluate", limited)
    cells = _cells(seeds=range(10), goodness=("sos",))
    assert run.run(cells, str(tmp_path), run.How(group_size=5)) == 0
    assert len(trained) == len(_records(tmp_path)) == 10
    assert f"failed ({said}); tried again with at most 3" in capsys.readouterr().out
    # The next ones are no larger than what memory was enough for.
    is_memory = "memory" in said
    assert sizes == [5, 3, 2, 1, 2, *([2, 2, 1] if is_memory else [5, 3, 2, 1, 2])]


def test_a_run_that_fails_does_not_take_its_group_along(tmp_path, trained, monkeypatch):
    fake = attempt.train_and_evaluate

    def fail(members, *rest, **more):
        if any(seed == 3 for _, seed in members):
            raise ValueError("seed 3")
        return [fake([member], *rest, **more)[0] for member in members]

    monkeypatch.setattr(attempt, "train_and_evaluate", fail)
    cells = _cells(seeds=range(5), goodness=("sos",))
    assert run.run(cells, str(tmp_path), run.How(group_size=5)) == 1
    assert {seed for _, seed in _records(tmp_path)} == {0, 1, 2, 4}


def test_a_group_leaves_out_what_others_have(tmp_path, trained, monkeypatch):
    monkeypatch.setattr(workdir, "_POLL_SECONDS", 0.01)
    groups = []
    fake = attempt.train_and_evaluate

    def look(members, *rest, **more):
        groups.append([seed for _, seed in members])
        return [fake([member], *rest, **more)[0] for member in members]

    monkeypatch.setattr(attempt, "train_and_evaluate", look)
    cells = _cells(seeds=range(4), goodness=("sos",))
    claim = tmp_path / "claims" / f"{cells[0].id}-seed1.1"
    claim.parent.mkdir(parents=True)
    claim.write_text(json.dumps({"host": "other", "system": "x", "pid": 7}))
    threading.Timer(0.5, claim.unlink).start()
    assert run.run(cells, str(tmp_path), run.How(group_size=4)) == 0
    assert groups == [[0, 2, 3], [1]]


def test_more_devices_than_there_are(tmp_path, trained):
    with pytest.raises(UserError, match="num_devices=99: there are 1 on this machine"):
        run.run(_group_cells(), str(tmp_path), run.How(num_devices=99))


def test_how_many_runs_go_together():
    spec = config.make_spec(pathway="standard")
    assert attempt.group_size(spec, machine.here()) == 1, "a CPU is busy with one"
    assert attempt.group_size(spec, machine.here(), 7) == 7
    accelerator = types.SimpleNamespace(platform="gpu")
    one = machine.Machine((accelerator,), 8e9)
    # 60,000 images under 10 labels with 2000 activations are 4.8 GB.
    assert attempt.group_size(spec, one) == 1
    assert attempt.group_size(spec, machine.Machine((accelerator,) * 8, 20e9)) == 32
    free = config.make_spec(pathway="ffcl")
    assert 10 <= attempt.group_size(free, one) <= 20
    assert attempt.group_size(spec, machine.Machine((accelerator,), 1e9)) > 1, (
        "what is recomputed needs no memory"
    )
