"""The machine that a process trains on: its devices, its memory, its programs."""

import dataclasses
import hashlib
import os
import pathlib
import platform
import re
import warnings
from typing import Any

import jax
from jax.experimental.compilation_cache import compilation_cache

from ffjax.data import cache
from ffjax.errors import UserError


@dataclasses.dataclass(frozen=True)
class Machine:
    """What this process may use.

    Attributes:
      devices: over which networks are spread.
      memory: bytes of each device that this process may use.
    """

    devices: tuple[Any, ...]  # jax.Device is no type to pyright
    memory: float

    @property
    def memory_budget(self) -> float:
        """Bytes that the inputs of a layer may take on a device: a quarter of it.

        The inputs of two layers exist at once while the next ones are computed, and
        the rest is left for the program and for other processes.
        """
        return self.memory / 4

    @property
    def is_cpu(self) -> bool:
        """Whether the devices are processors, virtual ones included."""
        return self.devices[0].platform == "cpu"


def here(num_devices: int = 0, share: float = 1.0) -> Machine:
    """The machine as seen from this process.

    Args:
      num_devices: how many of the local devices to use; 0 = all.
      share: of the memory, where other processes have the rest.
    """
    try:
        devices = jax.local_devices()
    except RuntimeError as error:  # JAX_PLATFORMS names what is not there
        reason = " ".join(str(error).split())[:300]
        raise UserError(f"JAX has no device to run on: {reason}") from None
    if num_devices > len(devices):
        raise UserError(
            f"num_devices={num_devices}: there are {len(devices)} on this machine "
            f"({devices[0].device_kind}); 0 takes all of them"
        )
    devices = devices[: num_devices or None]
    stats = devices[0].memory_stats()
    if stats and "bytes_limit" in stats:
        memory = stats["bytes_limit"]
    else:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        memory /= len(devices)  # virtual devices share it
    return Machine(tuple(devices), share * memory)


def precision_note(precision: str, machine: Machine) -> str:
    """What to say of a precision that brings no speed here; empty if it does."""
    if precision != "bfloat16" or not machine.is_cpu:
        return ""
    features = " ".join(_cpu_features())
    if re.search(r"\b(avx512_bf16|amx_bf16|bf16)\b", features):
        return ""
    return (
        "precision='bfloat16': this processor has no instructions for it (AVX512-BF16 "
        "or AMX), so float32 may be faster"
    )


def _cpu_features() -> list[str]:
    """The lines in which the system lists what its processors can do."""
    try:
        about = pathlib.Path("/proc/cpuinfo").read_text()
    except OSError:
        about = platform.processor()
    lines = set(re.findall(r"^(?:flags|Features)\s*:.*", about, re.MULTILINE))
    return sorted(lines) or [about]


def num_cores() -> int:
    """How many cores XLA computes with in this process."""
    asked = os.environ.get("NPROC", "")
    if asked.isdecimal() and int(asked) > 0:
        return int(asked)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def use_compilation_cache() -> None:
    """Lets this process reuse what earlier ones compiled; a user's own cache stays.

    On 2 cores a restart of a small run takes seconds instead of half a minute. The
    results are the same to the bit: the same program is loaded, and processes with
    another number of cores, whose programs round differently, have others.
    """
    if jax.config.jax_compilation_cache_dir is not None:  # type: ignore[attr-defined]
        return
    # Programs for a CPU may use instructions that another one lacks, and a home folder
    # may be shared by different machines.
    kind = hashlib.sha256("".join(_cpu_features()).encode()).hexdigest()[:12]
    name = f"{platform.machine()}-{kind}-{num_cores()}"
    folder = cache.folder() / "xla" / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return  # it only saves time
    jax.config.update("jax_compilation_cache_dir", str(folder))
    # JAX asks once whether there is a cache, when it first compiles.
    compilation_cache.reset_cache()
    # Small programs too: there are dozens, and a process of seconds consists of them.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    # An entry that a killed process left unfinished is compiled again.
    warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation")
