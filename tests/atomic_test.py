"""Files are whole or not there at all."""

import os
import stat
import time

import pytest

from ffjax import atomic


def test_a_file_and_its_folder_are_made(tmp_path):
    path = tmp_path / "a" / "b" / "file"
    atomic.write_text(path, "größer\n")
    assert path.read_bytes() == "größer\n".encode()
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert list(path.parent.iterdir()) == [path]


def test_a_folder_that_must_be_there_already(tmp_path):
    with pytest.raises(FileNotFoundError):
        atomic.write_bytes(tmp_path / "a" / "file", b"", make_folder=False)
    assert list(tmp_path.iterdir()) == []
    atomic.write_bytes(tmp_path / "file", b"x", make_folder=False)
    assert (tmp_path / "file").read_bytes() == b"x"


@pytest.mark.parametrize("failing", ["fsync", "replace", "chmod"])
@pytest.mark.parametrize("error", [OSError(28, "No space left"), KeyboardInterrupt()])
def test_an_interrupted_write_changes_nothing(tmp_path, monkeypatch, failing, error):
    path = tmp_path / "file"
    atomic.write_bytes(path, b"before")

    def fail(*_):
        raise error

    monkeypatch.setattr(os, failing, fail)
    with pytest.raises(type(error)):
        atomic.write_bytes(path, b"after")
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]


def test_what_killed_writers_left_is_removed(tmp_path, monkeypatch):
    folder = tmp_path / "results"
    atomic.write_bytes(folder / "whole", b"")
    left = []
    with monkeypatch.context() as patched:
        # As after a kill: neither renamed nor cleaned up.
        def keep(scratch, path):
            left.append(scratch)
            raise SystemExit

        patched.setattr(os, "replace", keep)
        patched.setattr("pathlib.Path.unlink", lambda *_, **__: None)
        for name in ("old", "new"):
            with pytest.raises(SystemExit):
                atomic.write_bytes(folder / name, b"half")
    (folder / ".hidden").write_text("a user's own")
    long_ago = time.time() - 2 * 3600
    for path in (left[0], folder / ".hidden", folder / "whole"):
        os.utime(path, (long_ago, long_ago))
    atomic.remove_scratch(tmp_path)
    assert not os.path.exists(left[0])
    assert os.path.exists(left[1])  # its writer may be at work
    assert {child.name for child in folder.iterdir()} == {
        ".hidden",
        "whole",
        os.path.basename(left[1]),
    }
    atomic.remove_scratch(tmp_path / "nowhere")
