"""By what a dataset is known: its name, or the content of its file."""

import difflib
import hashlib
import pathlib
from typing import Literal, NotRequired, TypedDict

from ffjax.data import catalog
from ffjax.errors import UserError


class Source(TypedDict):
    """Where a dataset came from, fit for a JSON record."""

    kind: Literal["embedded", "raw", "tfds", "npz"]  # raw: the official files
    files: dict[str, str]  # name -> SHA-256
    verified: NotRequired[bool]  # whether it is known to be the official dataset


def check_name(name: str) -> None:
    """Raises UserError unless ``name`` is a known dataset or a path ending in .npz."""
    if name in catalog.DATASETS or name.endswith(".npz"):
        return
    close = difflib.get_close_matches(name, catalog.DATASETS, n=1)
    hint = f" (did you mean {close[0]!r}?)" if close else ""
    raise UserError(
        f"dataset={name!r}: unknown{hint}; known are {', '.join(catalog.DATASETS)}, "
        "and the path of a .npz file"
    )


def checksum(path: pathlib.Path, algorithm: str = "sha256") -> str:
    """The hexadecimal digest of a file as it is."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, algorithm).hexdigest()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
