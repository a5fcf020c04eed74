"""How an image and a candidate label reach the layers of a network.

Shapes: N examples, B of them in a batch, D inputs, C classes, K candidate labels.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ffjax.goodness import Goodness, State
from ffjax.model import normalise, product
from ffjax.model.layer import LabelSite, Layer

Params = Any


@dataclasses.dataclass(frozen=True)
class Pathway:
    """Where the label enters.

    Attributes:
      first_site: its site in the first layer.
      later_site: its site in every other layer.
      carries_label: whether what a layer passes on depends on the candidate label.
    """

    first_site: LabelSite
    later_site: LabelSite
    carries_label: bool


PATHWAYS = {
    # The label is part of the input alone (paper, eq. 1).
    "standard": Pathway("input", "none", carries_label=True),
    # Every layer measures its label-free features shifted by the label (paper, eq. 7).
    "ffcl": Pathway("output", "output", carries_label=False),
}


def _rms_normalise(x: jax.Array) -> jax.Array:
    return math.sqrt(x.shape[-1]) * normalise.l2_normalise(x)


# What hides a layer's goodness from the next one: its length becomes fixed.
NORMALISATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "l2": normalise.l2_normalise,  # to 1, as in the paper
    "rms": _rms_normalise,  # to the root of the width, as Hinton has it
}


@dataclasses.dataclass(frozen=True)
class Architecture:
    """All that is fixed about a network before it is trained; hashable, for jit.

    Attributes:
      pathway: a name in PATHWAYS.
      goodness: what layers are trained and labels are judged by.
      activation: a name in ``layer.ACTIVATIONS``.
      norm_gate: whether activations are gated by their norm; None: see ``Layer``.
      widths: units of each layer.
      num_classes: C.
      label_scale: of the label in the input.
      normalisation: a name in NORMALISATIONS.
      ensemble: a name in ``evaluate.ENSEMBLES``.
      precision: of the operands of matrix products.
    """

    pathway: str
    goodness: Goodness
    activation: str
    norm_gate: bool | None
    widths: tuple[int, ...]
    num_classes: int
    label_scale: float
    normalisation: str = "l2"
    ensemble: str = "all"
    precision: product.Precision = "float32"

    def normalise(self, x: jax.Array) -> jax.Array:
        """What is done to the inputs of every layer, in the type of its products."""
        normal = NORMALISATIONS[self.normalisation](x)
        return normal.astype(product.storage_type(self.precision))

    def layer(self, index: int) -> Layer:
        """The linen module of one layer."""
        pathway = PATHWAYS[self.pathway]
        return Layer(
            width=self.widths[index],
            activation=self.activation,
            norm_gate=self.norm_gate,
            label_site=pathway.first_site if index == 0 else pathway.later_site,
            num_classes=self.num_classes,
            precision=self.precision,
        )

    @property
    def carries_label(self) -> bool:
        """Whether the inputs of the layers above the first depend on the label."""
        return PATHWAYS[self.pathway].carries_label


def as_program(arch: Architecture, index: int) -> tuple[Architecture, int]:
    """A network and index that stand for all layers that run the same programs.

    Above the first layer only the width tells them apart, so a deep network compiles
    no more programs than one of two layers.
    """
    width = arch.widths[index]
    if index == 0:
        return dataclasses.replace(arch, widths=(width,), ensemble="all"), 0
    return dataclasses.replace(arch, widths=(width, width), ensemble="all"), 1


def encode(arch: Architecture, images: jax.Array) -> jax.Array:
    """Images (N, D) -> the first layer's inputs, of fixed length.

    ffcl: x / ||x||. standard: [x ; s] / ||[x ; s]||, because [x ; s onehot(c)] has the
    same norm for every label c; the layer reads the last entry as the label's
    amplitude.
    """
    if arch.carries_label:
        scale = jnp.full((*images.shape[:-1], 1), arch.label_scale, images.dtype)
        images = jnp.concatenate([images, scale], axis=-1)
    return arch.normalise(images)


def run_layer(
    arch: Architecture,
    index: int,
    params: Params,
    x: jax.Array,
    labels: jax.Array,
    gate_on: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array]:
    """One layer under candidate labels.

    Args:
      arch: the network.
      index: which layer.
      params: that layer's parameters.
      x: inputs (..., D), or (K, ..., D) where they depend on the label already.
      labels: candidate labels (...), or (K, ...) for K of them.
      gate_on: see ``Layer``.

    Returns:
      What goes on to the next layer, and what goodness is measured on: (..., W), or
      (K, ..., W) where it depends on the label.
    """
    outputs: Any = arch.layer(index).apply({"params": params}, x, labels, gate_on)
    return outputs


def score(
    arch: Architecture,
    index: int,
    params: Params,
    goodness_state: State,
    x: jax.Array,
    labels: jax.Array,
    gate_on: jax.Array | None = None,
    positive: np.ndarray | None = None,
) -> tuple[jax.Array, jax.Array]:
    """One layer's goodness under candidate labels, (K, B), and what it was measured on.

    The latter is (K, B, W), or (1, B, W) for the first label alone: where labels are
    many and only shift the features, a goodness function may have a faster way than
    through K copies of the features.

    Args:
      arch: the network.
      index: which layer.
      params: that layer's parameters.
      goodness_state: the goodness function's state.
      x: inputs (B, D), or (K, B, D) where they depend on the label already.
      labels: candidate labels (K, B).
      gate_on: see ``Layer``.
      positive: in a step of training, (K, B), which of them are the true ones; without
        it, each is judged as in evaluation.
    """
    shifted = arch.goodness.shifted
    is_shift = arch.layer(index).label_site == "output"
    if shifted is None or not is_shift or len(labels) <= _FEW:
        _, measured = run_layer(arch, index, params, x, labels, gate_on)
        if positive is None:
            return arch.goodness(measured, goodness_state), measured
        scores = arch.goodness.in_training(measured, goodness_state, positive)
        return scores, measured
    features, measured = run_layer(arch, index, params, x, labels[0], gate_on)
    scores = shifted(features, params["label_kernel"])
    return jnp.take_along_axis(scores.T, labels, axis=0), measured[None]


_FEW = 2  # labels, as in the paper's training: the plain way takes less time


def propagate(
    arch: Architecture,
    lower: Sequence[Params],
    x: jax.Array,
    labels: jax.Array,
    gate_on: jax.Array | None = None,
) -> jax.Array:
    """The inputs of layer len(lower): encoded images through the layers below it.

    They are constants to that layer: no gradient goes down through here.
    """
    for index, params in enumerate(lower):
        features, _ = run_layer(arch, index, params, x, labels, gate_on)
        x = jax.lax.stop_gradient(arch.normalise(features))
    return x


def label_free_features(
    arch: Architecture,
    params: Sequence[Params],
    x: jax.Array,
    gate_on: jax.Array | None = None,
) -> list[jax.Array]:
    """What each layer passes on, where that does not depend on the label."""
    features = []
    for index, weights in enumerate(params):
        # Any label will do; what it adds is not used, and so not computed.
        no_label = jnp.zeros(x.shape[:-1], jnp.int32)
        h, _ = run_layer(arch, index, weights, x, no_label, gate_on)
        features.append(h)
        x = arch.normalise(h)
    return features


def add_label(params: Params, features: jax.Array, label: jax.Array) -> jax.Array:
    """What goodness is measured on in a layer of ffcl (paper, eq. 7)."""
    return features + params["label_kernel"][label]


def advance(
    arch: Architecture,
    index: int,
    params: Params,
    inputs: jax.Array,
    gate_on: jax.Array | None = None,
) -> jax.Array:
    """All inputs of layer ``index + 1`` from those of layer ``index``, in chunks.

    Args:
      arch: the network.
      index: the layer to run.
      params: its parameters.
      inputs: (N, D), or (N, C, D): under each label.
      gate_on: see ``Layer``.

    Returns:
      (N, W), or (N, C, W) where they depend on the label.
    """
    labels = jnp.arange(arch.num_classes)

    def one_example(x):
        # One label is enough where the features do not depend on it.
        candidates = labels if arch.carries_label else labels[:1]
        features, _ = run_layer(arch, index, params, x, candidates, gate_on)
        return arch.normalise(features)

    return jax.lax.map(one_example, inputs, batch_size=chunk_size(arch))


def chunk_size(arch: Architecture) -> int:
    """How many examples at a time: some 4 million activations, all labels together."""
    return max(1, 2**22 // (arch.num_classes * max(arch.widths)))


def stored_bytes(arch: Architecture, index: int, num_examples: int) -> int:
    """The bytes of layer ``index``'s inputs for the whole training set."""
    copies = arch.num_classes if arch.carries_label else 1
    size = product.storage_type(arch.precision).itemsize
    return size * num_examples * copies * arch.widths[index - 1]


def input_width(arch: Architecture, lower: Sequence[Params], inputs: jax.Array) -> int:
    """The width of the inputs that a layer above ``lower`` sees."""
    return arch.widths[len(lower) - 1] if lower else inputs.shape[-1]
