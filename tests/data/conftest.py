import dataclasses

import official_files
import pytest

from ffjax import data
from ffjax.data import cache, catalog, verify


@pytest.fixture(autouse=True)
def cache_folder(tmp_path, monkeypatch):
    """A cache of the test's own."""
    folder = tmp_path / "cache"
    monkeypatch.setenv(cache.VARIABLE, str(folder))
    return folder


@pytest.fixture
def shrink(monkeypatch):
    """Has a small dataset pass for the official, its checksums included."""

    def apply(name: str):
        shape, classes, _ = official_files.FORMATS[name]
        arrays = official_files.make(
            shape, classes, train=3 * classes, test=2 * classes
        )
        definition = dataclasses.replace(
            data.DATASETS[name],
            train_size=3 * classes,
            test_size=2 * classes,
            digests=verify.canonical(arrays)[1],
        )
        monkeypatch.setitem(data.DATASETS, name, definition)
        monkeypatch.setitem(catalog.PUBLISHED, name, {})
        return arrays

    return apply
