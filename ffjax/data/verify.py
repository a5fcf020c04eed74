"""The order of a dataset's images, and whether they are the official ones.

Each split is sorted by the SHA-256 of its examples, which is as good as a fixed
shuffle: the order does not depend on where the images came from, and the digest of all
of them shows whether they are the published ones.

An example is hashed as its label (int32) and its values in rows: as bytes if they are
all whole numbers from 0 to 255, else as float64. So the values count, not their type:
equal images have the same place in uint8, int16, float32 or float64, in any memory
layout.
"""

import hashlib
import math
import pathlib
from collections.abc import Iterator

import numpy as np

from ffjax.data import catalog, identity, official, pixels
from ffjax.errors import UserError

_BLOCK = 2**20  # values converted at once


def in_order(images: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Images (N, ...) and labels (N,) in the order that the values alone decide."""
    return _sort(images, labels)[0]


def canonical(arrays: official.Arrays) -> tuple[official.Arrays, tuple[str, str]]:
    """The arrays in their fixed order, and a digest of the content of each split."""
    train, train_digest = _sort(*arrays[:2])
    test, test_digest = _sort(*arrays[2:])
    return official.Arrays(*train, *test), (train_digest, test_digest)


def _sort(
    images: np.ndarray, labels: np.ndarray
) -> tuple[tuple[np.ndarray, np.ndarray], str]:
    """The split in the order of its examples' digests, and the digest of them all."""
    labels = np.ascontiguousarray(labels, "<i4")
    digests = [
        hashlib.sha256(label.tobytes() + content).digest()
        for label, content in zip(labels, _contents(images), strict=True)
    ]
    order = sorted(range(len(digests)), key=digests.__getitem__)
    whole = hashlib.sha256(b"".join(digests[i] for i in order)).hexdigest()
    return (images[order], labels[order]), whole


def _contents(images: np.ndarray) -> Iterator[bytes]:
    """What is hashed of each image."""
    size = math.prod(images.shape[1:])
    step = max(1, _BLOCK // max(1, size))
    for start in range(0, len(images), step):
        block = images[start : start + step]
        rows = block.reshape(len(block), size)
        if rows.dtype in (np.uint8, np.bool_):
            yield from (row.tobytes() for row in rows)
            continue
        values = pixels.as_float64(rows)
        for row, is_byte in zip(values, pixels.is_byte(values), strict=True):
            yield row.astype(np.uint8 if is_byte.all() else "<f8").tobytes()


def check_owner(name: str, checksums: dict[pathlib.Path, str]) -> None:
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


def check_arrays(name: str, folder: pathlib.Path, arrays: official.Arrays) -> None:
    """Refuses arrays that have not the shape, type and classes of dataset ``name``."""
    definition = catalog.DATASETS[name]
    for split, images, labels, size in (
        ("training", *arrays[:2], definition.train_size),
        ("test", *arrays[2:], definition.test_size),
    ):
        expected = (size, *definition.image_shape)
        if images.shape != expected or images.dtype != np.uint8:
            raise UserError(
                f"{folder}: the {split} images of {name} are {images.dtype} of shape "
                f"{images.shape}, expected uint8 of shape {expected}"
            )
        classes = np.unique(labels).tolist()
        if classes != list(range(len(definition.class_names))):
            raise UserError(
                f"{folder}: the {split} labels of {name} are {classes}, "
                f"expected 0 to {len(definition.class_names) - 1}"
            )


def check_content(
    name: str,
    folder: pathlib.Path,
    checksums: dict[pathlib.Path, str],
    digests: tuple[str, str],
) -> bool:
    """True if this is the official dataset, False if nobody knows, else UserError.

    Files that were unpacked, packed anew or prepared by TFDS are known by content.
    """
    published = catalog.PUBLISHED[name]
    strange = [
        path
        for path, checksum in checksums.items()
        if not _is_published(name, path, checksum)
    ]
    if not strange or digests == catalog.DATASETS[name].digests:
        return True
    for other, definition in catalog.DATASETS.items():
        if digests == definition.digests:
            raise UserError(f"{folder}: holds {other}, expected {name}")
    expected = ", ".join(
        f"{path.name} {published[path.name]}"
        for path in strange
        if path.name in published
    )
    if not expected and not catalog.DATASETS[name].digests:
        return False
    files = ", ".join(f"{path.name} with SHA-256 {checksums[path]}" for path in strange)
    raise UserError(
        f"{folder}: does not hold the official {name}: the content of {files} "
        f"differs{f' (expected {expected})' if expected else ''}; fetch it again"
    )


def _is_published(name: str, path: pathlib.Path, sha256: str) -> bool:
    """Whether a file of dataset ``name`` is, byte for byte, as it was published."""
    published = catalog.PUBLISHED[name].get(path.name)
    if published and len(published) == 32:
        return published == identity.checksum(path, "md5")
    return published == sha256
