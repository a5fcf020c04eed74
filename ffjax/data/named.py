"""A dataset by its name: from the package, the cache, official files or TFDS."""

import hashlib
import io
import json
import os
import pathlib

import numpy as np
from absl import logging

from ffjax.data import cache, catalog, identity, official, tfds, verify
from ffjax.errors import UserError

_CACHE_VERSION = 1  # raise it when decoding or the order changes
_MINI = pathlib.Path(__file__).with_name("fashion_mini.npz")
_MINI_SHA256 = "a5fdc29cbc275e52834f77cf5e82961e1d4d542bb66ddf9b8b3fd861220cdfc3"


def read(name: str, data_dir: str) -> tuple[official.Arrays, identity.Source]:
    """The arrays of a dataset in ``catalog.DATASETS``, in their fixed order."""
    return _read_mini() if name == "fashion_mini" else _read_files(name, data_dir)


def _read_mini() -> tuple[official.Arrays, identity.Source]:
    try:
        content = _MINI.read_bytes()
    except OSError as error:
        raise UserError(
            f"{_MINI}: cannot be read ({error.strerror}); install ffjax anew"
        ) from None
    checksum = hashlib.sha256(content).hexdigest()
    if checksum != _MINI_SHA256:
        raise UserError(
            f"{_MINI}: has SHA-256 {checksum}, expected {_MINI_SHA256}; "
            "the file is damaged: install ffjax anew"
        )
    with np.load(io.BytesIO(content), allow_pickle=False) as file:
        arrays = official.Arrays(*(file[field] for field in official.Arrays._fields))
    source = identity.Source(kind="embedded", files={_MINI.name: checksum})
    return verify.canonical(arrays)[0], source


def _read_files(name: str, data_dir: str) -> tuple[official.Arrays, identity.Source]:
    """Reads a dataset from the cache, its official files or a prepared TFDS folder."""
    root = _root(data_dir)
    files = official.find(name, root / name)
    if files:
        folder, paths = root / name, files.paths
    else:
        folder = tfds.find(name, root) or _prepare(name, root)
        paths = tfds.files(folder)
    checksums = {path: identity.checksum(path) for path in paths}
    source = identity.Source(
        kind="raw" if files else "tfds",
        files={path.name: checksum for path, checksum in checksums.items()},
    )
    key = hashlib.sha256(json.dumps([_CACHE_VERSION, source]).encode()).hexdigest()
    entry = f"{name}-{key[:16]}"
    if cached := cache.read(entry):
        arrays, verified = cached
    else:
        if files:
            verify.check_owner(name, checksums)
        arrays = official.read(files) if files else tfds.read(folder)
        verify.check_arrays(name, folder, arrays)
        arrays, digests = verify.canonical(arrays)
        verified = verify.check_content(name, folder, checksums, digests)
        cache.write(entry, arrays, verified=verified)
    source["verified"] = verified
    logging.info(
        "%s: %d training and %d test images, from %s in %s%s%s",
        name,
        len(arrays.train_labels),
        len(arrays.test_labels),
        "the official files" if files else "the prepared TFDS dataset",
        folder,
        " (through the cache)" if cached else "",
        "" if verified else "; content not verified: no checksum is known",
    )
    return arrays, source


def _root(data_dir: str) -> pathlib.Path:
    """The folder of datasets: ``data_dir``, else where TFDS keeps its own."""
    if not data_dir:
        usual = os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets"
        return pathlib.Path(usual).expanduser()
    root = pathlib.Path(data_dir).expanduser()
    if not root.is_dir():
        raise UserError(f"data_dir={data_dir!r}: is not a folder")
    return root


def _prepare(name: str, root: pathlib.Path) -> pathlib.Path:
    """Has TFDS download and prepare a dataset that is not there."""
    wanted = (
        f"put the official files ({official.missing(name, root / name)}; "
        f"from {catalog.DATASETS[name].home}) into {root / name}"
    )
    if not tfds.has_tensorflow():
        raise UserError(
            f"dataset={name!r}: is not in {root}; {wanted}, or let TFDS download "
            "and prepare it: pip install 'ffjax[tfds]'"
        )
    logging.info("%s: is not in %s, so TFDS downloads and prepares it", name, root)
    try:
        return tfds.prepare(name, root)
    except Exception as error:  # TFDS raises nearly anything where there is no network
        raise UserError(
            f"dataset={name!r}: is not in {root}, and TFDS could not download and "
            f"prepare it ({tfds.first_line(error)}); {wanted}"
        ) from None
