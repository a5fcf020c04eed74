"""The Python interface: ``ffjax.fit`` on arrays, ``Network`` and ``ffjax.load``."""

import dataclasses
import json
import math
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import safetensors
from safetensors import numpy as safetensors_numpy

from ffjax import config, atomic, goodness
from ffjax.model import evaluate, pathway
from ffjax.config import goodness_params
from ffjax.training import program
from ffjax.errors import UserError

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
    layers: tuple[program.TrainedLayer, ...]
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
        flat = _normalise(images, self.mean, self.std)
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


def fit(
    images: np.ndarray,
    labels: np.ndarray,
    *,
    goodness: str = "burstiness",
    pathway: str = "ffcl",
    activation: str = "gelu",
    norm_gate: bool = False,
    k_fraction: float | None = None,
    alpha: float | None = None,
    p: int | None = None,
    goodness_params: Mapping[str, float] | None = None,
    num_layers: int = 2,
    width: int = 500,
    epochs: int = 20,
    batch_size: int | None = None,
    learning_rate: float = 1e-3,
    threshold: float = 2.0,
    negatives: str = "random",
    loss: str = "softplus",
    loss_scale: float = 1.0,
    schedule: str = "constant",
    weight_decay: float = 0.0,
    dropout: float = 0.0,
    label_scale: float = 5.0,
    normalisation: str = "l2",
    peer_normalisation: float = 0.0,
    ensemble: str = "all",
    num_classes: int | None = None,
    seed: int = 42,
    on_epochs: program.OnEpochs | None = None,
) -> Network:
    """Trains a network on your own arrays.

    Args:
      images: (N, ...) of any numeric type; the last axis is taken as colour if there
        are four axes. They are normalised to zero mean and unit variance per channel.
      labels: (N,) integers from 0.
      goodness: a name in ``ffjax.goodness.GOODNESS``, or "module:function".
      pathway: "ffcl" or "standard".
      activation: relu, gelu, swish, ln_gelu or ln_swish.
      norm_gate: whether to gate activations by their norm.
      k_fraction: of topk, contrast_topk and ln_topk; None: the paper's.
      alpha: of entmax; None: the paper's.
      p: of moment; None: the paper's.
      goodness_params: other parameters of the goodness function, by name.
      num_layers: how many layers.
      width: units of each layer.
      epochs: of each layer.
      batch_size: examples a step; 500, or all of them if there are fewer.
      learning_rate: of Adam.
      threshold: tau of the loss.
      negatives: which wrong labels a step sees: random, hard or all.
      loss: softplus, symba, or softmax over all labels.
      loss_scale: by which the loss multiplies goodness and threshold.
      schedule: of the learning rate: constant, cosine or half_linear.
      weight_decay: of AdamW, for weights but not for biases.
      dropout: share of a layer's inputs that each step leaves out.
      label_scale: of the label in the input of the standard pathway.
      normalisation: of the layers' inputs: l2 (length 1) or rms.
      peer_normalisation: weight of the penalty on unequally active units.
      ensemble: which goodness is summed: "all", or that of "later" layers alone.
      num_classes: C; the largest label + 1 if not given.
      seed: of the initial weights, the shuffling and the wrong labels.
      on_epochs: called with (layer, its losses so far) as training goes on.

    Returns:
      The trained network.
    """
    images = _check_images("images", images)
    labels = _check_labels(labels, len(images), num_classes)
    classes = int(labels.max()) + 1 if num_classes is None else num_classes
    if classes < 2:
        raise UserError("labels: all are 0; at least 2 classes are needed")
    spec = config.make_spec(
        goodness=goodness,
        pathway=pathway,
        activation=activation,
        norm_gate=norm_gate,
        k_fraction=k_fraction,
        alpha=alpha,
        p=p,
        goodness_params=goodness_params.render(goodness_params or {}),
        num_layers=num_layers,
        width=width,
        epochs=epochs,
        batch_size=min(500, len(images)) if batch_size is None else batch_size,
        learning_rate=learning_rate,
        threshold=threshold,
        negatives=negatives,
        loss=loss,
        loss_scale=loss_scale,
        schedule=schedule,
        weight_decay=weight_decay,
        dropout=dropout,
        label_scale=label_scale,
        normalisation=normalisation,
        peer_normalisation=peer_normalisation,
        ensemble=ensemble,
    )
    check_batch_size(spec.batch_size, len(images))
    config.check_seed(seed)
    mean, std = _statistics(images)
    arch = spec.architecture(classes)
    layers = program.train_network(
        arch,
        jax.random.key(seed),
        _normalise(images, mean, std),
        labels,
        **spec.training(),
        on_epochs=on_epochs,
    )
    if layers[-1].is_diverged:
        raise FloatingPointError(
            f"training diverged in layer {len(layers)}, epoch "
            f"{len(layers[-1].losses)}: try a smaller learning_rate"
        )
    return Network(arch, tuple(layers), images.shape[1:], mean, std)


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
            # Older files are from before these two.
            normalisation=header.get("normalisation", "l2"),
            ensemble=header.get("ensemble", "all"),
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
                program.init_layer(arch, index, key, width).params
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


def layer_tensors(layer: program.TrainedLayer, prefix: str = "") -> dict[str, np.ndarray]:
    """A trained layer as named arrays, for a file."""
    tensors = {f"{prefix}{name}": np.asarray(v) for name, v in layer.params.items()}
    tensors[f"{prefix}losses"] = layer.losses
    if not isinstance(layer.goodness_state, tuple):
        tensors[f"{prefix}goodness_state"] = np.asarray(layer.goodness_state)
    return tensors


def layer_from_tensors(tensors: dict[str, Any], prefix: str = "") -> program.TrainedLayer:
    """The inverse of ``layer_tensors``."""
    values = {
        name.removeprefix(prefix): array
        for name, array in tensors.items()
        if name.startswith(prefix)
    }
    losses = values.pop("losses")
    state = values.pop("goodness_state", None)
    goodness_params = {name: jnp.asarray(array) for name, array in values.items()}
    return program.TrainedLayer(
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


def _statistics(images: np.ndarray) -> tuple[tuple[float, ...], tuple[float, ...]]:
    axes = (0, 1, 2) if images.ndim == 4 else None
    mean = np.atleast_1d(np.mean(images, axis=axes, dtype=np.float64))
    std = np.atleast_1d(np.std(images, axis=axes, dtype=np.float64))
    return tuple(mean.tolist()), tuple(np.where(std > 0, std, 1.0).tolist())


def _normalise(
    images: np.ndarray, mean: tuple[float, ...], std: tuple[float, ...]
) -> np.ndarray:
    """(N, ...) -> (N, D) float32 with the given statistics per channel."""
    scaled = (images.astype(np.float32) - np.asarray(mean, np.float32)) / np.asarray(
        std, np.float32
    )
    return scaled.reshape(len(images), -1)
