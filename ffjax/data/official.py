"""The official files of the six datasets, read as their makers publish them.

``find`` looks for a dataset's files in a folder, ``read`` turns them into arrays. Files
packed with gzip or bzip2 are known by their first bytes, not by their names, since
browsers like to unpack a download and keep its name.
"""

import bz2
import dataclasses
import gzip
import math
import os
import pathlib
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ffjax.errors import UserError


class Arrays(NamedTuple):
    """A dataset as read: images (N, H, W[, 3]), for the six uint8; labels from 0."""

    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray


@dataclasses.dataclass(frozen=True)
class Layout:
    """Files that together hold a dataset, and the function that reads them."""

    files: tuple[tuple[str, ...], ...]  # each file, by the names that it may have
    read: Callable[..., Arrays]  # takes the files' paths, in that order


@dataclasses.dataclass(frozen=True)
class Files:
    """The files of a dataset in a folder."""

    layout: Layout
    paths: tuple[pathlib.Path, ...]


def find(name: str, folder: pathlib.Path) -> Files | None:
    """The files of dataset ``name`` in ``folder``, or None unless all are there."""
    for layout in LAYOUTS[name]:
        paths = [_first_file(folder, names) for names in layout.files]
        if all(paths):
            return Files(layout, tuple(path for path in paths if path))
    return None


def missing(name: str, folder: pathlib.Path) -> str:
    """Which files would make dataset ``name`` whole, for an error message."""
    wanted = []
    for layout in LAYOUTS[name]:
        absent = [names[0] for names in layout.files if not _first_file(folder, names)]
        wanted.append(", ".join(absent))
    return "; or ".join(wanted)


def read(files: Files) -> Arrays:
    """Reads the files; raises UserError naming the file that is not as expected."""
    return files.layout.read(*files.paths)


def read_idx(
    path: pathlib.Path, *, rank: int, content: bytes | None = None
) -> np.ndarray:
    """Reads an IDX file of unsigned bytes with ``rank`` axes: 3 images, 1 labels.

    Args:
      path: The file, packed or not; with ``content``, only its name in messages.
      rank: The number of axes that the file must have.
      content: The file's bytes, where it is part of an archive.
    """
    data = _unpack(path, path.read_bytes() if content is None else content)
    magic = 0x0800 + rank  # two zero bytes, the type (8 = unsigned byte), the rank
    header = 4 + 4 * rank
    if len(data) < header or int.from_bytes(data[:4]) != magic:
        raise UserError(
            f"{path}: begins with 0x{data[:4].hex()}, expected 0x{magic:08x} "
            f"(IDX, unsigned bytes, {rank} axes)"
        )
    shape = struct.unpack(f">{rank}I", data[4:header])
    if len(data) - header != math.prod(shape):
        raise UserError(
            f"{path}: holds {len(data) - header} bytes of data, expected "
            f"{math.prod(shape)} for its shape {shape}; fetch it again"
        )
    return np.frombuffer(data, np.uint8, offset=header).reshape(shape)


def read_idx_files(*paths: pathlib.Path) -> Arrays:
    """MNIST and Fashion-MNIST: train images, train labels, test images, test labels."""
    arrays = []
    for image_path, label_path in (paths[:2], paths[2:]):
        images = read_idx(image_path, rank=3)
        labels = _labels(read_idx(label_path, rank=1), 0, 9, label_path)
        _check_lengths(images, image_path, labels, label_path)
        arrays += [images, labels]
    return Arrays(*arrays)


def read_emnist(*paths: pathlib.Path) -> Arrays:
    """EMNIST Letters: the four IDX files, or the archive that holds them.

    The published images are transposed, and the letters are numbered from 1.
    """
    contents: list[bytes | None] = [None] * 4
    if len(paths) == 1:
        names = [f"gzip/{names[0]}" for names in _EMNIST_FILES]
        contents = [*_read_zip(paths[0], names)]
        paths = tuple(paths[0] / name for name in names)
    arrays = []
    for i in (0, 2):
        images = read_idx(paths[i], rank=3, content=contents[i])
        labels = read_idx(paths[i + 1], rank=1, content=contents[i + 1])
        labels = _labels(labels, 1, 26, paths[i + 1])
        _check_lengths(images, paths[i], labels, paths[i + 1])
        arrays += [np.ascontiguousarray(images.swapaxes(1, 2)), labels]
    return Arrays(*arrays)


def read_cifar10(*paths: pathlib.Path) -> Arrays:
    """CIFAR-10, binary version: its six batches, or the archive that holds them."""
    if len(paths) == 1:
        contents = _read_tar(paths[0], [names[1] for names in _CIFAR10_FILES])
        paths = tuple(paths[0] / names[1] for names in _CIFAR10_FILES)
    else:
        contents = [path.read_bytes() for path in paths]
    batches = []
    for path, content in zip(paths, contents, strict=True):
        if not content or len(content) % 3073:
            raise UserError(
                f"{path}: has {len(content)} bytes, expected a multiple of 3073 "
                "(a label and 3 x 32 x 32 pixels an image); fetch it again"
            )
        rows = np.frombuffer(content, np.uint8).reshape(-1, 3073)
        images = rows[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        batches.append((images, _labels(rows[:, 0], 0, 9, path)))
    return Arrays(
        np.concatenate([images for images, _ in batches[:-1]]),
        np.concatenate([labels for _, labels in batches[:-1]]),
        np.ascontiguousarray(batches[-1][0]),
        batches[-1][1],
    )


def read_svhn(*paths: pathlib.Path) -> Arrays:
    """SVHN, cropped digits: the two MATLAB files. The digit zero is published as 10."""
    arrays = []
    for path in paths:
        mat = _read_mat(path)
        for key in ("X", "y"):
            if key not in mat:
                raise UserError(f"{path}: has no array {key!r}, expected X and y")
        images, labels = mat["X"], mat["y"].reshape(-1)
        if images.ndim != 4 or images.dtype != np.uint8:
            raise UserError(
                f"{path}: X is {images.dtype} of shape {images.shape}, "
                "expected uint8 of shape (32, 32, 3, N)"
            )
        images = np.ascontiguousarray(images.transpose(3, 0, 1, 2))
        labels = (_labels(labels, 1, 10, path) + 1) % 10
        _check_lengths(images, path, labels, path)
        arrays += [images, labels]
    return Arrays(*arrays)


def read_usps_text(*paths: pathlib.Path) -> Arrays:
    """USPS of "The Elements of Statistical Learning": a digit and 256 values a line."""
    arrays = []
    for path in paths:
        content = _unpack(path, path.read_bytes())
        try:
            rows = np.array(content.split(), np.float64)
        except ValueError as error:
            raise UserError(
                f"{path}: expected a table of numbers, as text or packed ({error})"
            ) from None
        lines = len(content.splitlines())
        if lines == 0 or rows.size != 257 * lines:
            raise UserError(
                f"{path}: has {rows.size} values on {lines} lines, "
                "expected a digit and 256 pixels on each line; fetch it again"
            )
        rows = rows.reshape(-1, 257)
        arrays += [_usps_pixels(rows[:, 1:], path), _labels(rows[:, 0], 0, 9, path)]
    return Arrays(*arrays)


def read_usps_libsvm(*paths: pathlib.Path) -> Arrays:
    """USPS of the LIBSVM collection: the class from 1, then pairs index:value."""
    arrays = []
    for path in paths:
        labels, rows = [], []
        content = _unpack(path, path.read_bytes())
        for number, line in enumerate(content.splitlines(), start=1):
            try:
                label, *pairs = line.split()
                row = np.zeros(256)
                for index, value in (pair.split(b":") for pair in pairs):
                    row[_PIXEL_OF_INDEX[int(index)]] = float(value)
                labels.append(float(label))
            except (ValueError, KeyError):
                raise UserError(
                    f"{path}: line {number} is wrong, expected a class and pairs "
                    "index:value with indices from 1 to 256"
                ) from None
            rows.append(row)
        if not rows:
            raise UserError(f"{path}: is empty, expected a line an image")
        arrays.append(_usps_pixels(np.stack(rows), path))
        arrays.append(_labels(np.array(labels), 1, 10, path))
    return Arrays(*arrays)


_PIXEL_OF_INDEX = {index: index - 1 for index in range(1, 257)}


def _usps_pixels(values: np.ndarray, path: pathlib.Path) -> np.ndarray:
    """[-1, 1] -> 0..255. The files have steps of 0.001, so 8 bits round by <= 0.002."""
    if not (np.abs(values) <= 1).all():
        raise UserError(f"{path}: has a pixel outside [-1, 1]")
    return np.round((values + 1) * 127.5).astype(np.uint8).reshape(-1, 16, 16)


def _labels(values: np.ndarray, low: int, high: int, path: pathlib.Path) -> np.ndarray:
    """Labels low..high of a file as labels from 0."""
    wrong = values[~((values >= low) & (values <= high) & (values == values // 1))]
    if wrong.size:
        raise UserError(
            f"{path}: has the label {wrong[0]:g} (the highest is {values.max():g}), "
            f"expected {low} to {high}"
        )
    return (values - low).astype(np.uint8)


def _check_lengths(
    images: np.ndarray, images_path: object, labels: np.ndarray, labels_path: object
) -> None:
    if len(images) != len(labels):
        raise UserError(
            f"{images_path}: holds {len(images)} images, but {labels_path} holds "
            f"{len(labels)} labels"
        )


def _first_file(folder: pathlib.Path, names: tuple[str, ...]) -> pathlib.Path | None:
    return next((folder / name for name in names if (folder / name).is_file()), None)


def _unpack(path: pathlib.Path, data: bytes) -> bytes:
    """The content of a gzip or bzip2 file, or the data itself."""
    try:
        if data.startswith(b"\x1f\x8b"):
            return gzip.decompress(data)
        if data.startswith(b"BZh"):
            return bz2.decompress(data)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise UserError(
            f"{path}: is cut or damaged ({error}), expected a whole packed file; "
            "fetch it again"
        ) from None
    return data


def _read_tar(path: pathlib.Path, members: list[str]) -> list[bytes]:
    contents: dict[str, bytes] = {}
    try:
        with tarfile.open(path, "r|*") as archive:  # in order: gzip cannot seek
            for entry in archive:
                file = archive.extractfile(entry) if entry.name in members else None
                if file:
                    contents[entry.name] = file.read()
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise UserError(
            f"{path}: is cut or damaged ({error}), expected a .tar.gz; fetch it again"
        ) from None
    return _in_order(path, members, contents)


_ZIP_ERRORS = (
    EOFError,
    NotImplementedError,  # packed by an unknown method
    OSError,
    RuntimeError,  # encrypted
    zipfile.BadZipFile,
    zlib.error,
)


def _read_zip(path: pathlib.Path, members: list[str]) -> list[bytes]:
    try:
        with zipfile.ZipFile(path) as archive:
            inside = set(archive.namelist())
            contents = {m: archive.read(m) for m in members if m in inside}
    except _ZIP_ERRORS as error:
        raise UserError(
            f"{path}: is cut or damaged ({error}), expected a .zip; fetch it again"
        ) from None
    return _in_order(path, members, contents)


def _in_order(
    path: pathlib.Path, members: list[str], contents: dict[str, bytes]
) -> list[bytes]:
    for member in members:
        if member not in contents:
            raise UserError(f"{path}: does not hold {member}")
    return [contents[member] for member in members]


def _read_mat(path: pathlib.Path) -> dict[str, np.ndarray]:
    import scipy.io  # here, since only SVHN needs it

    try:
        return scipy.io.loadmat(os.fspath(path), variable_names=["X", "y"])
    except Exception as error:  # a damaged file can raise nearly anything
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(
            f"{path}: cannot be read ({reason}), expected a MATLAB 5 file; "
            "fetch it again"
        ) from None


def _packed_or_not(name: str, *folders: str) -> tuple[str, ...]:
    names = (f"{name}.gz", name)
    return (*names, *(f"{folder}/{n}" for folder in folders for n in names))


_IDX_FILES = tuple(
    _packed_or_not(f"{split}-{kind}-ubyte")
    for split in ("train", "t10k")
    for kind in ("images-idx3", "labels-idx1")
)
_EMNIST_FILES = tuple(
    _packed_or_not(f"emnist-letters-{split}-{kind}-ubyte", "gzip")
    for split in ("train", "test")
    for kind in ("images-idx3", "labels-idx1")
)
_CIFAR10_FILES = tuple(
    (f"{batch}.bin", f"cifar-10-batches-bin/{batch}.bin")
    for batch in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")
)

# The files that a dataset may come in, the preferred ones first.
LAYOUTS: dict[str, tuple[Layout, ...]] = {
    "mnist": (Layout(_IDX_FILES, read_idx_files),),
    "fashion_mnist": (Layout(_IDX_FILES, read_idx_files),),
    "cifar10": (
        Layout(_CIFAR10_FILES, read_cifar10),
        Layout((("cifar-10-binary.tar.gz",),), read_cifar10),
    ),
    "usps": (
        Layout(
            (_packed_or_not("zip.train"), _packed_or_not("zip.test")), read_usps_text
        ),
        Layout((("usps.bz2",), ("usps.t.bz2",)), read_usps_libsvm),
    ),
    "svhn": (Layout((("train_32x32.mat",), ("test_32x32.mat",)), read_svhn),),
    "emnist_letters": (
        Layout(_EMNIST_FILES, read_emnist),
        Layout((("gzip.zip",),), read_emnist),
    ),
}
