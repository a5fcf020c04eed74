"""The Python interface: ``ffjax.fit`` on arrays, ``Network`` and ``ffjax.load``."""

import dataclasses
import difflib
import inspect
import json
import math
import os
import pathlib
import textwrap
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import safetensors
from safetensors import numpy as safetensors_numpy

from ffjax import atomic, data, goodness
from ffjax.config import build, goodness_params
from ffjax.config import spec as spec_lib
from ffjax.config.spec import RunSpec
from ffjax.errors import UserError
from ffjax.model import evaluate, pathway
from ffjax.training import machine
from ffjax.training.networks import Member, OnEpochs, train_networks
from ffjax.training.optimizer import Training
from ffjax.training.program import TrainedLayer, init_layer

_FORMAT = "ffjax-network-1"


@dataclasses.dataclass(frozen=True)
class Network:
    """A trained network, with the normalisation of its training images.

    Attributes:
      arch: its architecture.
      layers: its trained layers.
      image_shape: the shape of one image.
      mean: per channel, of the training images.
      std: per channel, of the training images.
    """

    arch: pathway.Architecture
    layers: tuple[TrainedLayer, ...]
    image_shape: tuple[int, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def scores(self, images: np.ndarray) -> np.ndarray:
        """Total goodness of each image (N, ...) under each label, (N, C)."""
        images = _check_images("images", images)
        if images.shape[1:] != self.image_shape:
            raise UserError(
                f"images: each has shape {images.shape[1:]}, but the network was "
                f"trained on {self.image_shape}"
            )
        flat = data.normalise(images, self.mean, self.std)
        scores = evaluate.score_images(
            self.arch,
            [layer.params for layer in self.layers],
            [layer.goodness_state for layer in self.layers],
            jnp.asarray(flat),
        )
        return evaluate.ENSEMBLES[self.arch.ensemble](np.asarray(scores))

    def predict(self, images: np.ndarray) -> np.ndarray:
        """The label of highest total goodness for each image, (N,)."""
        return np.argmax(self.scores(images), axis=-1)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the network to one safetensors file, whole or not at all."""
        header = {
            "pathway": self.arch.pathway,
            "goodness": self.arch.goodness.definition.name,
            "goodness_params": dict(self.arch.goodness.params),
            "activation": self.arch.activation,
            "norm_gate": self.arch.norm_gate,
            "widths": self.arch.widths,
            "num_classes": self.arch.num_classes,
            "label_scale": self.arch.label_scale,
            "normalisation": self.arch.normalisation,
            "ensemble": self.arch.ensemble,
            "precision": self.arch.precision,
            "image_shape": self.image_shape,
            "mean": self.mean,
            "std": self.std,
        }
        metadata = {"format": _FORMAT, "network": json.dumps(header)}
        tensors = {}
        for index, layer in enumerate(self.layers):
            tensors.update(layer_tensors(layer, prefix=f"layer{index}."))
        content = safetensors_numpy.save(tensors, metadata)
        atomic.write_bytes(pathlib.Path(path), content)


# Fields for which arrays of one's own call for other values than the paper's grid.
_FIT_DEFAULTS: dict[str, Any] = {
    "num_layers": 2,
    "width": 500,
    "epochs": 20,
    "batch_size": None,
}


def fit(
    images: np.ndarray,
    labels: np.ndarray,
    *,
    num_classes: int | None = None,
    seed: int = 42,
    on_epochs: OnEpochs | None = None,
    **fields: Any,
) -> Network:
    """Trains a network on your own arrays.

    Args:
          images: (N, ...) of any numeric type; the last axis is taken as colour if there
            are four axes. They are normalised to zero mean and unit variance per channel.
          labels: (N,) integers from 0.
          num_classes: C; the largest label + 1 if not given.
          seed: of the initial weights, the shuffling and the wrong labels.
          on_epochs: called with (layer, its losses so far) as training goes on.
          **fields: of a run, as on the command line:
    FIELDS

    Returns:
          The trained network.
    """
    images = _check_images("images", images)
    labels = _check_labels(labels, len(images), num_classes)
    classes = int(labels.max()) + 1 if num_classes is None else num_classes
    if classes < 2:
        raise UserError("labels: all are 0; at least 2 classes are needed")
    spec = _make_spec(fields, len(images))
    check_batch_size(spec.batch_size, len(images))
    spec_lib.SEED.check("seed", seed)
    # The values decide the order, so that equal images give equal networks.
    images, labels = data.in_order(images, labels)
    mean, std = data.statistics(images)
    arch = build.architecture(spec, classes)
    build.check_goodness(arch)
    member = Member(jax.random.key(seed), build.training(spec), spec.norm_gate)
    (layers,) = train_networks(
        arch,
        [member],
        data.normalise(images, mean, std),
        labels,
        machine.here(num_devices=1),
        on_epochs=on_epochs,
    )
    if layers[-1].is_diverged:
        raise FloatingPointError(
            f"training diverged in layer {len(layers)}, epoch "
            f"{len(layers[-1].losses)}: try a smaller learning_rate"
        )
    return Network(arch, tuple(layers), images.shape[1:], mean, std)


def _fit_fields() -> dict[str, Any]:
    """The fields of a run that ``fit`` takes, with its defaults."""
    return {
        name: _FIT_DEFAULTS.get(name, spec_lib.DEFAULTS[name])
        for name, about in spec_lib.ABOUT.items()
        if about.in_fit and about.role != "way"
    }


def _make_spec(given: Mapping[str, Any], num_images: int) -> RunSpec:
    """The run that the arguments of ``fit`` describe."""
    known = _fit_fields()
    for name in given:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            raise UserError(
                f"fit has no argument {name!r}; {hint}known are {', '.join(known)}"
            )
    fields = {**known, **given}
    if fields["batch_size"] is None:
        fields["batch_size"] = min(spec_lib.DEFAULTS["batch_size"], num_images)
    params = fields["goodness_params"]
    if isinstance(params, Mapping):
        fields["goodness_params"] = goodness_params.render(params)
    spec = spec_lib.make_spec(**fields)
    spec_lib.check_used(spec, given)
    return spec


def _document_fit() -> None:
    """Completes the help of ``fit`` and its signature with the fields of a run."""
    lines = spec_lib.describe_fields(_fit_fields()).splitlines()
    text = textwrap.indent("\n".join(lines), " " * 8)
    fit.__doc__ = (fit.__doc__ or "").replace("FIELDS", text)
    plain = inspect.signature(fit)
    keywords = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)
        for name, default in _fit_fields().items()
    ]
    fixed = [p for p in plain.parameters.values() if p.kind != p.VAR_KEYWORD]
    signature = plain.replace(parameters=[*fixed, *keywords])
    fit.__signature__ = signature  # type: ignore[attr-defined]


_document_fit()


def load(path: str | os.PathLike[str]) -> Network:
    """Reads a network that ``Network.save`` wrote; it predicts bit for bit as before.

    A network with a goodness function of your own needs its module to be imported
    first: reading a file never imports code.
    """
    problem = f"{os.fspath(path)}: not a network saved by ffjax"
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != _FORMAT:
                raise UserError(f"{problem} (format {metadata.get('format')!r})")
            header = json.loads(metadata["network"])
            if ":" in header["goodness"]:
                raise UserError(f"{problem} (goodness {header['goodness']!r})")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        arch = pathway.Architecture(
            pathway=header["pathway"],
            goodness=goodness.make(header["goodness"], **header["goodness_params"]),
            activation=header["activation"],
            norm_gate=header["norm_gate"],
            widths=tuple(header["widths"]),
            num_classes=header["num_classes"],
            label_scale=header["label_scale"],
            # Older files are from before these.
            normalisation=header.get("normalisation", "l2"),
            ensemble=header.get("ensemble", "all"),
            precision=header.get("precision", "float32"),
        )
        if arch.ensemble not in evaluate.ENSEMBLES:
            raise ValueError(f"ensemble {arch.ensemble!r}")
        layers = tuple(
            layer_from_tensors(tensors, prefix=f"layer{index}.")
            for index in range(len(arch.widths))
        )
        image_shape = tuple(header["image_shape"])
        _check_layers(arch, layers, tensors, math.prod(image_shape))
        return Network(
            arch, layers, image_shape, tuple(header["mean"]), tuple(header["std"])
        )
    except UserError:
        raise
    except OSError as error:
        raise UserError(f"{os.fspath(path)}: cannot read it ({error})") from None
    except (safetensors.SafetensorError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{problem} ({error})") from None


def _check_layers(arch, layers, tensors, num_inputs: int) -> None:
    """Raises a ValueError if the layers are not those of this architecture."""
    image = jax.ShapeDtypeStruct((num_inputs,), jnp.float32)
    width = jax.eval_shape(lambda x: pathway.encode(arch, x), image).shape[-1]
    for index, layer in enumerate(layers):
        fresh = jax.eval_shape(
            lambda key, index=index, width=width: (
                init_layer(arch, index, key, width, Training()).params
            ),
            jax.random.key(0),
        )
        shapes = {name: leaf.shape for name, leaf in fresh.items()}
        found = {name: leaf.shape for name, leaf in layer.params.items()}
        if shapes != found:
            raise ValueError(f"layer {index + 1} has {found}, not {shapes}")
        width = arch.widths[index]
    if any(not name.startswith("layer") for name in tensors) or len(tensors) != sum(
        len(layer_tensors(layer)) for layer in layers
    ):
        raise ValueError("it holds more than its layers")


def layer_tensors(layer: TrainedLayer, prefix: str = "") -> dict[str, np.ndarray]:
    """A trained layer as named arrays, for a file."""
    tensors = {f"{prefix}{name}": np.asarray(v) for name, v in layer.params.items()}
    tensors[f"{prefix}losses"] = layer.losses
    if not isinstance(layer.goodness_state, tuple):
        tensors[f"{prefix}goodness_state"] = np.asarray(layer.goodness_state)
    return tensors


def layer_from_tensors(tensors: dict[str, Any], prefix: str = "") -> TrainedLayer:
    """The inverse of ``layer_tensors``."""
    values = {
        name.removeprefix(prefix): array
        for name, array in tensors.items()
        if name.startswith(prefix)
    }
    losses = values.pop("losses")
    state = values.pop("goodness_state", None)
    goodness_params = {name: jnp.asarray(array) for name, array in values.items()}
    return TrainedLayer(
        goodness_params, () if state is None else jnp.asarray(state), losses
    )


def check_batch_size(batch_size: int, train_size: int) -> None:
    """Raises a UserError if a batch would be larger than the training set."""
    if batch_size > train_size:
        raise UserError(
            f"batch_size={batch_size}: must not be larger than the training set "
            f"({train_size} images)"
        )


def _check_images(name: str, images: np.ndarray) -> np.ndarray:
    images = np.asarray(images)
    if images.ndim < 2 or len(images) == 0:
        raise UserError(f"{name}: shape {images.shape}; must be (N, ...) with N >= 1")
    if images.dtype.kind not in "biuf":
        raise UserError(f"{name}: type {images.dtype}; must be numbers")
    if not np.isfinite(images).all():
        raise UserError(f"{name}: holds NaN or infinite values; must be finite")
    return images


def _check_labels(
    labels: np.ndarray, count: int, num_classes: int | None
) -> np.ndarray:
    labels = np.asarray(labels)
    if labels.shape != (count,):
        raise UserError(
            f"labels: shape {labels.shape} for {count} images; must be ({count},)"
        )
    if labels.dtype.kind not in "iu":
        raise UserError(f"labels: type {labels.dtype}; must be integers")
    if num_classes is not None and (type(num_classes) is not int or num_classes < 2):
        raise UserError(f"num_classes={num_classes!r}: must be an integer >= 2")
    highest = int(labels.max()) if num_classes is None else num_classes - 1
    if labels.min() < 0 or labels.max() > highest:
        raise UserError(
            f"labels: from {labels.min()} to {labels.max()}; must lie in 0..{highest}"
        )
    return labels
