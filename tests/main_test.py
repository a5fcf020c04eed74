"""The command as a user types it: a real process, from any folder."""

import json
import os
import pathlib
import re
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


def command(*args, cwd, **variables):
    paths = {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu", "COLUMNS": "100"}
    environment = {**os.environ, **paths, **variables}
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


def test_a_mistake_is_one_line_and_leaves_nothing_behind(tmp_path):
    """As a process; tests/attack_test.py has all mistakes in one."""
    done = command("--config.goodness=foo", "--workdir=out", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("ffjax: goodness='foo': unknown; known are ")
    assert list(tmp_path.iterdir()) == []


def test_jax_without_a_device_is_one_line(tmp_path):
    done = command(*TINY, "--workdir=out", cwd=tmp_path, JAX_PLATFORMS="nosuch")
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("ffjax: JAX has no device to run on: ")
    assert "nosuch" in line


def test_a_terminal_of_ascii_characters_gets_a_whole_table(tmp_path):
    done = command(
        *TINY, "--workdir=out", cwd=tmp_path, PYTHONIOENCODING="ascii", LANG="C"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii()
    assert "layer 1/2 - epoch 1/2 - loss" in done.stdout
    assert "| ensemble " in done.stdout
    assert "?" not in done.stdout


_FAULTY = """
from ffjax.goodness import register

@register
def faulty(h):
    raise LookupError("nothing there")
"""


@pytest.mark.parametrize("seeds", ["42", "42,43"])
def test_an_error_in_a_users_function_has_file_and_line(tmp_path, seeds):
    (tmp_path / "mine.py").write_text(_FAULTY)
    own = ("--config.goodness=mine:faulty", f"--config.seeds={seeds}")
    done = command(*TINY, *own, "--workdir=out", cwd=tmp_path)
    assert "Traceback" not in done.stdout + done.stderr
    said = r"LookupError: nothing there.*mine\.py.*\b6\b"
    if seeds == "42":
        assert done.returncode == 2
        (line,) = done.stderr.splitlines()
        assert re.search(said, line)
        return
    # Of several runs the others go on, and each failure is noted.
    assert done.returncode == 1
    failures = list((tmp_path / "out" / "failures").iterdir())
    assert len(failures) == 2
    for path in failures:
        assert re.search(said, json.loads(path.read_text())["error"])
    lines = [line for line in done.stdout.splitlines() if line.startswith("failed: ")]
    assert len(lines) == 2
    for line in lines:
        assert re.search(said, line)
