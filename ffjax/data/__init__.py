"""Datasets by name: arrays in memory, flattened and normalised.

The order of the images does not depend on where they came from: each split is sorted
by the SHA-256 of label and pixels, which is as good as a fixed shuffle. ``train_limit``
and ``test_limit`` take the first images of that order; its end is the validation part.

``python -m ffjax.data --dataset=NAME`` takes a look at a dataset. Nothing here imports
jax or TensorFlow, and TFDS only where it is needed.
"""

import dataclasses
import difflib
import hashlib
import io
import json
import math
import os
import pathlib
from typing import Any

import numpy as np
from absl import logging

from ffjax.data import cache, catalog, npz, official, tfds
from ffjax.errors import UserError


@dataclasses.dataclass(frozen=True)
class Dataset:
    """A dataset ready for training: N images of D values each, in C classes."""

    name: str
    train_images: np.ndarray  # (N, D) float32, normalised per channel
    train_labels: np.ndarray  # (N,) int32
    valid_images: np.ndarray  # empty unless a validation fraction was asked for
    valid_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray
    num_classes: int
    image_shape: tuple[int, ...]  # (H, W) or (H, W, 3)
    class_names: tuple[str, ...]
    mean: tuple[float, ...]  # per channel, of the training images (pixels / 255)
    std: tuple[float, ...]
    source: dict[str, Any]  # kind, and the files' checksums; fit for a JSON record


DATASETS = catalog.DATASETS

_CACHE_VERSION = 1  # raise it when decoding or the order changes
_BLOCK = 2**18  # pixels handled at once, so that what is made on the way stays small
_MINI = pathlib.Path(__file__).with_name("fashion_mini.npz")
_MINI_SHA256 = "a5fdc29cbc275e52834f77cf5e82961e1d4d542bb66ddf9b8b3fd861220cdfc3"


def check_name(name: str) -> None:
    """Raises UserError unless ``name`` is a known dataset or a path ending in .npz."""
    if name in DATASETS or name.endswith(".npz"):
        return
    close = difflib.get_close_matches(name, DATASETS, n=1)
    hint = f" (did you mean {close[0]!r}?)" if close else ""
    raise UserError(
        f"dataset={name!r}: unknown{hint}; known are {', '.join(DATASETS)}, "
        "and the path of a .npz file"
    )


def load(
    name: str,
    *,
    data_dir: str = "",
    train_limit: int = 0,
    test_limit: int = 0,
    valid_fraction: float = 0.0,
) -> Dataset:
    """Loads a dataset by name, or a user's own from a .npz file.

    Args:
      name: A key of DATASETS, or the path of a .npz file.
      data_dir: A folder that holds prepared TFDS datasets, or the official files in a
        subfolder named after the dataset. Empty: the usual folder of TFDS.
      train_limit: How many training images to use; 0 takes all.
      test_limit: How many test images to use; 0 takes all.
      valid_fraction: The part of the (limited) training images that is set aside for
        validation; mean and std are those of the images that remain.
    """
    check_name(name)
    if not 0 <= valid_fraction < 1:
        raise UserError(
            f"valid_fraction={valid_fraction}: must be at least 0 and below 1"
        )
    if name == "fashion_mini":
        arrays, source = _read_mini()
    elif name in DATASETS:
        arrays, source = _read_named(name, data_dir)
    else:
        path = pathlib.Path(name).expanduser()
        arrays, _ = _canonical(npz.read(path))
        source = {"kind": "npz", "files": {path.name: official.checksum(path)}}
    if name in DATASETS:
        class_names = DATASETS[name].class_names
    else:
        class_names = tuple(map(str, range(arrays.train_labels.max() + 1)))
    train = _take(name, "train_limit", train_limit, *arrays[:2])
    test = _take(name, "test_limit", test_limit, *arrays[2:])
    num_valid = round(valid_fraction * len(train[0]))
    num_train = len(train[0]) - num_valid
    if num_train == 0 or (valid_fraction > 0 and num_valid == 0):
        raise UserError(
            f"valid_fraction={valid_fraction}: splits {len(train[0])} images into "
            f"{num_train} for training and {num_valid} for validation; "
            "neither may be 0"
        )
    image_shape = train[0].shape[1:]
    mean, std = _statistics(train[0][:num_train])
    return Dataset(
        name=pathlib.Path(name).name,
        train_images=_normalise(train[0][:num_train], mean, std),
        train_labels=train[1][:num_train].astype(np.int32),
        valid_images=_normalise(train[0][num_train:], mean, std),
        valid_labels=train[1][num_train:].astype(np.int32),
        test_images=_normalise(test[0], mean, std),
        test_labels=test[1].astype(np.int32),
        num_classes=len(class_names),
        image_shape=image_shape,
        class_names=class_names,
        mean=mean,
        std=std,
        source=source,
    )


def _read_mini() -> tuple[official.Arrays, dict[str, Any]]:
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
    source = {"kind": "embedded", "files": {_MINI.name: checksum}}
    return _canonical(arrays)[0], source


def _read_named(name: str, data_dir: str) -> tuple[official.Arrays, dict[str, Any]]:
    """Reads one of the six from the cache, its raw files or a prepared TFDS folder."""
    root = _root(data_dir)
    if found := official.find(name, root / name):
        kind, folder, paths = "raw", root / name, found.paths
    else:
        folder = tfds.find(name, root) or _prepare(name, root)
        kind, paths = "tfds", tfds.files(folder)
    checksums = {path: official.checksum(path) for path in paths}
    source: dict[str, Any] = {
        "kind": kind,
        "files": {path.name: checksum for path, checksum in checksums.items()},
    }
    key = hashlib.sha256(json.dumps([_CACHE_VERSION, source]).encode()).hexdigest()
    entry = f"{name}-{key[:16]}"
    if cached := cache.read(entry):
        arrays, facts = cached
    else:
        if kind == "raw":
            _check_owner(name, checksums)
        arrays = official.read(found) if found else tfds.read(folder)
        _check_arrays(name, folder, arrays)
        arrays, digests = _canonical(arrays)
        verified = _check_content(name, folder, checksums, digests)
        facts = {"verified": verified}
        cache.write(entry, arrays, facts)
    source["verified"] = facts["verified"]
    logging.info(
        "%s: %d training and %d test images, from %s in %s%s%s",
        name,
        len(arrays.train_labels),
        len(arrays.test_labels),
        "the official files" if kind == "raw" else "the prepared TFDS dataset",
        folder,
        " (through the cache)" if cached else "",
        "" if source["verified"] else "; content not verified: no checksum is known",
    )
    return arrays, source


def _root(data_dir: str) -> pathlib.Path:
    """The folder of datasets: the one given, else the usual one of TFDS."""
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
        f"from {DATASETS[name].home}) into {root / name}"
    )
    if not tfds.has_tensorflow():
        raise UserError(
            f"dataset={name!r}: not found in {root}; {wanted}, or let TFDS download "
            "and prepare it: pip install 'ffjax[tfds]'"
        )
    logging.info("%s: not found in %s, so TFDS downloads and prepares it", name, root)
    try:
        return tfds.prepare(name, root)
    except Exception as error:  # TFDS raises nearly anything where there is no network
        raise UserError(
            f"dataset={name!r}: not found in {root}, and TFDS could not download and "
            f"prepare it ({tfds.first_line(error)}); {wanted}"
        ) from None


def _check_owner(name: str, checksums: dict[pathlib.Path, str]) -> None:
    """Refuses a file that is known to be of another dataset, or another file of it."""
    known = {
        checksum: (owner, file)
        for owner, files in catalog.PUBLISHED.items()
        for file, checksum in files.items()
    }
    for path, checksum in checksums.items():
        owner, file = known.get(checksum, (name, path.name))
        if (owner, file) != (name, path.name):
            raise UserError(f"{path}: is {file} of {owner}, expected that of {name}")


def _check_arrays(name: str, folder: pathlib.Path, arrays: official.Arrays) -> None:
    definition = DATASETS[name]
    for split, images, labels, size in (
        ("training", *arrays[:2], definition.train_size),
        ("test", *arrays[2:], definition.test_size),
    ):
        found, expected = images.shape, (size, *definition.image_shape)
        if found != expected or images.dtype != np.uint8:
            raise UserError(
                f"{folder}: the {split} images of {name} are {images.dtype} of shape "
                f"{found}, expected uint8 of shape {expected}"
            )
        classes = np.unique(labels).tolist()
        if classes != list(range(len(definition.class_names))):
            raise UserError(
                f"{folder}: the {split} labels of {name} are {classes}, "
                f"expected 0 to {len(definition.class_names) - 1}"
            )


def _check_content(
    name: str,
    folder: pathlib.Path,
    checksums: dict[pathlib.Path, str],
    digests: tuple[str, str],
) -> bool:
    """Whether the dataset is known to be the official one; UserError if it is not.

    Files that were unpacked, packed anew or prepared by TFDS are known by content.
    """
    strange = [
        path
        for path, checksum in checksums.items()
        if not official.is_published(name, path, checksum)
    ]
    if not strange or digests == DATASETS[name].digests:
        return True
    for other, definition in DATASETS.items():
        if digests == definition.digests:
            raise UserError(f"{folder}: holds {other}, expected {name}")
    if DATASETS[name].digests or any(
        p.name in catalog.PUBLISHED[name] for p in strange
    ):
        files = ", ".join(
            f"{path.name} with SHA-256 {checksums[path]}" for path in strange
        )
        expected = ", ".join(
            f"{file} {checksum}"
            for file, checksum in catalog.PUBLISHED[name].items()
            if file in [path.name for path in strange]
        )
        raise UserError(
            f"{folder}: does not hold the official {name}: the content of {files} "
            f"differs{f' (expected {expected})' if expected else ''}; fetch it again"
        )
    return False


def _canonical(arrays: official.Arrays) -> tuple[official.Arrays, tuple[str, str]]:
    """The arrays in their fixed order, and a digest of the content of each split."""
    train, train_digest = _canonical_split(*arrays[:2])
    test, test_digest = _canonical_split(*arrays[2:])
    return official.Arrays(*train, *test), (train_digest, test_digest)


def _canonical_split(
    images: np.ndarray, labels: np.ndarray
) -> tuple[tuple[np.ndarray, np.ndarray], str]:
    """The split in the order of its examples' digests, and the digest of them all."""
    labels = np.ascontiguousarray(labels, "<i4")
    pixels = np.ascontiguousarray(images).reshape(len(images), -1)
    digests = [
        hashlib.sha256(label.tobytes() + row.tobytes()).digest()
        for label, row in zip(labels, pixels, strict=True)
    ]
    order = sorted(range(len(digests)), key=digests.__getitem__)
    whole = hashlib.sha256(b"".join(digests[i] for i in order)).hexdigest()
    return (images[order], labels[order]), whole


def _take(
    name: str, field: str, limit: int, images: np.ndarray, labels: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    if not 0 <= limit <= len(images):
        raise UserError(
            f"{field}={limit}: {name} has {len(images)} such images; "
            "give a number from 1 to that, or 0 for all"
        )
    count = limit or len(images)
    return images[:count], labels[:count]


def _statistics(images: np.ndarray) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation per channel; 1 for the std of a constant channel."""
    channels = 3 if images.ndim == 4 else 1
    means, stds = [], []
    for channel in images.reshape(-1, channels).T:
        if channel.dtype == np.uint8:
            # From the histogram: exact, and without a float copy of the images.
            values, weights = np.arange(256) / 255, np.zeros(256, np.int64)
            for start in range(0, channel.size, _BLOCK):
                weights += np.bincount(channel[start : start + _BLOCK], minlength=256)
        else:
            values, weights = channel, None
        mean = np.average(values, weights=weights)
        std = np.sqrt(np.average((values - mean) ** 2, weights=weights))
        means.append(float(mean))
        stds.append(float(std) if channel.min() < channel.max() and std > 0 else 1.0)
    return tuple(means), tuple(stds)


def _normalise(
    images: np.ndarray, mean: tuple[float, ...], std: tuple[float, ...]
) -> np.ndarray:
    """(N, H, W[, 3]) -> (N, H * W [* 3]) float32, per channel (x - mean) / std."""
    pixels = images.reshape(-1, len(mean))
    result = np.empty(pixels.shape, np.float32)
    # Of the 256 values that a byte can have, each is computed once.
    tables = ((np.arange(256)[:, None] / 255 - mean) / std).astype(np.float32)
    for start in range(0, len(pixels), _BLOCK):
        block = pixels[start : start + _BLOCK]
        if images.dtype == np.uint8:
            for channel, table in enumerate(tables.T):
                result[start : start + _BLOCK, channel] = table[block[:, channel]]
        else:
            result[start : start + _BLOCK] = (block - mean) / std
    return result.reshape(len(images), math.prod(images.shape[1:]))


def fingerprint(name: str) -> str | None:
    """SHA-256 of a file of one's own; None for a named dataset."""
    return None if name in DATASETS else official.checksum(pathlib.Path(name))
