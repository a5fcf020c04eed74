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
from collections.abc import Mapping
from importlib import resources
from typing import Any

from ffjax.config import goodness_params
from ffjax.errors import UserError

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

# What all numbers of the paper have in common. A run with another value of one of
# these fields measures something else. 0 (or null) means no limit, no validation set.
SETTINGS: dict[str, Any] = {
    "epochs": 60,
    "batch_size": 500,
    "learning_rate": 1e-3,
    "threshold": 2.0,
    "label_scale": 5.0,
    "train_limit": 0,
    "test_limit": 0,
    "valid_fraction": 0.0,
    "negatives": "random",
    "loss": "softplus",
    "loss_scale": 1.0,
    "schedule": "constant",
    "weight_decay": 0.0,
    "peer_normalisation": 0.0,
    "dropout": 0.0,
    "normalisation": "l2",
    "ensemble": "all",
    "trainer": "ff",
}
# Later additions to a run's fields: a record from before them is as in the paper.
MAY_BE_UNSET = (
    "train_limit",
    "test_limit",
    "valid_fraction",
    "negatives",
    "loss",
    "loss_scale",
    "schedule",
    "weight_decay",
    "peer_normalisation",
    "dropout",
    "normalisation",
    "ensemble",
    "trainer",
)

# The parameter that a goodness function takes, and its value in a row without one.
DEFAULTS: dict[str, tuple[str, float]] = {
    "topk": ("k_fraction", 0.02),
    "ln_topk": ("k_fraction", 0.02),
    "contrast_topk": ("k_fraction", 0.01),
    "entmax": ("alpha", 1.5),
    "moment": ("p", 6),
}
PARAMETERS = ("k_fraction", "alpha", "p")

# How names are printed. A name that is not here is printed as it is.
LABELS = {
    "sos": "SoS",
    "variance": "variance",
    "neg_entropy": "negative entropy",
    "softmax_energy_margin": "softmax-energy-margin",
    "game_theoretic": "game-theoretic",
    "game_theoretic_shah": "game-theoretic (Shah)",
    "topk": "top-k",
    "contrast_topk": "contrast top-k",
    "ln_topk": "LN-top-k",
    "entmax": "entmax",
    "burstiness": "burstiness",
    "ln_burstiness": "LN-burstiness",
    "moment": "moment",
    "standard": "standard",
    "ffcl": "FFCL",
    "relu": "ReLU",
    "gelu": "GELU",
    "swish": "Swish",
    "ln_gelu": "LN-GELU",
    "ln_swish": "LN-Swish",
    "backprop": "backprop",
    "cross_entropy": "cross-entropy",
    "best": "best",
    "mnist": "MNIST",
    "fashion_mnist": "Fashion-MNIST",
    "fashion_mini": "Fashion-MNIST (embedded part)",
    "cifar10": "CIFAR-10",
    "usps": "USPS",
    "svhn": "SVHN",
    "emnist_letters": "EMNIST Letters",
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
    return tuple(_parse(line) for line in csv.DictReader(lines))


def label(name: Any) -> str:
    """How a goodness function, activation, pathway or dataset is printed.

    Of a user's own module:function the function alone.
    """
    if not isinstance(name, str):
        return str(name)
    module, _, function = name.rpartition(":")
    own = function if module and function.isidentifier() else name
    return LABELS.get(name, own)


@functools.cache
def _rows_by_method() -> dict[tuple[str, str, str], tuple[Row, ...]]:
    found: dict[tuple[str, str, str], tuple[Row, ...]] = {}
    for row in _rows():
        key = (row.dataset, row.pathway, row.goodness)
        found[key] = (*found.get(key, ()), row)
    return found


def matching(spec: Mapping[str, Any]) -> list[Row]:
    """All numbers of the paper that a run measures."""
    fields = ("dataset", "pathway", "goodness")
    dataset, pathway, goodness = (str(spec.get(field)) for field in fields)
    near = _rows_by_method().get((dataset, pathway, goodness), ())
    return [row for row in near if matches(row, spec)]


def rows() -> list[Row]:
    """All numbers of the paper, in the order of the file."""
    return list(_rows())


def matches(row: Row, spec: Mapping[str, Any]) -> bool:
    """Whether ``spec`` is a run that ``row`` reports, at the paper's full settings.

    A row that is the best of several activations or of the norm gate on and off is
    matched by each of them.
    """
    return (
        spec.get("dataset") == row.dataset
        and spec.get("num_layers") == row.num_layers
        and spec.get("width") == row.width
        and _same_method(row, spec)
        and spec.get("activation") in row.activations
        and row.norm_gate in (None, bool(spec.get("norm_gate")))
        and at_settings(spec)
    )


def at_settings(spec: Mapping[str, Any]) -> bool:
    """Whether everything but method, dataset and size is as in the paper."""
    for field, value in SETTINGS.items():
        found = spec.get(field)
        if found is None and field in MAY_BE_UNSET:
            continue
        if found != value and not close(found, value):
            return False
    return True


def orientation(spec: Mapping[str, Any]) -> Row | None:
    """The paper's 4x2000, 60-epoch number for the same method, if it prints one.

    Only for orientation: sizes, epochs and the norm gate of ``spec`` may differ.
    The embedded fashion_mini is taken for Fashion-MNIST, of which it is a part.
    """
    dataset = spec.get("dataset")
    dataset = "fashion_mnist" if dataset == "fashion_mini" else dataset
    goodness = spec.get("goodness")
    # The paper's game-theoretic numbers fit the other formula at least as well.
    goodness = "game_theoretic" if goodness == "game_theoretic_shah" else goodness
    wanted = {**spec, "goodness": goodness}
    key = (str(dataset), str(spec.get("pathway")), str(goodness))
    found = [
        row
        for row in _rows_by_method().get(key, ())
        if (row.num_layers, row.width) == _FULL_SIZE
        and row.activation == spec.get("activation")
        and _same_method(row, wanted)
    ]
    return min(found, key=lambda row: trust(row.table), default=None)


def trust(table: str) -> int:
    """The rank of a table where several print the same run; 0 is trusted most."""
    return _TRUST.index(table) if table in _TRUST else len(_TRUST)


def parameters(spec: Mapping[str, Any]) -> dict[str, float]:
    """The goodness parameters in force: given, or the paper's default."""
    goodness = spec.get("goodness")
    given = {key: spec[key] for key in PARAMETERS if spec.get(key) is not None}
    own = _own_parameters(spec)
    if goodness in DEFAULTS:
        name, default = DEFAULTS[goodness]
        return {name: given.get(name, default), **own}
    # The paper's other functions take none; a user's own may take any of them.
    return own if goodness in LABELS else {**given, **own}


def _own_parameters(spec: Mapping[str, Any]) -> dict[str, float]:
    try:
        return goodness_params.parse(spec.get("goodness_params") or "")
    except UserError:  # a record that was changed by hand
        return {}


def parameter_text(spec: Mapping[str, Any]) -> str:
    """The parameters in force as text: "k = 2 %", "alpha = 1.5", "p = 6" or ""."""
    parts = []
    for name, value in parameters(spec).items():
        if not isinstance(value, int | float):
            parts.append(f"{name} = {value}")
        elif name == "k_fraction":
            parts.append(f"k = {100 * value:g} %")
        else:
            parts.append(f"{name} = {value:g}")
    return ", ".join(parts)


def _same_method(row: Row, spec: Mapping[str, Any]) -> bool:
    if row.pathway != spec.get("pathway") or row.goodness != spec.get("goodness"):
        return False
    if spec.get("goodness_params"):  # the paper has no other values of these
        return False
    if row.goodness not in DEFAULTS:
        return True
    name, default = DEFAULTS[row.goodness]
    given = spec.get(name)
    return close(getattr(row, name), default if given is None else given)


def close(a: Any, b: Any) -> bool:
    """Whether both are numbers, and the same but for rounding."""
    try:
        return math.isclose(float(a), float(b), rel_tol=1e-6, abs_tol=1e-12)
    except (TypeError, ValueError):
        return False


def _parse(line: dict[str, str]) -> Row:
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
