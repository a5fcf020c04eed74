"""A record is a result only of the inputs that it was made from; real training."""

import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from small_runs import SMALL, a_run, lasting, whole

from ffjax import config, goodness, records
from ffjax.config.spec import Way
from ffjax.errors import UserError
from ffjax.runs import attempt, run

_ROOT = pathlib.Path(__file__).parents[2]


def _npz(path, seed):
    random = np.random.default_rng(seed)
    labels = np.arange(120) % 3
    images = random.integers(0, 100, (120, 4, 4)) + 50 * labels[:, None, None]
    path.parent.mkdir(exist_ok=True)
    np.savez(
        path,
        train_images=images[:80].astype(np.uint8),
        train_labels=labels[:80],
        test_images=images[80:].astype(np.uint8),
        test_labels=labels[80:],
    )
    return str(path)


def _on(path):
    return a_run(
        dataset=path, goodness="sos", batch_size=20, train_limit=0, test_limit=0
    )


def _alone(folder, cell):
    """The record of a run in a folder of its own."""
    assert run.run([cell], str(folder), Way()) == 0
    (record,) = whole(folder).values()
    return lasting(record)


# Data.


def test_a_file_with_other_content_is_run_anew(tmp_path, capsys):
    path = _npz(tmp_path / "mine.npz", seed=1)
    one = _on(path)
    workdir = tmp_path / "w"
    assert run.run([one.cell], str(workdir), Way()) == 0
    store = records.record_path(workdir, one.cell.id, one.seed)
    old = store.read_bytes()
    _npz(tmp_path / "mine.npz", seed=2)
    capsys.readouterr()
    assert run.run([one.cell], str(workdir), Way()) == 0
    out = capsys.readouterr().out
    assert out.count("has changed since") == 1
    assert f"the content of {path} has changed since; it runs again" in out
    assert "done before" not in out
    assert store.with_name(f"{store.name}.old").read_bytes() == old
    (record,) = whole(workdir).values()
    assert lasting(record) == _alone(tmp_path / "fresh", one.cell)
    assert record.data["files"] != records.decode(old).data["files"]
    # And now it is done.
    assert run.run([one.cell], str(workdir), Way()) == 0
    assert "this run was done before" in capsys.readouterr().out


def test_another_file_of_the_same_name_is_run_anew(tmp_path, capsys):
    cells = [
        _on(_npz(tmp_path / f / "mine.npz", seed=s)).cell
        for f, s in (("a", 1), ("b", 2))
    ]
    assert cells[0].id == cells[1].id
    for cell in cells:
        assert run.run([cell], str(tmp_path / "w"), Way()) == 0
    assert capsys.readouterr().out.count("has changed since; it runs again") == 1


def test_the_same_file_by_two_paths_is_one_run(tmp_path, monkeypatch, capsys):
    absolute = _npz(tmp_path / "mine.npz", seed=1)
    monkeypatch.chdir(tmp_path)
    assert _on("mine.npz").cell.id == _on(absolute).cell.id
    for path in (absolute, "mine.npz", "./mine.npz"):
        assert run.run([_on(path).cell], "w", Way()) == 0
    out = capsys.readouterr().out
    assert out.count("this run was done before") == 2
    assert "changed" not in out


def test_two_files_of_one_name_are_refused_in_one_grid(tmp_path):
    fields = config.default()
    fields.update({**SMALL, "train_limit": 0, "batch_size": 20})
    paths = [_npz(tmp_path / folder / "mine.npz", seed=1) for folder in "ab"]
    fields.grid = {"all": config.product(dataset=paths)}
    with pytest.raises(UserError, match="another file of that name"):
        config.expand(fields)


# Code.


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A function of one's own, and a way to say that its source has changed."""
    (tmp_path / "changing.py").write_text(
        "from ffjax.goodness import register\n"
        "@register\n"
        "def spread(h):\n"
        "    return ((h - h.mean(-1, keepdims=True)) ** 2).mean(-1)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(goodness, "GOODNESS", dict(goodness.GOODNESS))
    source = ["first"]
    monkeypatch.setattr(goodness, "source_hash", lambda name: source[0])
    yield source
    sys.modules.pop("changing", None)


def test_a_function_with_another_source_is_run_anew(tmp_path, own, capsys):
    one = a_run(goodness="changing:spread")
    for source in ("first", "first", "second"):
        own[0] = source
        assert run.run([one.cell], str(tmp_path / "w"), Way()) == 0
    out = capsys.readouterr().out
    assert out.count("this run was done before") == 1
    assert out.count("the source of changing:spread has changed since") == 1
    (record,) = whole(tmp_path / "w").values()
    assert record.goodness_source == "second"
    (old,) = (tmp_path / "w" / "results").glob("*.old")
    assert records.decode(old.read_bytes()).goodness_source == "first"


def test_layers_of_another_source_are_not_used(
    tmp_path, own, trained_layers, monkeypatch, capsys
):
    one = a_run(goodness="changing:spread")
    save = attempt.Layers.save

    def save_and_stop(self, *rest):
        save(self, *rest)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(attempt.Layers, "save", save_and_stop)
        with pytest.raises(KeyboardInterrupt):
            run.run([one.cell], str(tmp_path / "w"), Way())
    assert trained_layers == [0]
    own[0] = "second"
    capsys.readouterr()
    assert run.run([one.cell], str(tmp_path / "w"), Way()) == 0
    assert trained_layers == [0, 0, 1]
    assert "not used (of another run)" in capsys.readouterr().out


_MODULE = """
import beside
from ffjax.goodness import register

@register
def shaped(h):
    return beside.shape(h)
"""
_CONFIG = f"""
from ffjax import config

def get_config():
    fields = config.default()
    fields.update({ {**SMALL, "goodness": "edited:shaped"}!r})
    return fields
"""


def _command(folder):
    ended = subprocess.run(
        [sys.executable, "-m", "ffjax.main", "--config=own.py", "--workdir=w"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(_ROOT), "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_a_module_edited_between_two_commands(tmp_path):
    """With real files: what a function imports from beside it counts, too."""
    (tmp_path / "edited.py").write_text(_MODULE)
    (tmp_path / "own.py").write_text(_CONFIG)
    beside = tmp_path / "beside.py"
    beside.write_text("def shape(h):\n    return (h**2).mean(-1)\n")
    first = _command(tmp_path)
    assert "done before" not in first
    assert "this run was done before" in _command(tmp_path)
    beside.write_text("def shape(h):\n    return abs(h).mean(-1)\n")
    third = _command(tmp_path)
    assert "the source of edited:shaped has changed since; it runs again" in third
    (record,) = whole(tmp_path / "w").values()
    (old,) = (tmp_path / "w" / "results").glob("*.old")
    assert record.losses != records.decode(old.read_bytes()).losses
    assert "this run was done before" in _command(tmp_path)
