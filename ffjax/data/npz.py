"""A user's own dataset: a .npz file with images and labels for training and test.

The file is not trusted. What it says about its arrays is checked against its own size
and the free memory before they are read, and nothing in it is ever unpickled.
"""

import dataclasses
import io
import math
import os
import pathlib
import re
import struct
import warnings
import zipfile
import zlib

import numpy as np

from ffjax.data import identity, official
from ffjax.errors import UserError

_MAX_HEADER = 10_000  # bytes; the header of a plain array has about 128
_MAX_RATIO = 1_032  # bytes that deflate packs into a byte, at most
_CHUNK = 2**24  # bytes read at once
_BLOCK = 2**20  # values checked at once


@dataclasses.dataclass(frozen=True)
class _Header:
    """What a .npy file says about its array."""

    shape: tuple[int, ...]
    is_fortran: bool
    dtype: np.dtype
    length: int  # of the header itself

    @property
    def count(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.count * self.dtype.itemsize


def read(path: pathlib.Path) -> official.Arrays:
    """Reads and checks a user's own dataset: images of numbers, labels from 0."""
    identity.check_regular(path)
    try:
        with zipfile.ZipFile(path) as archive:
            arrays = _read_arrays(path, archive)
    except UserError:
        raise
    except MemoryError:
        raise UserError(f"{path}: its arrays do not fit into memory") from None
    except (
        EOFError,
        NotImplementedError,  # a feature of zip that Python lacks
        OSError,
        RuntimeError,
        ValueError,
        struct.error,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        reason = getattr(error, "strerror", "") or str(error) or "it ends too early"
        raise UserError(f"{path}: cannot be read as a .npz file ({reason})") from None
    train = _check_split(path, "train", *arrays[:2])
    test = _check_split(path, "test", *arrays[2:])
    _check_alike(path, train[0], test[0])
    _check_classes(path, train[1], test[1])
    return official.Arrays(*train, *test)


def _read_arrays(path: pathlib.Path, archive: zipfile.ZipFile) -> official.Arrays:
    """The four arrays, after what they say about themselves has been checked."""
    members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
    headers = {}
    for name in official.Arrays._fields:
        if name not in members:
            raise UserError(
                f"{path}: has no array {name!r}, expected "
                f"{', '.join(official.Arrays._fields)}"
            )
        where = f"{path}: {name}"
        _check_member(where, members[name], path.stat().st_size)
        headers[name] = _read_header(where, archive, members[name])
    _check_memory(path, list(headers.values()))
    return official.Arrays(
        *(_read_array(archive, members[name], headers[name]) for name in headers)
    )


def _check_member(where: str, info: zipfile.ZipInfo, file_size: int) -> None:
    """Refuses what cannot be unpacked, or cannot be as large as it claims."""
    if info.flag_bits & 1:
        raise UserError(f"{where} is encrypted, expected a plain array")
    ratios = {zipfile.ZIP_STORED: 1, zipfile.ZIP_DEFLATED: _MAX_RATIO}
    if info.compress_type not in ratios:
        raise UserError(
            f"{where} is packed by method {info.compress_type}, expected 0 (stored) "
            "or 8 (deflated), as np.savez and np.savez_compressed do"
        )
    packed = min(info.compress_size, file_size)
    if info.file_size > packed * ratios[info.compress_type]:
        raise UserError(
            f"{where} claims {info.file_size:,} bytes, which cannot come from "
            f"{packed:,}; the file is cut or damaged"
        )


def _read_header(
    where: str, archive: zipfile.ZipFile, info: zipfile.ZipInfo
) -> _Header:
    """Reads the header of a member, and holds it against the member's size."""
    with archive.open(info) as file:
        magic = file.read(8)
        width = {b"\x93NUMPY\1\0": 2, b"\x93NUMPY\2\0": 4}.get(magic, 0)
        length = file.read(width)
        text = file.read(min(int.from_bytes(length, "little"), _MAX_HEADER))
    parse = np.lib.format.read_array_header_1_0
    if width == 4:
        parse = np.lib.format.read_array_header_2_0
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about files that Python 2 wrote
            shape, is_fortran, dtype = parse(io.BytesIO(length + text))
    except Exception as error:  # a damaged header can raise nearly anything
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise UserError(f"{where} is no array of numpy's ({reason})") from None
    header = _Header(shape, is_fortran, dtype, len(magic + length + text))
    if dtype.kind not in "biuf":
        raise UserError(f"{where} is {dtype}, expected plain numbers")
    if min(shape, default=0) < 0 or header.length + header.nbytes != info.file_size:
        raise UserError(
            f"{where} claims to be {dtype} of shape {shape}, {header.nbytes:,} bytes, "
            f"but holds {info.file_size - header.length:,}; the file is cut or damaged"
        )
    return header


def _check_memory(path: pathlib.Path, headers: list[_Header]) -> None:
    """Refuses arrays that would not fit: as read, then sorted or as float32."""
    stored = sum(header.nbytes for header in headers)
    needed = stored + max(stored, 4 * sum(header.count for header in headers))
    free = _free_memory()
    if needed > free:
        raise UserError(
            f"{path}: needs {needed / 1e9:,.1f} GB of memory, "
            f"but {free / 1e9:,.1f} GB are free"
        )


def _free_memory() -> float:
    """Bytes that can be had without swapping; infinity where nothing tells."""
    limits = [math.inf]
    try:
        memory = pathlib.Path("/proc/meminfo").read_text()
        if match := re.search(r"^MemAvailable:\s*(\d+) kB", memory, re.MULTILINE):
            limits.append(int(match[1]) * 1024)
        limit = pathlib.Path("/sys/fs/cgroup/memory.max").read_text()
        limits.append(float(limit.replace("max", "inf")))  # that of a container
    except (OSError, ValueError):
        pass
    if len(limits) == 1 and hasattr(os, "sysconf"):  # no Linux
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min(limits)


def _read_array(
    archive: zipfile.ZipFile, info: zipfile.ZipInfo, header: _Header
) -> np.ndarray:
    array = np.empty(header.count, header.dtype)
    content = array.view(np.uint8)
    with archive.open(info) as file:
        file.read(header.length)
        start = 0
        while start < len(content):
            chunk = file.read(min(_CHUNK, len(content) - start))
            if not chunk:
                raise EOFError(f"{info.filename} ends too early")
            content[start : start + len(chunk)] = np.frombuffer(chunk, np.uint8)
            start += len(chunk)
    if header.is_fortran:
        return array.reshape(header.shape[::-1]).T
    return array.reshape(header.shape)


def _check_split(
    path: pathlib.Path, split: str, images: np.ndarray, labels: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Refuses a split that is not images of numbers with integer labels."""
    where = f"{path}: {split}_images"
    if images.ndim == 4 and images.shape[-1] == 1:
        images = images[..., 0]
    colour = images.ndim == 4 and images.shape[-1] == 3
    if images.ndim not in (2, 3) and not colour:
        raise UserError(
            f"{where} has shape {images.shape}, expected (N, H, W) for grey, "
            "(N, H, W, 3) for colour or (N, D) for flat images"
        )
    if images.size == 0:
        raise UserError(f"{where} is empty (shape {images.shape})")
    if images.dtype.kind == "f" and not _fits_float32(images):
        raise UserError(
            f"{where} has a value that is NaN, infinite or too large for float32"
        )
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise UserError(
            f"{path}: {split}_labels is {labels.dtype} of shape {labels.shape}, "
            "expected integers of shape (N,)"
        )
    if len(labels) != len(images):
        raise UserError(
            f"{where} holds {len(images)} images, "
            f"but {split}_labels {len(labels)} labels"
        )
    if labels.min() < 0:
        raise UserError(
            f"{path}: {split}_labels has the label {labels.min()}, expected 0 to C-1"
        )
    return images, labels


def _fits_float32(images: np.ndarray) -> bool:
    step = max(1, _BLOCK // math.prod(images.shape[1:]))
    return all(
        (np.abs(images[start : start + step]) <= np.finfo(np.float32).max).all()
        for start in range(0, len(images), step)
    )


def _check_alike(path: pathlib.Path, train: np.ndarray, test: np.ndarray) -> None:
    """Refuses, among others, bytes for training with floats from 0 to 1 for test."""
    is_float = [images.dtype.kind == "f" for images in (train, test)]
    if train.shape[1:] != test.shape[1:] or is_float[0] != is_float[1]:
        raise UserError(
            f"{path}: train_images are {train.dtype} of shape {train.shape[1:]}, "
            f"test_images {test.dtype} of {test.shape[1:]}; they must be alike"
        )


def _check_classes(path: pathlib.Path, train: np.ndarray, test: np.ndarray) -> None:
    """Every label from 0 to C-1 must have training images."""
    classes = np.unique(train)
    if len(classes) == 1:
        raise UserError(
            f"{path}: train_labels has only the label {classes[0]}, expected at least "
            "two classes"
        )
    if classes[-1] != len(classes) - 1:
        absent = next(i for i, label in enumerate(classes) if label != i)
        raise UserError(
            f"{path}: train_labels has labels up to {classes[-1]} but no {absent}, "
            "expected all of 0 to C-1"
        )
    if test.max() > classes[-1]:
        raise UserError(
            f"{path}: test_labels has the label {test.max()}, "
            f"expected 0 to {classes[-1]} as in train_labels"
        )
