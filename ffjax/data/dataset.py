"""A dataset ready for training: limited, split and normalised.

The order of the images does not depend on where they came from (see ``verify``).
``train_limit`` and ``test_limit`` take the first images of that order; the end of what
remains is the validation part.
"""

import dataclasses
import pathlib

import numpy as np

from ffjax.data import catalog, identity, named, npz, official, verify
from ffjax.data.pixels import normalise, statistics
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
    mean: tuple[float, ...]  # per channel, of the training images / 255
    std: tuple[float, ...]
    source: identity.Source


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
    identity.check_name(name)
    if not 0 <= valid_fraction < 1:
        raise UserError(
            f"valid_fraction={valid_fraction}: must be at least 0 and below 1"
        )
    if name in catalog.DATASETS:
        arrays, source = named.read(name, data_dir)
        class_names = catalog.DATASETS[name].class_names
    else:
        arrays, source = _read_own(identity.own_path(name))
        class_names = tuple(map(str, range(arrays.train_labels.max() + 1)))
    images, labels = _take(name, "train_limit", train_limit, *arrays[:2])
    test_images, test_labels = _take(name, "test_limit", test_limit, *arrays[2:])
    count = _num_train(len(images), valid_fraction)
    mean, std = statistics(images[:count])
    return Dataset(
        name=pathlib.Path(name).name,
        train_images=normalise(images[:count], mean, std),
        train_labels=labels[:count].astype(np.int32),
        valid_images=normalise(images[count:], mean, std),
        valid_labels=labels[count:].astype(np.int32),
        test_images=normalise(test_images, mean, std),
        test_labels=test_labels.astype(np.int32),
        num_classes=len(class_names),
        image_shape=images.shape[1:],
        class_names=class_names,
        mean=mean,
        std=std,
        source=source,
    )


def _read_own(path: pathlib.Path) -> tuple[official.Arrays, identity.Source]:
    """A user's own dataset, in its fixed order."""
    arrays, _ = verify.canonical(npz.read(path))
    files = {path.name: identity.checksum(path)}
    return arrays, identity.Source(kind="npz", files=files)


def _take(
    name: str, field: str, limit: int, images: np.ndarray, labels: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The first ``limit`` images and labels; all of them for 0."""
    if not 0 <= limit <= len(images):
        raise UserError(
            f"{field}={limit}: {name} has {len(images)} such images; "
            "give a number from 1 to that, or 0 for all"
        )
    count = limit or len(images)
    return images[:count], labels[:count]


def _num_train(count: int, valid_fraction: float) -> int:
    """How many of ``count`` images remain for training."""
    num_valid = round(valid_fraction * count)
    if num_valid == count or (valid_fraction > 0 and num_valid == 0):
        raise UserError(
            f"valid_fraction={valid_fraction}: splits {count} images into "
            f"{count - num_valid} for training and {num_valid} for validation; "
            "neither may be 0"
        )
    return count - num_valid
