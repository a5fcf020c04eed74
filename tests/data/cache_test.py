import gzip
import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import official_files
import pytest
import safetensors.numpy
from absl import logging
from loading import assert_same, run_environment

from ffjax import data
from ffjax.data import cache, official
from ffjax.errors import UserError


@pytest.fixture
def usps(shrink, tmp_path):
    official_files.write_usps(tmp_path / "usps", shrink("usps"))
    return lambda: data.load("usps", data_dir=str(tmp_path))


@pytest.fixture
def warnings(monkeypatch):
    """What is logged as a warning."""
    lines = []
    monkeypatch.setattr(
        logging, "warning", lambda text, *args: lines.append(text % args)
    )
    return lines


def cache_files(folder: pathlib.Path) -> list[pathlib.Path]:
    return sorted(folder.iterdir()) if folder.exists() else []


def test_the_second_load_decodes_nothing(usps, monkeypatch, cache_folder):
    first = usps()
    (path,) = cache_files(cache_folder)
    assert path.name.startswith("usps-")
    monkeypatch.setattr(official, "read", None)
    second = usps()
    assert_same(first, second)
    assert first.source == second.source


def test_the_cache_follows_the_source(usps, tmp_path, cache_folder):
    usps()
    path = tmp_path / "usps" / "zip.test.gz"
    content = gzip.decompress(path.read_bytes())
    path.write_bytes(gzip.compress(content, 1))  # other bytes, same content
    usps()
    assert len(cache_files(cache_folder)) == 2
    path.write_bytes(gzip.compress(b"x" + content))
    with pytest.raises(UserError):
        usps()


def with_facts(content: bytes, facts: object) -> bytes:
    """The cache file with other facts."""
    text = facts if isinstance(facts, str) else json.dumps(facts)
    return safetensors.numpy.save(safetensors.numpy.load(content), {"facts": text})


def facts_of(content: bytes) -> dict:
    length = int.from_bytes(content[:8], "little")
    return json.loads(json.loads(content[8 : 8 + length])["__metadata__"]["facts"])


DAMAGES = {
    "cut": lambda content: content[: len(content) // 2],
    "flipped": lambda content: content[:-100] + b"\0\1\2\3" + content[-96:],
    "empty": lambda content: b"",
    "garbled": lambda content: b"\xff" * 1000,
    "other arrays": lambda content: content.replace(b"train_images", b"train_imagez"),
    "facts are a list": lambda content: with_facts(content, [1, 2]),
    "facts are a number": lambda content: with_facts(content, 3),
    "facts are no JSON": lambda content: with_facts(content, "{"),
    "facts are deep": lambda content: with_facts(content, "[" * 100_000),
    "facts are absent": lambda content: safetensors.numpy.save(
        safetensors.numpy.load(content)
    ),
    "verified is absent": lambda content: with_facts(
        content, {"sha256": facts_of(content)["sha256"]}
    ),
    "verified is no truth value": lambda content: with_facts(
        content, {**facts_of(content), "verified": "yes"}
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_cache_is_made_anew(damage, usps, cache_folder, warnings):
    first = usps()
    (path,) = cache_files(cache_folder)
    content = path.read_bytes()
    path.write_bytes(DAMAGES[damage](content))
    assert path.read_bytes() != content
    assert_same(first, usps())
    assert len(warnings) == 1
    assert f"{path}: damaged" in warnings[0]
    assert "\n" not in warnings[0]
    assert path.read_bytes() == content
    assert cache_files(cache_folder) == [path]


def test_a_pipe_in_place_of_the_cache_is_replaced(usps, cache_folder):
    first = usps()
    (path,) = cache_files(cache_folder)
    path.unlink()
    os.mkfifo(path)
    assert_same(first, usps())
    assert path.is_file()


def test_a_named_cache_folder_that_cannot_be_written(usps, cache_folder):
    cache_folder.write_text("a file, where even root can make no folder")
    with pytest.raises(UserError) as caught:
        usps()
    assert str(cache_folder) in str(caught.value)
    assert cache.VARIABLE in str(caught.value)


def test_the_usual_cache_folder_may_be_unwritable(
    usps, tmp_path, monkeypatch, warnings
):
    monkeypatch.delenv(cache.VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    (tmp_path / "file").write_text("")
    assert usps().train_images.shape == (30, 256)
    assert "cannot write the cache" in warnings[0]


@pytest.mark.parametrize("moment", ["fsync", "replace"])
def test_a_full_disk_leaves_nothing_behind(moment, usps, cache_folder, monkeypatch):
    def fail(*args):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as context:
        context.setattr(f"os.{moment}", fail)
        with pytest.raises(UserError, match="No space left on device"):
            usps()
    assert cache_files(cache_folder) == []
    usps()
    before = cache_files(cache_folder)
    content = before[0].read_bytes()
    with monkeypatch.context() as context:
        context.setattr(f"os.{moment}", fail)
        arrays = official.Arrays(*[np.zeros(3)] * 4)
        with pytest.raises(UserError, match="No space left on device"):
            cache.write(before[0].stem, arrays, verified=True)
    assert cache_files(cache_folder) == before
    assert before[0].read_bytes() == content, "the cache stays valid"


def test_processes_that_start_at_once_do_not_disturb_each_other(cache_folder):
    code = """
import numpy as np
from ffjax.data import cache, official
arrays = official.Arrays(*[np.full((500, 784), i, np.uint8) for i in range(4)])
for _ in range(20):
    cache.write("shared", arrays, verified=True)
    assert cache.read("shared") is not None, "seen half-written"
"""
    environment = run_environment(**{cache.VARIABLE: str(cache_folder)})
    command = [sys.executable, "-c", code]
    running = [subprocess.Popen(command, env=environment) for _ in range(3)]
    assert [process.wait() for process in running] == [0, 0, 0]
    assert [path.name for path in cache_files(cache_folder)] == ["shared.safetensors"]


def test_where_the_cache_is(monkeypatch):
    monkeypatch.delenv(cache.VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert cache.folder() == pathlib.Path("/x/ffjax")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache.folder() == pathlib.Path.home() / ".cache" / "ffjax"
