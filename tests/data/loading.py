"""What the tests of data share: real files, refusals, equal datasets."""

import os
import pathlib

import pytest

from ffjax import data
from ffjax.data import official
from ffjax.errors import UserError

VARIABLE = "FFJAX_TEST_DATA"
ARRAYS = official.Arrays._fields


def real(name: str) -> pathlib.Path:
    """The folder of folders with official files, if it holds those of ``name``."""
    root = pathlib.Path(os.environ.get(VARIABLE, ""))
    if not os.environ.get(VARIABLE) or official.find(name, root / name) is None:
        pytest.skip(f"set {VARIABLE} to a folder with the official files in {name}/")
    return root


def refusal(*args, **kwargs) -> str:
    """The line with which a load is refused."""
    with pytest.raises(UserError) as caught:
        data.load(*args, **kwargs)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def assert_same(left: data.Dataset, right: data.Dataset) -> None:
    """The same arrays, bit for bit, in the same order."""
    for field in ARRAYS:
        a, b = getattr(left, field), getattr(right, field)
        assert (a.dtype, a.shape) == (b.dtype, b.shape), field
        assert a.tobytes() == b.tobytes(), field
    assert (left.mean, left.std) == (right.mean, right.std)


def run_environment(**variables: str) -> dict[str, str]:
    """The environment of a process that imports this ffjax."""
    return {"PYTHONPATH": str(pathlib.Path(data.__file__).parents[2]), **variables}
