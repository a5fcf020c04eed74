"""From a config to runs: typed, checked and named.

``RunSpec`` is the one place where fields and their defaults live. A config file gives a
ConfigDict of these fields, and perhaps a ``grid`` laid over them; ``expand`` turns it
into cells. Everything below this module takes plain values, never a config.
"""

import dataclasses
import difflib
import hashlib
import itertools
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import ml_collections
from ml_collections import config_dict

from ffjax.training import backprop
from ffjax import data, goodness
from ffjax.model import layer
from ffjax.config import goodness_params
from ffjax.errors import UserError
from ffjax.model.evaluate import ENSEMBLES
from ffjax.training.objective import LOSSES, NEGATIVES, USES_THRESHOLD, Objective
from ffjax.model.pathway import NORMALISATIONS, PATHWAYS, Architecture
from ffjax.training.program import SCHEDULES, Optimizer


@dataclasses.dataclass(frozen=True)
class RunSpec:
    """One run but for its seed; the defaults are the paper's.

    k_fraction, alpha and p are None where the goodness function does not use them, and
    None stands for its default where it does; any other field that a run does not use
    has its default. The pathway and the goodness of
    backpropagation are called "backprop" and "cross_entropy".
    """

    trainer: str = "ff"  # Forward-Forward; "backprop": end to end, for comparison
    dataset: str = "fashion_mnist"  # a name in data.DATASETS, or the path of an .npz
    pathway: str = "ffcl"  # "standard": the label in the input; "ffcl": in every layer
    goodness: str = "burstiness"  # a name in goodness.GOODNESS, or module:function
    activation: str = "gelu"  # relu, gelu, swish, ln_gelu, ln_swish
    norm_gate: bool = False  # h <- sigmoid(||h||) h after the activation
    k_fraction: float | None = None  # of topk, contrast_topk, ln_topk
    alpha: float | None = None  # of entmax
    p: int | None = None  # of moment
    goodness_params: str = ""  # of any goodness function, "q=4,beta=0.5"
    num_layers: int = 4
    width: int = 2000  # units of each layer
    epochs: int = 60  # of each layer
    batch_size: int = 500
    learning_rate: float = 1e-3  # of Adam
    threshold: float = 2.0  # tau
    negatives: str = "random"  # which wrong labels: random, hard, all
    loss: str = "softplus"  # softplus, symba, softmax (over all labels)
    loss_scale: float = 1.0  # by which the loss multiplies goodness and threshold
    schedule: str = "constant"  # of the learning rate: constant, cosine, half_linear
    weight_decay: float = 0.0  # of AdamW, for weights but not for biases
    peer_normalisation: float = 0.0  # weight of a penalty on unequally active units
    dropout: float = 0.0  # share of a layer's inputs that each step leaves out
    label_scale: float = 5.0  # s, of the label in the input of the standard pathway
    normalisation: str = "l2"  # of the layers' inputs: l2 (length 1), rms
    ensemble: str = "all"  # layers that vote: all and their concatenation, later
    train_limit: int = 0  # how many training images to use; 0 = all
    test_limit: int = 0  # how many test images to use; 0 = all
    valid_fraction: float = 0.0  # of the training images, kept for validation

    def goodness_arguments(self) -> dict[str, Any]:
        """The goodness function's parameters that are set in this run."""
        known = goodness.find(self.goodness).defaults
        values = {
            name: getattr(self, field)
            for name, field in _PARAM_FIELDS.items()
            if name in known and getattr(self, field) is not None
        }
        return {**values, **goodness_params.parse(self.goodness_params)}

    def architecture(self, num_classes: int) -> Architecture:
        """The network of this run."""
        return Architecture(
            pathway=self.pathway,
            goodness=goodness.make(self.goodness, **self.goodness_arguments()),
            activation=self.activation,
            norm_gate=self.norm_gate,
            widths=(self.width,) * self.num_layers,
            num_classes=num_classes,
            label_scale=self.label_scale,
            normalisation=self.normalisation,
            ensemble=self.ensemble,
        )

    def backprop_network(self, num_classes: int) -> backprop.Network:
        """The network of this run where the trainer is backpropagation."""
        return backprop.Network(
            widths=(self.width,) * self.num_layers,
            activation=self.activation,
            norm_gate=self.norm_gate,
            num_classes=num_classes,
        )

    @property
    def num_stages(self) -> int:
        """How many trainings follow one another: one a layer, or one in all."""
        return 1 if self.trainer == "backprop" else self.num_layers

    def training(self) -> dict[str, Any]:
        """How this run is trained: arguments of its trainer's ``train_network``."""
        arguments: dict[str, Any] = {
            "epochs": self.epochs,
            "batch_size": self.batch_size,
            "learning_rate": self.learning_rate,
            "optimizer": Optimizer(self.schedule, self.weight_decay),
        }
        if self.trainer == "ff":
            arguments["threshold"] = self.threshold
            arguments["objective"] = Objective(
                self.negatives,
                self.loss,
                self.loss_scale,
                self.peer_normalisation,
                self.dropout,
            )
        return arguments


@dataclasses.dataclass(frozen=True)
class Cell:
    """A run of a grid with all its seeds, and the sections that ask for it."""

    id: str
    spec: RunSpec
    seeds: tuple[int, ...]
    sections: tuple[str, ...] = ()


# Parameters of goodness functions, by the field of a run that sets them.
_PARAM_FIELDS = {"fraction": "k_fraction", "alpha": "alpha", "p": "p"}

# Fields that backpropagation does not use, with what they are then.
_OF_BACKPROP: dict[str, Any] = {
    "pathway": "backprop",
    "goodness": "cross_entropy",
    "k_fraction": None,
    "alpha": None,
    "p": None,
    "goodness_params": "",
    "threshold": RunSpec.threshold,
    "negatives": RunSpec.negatives,
    "loss": RunSpec.loss,
    "loss_scale": RunSpec.loss_scale,
    "peer_normalisation": RunSpec.peer_normalisation,
    "dropout": RunSpec.dropout,
    "label_scale": RunSpec.label_scale,
    "normalisation": RunSpec.normalisation,
    "ensemble": RunSpec.ensemble,
}

# Fields that say how to run, not what: they are no part of a cell's identity.
_RUN_FIELDS: dict[str, Any] = {
    "seeds": (42,),
    "data_dir": "",  # a prepared TFDS folder, or <dataset>/ with the official files
    "group_size": 0,  # how many runs to train in one program; 0 = automatic
    "num_devices": 0,  # how many of this machine's devices to use; 0 = all
}

# A command-line value of one of these chooses among the cells of a grid that varies it;
# of any other field it is set in all of them.
_METHOD = (
    "dataset",
    "pathway",
    "goodness",
    "activation",
    "norm_gate",
    "k_fraction",
    "alpha",
    "p",
    "goodness_params",
)


def default() -> ml_collections.ConfigDict:
    """The flat fields with the paper's values, as a config file returns them."""
    fields = {field.name: field.default for field in dataclasses.fields(RunSpec)}
    for name, kind in (("k_fraction", float), ("alpha", float), ("p", int)):
        fields[name] = config_dict.placeholder(kind)
    return ml_collections.ConfigDict({**fields, **_RUN_FIELDS})


def product(**axes: Iterable[Any]) -> tuple[dict[str, Any], ...]:
    """Every combination of the axes' values, as cells of a grid's section."""
    values = [tuple(axis) for axis in axes.values()]
    return tuple(
        dict(zip(axes, combination, strict=True))
        for combination in itertools.product(*values)
    )


def check_section(section: str | None, sections: Iterable[str]) -> None:
    """Raises UserError unless a config file has the section that is asked for.

    None stands for no section in particular.
    """
    names = tuple(sections)
    if section is not None and section not in names:
        raise UserError(
            f"config section {section!r}: must be one of {', '.join(names)}"
        )


def expand(
    config: ml_collections.ConfigDict, overrides: Mapping[str, Any] | None = None
) -> list[Cell]:
    """The cells of a config: one, or those of its grid, each once.

    Args:
      config: the flat fields as the config file gives them, and perhaps ``grid``:
        section -> tuple of dicts, each with the fields in which a cell differs from
        the flat ones (perhaps ``seeds``).
      overrides: the fields that the user set on the command line. Of a grid, those of
        the method or the dataset that it varies choose among its cells, and all others
        apply to every cell.
    """
    if not isinstance(config, ml_collections.ConfigDict):
        raise UserError(f"config: get_config gave {config!r}; must be a ConfigDict")
    overrides = dict(overrides or {})
    flat = {name: config[name] for name in config if name != "grid"}
    grid: Any = config.get("grid")
    if not grid:
        return [_make_cell({**flat, **overrides}, ())]
    chosen, forced = {}, {}
    plain = _grid_cells(grid, flat, {})
    for name, value in overrides.items():
        found = {getattr(cell.spec, name, None) for cell in plain.values()}
        is_param = name in _PARAM_FIELDS.values()
        is_varied = len(found) > 1 or (is_param and found == {None})
        (chosen if name in _METHOD and is_varied else forced)[name] = value
    cells = _grid_cells(grid, flat, forced)
    for name, value in chosen.items():  # an impossible value is told as such
        if name == "goodness_params":  # whose names depend on the cell's function
            goodness_params.parse(value)
        else:
            make_spec(**{name: value})
    kept = [cell for cell in cells.values() if _is_chosen(cell.spec, chosen)]
    if not kept:
        asked = ", ".join(f"{name}={value!r}" for name, value in chosen.items())
        varied = "; ".join(
            f"{name}: {_values(getattr(cell.spec, name) for cell in cells.values())}"
            for name in chosen
        )
        raise UserError(f"no cell of the grid has {asked} (the grid has {varied})")
    return kept


def _grid_cells(
    grid: Any, flat: Mapping[str, Any], forced: Mapping[str, Any]
) -> dict[str, Cell]:
    """The cells of all sections by id; one that sections share is there once."""
    cells: dict[str, Cell] = {}
    for section in grid:
        for fields in grid[section]:
            cell = _make_cell({**flat, **fields, **forced}, (section,))
            found = cells.get(cell.id)
            if found is not None:
                seeds = tuple(dict.fromkeys(found.seeds + cell.seeds))
                sections = tuple(dict.fromkeys((*found.sections, section)))
                cell = Cell(cell.id, cell.spec, seeds, sections)
            cells[cell.id] = cell
    return cells


def make_spec(**fields: Any) -> RunSpec:
    """A checked RunSpec in its one canonical form.

    Parameters that the goodness function does not use become None, and those that it
    does use and were not given get its default, so that equal runs have equal specs.
    """
    for name in fields:
        check_field_name(name)
    if fields.get("trainer") == "backprop":
        fields = {**fields, **_OF_BACKPROP}
    spec = RunSpec(**fields)
    for name, value in dataclasses.asdict(spec).items():
        if spec.trainer == "ff" or name not in _OF_BACKPROP:
            _check_field(name, value)
    if spec.train_limit and spec.train_limit < spec.batch_size:
        raise UserError(
            f"batch_size={spec.batch_size}: must not be larger than the training set "
            f"(train_limit={spec.train_limit})"
        )
    return spec if spec.trainer == "backprop" else _canonical(spec)


def _canonical(spec: RunSpec) -> RunSpec:
    used = goodness.find(spec.goodness).defaults
    changes: dict[str, Any] = {}
    for name, field in _PARAM_FIELDS.items():
        value = getattr(spec, field)
        if value is not None:
            goodness.check_param(name, value, shown=field)
        if name not in used:
            changes[field] = None
        elif value is None:
            changes[field] = used[name]
    changes["goodness_params"] = _canonical_params(spec)
    if spec.loss == "softmax" and spec.negatives != "all":
        raise UserError(
            f"negatives={spec.negatives!r}: must be 'all' with loss='softmax', which "
            "compares every label"
        )
    if spec.loss not in USES_THRESHOLD:
        changes["threshold"] = RunSpec.threshold
    if spec.ensemble == "later" and spec.num_layers == 1:
        raise UserError("ensemble='later': needs num_layers >= 2")
    return dataclasses.replace(spec, **changes)


def _canonical_params(spec: RunSpec) -> str:
    """All parameters of a user's own function, those set anew of a built-in one."""
    known = goodness.find(spec.goodness).defaults
    numbers = {
        name: default
        for name, default in known.items()
        if name not in _PARAM_FIELDS and type(default) in (int, float)
    }
    given = goodness_params.parse(spec.goodness_params)
    for name in given:
        if name not in numbers:
            allowed = ", ".join(numbers) or "none"
            field = _PARAM_FIELDS.get(name)
            hint = f"; {name} is set by {field}" if field else ""
            raise UserError(
                f"goodness_params={spec.goodness_params!r}: {spec.goodness} has no "
                f"parameter {name!r} (it has: {allowed}{hint})"
            )
        if type(numbers[name]) is float:
            given[name] = float(given[name])
    if ":" not in spec.goodness:  # so that the paper's runs keep their names
        return goodness_params.render({k: v for k, v in given.items() if v != numbers[k]})
    return goodness_params.render({**numbers, **given})


def check_field_name(name: str) -> None:
    """Raises a UserError for a name that is no field of a config."""
    known = [field.name for field in dataclasses.fields(RunSpec)] + list(_RUN_FIELDS)
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise UserError(f"{name}: no such field; {hint}known are {', '.join(known)}")


def check_seed(seed: Any) -> None:
    """Raises a UserError for a seed that cannot make a key."""
    if not _is_int(seed) or not 0 <= seed < 2**32:
        raise UserError(f"seed={seed!r}: must be an integer from 0 to 2**32 - 1")


def cell_id(spec: RunSpec) -> str:
    """A name for files and logs: readable, and different for different specs.

    The hash at its end covers the fields that differ from their defaults, so that a
    field added later leaves the names of earlier cells as they are.
    """
    differing = {
        field.name: getattr(spec, field.name)
        for field in dataclasses.fields(RunSpec)
        if getattr(spec, field.name) != field.default
    }
    digest = hashlib.sha256(json.dumps(differing, sort_keys=True).encode()).hexdigest()
    parts = [spec.dataset.rsplit("/", 1)[-1], spec.pathway, spec.goodness]
    parts += [f"k{spec.k_fraction:g}"] if spec.k_fraction is not None else []
    parts += [f"a{spec.alpha:g}"] if spec.alpha is not None else []
    parts += [f"p{spec.p}"] if spec.p is not None else []
    parts += [spec.goodness_params]
    parts += [spec.activation, "gate" if spec.norm_gate else ""]
    parts += [f"{spec.num_layers}x{spec.width}", f"e{spec.epochs}", digest[:8]]
    clean = [re.sub(r"[^A-Za-z0-9_.]+", "_", part)[:48] for part in parts]
    return "-".join(part for part in clean if part)


def _make_cell(fields: Mapping[str, Any], sections: tuple[str, ...]) -> Cell:
    for name in fields:
        check_field_name(name)
    of_run = {name: value for name, value in fields.items() if name not in _RUN_FIELDS}
    spec = make_spec(**of_run)
    for name in ("group_size", "num_devices"):
        _check_field(name, fields.get(name, _RUN_FIELDS[name]))
    seeds = fields.get("seeds", _RUN_FIELDS["seeds"])
    if not isinstance(seeds, tuple | list):
        raise UserError(f"seeds={seeds!r}: must be a tuple of integers")
    if not seeds:
        raise UserError("seeds=(): give at least one seed")
    for seed in seeds:
        check_seed(seed)
    return Cell(cell_id(spec), spec, tuple(dict.fromkeys(seeds)), sections)


def _is_chosen(spec: RunSpec, chosen: Mapping[str, Any]) -> bool:
    for name, value in chosen.items():
        found = getattr(spec, name)
        if name == "goodness_params":
            if not goodness_params.parse(value).items() <= goodness_params.parse(found).items():
                return False
        elif isinstance(value, float) and isinstance(found, float):
            if not math.isclose(found, value, rel_tol=1e-9):
                return False
        elif found != value:
            return False
    return True


def _values(values: Iterable[Any]) -> str:
    return ", ".join(str(value) for value in dict.fromkeys(values) if value is not None)


def _one_of(table: Iterable[str]) -> tuple[Callable[[Any], bool], str]:
    names = tuple(table)
    return (lambda value: value in names), f"one of {', '.join(names)}"


def _is_int(value: Any) -> bool:
    return type(value) is int


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


_AT_LEAST_ONE = (lambda value: _is_int(value) and value >= 1), "an integer >= 1"
_LIMIT = (lambda value: _is_int(value) and value >= 0), "an integer >= 0 (0 = all)"
_NUMBER_ABOVE_0 = (lambda value: _is_number(value) and value > 0), "a number > 0"
_NUMBER_FROM_0 = (lambda value: _is_number(value) and value >= 0), "a number >= 0"

# What each field may be. Names of datasets and goodness functions have checks of their
# own, and so do the goodness functions' parameters.
_ALLOWED: dict[str, tuple[Callable[[Any], bool], str]] = {
    "trainer": _one_of(("ff", "backprop")),
    "pathway": _one_of(PATHWAYS),
    "activation": _one_of(layer.ACTIVATIONS),
    "norm_gate": ((lambda value: type(value) is bool), "True or False"),
    "group_size": (_LIMIT[0], "an integer >= 0 (0 = automatic)"),
    "num_devices": _LIMIT,
    "num_layers": _AT_LEAST_ONE,
    "width": _AT_LEAST_ONE,
    "epochs": _AT_LEAST_ONE,
    "batch_size": _AT_LEAST_ONE,
    "learning_rate": _NUMBER_ABOVE_0,
    "threshold": (_is_number, "a number"),
    "negatives": _one_of(NEGATIVES),
    "loss": _one_of(LOSSES),
    "loss_scale": _NUMBER_ABOVE_0,
    "schedule": _one_of(SCHEDULES),
    "weight_decay": _NUMBER_FROM_0,
    "peer_normalisation": _NUMBER_FROM_0,
    "dropout": (
        (lambda value: _is_number(value) and 0 <= value <= 0.9),
        "a number from 0 to 0.9",
    ),
    "label_scale": _NUMBER_ABOVE_0,
    "normalisation": _one_of(NORMALISATIONS),
    "ensemble": _one_of(ENSEMBLES),
    "train_limit": _LIMIT,
    "test_limit": _LIMIT,
    "valid_fraction": (
        (lambda value: _is_number(value) and 0 <= value < 1),
        "a number in [0, 1)",
    ),
}


def _check_field(name: str, value: Any) -> None:
    if name == "dataset":
        if not isinstance(value, str):
            raise UserError(f"dataset={value!r}: must be {_NAMES['dataset']}")
        data.check_name(value)
    if name in _ALLOWED:
        is_allowed, allowed = _ALLOWED[name]
        if not is_allowed(value):
            raise UserError(f"{name}={value!r}: must be {allowed}")


_NAMES = {
    "dataset": f"one of {', '.join(data.DATASETS)}, or the path of an .npz file",
    "goodness_params": goodness_params.ALLOWED,
    "goodness": f"one of {', '.join(goodness.GOODNESS)}, or module:function",
    "seeds": "integers >= 0, separated by commas",
    "data_dir": "a folder with prepared TFDS datasets or the official files",
}


def allowed_values(name: str) -> str:
    """What a field may be, in words."""
    if name in _NAMES:
        return _NAMES[name]
    param = next((p for p, field in _PARAM_FIELDS.items() if field == name), None)
    if param is not None:
        return goodness.allowed_values(param)
    return _ALLOWED[name][1]


def describe_fields() -> str:
    """The fields of a config with their defaults and what they may be, for --help."""
    return "\n".join(
        f"{name} [{'its default' if value is None else value}]: {allowed_values(name)}"
        for name, value in default().items()
    )
