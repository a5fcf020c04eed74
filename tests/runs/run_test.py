"""The entry: what a whole command does, with training replaced by something quick."""

import gc
import json
import os
import signal
import threading
import time

import pytest
from small_runs import cells, hearing_ctrl_c, whole

import ffjax
from ffjax import records
from ffjax.config.spec import Way
from ffjax.errors import UserError
from ffjax.runs import run, workdir


def test_all_runs_get_a_record_and_a_second_start_runs_nothing(
    tmp_path, trained, drawn, capsys
):
    made = cells(seeds=(42, 43), goodness=("sos", "burstiness"))
    assert run.run(made, str(tmp_path), Way()) == 0
    assert len(trained) == len(whole(tmp_path)) == 4
    assert drawn == [True]
    trained.clear()
    assert "a table of 4 records" in capsys.readouterr().out
    assert run.run(made, str(tmp_path), Way()) == 0
    assert trained == []
    out = capsys.readouterr().out
    assert "4 of 4 done before" in out
    assert "nothing was run" in out
    assert list((tmp_path / "claims").iterdir()) == []


def test_a_finished_single_run_says_so(tmp_path, trained, drawn, capsys):
    made = cells(goodness=("sos",))
    assert run.run(made, str(tmp_path), Way()) == 0
    first = capsys.readouterr().out
    assert "54.00 %" in first
    assert "what to try next" in first
    assert "done before" not in first
    assert run.run(made, str(tmp_path), Way()) == 0
    second = capsys.readouterr().out
    assert "this run was done before; to run it again" in second
    assert "54.00 %" in second
    assert len(trained) == 1
    assert drawn == []


def test_a_grid_of_a_single_run_ends_in_a_report(tmp_path, trained, drawn, capsys):
    assert run.run(cells(goodness=("sos",)), str(tmp_path), Way(), is_grid=True) == 0
    assert drawn == [True]
    assert "what to try next" not in capsys.readouterr().out


def test_only_missing_runs_are_run(tmp_path, trained):
    assert run.run(cells(goodness=("sos",)), str(tmp_path), Way()) == 0
    run.run(cells(seeds=(42, 43), goodness=("sos",)), str(tmp_path), Way())
    assert trained == [("sos", 42), ("sos", 43)]


def test_the_report_is_drawn_while_a_grid_runs(tmp_path, trained, drawn, monkeypatch):
    monkeypatch.setattr(run, "_REPORT_SECONDS", 0.0)
    run.run(cells(goodness=("sos", "burstiness")), str(tmp_path), Way())
    assert False in drawn
    assert drawn[-1] is True


def test_a_report_that_cannot_be_drawn_does_not_stop_the_grid(
    tmp_path, trained, monkeypatch, capsys
):
    monkeypatch.setattr(run, "_REPORT_SECONDS", 0.0)
    write = ffjax.report.write

    def fail(path, *, figures=True):
        if not figures:
            raise RuntimeError("no ink")
        return write(path)

    monkeypatch.setattr(ffjax.report, "write", fail)
    assert run.run(cells(goodness=("sos", "topk")), str(tmp_path), Way()) == 0
    assert "the report could not be drawn (RuntimeError('no ink'))" in (
        capsys.readouterr().out
    )


# Other processes on the same folder.


def _claim_of_another(folder, cell, generation=1, seed=42):
    claim = folder / "claims" / f"{cell.id}-seed{seed}.{generation}"
    claim.parent.mkdir(parents=True, exist_ok=True)
    claim.write_text(json.dumps({"host": "other", "system": "x", "pid": 7}))
    return claim


def test_waits_for_another_process_and_takes_its_record(
    tmp_path, trained, monkeypatch, capsys
):
    monkeypatch.setattr(workdir, "_POLL_SECONDS", 0.01)
    done, here = tmp_path / "done", tmp_path / "here"
    made = cells(goodness=("sos", "burstiness"))
    run.run(made, str(done), Way())
    trained.clear()
    (theirs,) = [cell for cell in made if cell.spec.goodness == "sos"]
    claim = _claim_of_another(here, theirs)

    def finish():
        while not trained:  # first the runner does what is free
            time.sleep(0.01)
        time.sleep(0.1)
        records.write(here, whole(done)[theirs.id, 42])
        claim.unlink()

    thread = threading.Thread(target=finish)
    thread.start()
    assert run.run(made, str(here), Way()) == 0
    thread.join()
    assert trained == [("burstiness", 42)]
    assert len(whole(here)) == 2
    assert "waiting for 1 run of process 7 on other (" in capsys.readouterr().out


def test_a_process_that_lost_its_claim_leaves_the_record_to_the_new_owner(
    tmp_path, trained, before_training, monkeypatch
):
    monkeypatch.setattr(workdir, "_POLL_SECONDS", 0.01)
    made = cells(goodness=("sos",))

    def lose(runs):
        if not trained:
            claim = _claim_of_another(tmp_path, made[0], generation=2)
            threading.Timer(0.2, claim.unlink).start()

    before_training(lose)
    assert run.run(made, str(tmp_path), Way()) == 0
    # The new owner let go without a record, so the run was done here after all.
    assert len(trained) == 2
    assert len(whole(tmp_path)) == 1


# Ends.


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_says_how_to_go_on(
    tmp_path, trained, before_training, capsys, number
):
    def interrupt(runs):
        if trained:
            os.kill(os.getpid(), number)
            time.sleep(5)

    before_training(interrupt)
    made = cells(goodness=("sos", "topk"))
    arguments = ["--config=my file.py", "--workdir=w"]
    before = signal.getsignal(signal.SIGTERM)
    with hearing_ctrl_c(), pytest.raises(KeyboardInterrupt):
        run.run(made, str(tmp_path), Way(), arguments=arguments)
    out = capsys.readouterr().out
    assert out.endswith("  python -m ffjax.main '--config=my file.py' --workdir=w\n")
    assert "stopped: 1 run done, and finished layers of unfinished runs are kept" in out
    assert list((tmp_path / "claims").iterdir()) == []
    assert not (tmp_path / "failures").exists()
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_is_not_lost_in_the_garbage_collector(
    tmp_path, trained, before_training, number
):
    def in_the_collector(phase, info):
        if sent:
            os.kill(os.getpid(), sent.pop())

    def interrupt(runs):
        sent.append(number)
        gc.collect()
        time.sleep(5)

    sent = []
    before_training(interrupt)
    gc.callbacks.append(in_the_collector)
    try:
        with hearing_ctrl_c(), pytest.raises(KeyboardInterrupt):
            run.run(cells(), str(tmp_path), Way())
    finally:
        gc.callbacks.remove(in_the_collector)
    assert trained == []


def test_failed_runs_are_listed_last_and_tried_again(
    tmp_path, trained, before_training, monkeypatch, capsys
):
    made = cells(goodness=("sos", "burstiness", "topk"))

    def fail(runs):
        if runs[0].spec.goodness == "burstiness" and len(trained) < 2:
            raise MemoryError("RESOURCE_EXHAUSTED: out of memory")

    before_training(fail)
    assert run.run(made, str(tmp_path), Way()) == 1
    assert trained == [("sos", 42), ("topk", 42)]
    last_lines = capsys.readouterr().out.splitlines()[-2:]
    assert "RESOURCE_EXHAUSTED" in last_lines[0]
    assert last_lines[1].startswith("1 run failed, see ")
    assert run.run(made, str(tmp_path), Way()) == 0
    assert trained[-1] == ("burstiness", 42)
    assert list((tmp_path / "failures").iterdir()) == []


@pytest.mark.parametrize("name", ["", "results", "claims"])
def test_a_workdir_that_cannot_be_written(tmp_path, trained, name):
    folder = tmp_path / "w"
    if name:
        folder.mkdir()
    (folder / name).write_text("a file, where a folder should be")
    with pytest.raises(UserError, match="cannot write there"):
        run.run(cells(goodness=("sos",)), str(folder), Way())
    assert trained == []


def test_foreign_files_are_left_alone(tmp_path, trained):
    names = ("results/notes.json", "claims/notes", "partial/x", "failures/y.json")
    for name in names:
        path = tmp_path / name
        path.parent.mkdir(parents=True)
        path.write_text("garbage")
    assert run.run(cells(goodness=("sos", "topk")), str(tmp_path), Way()) == 0
    assert [(tmp_path / name).read_text() for name in names] == ["garbage"] * 4
