"""The order of a dataset's images, and whether they are the official ones.

Each split is sorted by the SHA-256 of label and pixels, which is as good as a fixed
shuffle: the order does not depend on where the images came from, and the digest of all
of them tells whether they are the published ones.
"""

import hashlib
import pathlib

import numpy as np

from ffjax.data import catalog, identity, official
from ffjax.errors import UserError


def canonical(arrays: official.Arrays) -> tuple[official.Arrays, tuple[str, str]]:
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
    """Whether the dataset is known to be the official one; UserError if it is not.

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
    """Whether a file of dataset ``name`` is, byte for byte, the published one."""
    published = catalog.PUBLISHED[name].get(path.name)
    if published and len(published) == 32:
        return published == identity.checksum(path, "md5")
    return published == sha256
