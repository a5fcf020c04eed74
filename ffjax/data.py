"""Datasets by name: arrays in memory, flattened and normalised.

The order of the images does not depend on where they came from: each split is sorted
by the SHA-256 of label and pixels, which is as good as a fixed shuffle. ``train_limit``
and ``test_limit`` take the first images of that order; its end is the validation part.

Nothing here imports jax or TensorFlow, and TFDS only where it is needed.
"""

import dataclasses
import difflib
import hashlib
import io
import math
import pathlib
from typing import Any, NamedTuple

import numpy as np

from ffjax.errors import UserError


class Arrays(NamedTuple):
    """A dataset as its files hold it: images (N, H, W[, 3]) and labels from 0."""

    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray


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


@dataclasses.dataclass(frozen=True)
class Definition:
    """What is known of a dataset before it is read."""

    class_names: tuple[str, ...]
    image_shape: tuple[int, ...]
    train_size: int
    test_size: int


_DIGITS = tuple("0123456789")
_CLOTHES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
_THINGS = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)
_LETTERS = tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ")

DATASETS: dict[str, Definition] = {
    "fashion_mini": Definition(_CLOTHES, (28, 28), 6_000, 2_000),
    "mnist": Definition(_DIGITS, (28, 28), 60_000, 10_000),
    "fashion_mnist": Definition(_CLOTHES, (28, 28), 60_000, 10_000),
    "cifar10": Definition(_THINGS, (32, 32, 3), 50_000, 10_000),
    "usps": Definition(_DIGITS, (16, 16), 7_291, 2_007),
    "svhn": Definition(_DIGITS, (32, 32, 3), 73_257, 26_032),
    "emnist_letters": Definition(_LETTERS, (28, 28), 124_800, 20_800),
}

_MINI = pathlib.Path(__file__).parent / "assets" / "fashion_mini.npz"
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
        class_names = _CLOTHES
    else:
        raise NotImplementedError(name)
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


def _read_mini() -> tuple[Arrays, dict[str, Any]]:
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
        arrays = Arrays(*(file[field] for field in Arrays._fields))
    train, _ = _canonical(*arrays[:2])
    test, _ = _canonical(*arrays[2:])
    source = {"kind": "embedded", "files": {_MINI.name: checksum}}
    return Arrays(*train, *test), source


def _canonical(
    images: np.ndarray, labels: np.ndarray
) -> tuple[tuple[np.ndarray, np.ndarray], str]:
    """The split in the order of its examples' digests, and the digest of them all."""
    labels = np.ascontiguousarray(labels, np.int32)
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


def _statistics(
    images: np.ndarray,
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation per channel; 1 for the std of a constant channel."""
    channels = 3 if images.ndim == 4 else 1
    means, stds = [], []
    for channel in np.moveaxis(images.reshape(-1, channels), 1, 0):
        if channel.dtype == np.uint8:
            # From the histogram: exact, and without a float copy of the images.
            values, weights = np.arange(256) / 255, np.bincount(channel, minlength=256)
        else:
            values, weights = channel.astype(np.float64), None
        mean = np.average(values, weights=weights)
        std = np.sqrt(np.average((values - mean) ** 2, weights=weights))
        means.append(float(mean))
        stds.append(float(std) if channel.min() < channel.max() else 1.0)
    return tuple(means), tuple(stds)


def _normalise(
    images: np.ndarray, mean: tuple[float, ...], std: tuple[float, ...]
) -> np.ndarray:
    """(N, H, W[, 3]) -> (N, H * W [* 3]) float32, per channel (x - mean) / std."""
    pixels = images.reshape(-1, len(mean))
    result = np.empty(pixels.shape, np.float32)
    for channel, (m, s) in enumerate(zip(mean, std, strict=True)):
        if images.dtype == np.uint8:
            table = ((np.arange(256) / 255 - m) / s).astype(np.float32)
            result[:, channel] = table[pixels[:, channel]]
        else:
            result[:, channel] = (pixels[:, channel].astype(np.float64) - m) / s
    return result.reshape(len(images), math.prod(images.shape[1:]))
