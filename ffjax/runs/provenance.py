"""With what a process makes its runs: device, versions, commit."""

import functools
import importlib.metadata
import pathlib
import subprocess
from typing import TypedDict

import ffjax
from ffjax.training import machine


class Provenance(TypedDict):
    """The part of a record that says with what it was made."""

    device: str
    versions: dict[str, str]
    commit: str | None


@functools.cache
def provenance() -> Provenance:
    """With what this process makes its runs."""
    packages = ("jax", "jaxlib", "flax", "optax", "numpy")
    versions = {name: importlib.metadata.version(name) for name in packages}
    return {
        "device": machine.here().devices[0].device_kind,
        "versions": {"ffjax": ffjax.__version__, **versions},
        "commit": _commit(),
    }


def _commit() -> str | None:
    """The commit of ffjax's own checkout, with a plus if files differ from it."""
    folder = pathlib.Path(ffjax.__file__).parent
    command = [
        "git",
        "-C",
        str(folder),
        "describe",
        "--always",
        "--abbrev=40",
        "--dirty=+",
    ]
    if not (folder.parent / ".git").exists():  # an installed package, not a checkout
        return None
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip()
