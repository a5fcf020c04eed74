"""A run, field by field: default, role, domain and help of each on a line of its own.

All else follows from these lines: the arguments of ``ffjax.fit``, ``--help``, the
checks, the canonical form, which runs are the paper's, and how the report groups them.
Nothing here imports jax.
"""

import dataclasses
import difflib
import hashlib
import json
import re
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from ffjax import data
from ffjax.config import goodness_params
from ffjax.errors import (
    PARAMETERS,
    Domain,
    UserError,
    choice,
    integer,
    is_integer,
    is_number,
    number,
    optional,
)
from ffjax.model import maps
from ffjax.model.maps import Maps

if TYPE_CHECKING:
    from ffjax.goodness import Definition

# What a field is part of.
#   method: what is compared; a command-line value chooses among the cells of a grid.
#   size: of the network.
#   setting: the rest. A run is the paper's only where each of them has its default.
#   way: how to run, not what; no part of a run's identity.
Role = Literal["method", "size", "setting", "way"]


@dataclasses.dataclass(frozen=True)
class About:
    """What is known of a field besides its name, type and default.

    Attributes:
      role: what it is part of.
      domain: what it may be.
      help: what it means.
      ff_only: whether backpropagation ignores it.
      in_fit: whether it is an argument of ``ffjax.fit``.
    """

    role: Role
    domain: Domain
    help: str
    ff_only: bool
    in_fit: bool


def _field(
    default: Any,
    role: Role,
    domain: Domain,
    help: str,
    *,
    ff_only: bool = False,
    in_fit: bool = True,
) -> Any:
    about = About(role, domain, help, ff_only, in_fit)
    return dataclasses.field(default=default, metadata={"about": about})


def _is_path(value: object) -> bool:
    return isinstance(value, str) and "\0" not in value


_ON_OR_OFF = Domain(lambda value: type(value) is bool, "True or False")
_TEXT = Domain(lambda value: isinstance(value, str), "a string")
# Beyond any use, but small enough for the floats that sizes and times are made of.
_MOST = 10**12
_COUNT = integer(1, _MOST, words="an integer >= 1, at most 10**12")
_LIMIT = integer(0, _MOST, words="an integer >= 0 (0 = all), at most 10**12")
_ABOVE_0 = number(lambda value: 0 < value <= 1e30, "a number > 0, at most 1e30")
_FROM_0 = number(lambda value: 0 <= value <= 1e30, "a number >= 0, at most 1e30")
_ANY_NUMBER = number(lambda value: abs(value) <= 1e30, "a number of at most 1e30")
_SHARE = number(lambda value: 0 <= value <= 0.9, "a number from 0 to 0.9")
_PART = number(lambda value: 0 <= value < 1, "a number in [0, 1)")
SEED = integer(0, 2**32 - 1, words="an integer from 0 to 2**32 - 1")
_SEEDS = Domain(
    lambda value: isinstance(value, tuple | list) and all(map(SEED.allows, value)),
    "integers >= 0, separated by commas, or ranges such as 1-5",
)
_WIDTHS = Domain(
    lambda value: (
        isinstance(value, tuple | list)
        and len(value) <= 1000
        and all(map(_COUNT.allows, value))
    ),
    "integers >= 1, separated by commas, at most 1000 of them",
)
_DATASET = Domain(
    _is_path, f"one of {', '.join(data.DATASETS)}, or the path of an .npz file"
)
# Their own checks follow in ``make_spec``: names depend on what users register.
_GOODNESS = Domain(lambda value: isinstance(value, str), "a name or module:function")
_PARAMS = Domain(lambda value: isinstance(value, str), goodness_params.ALLOWED)

_TRAINERS = choice(("ff", "backprop"))
_PATHWAYS = choice(("standard", "ffcl", "groups"))
_LAYERS = choice(("dense", "conv"))
_KERNEL = Domain(
    lambda value: is_integer(value) and 1 <= value <= 99 and value % 2 == 1,
    "an odd integer from 1 to 99",
)
_POOL = Domain(
    lambda value: (
        isinstance(value, tuple | list)
        and len(value) <= 1000
        and all(is_integer(each) and each in (0, 1) for each in value)
    ),
    "0 or 1 for each layer, separated by commas",
)
_ACTIVATIONS = choice(("relu", "gelu", "swish", "ln_gelu", "ln_swish"))
_NEGATIVES = choice(("random", "hard", "all"))
_LOSSES = choice(("softplus", "symba", "softmax"))
_SCHEDULES = choice(("constant", "cosine", "half_linear"))
_NORMALISATIONS = choice(("l2", "rms", "layer", "group", "channel"))
_ENSEMBLES = choice(("all", "later", "last"))
_PRECISIONS = choice(("float32", "tensorfloat32", "bfloat16"))
_ORDERS = choice(("program", "value"))
_FRACTION = optional(PARAMETERS["fraction"])
_ALPHA = optional(PARAMETERS["alpha"])
_MOMENT = optional(PARAMETERS["p"])


# A field is a line: the formatter must not spread it over seven.
# fmt: off
# ruff: noqa: E501
@dataclasses.dataclass(frozen=True)
class RunSpec:
    """A run but for its seed; the defaults are the paper's.

    k_fraction, alpha and p are None where the goodness function does not use them, and
    None stands for its default where it does; any other field that a run does not use
    has its default. The pathway and the goodness of backpropagation are called
    "backprop" and "cross_entropy".
    """

    trainer: str = _field("ff", "setting", _TRAINERS, "Forward-Forward, or backpropagation for comparison", in_fit=False)
    dataset: str = _field("fashion_mnist", "method", _DATASET, "images and labels", in_fit=False)
    pathway: str = _field("ffcl", "method", _PATHWAYS, "where the label enters: the input, or every layer; or a group of units for each label", ff_only=True)
    goodness: str = _field("burstiness", "method", _GOODNESS, "what each layer maximises for the right label", ff_only=True)
    activation: str = _field("gelu", "method", _ACTIVATIONS, "of each layer")
    norm_gate: bool = _field(False, "method", _ON_OR_OFF, "h <- sigmoid(||h||) h after the activation")
    k_fraction: float | None = _field(None, "method", _FRACTION, "share of units that topk, contrast_topk and ln_topk select", ff_only=True)
    alpha: float | None = _field(None, "method", _ALPHA, "sparsity of entmax", ff_only=True)
    p: int | None = _field(None, "method", _MOMENT, "order of moment", ff_only=True)
    goodness_params: str = _field("", "method", _PARAMS, "other parameters of the goodness function", ff_only=True)
    num_layers: int = _field(4, "size", integer(1, 1000), "how many layers")
    width: int = _field(2000, "size", _COUNT, "units of each layer")
    widths: tuple[int, ...] = _field((), "size", _WIDTHS, "units of each layer where they differ, in place of num_layers and width")
    layer: str = _field("dense", "setting", _LAYERS, "what layers are; the units of a convolution are its channels")
    kernel: int = _field(3, "setting", _KERNEL, "height and width of a convolution's window")
    pool: tuple[int, ...] = _field((), "setting", _POOL, "1 for each convolution whose map is averaged over squares of 2 x 2 for the next layer")
    epochs: int = _field(60, "setting", integer(1, 10**6), "of each layer")
    batch_size: int = _field(500, "setting", _COUNT, "examples in a step")
    learning_rate: float = _field(1e-3, "setting", _ABOVE_0, "of Adam")
    threshold: float = _field(2.0, "setting", _ANY_NUMBER, "tau of the loss", ff_only=True)
    negatives: str = _field("random", "setting", _NEGATIVES, "which wrong labels a step sees", ff_only=True)
    loss: str = _field("softplus", "setting", _LOSSES, "local loss; softmax compares all labels", ff_only=True)
    loss_scale: float = _field(1.0, "setting", _ABOVE_0, "by which the loss multiplies goodness and threshold", ff_only=True)
    schedule: str = _field("constant", "setting", _SCHEDULES, "of the learning rate")
    weight_decay: float = _field(0.0, "setting", _FROM_0, "of AdamW, for weights but not for biases")
    peer_normalisation: float = _field(0.0, "setting", _FROM_0, "weight of a penalty on unequally active units", ff_only=True)
    dropout: float = _field(0.0, "setting", _SHARE, "share of a layer's inputs that each step leaves out", ff_only=True)
    label_scale: float = _field(5.0, "setting", _ABOVE_0, "s, of the label in the input of the standard pathway", ff_only=True)
    normalisation: str = _field("l2", "setting", _NORMALISATIONS, "of the layers' inputs: to length 1, to mean square 1, or to mean 0 and variance 1 of the layer, of each class's group, or of the layer and then of each channel over the training set", ff_only=True)
    ensemble: str = _field("all", "setting", _ENSEMBLES, "which layers vote: all and their concatenation, all but the first, or the last", ff_only=True)
    precision: str = _field("float32", "setting", _PRECISIONS, "of the operands of matrix products; sums are float32")
    train_limit: int = _field(0, "setting", _LIMIT, "how many training images to use", in_fit=False)
    test_limit: int = _field(0, "setting", _LIMIT, "how many test images to use", in_fit=False)
    valid_fraction: float = _field(0.0, "setting", _PART, "share of the training images kept for validation", in_fit=False)

    @property
    def num_stages(self) -> int:
        """How many trainings follow one another: one per layer, or one in all."""
        return 1 if self.trainer == "backprop" else self.num_layers

    @property
    def size(self) -> str:
        """Layers x units, as the paper writes it; 500-300 where their units differ."""
        return "-".join(map(str, self.widths)) or f"{self.num_layers}x{self.width}"

    @property
    def layer_widths(self) -> tuple[int, ...]:
        """Units of each layer."""
        return self.widths or (self.width,) * self.num_layers

    def identity(self) -> "RunSpec":
        """What tells runs apart: of a file its name, wherever it lies.

        Its content does so, too, and is compared where a record is taken for a result.
        """
        return dataclasses.replace(self, dataset=self.dataset.replace("\\", "/").rsplit("/", 1)[-1])


@dataclasses.dataclass(frozen=True)
class Way:
    """How to run, not what: no part of a run's identity."""

    seeds: tuple[int, ...] = _field((42,), "way", _SEEDS, "a run for each")
    data_dir: str = _field("", "way", _TEXT, "a folder with prepared TFDS datasets or the official files")
    group_size: int = _field(0, "way", integer(0, words="an integer >= 0 (0 = automatic)"), "how many runs to train in one program")
    num_devices: int = _field(0, "way", _LIMIT, "how many of this machine's devices to use")
    eval_every: int = _field(0, "way", integer(0, words="an integer >= 0 (0 = never)"), "epochs of a layer between two evaluations on validation images, or on test images if there are none")
    order: str = _field("program", "way", _ORDERS, "what runs first: by shared programs, or by the paper's numbers settled per hour")
# fmt: on


def _abouts() -> Iterator[tuple[str, About]]:
    for owner in (RunSpec, Way):
        for field in dataclasses.fields(owner):
            yield field.name, field.metadata["about"]


ABOUT: Mapping[str, About] = types.MappingProxyType(dict(_abouts()))
DEFAULTS: Mapping[str, Any] = types.MappingProxyType(
    {
        field.name: field.default
        for owner in (RunSpec, Way)
        for field in dataclasses.fields(owner)
    }
)

# Parameters of goodness functions, by the field of a run that sets them.
PARAM_FIELDS = {"fraction": "k_fraction", "alpha": "alpha", "p": "p"}

# What these two are called where there is no goodness.
_BACKPROP_NAMES = {"pathway": "backprop", "goodness": "cross_entropy"}


def names(*roles: Role) -> tuple[str, ...]:
    """The fields of these roles."""
    return tuple(name for name, about in ABOUT.items() if about.role in roles)


def kind(name: str) -> type:
    """The type of a field's values; of an optional one, that of a given value."""
    owner = Way if ABOUT[name].role == "way" else RunSpec
    hint = typing.get_type_hints(owner)[name]
    return next((arg for arg in typing.get_args(hint) if arg is not type(None)), hint)


def make_spec(**fields: Any) -> RunSpec:
    """A checked RunSpec in its canonical form: equal runs have equal specs.

    Parameters that the goodness function does not use become None, and those that it
    does use and were not given get its default.
    """
    for name in fields:
        check_name(name)
    if fields.get("trainer") == "backprop":
        fields = {**fields, **_of_backprop()}
    spec = RunSpec(**fields)
    check_fields(spec)
    spec = _with_layer(_with_widths(spec))
    data.check_name(spec.dataset)
    if spec.train_limit and spec.train_limit < spec.batch_size:
        raise UserError(
            f"batch_size={spec.batch_size}: must not be larger than the training set "
            f"(train_limit={spec.train_limit})"
        )
    return spec if spec.trainer == "backprop" else _canonical(spec)


def _with_widths(spec: RunSpec) -> RunSpec:
    """Says the size in a single way: as layers x units where all have the same."""
    if not spec.widths:
        return dataclasses.replace(spec, widths=())
    num_layers, width = len(spec.widths), max(spec.widths)
    is_plain = len(set(spec.widths)) == 1
    widths = () if is_plain else tuple(spec.widths)
    return dataclasses.replace(spec, num_layers=num_layers, width=width, widths=widths)


def _with_layer(spec: RunSpec) -> RunSpec:
    """Dense layers have no window; no pooling at all is said in a single way."""
    if spec.layer == "dense":
        return dataclasses.replace(spec, kernel=DEFAULTS["kernel"], pool=())
    pool = tuple(spec.pool)
    if pool and len(pool) != spec.num_layers:
        raise UserError(
            f"pool={pool}: has {len(pool)} entries for {spec.num_layers} layers; must "
            f"be {_POOL.words}"
        )
    return dataclasses.replace(spec, pool=pool if any(pool) else ())


def check_shape(
    spec: RunSpec, image_shape: Sequence[int], num_classes: int
) -> Maps | None:
    """Raises a UserError for layers that do not go with such images and classes.

    Args:
      spec: a run in its canonical form.
      image_shape: of one image.
      num_classes: of the dataset.

    Returns:
      The maps of its layers, if they are convolutions.
    """
    is_ff = spec.trainer == "ff"
    if is_ff and spec.pathway == "groups":
        maps.check_groups(spec.layer_widths, num_classes, "pathway='groups'")
    if is_ff and spec.normalisation == "group":
        maps.check_groups(spec.layer_widths, num_classes, "normalisation='group'")
    if spec.layer == "dense":
        return None
    return maps.make(image_shape, spec.kernel, spec.pool, spec.num_layers)


def check_fields(spec: RunSpec) -> None:
    """Raises a UserError if a field cannot have its value, whatever the others are."""
    for name in names("method", "size", "setting"):
        about = ABOUT[name]
        if spec.trainer == "ff" or not about.ff_only:
            about.domain.check(name, getattr(spec, name))


def _of_backprop() -> dict[str, Any]:
    """The fields that backpropagation does not use, with what they are then."""
    unused = {name: DEFAULTS[name] for name, about in ABOUT.items() if about.ff_only}
    return {**unused, **_BACKPROP_NAMES}


def _canonical(spec: RunSpec) -> RunSpec:
    definition = _definition(spec.goodness)
    changes: dict[str, Any] = {}
    for name, field in PARAM_FIELDS.items():
        if name not in definition.defaults:
            changes[field] = None
        elif getattr(spec, field) is None:
            changes[field] = definition.defaults[name]
    changes["goodness_params"] = _canonical_params(spec, definition)
    if spec.layer == "conv" and definition.batch is not None:
        raise UserError(
            f"layer='conv': must be 'dense' with goodness={spec.goodness!r}, which "
            "compares the examples of a batch; maps have too many positions for that"
        )
    spec = _with_pathway(spec)
    if spec.loss == "softmax" and spec.negatives != "all":
        raise UserError(
            f"negatives={spec.negatives!r}: must be 'all' with loss='softmax', which "
            "compares every label"
        )
    if spec.loss != "softplus":  # the others compare goodness with goodness
        changes["threshold"] = DEFAULTS["threshold"]
    if spec.ensemble == "later" and spec.num_layers == 1:
        raise UserError("ensemble='later': needs num_layers >= 2")
    return dataclasses.replace(spec, **changes)


# What a loss over groups is: the cross-entropy of the right one among all.
_OF_GROUPS = {"loss": "softmax", "negatives": "all"}


def _with_pathway(spec: RunSpec) -> RunSpec:
    """Fills in what a pathway implies, and refuses what it cannot have."""
    if spec.pathway == "standard":
        if spec.layer == "conv":
            raise UserError(
                "layer='conv': must be 'dense' with pathway='standard', whose label is "
                "a part of the input; ffcl and groups have convolutions"
            )
        if spec.normalisation not in ("l2", "rms"):
            raise UserError(
                f"normalisation={spec.normalisation!r}: must be 'l2' or 'rms' with "
                "pathway='standard', whose label is a part of the input"
            )
    if spec.pathway != "groups":
        return spec
    for name, value in _OF_GROUPS.items():
        if getattr(spec, name) not in (value, DEFAULTS[name]):
            raise UserError(_not_of_groups(name, getattr(spec, name)))
    return dataclasses.replace(spec, **_OF_GROUPS)


def _not_of_groups(name: str, value: object) -> str:
    return (
        f"{name}={value!r}: must be {_OF_GROUPS[name]!r} with pathway='groups', whose "
        "loss compares the groups of all labels"
    )


def _definition(name: str) -> "Definition":
    from ffjax import goodness  # it starts jax, which reading a spec does not need

    return goodness.find(name)


def _canonical_params(spec: RunSpec, definition: "Definition") -> str:
    """All parameters of a user's own function, those set anew of a built-in one."""
    numbers: dict[str, int | float] = {
        name: default
        for name, default in definition.defaults.items()
        if name not in PARAM_FIELDS and is_number(default)
    }
    given = goodness_params.parse(spec.goodness_params)
    for name in given:
        if name not in numbers:
            allowed = ", ".join(numbers) or "none"
            field = PARAM_FIELDS.get(name)
            hint = f"; {name} is set by {field}" if field else ""
            raise UserError(
                f"goodness_params={spec.goodness_params!r}: {spec.goodness} has no "
                f"parameter {name!r} (it has: {allowed}{hint})"
            )
        if type(numbers[name]) is float:
            given[name] = float(given[name])
    if ":" not in spec.goodness:  # so that the paper's runs keep their names
        given = {name: value for name, value in given.items() if value != numbers[name]}
        return goodness_params.render(given)
    return goodness_params.render({**numbers, **given})


def check_used(spec: RunSpec, given: Mapping[str, Any]) -> None:
    """Raises a UserError for a field that was given although another one rules it out.

    That is a parameter of a function without it, a size that ``widths`` contradicts, a
    window of a dense layer, or another loss than that of groups.

    Args:
      spec: a run in its canonical form.
      given: the fields that a user set by hand.
    """
    sizes = {"num_layers": len(spec.layer_widths), "width": max(spec.layer_widths)}
    for field, size in sizes.items():
        if given.get("widths") and given.get(field, size) != size:
            raise UserError(
                f"{field}={given[field]!r}: does not go with widths={given['widths']}; "
                "give one of them"
            )
    for field in ("kernel", "pool"):
        value = given.get(field, DEFAULTS[field])
        if spec.layer == "dense" and value and value != DEFAULTS[field]:
            raise UserError(f"{field}={value!r}: needs layer='conv'")
    for field, value in _OF_GROUPS.items():
        if spec.pathway == "groups" and given.get(field, value) != value:
            raise UserError(_not_of_groups(field, given[field]))
    for field in PARAM_FIELDS.values():
        if given.get(field) is not None and getattr(spec, field) is None:
            raise UserError(
                f"{field}={given[field]!r}: goodness {spec.goodness!r} does not use it"
            )


def check_name(name: str) -> None:
    """Raises a UserError for a name that is no field of a config."""
    if name not in ABOUT:
        close = difflib.get_close_matches(name, ABOUT, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise UserError(f"{name}: no such field; {hint}known are {', '.join(ABOUT)}")


def cell_id(spec: RunSpec) -> str:
    """A name for files and logs: readable, and different for different specs.

    The hash at its end covers the fields that differ from their defaults, so that a
    field added later leaves the names of earlier cells as they are.
    """
    differing = {
        name: value
        for name, value in dataclasses.asdict(spec.identity()).items()
        if value != DEFAULTS[name]
    }
    digest = hashlib.sha256(json.dumps(differing, sort_keys=True).encode()).hexdigest()
    parts = [spec.identity().dataset, spec.pathway, spec.goodness]
    parts += [f"k{spec.k_fraction:g}"] if spec.k_fraction is not None else []
    parts += [f"a{spec.alpha:g}"] if spec.alpha is not None else []
    parts += [f"p{spec.p}"] if spec.p is not None else []
    parts += [spec.goodness_params]
    parts += [spec.activation, "gate" if spec.norm_gate else ""]
    parts += ["conv" if spec.layer == "conv" else ""]
    parts += [spec.size, f"e{spec.epochs}", digest[:8]]
    clean = [re.sub(r"[^A-Za-z0-9_.]+", "_", part)[:48] for part in parts]
    return "-".join(part for part in clean if part)


def allowed_values(name: str) -> str:
    """What a field may be, in words."""
    if name == "goodness":
        from ffjax import goodness

        return f"one of {', '.join(goodness.GOODNESS)}, or module:function"
    return ABOUT[name].domain.words


def describe_fields(defaults: Mapping[str, Any] = DEFAULTS) -> str:
    """Fields with their defaults, meaning and what they may be, a line each."""
    lines = []
    for name, default in defaults.items():
        shown = "automatic" if default is None else default
        about = f"{ABOUT[name].help}; {allowed_values(name)}"
        lines.append(f"{name} [{shown}]: {about}")
    return "\n".join(lines)
