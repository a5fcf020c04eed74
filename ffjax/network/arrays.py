"""Images and labels as users have them: checked, and labels counted from 0."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from ffjax import data
from ffjax.errors import UserError, shown

Label = bool | int | float | str

# Squares of larger values, summed over an image, would leave float32.
_LARGEST = 1e15


def check_images(name: str, images: ArrayLike) -> np.ndarray:
    """Images (N, ...) as an array of finite numbers, or a UserError."""
    array = _as_array(name, images)
    if array.ndim < 2 or len(array) == 0 or array.size == 0:
        raise UserError(
            f"{name}: shape {array.shape}; must be (N, ...) with N >= 1 and no axis of "
            "length 0"
        )
    if array.dtype.kind not in "biuf":
        raise UserError(f"{name}: type {array.dtype}; must be numbers")
    if not np.isfinite(array).all():
        raise UserError(f"{name}: holds NaN or infinite values; must be finite")
    return array


def statistics(
    name: str, images: np.ndarray
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """``data.statistics``; a UserError where the values are too large for them."""
    with np.errstate(over="ignore", invalid="ignore"):
        mean, std = data.statistics(images)
    if not np.isfinite([*mean, *std]).all():
        largest = float(np.abs(images.astype(np.float64)).max())
        raise UserError(
            f"{name}: holds values of up to {largest:g}; their mean and standard "
            "deviation must be finite"
        )
    return mean, std


def normalise(
    name: str, images: np.ndarray, mean: tuple[float, ...], std: tuple[float, ...]
) -> np.ndarray:
    """``data.normalise``; a UserError for values that float32 cannot compute with."""
    with np.errstate(over="ignore", invalid="ignore"):
        flat = data.normalise(images, mean, std)
        is_fine = bool((np.abs(flat) <= _LARGEST).all())
    if not is_fine:
        largest = float(np.abs(images.astype(np.float64)).max())
        raise UserError(
            f"{name}: holds values of up to {largest:g}; normalised to the training "
            f"images they must not be larger than {_LARGEST:g}"
        )
    return flat


def check_labels(name: str, labels: ArrayLike, count: int) -> np.ndarray:
    """Labels (N,) or (N, 1) as an array of one kind, (N,), or a UserError."""
    array = _as_array(name, labels)
    if array.shape not in ((count,), (count, 1)):
        raise UserError(
            f"{name}: shape {array.shape} for {count} images; must be ({count},)"
        )
    array = array.reshape(count)
    if array.dtype.kind == "O" and all(isinstance(label, str) for label in array):
        array = array.astype(str)
    is_whole = array.dtype.kind == "f" and bool(np.all(array == np.floor(array)))
    if array.dtype.kind not in "biuU" and not is_whole:
        what = "fractions or NaN" if array.dtype.kind == "f" else f"type {array.dtype}"
        raise UserError(
            f"{name}: {what}; must be integers, whole floats, truth values or strings"
        )
    return array


def find_classes(labels: np.ndarray, num_classes: int | None) -> tuple[Label, ...]:
    """The labels that there are, in order; 0..C-1 where C is given."""
    if num_classes is not None:
        if type(num_classes) is not int or num_classes < 2:
            raise UserError(
                f"num_classes={shown(num_classes)}: must be an integer >= 2"
            )
        if labels.dtype.kind not in "iuf":
            raise UserError(
                f"num_classes={num_classes}: goes with labels that are numbers from 0, "
                f"not {labels.dtype}"
            )
        if labels.min() < 0 or labels.max() >= num_classes:
            raise UserError(
                f"labels: from {labels.min()} to {labels.max()}; must lie in "
                f"0..{num_classes - 1}"
            )
        return tuple(range(num_classes))
    classes = np.unique(labels).tolist()
    if len(classes) < 2:
        raise UserError(f"labels: 1 class ({classes[0]!r}); at least 2 are needed")
    return tuple(classes)


def encode(name: str, labels: np.ndarray, classes: Sequence[Label]) -> np.ndarray:
    """The place of each label among the classes, (N,) int32."""
    known = np.asarray(classes)
    if (labels.dtype.kind == "U") != (known.dtype.kind == "U"):
        strange = labels[0]
    else:
        order = np.argsort(known)
        places = np.searchsorted(known, labels, sorter=order)
        codes = order[np.minimum(places, len(known) - 1)]
        if bool((known[codes] == labels).all()):
            return codes.astype(np.int32)
        strange = labels[known[codes] != labels][0]
    raise UserError(
        f"{name}: {shown(strange.item())} is none of the network's classes, "
        f"{shown(list(classes))}"
    )


def _as_array(name: str, values: ArrayLike) -> np.ndarray:
    try:
        return np.asarray(values)
    except (ValueError, TypeError, OverflowError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{name}: not an array ({reason})") from None
