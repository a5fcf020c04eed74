"""A user's own dataset: a .npz file with images and labels for training and test."""

import pathlib
import zipfile
import zlib

import numpy as np

from ffjax.data import official
from ffjax.errors import UserError


def read(path: pathlib.Path) -> official.Arrays:
    """Reads and checks a user's own dataset: uint8 or float64 images, labels from 0."""
    try:
        # Opened here: np.load leaves a file that it cannot read open.
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            absent = [key for key in official.Arrays._fields if key not in file]
            if absent:
                raise UserError(
                    f"{path}: has no array {absent[0]!r}, expected "
                    f"{', '.join(official.Arrays._fields)}"
                )
            arrays = official.Arrays(*(file[key] for key in official.Arrays._fields))
    except UserError:
        raise
    except OSError as error:
        reason = error.strerror or error
        raise UserError(f"{path}: cannot be read ({reason})") from None
    except (ValueError, TypeError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise UserError(
            f"{path}: is not a whole .npz file of plain arrays ({error})"
        ) from None
    train = _check_split(path, "train", *arrays[:2])
    test = _check_split(path, "test", *arrays[2:])
    if train[0].shape[1:] != test[0].shape[1:] or train[0].dtype != test[0].dtype:
        raise UserError(
            f"{path}: train_images are {train[0].dtype} of shape {train[0].shape[1:]}, "
            f"test_images {test[0].dtype} of {test[0].shape[1:]}; they must be alike"
        )
    classes = np.unique(train[1])
    num_classes = len(classes)
    if num_classes < 2 or classes[-1] != num_classes - 1:
        raise UserError(
            f"{path}: train_labels has {num_classes} different labels from "
            f"{classes[0]} to {classes[-1]}; expected all of 0 to C-1, and C at least 2"
        )
    if test[1].max() >= num_classes:
        raise UserError(
            f"{path}: test_labels has the label {test[1].max()}, "
            f"expected 0 to {num_classes - 1} as in train_labels"
        )
    return official.Arrays(*train, *test)


def _check_split(
    path: pathlib.Path, split: str, images: np.ndarray, labels: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """One split of a user's own dataset: uint8 or float64 images, integer labels."""
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
    if images.dtype != np.uint8:
        if images.dtype.kind != "f":
            raise UserError(f"{where} is {images.dtype}, expected uint8 or float")
        images = images.astype(np.float64)
        if not (np.abs(images) <= np.finfo(np.float32).max).all():
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
