"""Networks as bytes: weights as safetensors, the rest as JSON in their metadata.

Format 2. Files of format 1 are read, too: they have labels 0..C-1, and mean and std of
the images' own values instead of those of x / 255. Reading never imports code.
"""

import json
import math
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, cast

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import safetensors
from safetensors import numpy as safetensors_numpy

from ffjax import goodness
from ffjax.errors import UserError, shown
from ffjax.model import layer, maps, pathway
from ffjax.model.pathway import Architecture
from ffjax.model.product import Precision
from ffjax.network.arrays import Label
from ffjax.records import Point
from ffjax.training.optimizer import Training
from ffjax.training.program import TrainedLayer, init_layer

_FORMAT = "ffjax-network-2"
_OLD_FORMAT = "ffjax-network-1"

_Size = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
_Positive = Annotated[float, msgspec.Meta(gt=0, le=1e30)]
_Pathway = Literal["standard", "ffcl", "groups"]
_Normalisation = Literal["l2", "rms", "layer", "group", "channel"]
_Ensemble = Literal["all", "later", "last"]


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What a network is besides its architecture and weights.

    Attributes:
      image_shape: of one image.
      mean: per channel, of the training images / 255.
      std: per channel, of the training images / 255.
      classes: what ``predict`` answers with.
      class_names: the same for people.
      points: accuracies during training.
    """

    image_shape: tuple[_Size, ...]
    mean: tuple[float, ...]
    std: tuple[_Positive, ...]
    classes: tuple[Label, ...] = ()
    class_names: tuple[str, ...] = ()
    points: tuple[Point, ...] = ()


class _Header(Facts, frozen=True, kw_only=True):
    """A file's description of its network."""

    pathway: _Pathway
    goodness: str
    goodness_params: dict[str, bool | int | float | str]
    module: str = ""  # of a goodness function of one's own
    source: str = ""  # hash of its source
    activation: str
    norm_gate: bool
    widths: Annotated[tuple[_Size, ...], msgspec.Meta(min_length=1)]
    num_classes: Annotated[int, msgspec.Meta(ge=2, le=2**31 - 1)]
    label_scale: _Positive
    # Older files are from before these.
    normalisation: _Normalisation = "l2"
    ensemble: _Ensemble = "all"
    precision: Literal["float32", "tensorfloat32", "bfloat16"] = "float32"
    kernel: Annotated[int, msgspec.Meta(ge=0, le=99)] = 0  # 0: layers are dense
    pool: tuple[Literal[0, 1], ...] = ()


class Parts(NamedTuple):
    """A network, taken apart."""

    arch: Architecture
    layers: tuple[TrainedLayer, ...]
    facts: Facts


def pack(parts: Parts) -> bytes:
    """A network as the bytes of a file."""
    metadata = {"format": _FORMAT, "network": header(parts).decode()}
    tensors: dict[str, np.ndarray] = {}
    for index, trained in enumerate(parts.layers):
        tensors |= layer_tensors(trained, prefix=f"layer{index}.")
    return safetensors_numpy.save(tensors, metadata)


def header(parts: Parts) -> bytes:
    """All of a network but its tensors, as JSON."""
    arch = parts.arch
    definition = arch.goodness.definition
    module = "" if definition.is_built_in else definition.fn.__module__
    if arch.norm_gate is None:
        raise ValueError("a network alone knows whether it has a norm gate")
    return msgspec.json.encode(
        _Header(
            **msgspec.structs.asdict(parts.facts),
            module=module,
            source=goodness.source_hash(definition) or "",
            pathway=cast(_Pathway, arch.pathway),
            goodness=definition.name,
            goodness_params=dict(arch.goodness.params),
            activation=arch.activation,
            norm_gate=arch.norm_gate,
            widths=arch.widths,
            num_classes=arch.num_classes,
            label_scale=arch.label_scale,
            normalisation=cast(_Normalisation, arch.normalisation),
            ensemble=cast(_Ensemble, arch.ensemble),
            precision=arch.precision,
            kernel=arch.maps.kernel if arch.maps else 0,
            pool=cast(Any, arch.maps.pool if arch.maps else ()),
        )
    )


def unpack(content: bytes) -> Parts:
    """A network from the bytes of a file.

    Raises:
      ValueError: it is none, or its parts do not fit together.
      UserError: it needs a goodness function that is not there.
    """
    try:
        tensors = safetensors_numpy.load(content)
        metadata = _metadata(content)
        if metadata.get("format") not in (_FORMAT, _OLD_FORMAT):
            raise ValueError(f"format {shown(metadata.get('format'))}")
        found = msgspec.json.decode(metadata["network"], type=_Header)
    except (safetensors.SafetensorError, RecursionError, KeyError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from None
    is_old = metadata["format"] == _OLD_FORMAT
    arch = _architecture(found)
    facts = _facts(found, is_old=is_old)
    layers = tuple(
        layer_from_tensors(tensors, prefix=f"layer{index}.")
        for index in range(len(arch.widths))
    )
    _check_layers(arch, layers, math.prod(facts.image_shape))
    if len(tensors) != sum(len(layer_tensors(trained)) for trained in layers):
        raise ValueError("it holds more than its layers")
    return Parts(arch, layers, facts)


def _metadata(content: bytes) -> Mapping[str, str]:
    """What safetensors keeps beside the tensors; the format is checked already."""
    length = int.from_bytes(content[:8], "little")
    return json.loads(content[8 : 8 + length]).get("__metadata__") or {}


def _architecture(found: _Header) -> Architecture:
    definition = _definition(found)
    if found.activation not in layer.ACTIVATIONS:
        raise ValueError(f"activation {shown(found.activation)}")
    if found.ensemble == "later" and len(found.widths) == 1:
        raise ValueError("ensemble 'later' of a single layer")
    for name in {found.pathway, found.normalisation} & {"groups", "group"}:
        maps.check_groups(found.widths, found.num_classes, name)
    return Architecture(
        pathway=found.pathway,
        goodness=goodness.make(definition, **found.goodness_params),
        activation=found.activation,
        norm_gate=found.norm_gate,
        widths=found.widths,
        num_classes=found.num_classes,
        label_scale=found.label_scale,
        normalisation=found.normalisation,
        ensemble=found.ensemble,
        precision=cast(Precision, found.precision),
        maps=_maps(found),
    )


def _maps(found: _Header) -> maps.Maps | None:
    """The maps of convolutions; a ValueError where there can be none."""
    if not found.kernel:
        return None
    if found.kernel % 2 == 0 or found.pathway == "standard":
        raise ValueError(f"kernel {found.kernel} with pathway {found.pathway}")
    count = len(found.widths)
    return maps.make(found.image_shape, found.kernel, found.pool, count)


def _definition(found: _Header) -> goodness.Definition:
    """The goodness function that a network was trained with, if it is there."""
    name, module = found.goodness, found.module
    known = getattr(sys.modules.get(module), name, None) if module else None
    if not isinstance(known, goodness.Definition):
        known = goodness.GOODNESS.get(name)
    if known is not None and known.is_built_in and not module:
        return known
    if known is None or known.is_built_in or module not in ("", known.fn.__module__):
        where = f"of module {shown(module)}: import that" if module else ": register it"
        raise UserError(f"it needs the goodness function {shown(name)} {where} first")
    if module and found.source != (goodness.source_hash(known) or ""):
        raise UserError(
            f"it was trained with another source of {module}:{name} than the one that "
            "is imported"
        )
    return known


def _facts(found: _Header, *, is_old: bool) -> Facts:
    shape, count = found.image_shape, found.num_classes
    channels = shape[-1] if len(shape) == 3 else 1
    for name in ("mean", "std"):
        values = getattr(found, name)
        if len(values) != channels or not np.isfinite(values).all():
            raise ValueError(f"{name} is {shown(values)}, not {channels} numbers")
    if not shape:
        raise ValueError("image_shape is empty")
    classes = tuple(range(count)) if is_old else found.classes
    class_names = tuple(map(str, classes)) if is_old else found.class_names
    kinds = {"str" if isinstance(label, str) else "number" for label in classes}
    if len(set(classes)) != count or len(kinds) != 1 or len(class_names) != count:
        raise ValueError(f"classes are {shown(classes)} for {count} classes")
    scale = 255 if is_old else 1
    return Facts(
        image_shape=shape,
        mean=tuple(value / scale for value in found.mean),
        std=tuple(value / scale for value in found.std),
        classes=classes,
        class_names=class_names,
        points=found.points,
    )


def _check_layers(
    arch: Architecture, layers: Sequence[TrainedLayer], num_inputs: int
) -> None:
    """Raises a ValueError if the layers are not those of this architecture."""
    image = jax.ShapeDtypeStruct((num_inputs,), jnp.float32)
    width = jax.eval_shape(lambda x: pathway.encode(arch, x), image).shape[-1]
    for index, trained in enumerate(layers):
        fresh = jax.eval_shape(
            lambda key, index=index, width=width: init_layer(
                arch, index, key, width, Training()
            ),
            jax.random.key(0),
        )
        expected = _shapes(fresh.params, fresh.goodness_state)
        found = _shapes(trained.params, trained.goodness_state)
        if expected != found:
            raise ValueError(f"layer {index + 1} has {found}, not {expected}")
        numbers = jax.tree.leaves((trained.params, trained.goodness_state))
        if trained.losses.ndim != 1 or not len(trained.losses):
            raise ValueError(f"layer {index + 1} has no losses")
        if not all(np.isfinite(leaf).all() for leaf in (*numbers, trained.losses)):
            raise ValueError(f"layer {index + 1} holds numbers that are not finite")
        if index + 1 < len(layers):
            width = arch.row_size(index + 1)


def _shapes(params: pathway.Params, state: goodness.State) -> dict[str, str]:
    """The shape and type of each array of a layer."""
    return {
        name: f"{leaf.dtype}{list(leaf.shape)}"
        for name, leaf in sorted({**params, **_named_state(state)}.items())
    }


_STATE = "goodness_state"


def _named_state(state: goodness.State) -> dict[str, Any]:
    """The arrays of a state by name: a number after it where there are several."""
    if not isinstance(state, tuple):
        return {_STATE: state}
    return {f"{_STATE}.{index}": part for index, part in enumerate(state)}


def _take_state(values: dict[str, np.ndarray]) -> goodness.State:
    """The inverse of ``_named_state``; takes the arrays out of the values."""
    if _STATE in values:
        return values.pop(_STATE)
    parts = []
    while (name := f"{_STATE}.{len(parts)}") in values:
        parts.append(values.pop(name))
    return tuple(parts)


def layer_tensors(trained: TrainedLayer, prefix: str = "") -> dict[str, np.ndarray]:
    """A trained layer as named arrays, for a file."""
    arrays = {**trained.params, **_named_state(trained.goodness_state)}
    tensors = {f"{prefix}{name}": np.asarray(value) for name, value in arrays.items()}
    tensors[f"{prefix}losses"] = trained.losses
    return tensors


def layer_from_tensors(
    tensors: Mapping[str, np.ndarray], prefix: str = ""
) -> TrainedLayer:
    """The inverse of ``layer_tensors``."""
    values = {
        name.removeprefix(prefix): array
        for name, array in tensors.items()
        if name.startswith(prefix)
    }
    if "losses" not in values:
        raise ValueError(f"it has no tensor {prefix}losses")
    losses = values.pop("losses")
    state = _take_state(values)
    return TrainedLayer(values, state, losses)
