"""The command as a user types it: a real process, from any folder."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]
TINY = [
    "--config.width=16",
    "--config.epochs=2",
    "--config.train_limit=400",
    "--config.test_limit=103",
]


def command(*args, cwd):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "100"}
    return subprocess.run(
        [sys.executable, "-m", "ffjax.main", *args],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_a_run_with_overrides_shows_progress_and_writes_its_record(tmp_path):
    overrides = [
        "--config.goodness=moment",
        "--config.p=4",
        "--config.pathway=standard",
    ]
    done = command(*TINY, *overrides, "--workdir=out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for text in ("layer 1/2", "epoch 2/2", "loss", "ensemble", "out/results/"):
        assert text in done.stdout
    assert "\x1b" not in done.stdout, "no control codes in a file"
    (path,) = (tmp_path / "out" / "results").glob("*.json")
    record = json.loads(path.read_text())
    assert path.name == f"{record['cell']}-seed42.json"
    spec = record["spec"]
    assert (spec["goodness"], spec["p"], spec["pathway"]) == ("moment", 4, "standard")
    assert spec["alpha"] is None
    assert record["status"] == "ok"
    assert len(record["accuracy_layers"]) == 2
    assert sum(map(sum, record["confusion"])) == record["test_size"] == 103
    assert record["train_size"] == 400
    assert [len(layer) for layer in record["losses"]] == [2, 2]
    assert set(record["time"]) == {"compile_s", "train_s", "eval_s"}
    right = sum(row[index] for index, row in enumerate(record["confusion"]))
    assert record["accuracy"] == pytest.approx(100 * right / 103)
    assert record["data"]["kind"] == "embedded"
    assert record["versions"]["jax"]

    again = command(*TINY, *overrides, "--workdir=out", cwd=tmp_path)
    assert again.returncode == 0
    assert json.loads(path.read_text()) == record, "a finished run is not repeated"


def test_list_prints_ids_and_their_number_and_runs_nothing(tmp_path):
    done = command("--list", cwd=tmp_path)
    *ids, last = done.stdout.splitlines()
    assert len(ids) == 1
    assert last.startswith("1 cell")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--config.goodness=foo", "goodness='foo': unknown"),
        ("--config.goodnes=sos", "goodnes: no such field; did you mean 'goodness'"),
        ("--config.p=6.5", "p='6.5': must be an integer from 1 to 32"),
        ("--config.dataset=../mnist", "dataset='../mnist'"),
        ("--config.batch_size=100000", "batch_size=100000: must not be larger"),
        ("--config=nowhere.py", "config='nowhere.py': no such file"),
        ("--wrokdir=x", "wrokdir"),
        ("--shard=5/4", "shard='5/4': must be i/n with i from 1 to n"),
        ("--config.group_size=-1", "group_size=-1: must be an integer >= 0"),
        ("--config.num_devices=99", "num_devices=99: there are 1 on this machine"),
        ("stray", "'stray': not a flag"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing_behind(tmp_path, argument, message):
    done = command(argument, "--workdir=out", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert message in line
    assert not list(tmp_path.rglob("*.json"))


def test_help_explains_every_flag(tmp_path):
    done = command("--help", cwd=tmp_path)
    for text in ("--config", "--workdir", "--[no]list", "learning_rate", "burstiness"):
        assert text in done.stdout
