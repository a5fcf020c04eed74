"""Calls of a user's own goodness function: what goes wrong there, in one line."""

import pathlib
import traceback
from collections.abc import Callable, Mapping
from typing import TypeVar

import jax
import jax.numpy as jnp

from ffjax.errors import UserError
from ffjax.goodness import source

T = TypeVar("T")


def call(address: str, fn: Callable[..., T], /, *args: object, **params: object) -> T:
    """``fn(*args, **params)``; an error in it becomes a UserError with its place.

    Running out of memory stays what it is: a smaller group of runs may fit.
    """
    try:
        return fn(*args, **params)
    except (UserError, MemoryError):
        raise
    except Exception as error:  # whatever a user's function does
        if "RESOURCE_EXHAUSTED" in str(error):
            raise
        raise UserError(f"goodness={address!r}: {describe(error)}") from error


def describe(error: Exception) -> str:
    """An error in a user's code in one line: what, and in which line of theirs."""
    first_line = str(error).strip().partition("\n")[0]
    what = f"{type(error).__name__}: {first_line}".removesuffix(": ")
    place = _place(error)
    return f"{what} ({place})" if place else what


def _place(error: Exception) -> str | None:
    """The innermost line that is neither ffjax's nor a library's."""
    place = None
    for frame, line in traceback.walk_tb(error.__traceback__):
        path = pathlib.Path(frame.f_code.co_filename)
        if not source.is_library(path) and not str(path).startswith("<frozen"):
            place = f"{path.name}, line {line}"
    return place


def check_value(
    address: str, value: object, h: jax.Array, shape: tuple[int, ...]
) -> None:
    """Raises a UserError unless a function gave floats of this shape for h."""
    if not isinstance(value, jax.Array):
        what = "None" if value is None else f"a value of type {type(value).__name__!r}"
    elif not jnp.issubdtype(value.dtype, jnp.floating):
        what = f"{value.dtype} numbers"
    elif value.shape != shape:
        what = f"shape {value.shape}"
    else:
        return
    raise UserError(
        f"goodness={address!r}: gives {what} for activations of shape {h.shape}; must "
        f"reduce the last axis alone, to floats of shape {shape}"
    )


def check_running(address: str, values: object, h: jax.Array) -> None:
    """Raises a UserError unless ``running`` gave something for each example of h."""
    lead = h.shape[:-1]
    shape = getattr(values, "shape", None)
    if shape is None:
        what = f"a value of type {type(values).__name__!r}"
    elif shape[: len(lead)] != lead:
        what = f"shape {shape}"
    else:
        return
    raise UserError(
        f"goodness={address!r}: running gives {what} for activations of shape "
        f"{h.shape}; must be a number or a vector for each example, {lead} or {h.shape}"
    )


def check_statistics(
    address: str, statistics: Mapping[str, object], width: int
) -> None:
    """Raises a UserError for statistics that a layer of this width cannot keep.

    Args:
      address: of the function.
      statistics: the shapes of what ``running`` and ``batch`` gave, by these names.
      width: d.
    """
    for name, value in statistics.items():
        for part in value if isinstance(value, tuple) else (value,):
            if not isinstance(part, jax.ShapeDtypeStruct):
                what = f"a value of type {type(part).__name__!r}"
            elif not jnp.issubdtype(part.dtype, jnp.floating):
                what = f"{part.dtype} numbers"
            elif part.shape and part.shape[-1] != width:
                what = f"shape {part.shape}"
            else:
                continue
            raise UserError(
                f"goodness={address!r}: {name} gives {what} for a layer of {width} "
                f"units; must be floats, a number or with {width} on the last axis"
            )
