import os
import time

import pytest
from loading import refusal

from ffjax import data
from ffjax.data import identity
from ffjax.errors import UserError


@pytest.mark.parametrize("name", [*data.DATASETS, "mine.npz", "/some/where/mine.npz"])
def test_good_names(name):
    data.check_name(name)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("minst", "did you mean 'mnist'?"),
        ("fashion-mnist", "did you mean 'fashion_mnist'?"),
        ("../mnist", "known are"),
        ("/data/mnist", "known are"),
        ("mnist/3.0.1", "known are"),
        ("", "known are"),
        ("mine.npy", ".npz file"),
    ],
)
def test_bad_names(name, hint):
    for function in (data.check_name, data.canonical_name, data.fingerprint, data.load):
        with pytest.raises(UserError) as caught:
            function(name)
        for part in (f"dataset={name!r}", hint, *data.DATASETS):
            assert part in str(caught.value)


def test_named_datasets_are_known_by_their_names():
    for name in ("fashion_mini", "mnist", "emnist_letters"):
        assert data.canonical_name(name) == name
        assert data.fingerprint(name) is None


def test_all_spellings_of_a_path_are_the_same(tmp_path, monkeypatch):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "a")
    monkeypatch.chdir(tmp_path / "a")
    monkeypatch.setenv("HOME", str(tmp_path))
    expected = str(tmp_path.resolve() / "a" / "mine.npz")
    for name in (
        "mine.npz",
        "./mine.npz",
        "b/../mine.npz",
        "~/a/mine.npz",
        f"{tmp_path}/a/mine.npz",
        f"{tmp_path}/link/mine.npz",
    ):
        assert data.canonical_name(name) == expected
    assert data.canonical_name("b/mine.npz") != expected


def test_the_fingerprint_is_that_of_the_content(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path, copy = tmp_path / "mine.npz", tmp_path / "copy.npz"
    path.write_bytes(b"some content")
    copy.write_bytes(b"some content")
    first = data.fingerprint("mine.npz")
    assert first == data.fingerprint(str(path)) == data.fingerprint("copy.npz")
    assert first == identity.checksum(path)
    facts = path.stat()
    path.write_bytes(b"SOME content")  # of the same size, at another time
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns + 1))
    assert data.fingerprint("mine.npz") != first


def test_the_fingerprint_of_a_file_is_computed_once(tmp_path, monkeypatch):
    path = tmp_path / "mine.npz"
    path.write_bytes(b"some content")
    first = data.fingerprint(str(path))
    monkeypatch.setattr(identity, "checksum", None)
    assert data.fingerprint(str(path)) == first


@pytest.mark.parametrize("what", ["absent", "folder", "pipe", "device", "null", "~"])
def test_what_is_no_file_is_refused_at_once(what, tmp_path):
    path = tmp_path / "mine.npz"
    if what == "folder":
        path.mkdir()
    elif what == "pipe":
        os.mkfifo(path)
    elif what == "device":
        path.symlink_to("/dev/zero")
    name = {"null": "a\0b.npz", "~": "~nobody-here/mine.npz"}.get(what, str(path))
    start = time.monotonic()
    message = refusal(name)
    with pytest.raises(UserError) as caught:
        data.fingerprint(name)
    assert str(caught.value) == message
    assert time.monotonic() - start < 5
    part = {"folder": "is a folder", "pipe": "is a pipe", "device": "or device"}
    assert part.get(what, "cannot be read") in message
