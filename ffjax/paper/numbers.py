"""The paper's own numbers as data, and which run measures which of them.

The paper is T. R. Akkuş, Ş. T. Kocabay, K. A. Yüksel and H. Sawaf, "Selectivity and
Shape in the Design of Forward-Forward Goodness Functions" (preprint). Every accuracy
that its tables print is one line of ``results.csv``; the column ``note``
says where the paper disagrees with itself. Nothing here imports jax.
"""

import csv
import dataclasses
import functools
import math
from importlib import resources

from ffjax.config import spec as spec_lib
from ffjax.config.spec import RunSpec

CITATION = (
    "T. R. Akkuş, Ş. T. Kocabay, K. A. Yüksel, H. Sawaf: Selectivity and Shape in "
    "the Design of Forward-Forward Goodness Functions (preprint)"
)

# What a number of the paper is called beside a run of another size.
ORIENTATION = "paper, 4x2000, 60 epochs"

# The tables of the paper, in its order, and what each one shows.
TABLES = {
    "tab:main": "Main results on Fashion-MNIST",
    "tab:goodness": "Best of each goodness function on Fashion-MNIST",
    "tab:interaction": "Goodness x activation on Fashion-MNIST, standard pathway",
    "tab:cross_dataset": "Six datasets",
    "tab:seeds": "Five seeds: mean ± standard deviation",
    "tab:mnist_full": "All configurations on MNIST",
    "tab:fashion_full": "All configurations on Fashion-MNIST",
    "tab:sweep_full": "The sweeps over k, alpha and p on Fashion-MNIST",
    "tab:burstiness_detail": "Burstiness with every activation on Fashion-MNIST",
    "tab:2x500": "The small network, 2x500",
    "tab:scaling": "From 2x500 to 4x2000",
}

# The parameter that a goodness function takes, and its value in a row without one.
DEFAULTS: dict[str, tuple[str, float]] = {
    "topk": ("k_fraction", 0.02),
    "ln_topk": ("k_fraction", 0.02),
    "contrast_topk": ("k_fraction", 0.01),
    "entmax": ("alpha", 1.5),
    "moment": ("p", 6),
}

_FULL_SIZE = (4, 2000)
# Where tables print different numbers for one run, the complete ones come first.
_TRUST = (
    "tab:fashion_full",
    "tab:mnist_full",
    "tab:sweep_full",
    "tab:burstiness_detail",
    "tab:interaction",
    "tab:cross_dataset",
    "tab:seeds",
    "tab:main",
)


@dataclasses.dataclass(frozen=True)
class Row:
    """One accuracy that the paper prints."""

    number: int  # its place in the file, from 0
    table: str
    dataset: str
    num_layers: int
    width: int
    pathway: str
    activation: str  # "best": the best of `activations`
    goodness: str
    k_fraction: float | None  # k_fraction, alpha and p are None where the goodness
    alpha: float | None  # function does not use them; otherwise the default is
    p: int | None  # filled in
    norm_gate: bool | None  # None: the better of on and off
    seeds: tuple[int, ...]
    accuracy: float  # in percent
    std: float | None  # over the seeds
    note: str

    @property
    def size(self) -> str:
        """Layers x units, as the paper writes it."""
        return f"{self.num_layers}x{self.width}"

    @property
    def activations(self) -> tuple[str, ...]:
        """The activations that the paper chose this number from."""
        if self.activation != "best":
            return (self.activation,)
        if self.goodness == "entmax":  # the table's footnote: GELU only
            return ("gelu",)
        if self.goodness == "sos" and self.pathway == "standard":
            return ("relu", "gelu", "swish")
        return ("gelu", "swish")


@functools.cache
def _rows() -> tuple[Row, ...]:
    source = resources.files("ffjax.paper") / "results.csv"
    lines = source.read_text(encoding="utf-8").splitlines()
    table = csv.DictReader(lines)
    return tuple(_parse(number, line) for number, line in enumerate(table))


@functools.cache
def _rows_by_method() -> dict[tuple[str, str, str], tuple[Row, ...]]:
    found: dict[tuple[str, str, str], tuple[Row, ...]] = {}
    for row in _rows():
        key = (row.dataset, row.pathway, row.goodness)
        found[key] = (*found.get(key, ()), row)
    return found


def matching(spec: RunSpec) -> list[Row]:
    """All numbers of the paper that a run measures."""
    key = (spec.dataset, spec.pathway, spec.goodness)
    near = _rows_by_method().get(key, ())
    return [row for row in near if matches(row, spec)]


def rows() -> list[Row]:
    """All numbers of the paper, in the order of the file."""
    return list(_rows())


def matches(row: Row, spec: RunSpec) -> bool:
    """Whether ``spec`` is a run that ``row`` reports, at the paper's full settings.

    A row that is the best of several activations or of the norm gate on and off is
    matched by each of them.
    """
    return (
        spec.dataset == row.dataset
        and spec.size == row.size
        and _same_method(row, spec)
        and spec.activation in row.activations
        and row.norm_gate in (None, spec.norm_gate)
        and at_settings(spec)
    )


def at_settings(spec: RunSpec) -> bool:
    """Whether everything but method and size is as in the paper."""
    return all(
        close(getattr(spec, name), spec_lib.DEFAULTS[name])
        for name in spec_lib.names("setting")
    )


def orientation(spec: RunSpec) -> Row | None:
    """The paper's 4x2000, 60-epoch number for the same method, if it prints one.

    Only for orientation: sizes, epochs and the norm gate of ``spec`` may differ.
    The embedded fashion_mini is taken for Fashion-MNIST, of which it is a part.
    """
    dataset = "fashion_mnist" if spec.dataset == "fashion_mini" else spec.dataset
    # The paper's game-theoretic numbers fit the other formula at least as well.
    shah = spec.goodness == "game_theoretic_shah"
    goodness = "game_theoretic" if shah else spec.goodness
    wanted = dataclasses.replace(spec, goodness=goodness)
    near = [
        row
        for row in _rows_by_method().get((dataset, spec.pathway, goodness), ())
        if (row.num_layers, row.width) == _FULL_SIZE
        and row.activation == spec.activation
        and _same_method(row, wanted)
    ]
    return min(near, key=lambda row: trust(row.table), default=None)


def trust(table: str) -> int:
    """The rank of a table where several print the same run; 0 is trusted most."""
    return _TRUST.index(table) if table in _TRUST else len(_TRUST)


def _same_method(row: Row, spec: RunSpec) -> bool:
    if row.pathway != spec.pathway or row.goodness != spec.goodness:
        return False
    if spec.goodness_params:  # the paper has no other values of these
        return False
    if row.goodness not in DEFAULTS:
        return True
    name, default = DEFAULTS[row.goodness]
    given = getattr(spec, name)
    return close(getattr(row, name), default if given is None else given)


def close(a: object, b: object) -> bool:
    """Whether two values are equal, or numbers that differ by rounding alone."""
    if isinstance(a, float) and isinstance(b, int | float):
        return math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-12)
    return a == b


def _parse(number: int, line: dict[str, str]) -> Row:
    num_layers, width = line["architecture"].split("x")
    name, default = DEFAULTS.get(line["goodness"], (None, None))
    given = {
        "k_fraction": float(line["k_percent"]) / 100 if line["k_percent"] else None,
        "alpha": float(line["alpha"]) if line["alpha"] else None,
        "p": int(line["p"]) if line["p"] else None,
    }
    if name is not None and given[name] is None:
        given[name] = default
    gates = {"best": None, "on": True, "off": False}
    # The paper names seed 42 only; its five seeds are taken to follow it.
    seeds = (
        tuple(range(42, 47)) if line["seeds"] == "5 seeds" else (int(line["seeds"]),)
    )
    return Row(
        number=number,
        table=line["table"],
        dataset=line["dataset"],
        num_layers=int(num_layers),
        width=int(width),
        pathway=line["pathway"],
        activation=line["activation"],
        goodness=line["goodness"],
        norm_gate=gates[line["norm_gate"]],
        seeds=seeds,
        accuracy=float(line["accuracy"]),
        std=float(line["std"]) if line["std"] else None,
        note=line["note"],
        **given,
    )
