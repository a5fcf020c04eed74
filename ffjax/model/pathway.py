"""How an image and a candidate label reach the layers of a network.

Shapes: N examples, B of them in a batch, D inputs, C classes, K candidate labels. The
inputs of a layer are rows (..., D), those of a convolution too; what it makes of them
is (..., W), or (..., P, W) with the P positions of its map.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from ffjax.goodness import Goodness, State
from ffjax.model import convolve, normalise, product
from ffjax.model.layer import LabelSite, Layer
from ffjax.model.maps import Maps

Params = Any


@dataclasses.dataclass(frozen=True)
class Pathway:
    """Where the label enters.

    Attributes:
      first_site: its site in the first layer.
      later_site: its site in every other layer.
      carries_label: whether what a layer passes on depends on the candidate label.
      by_group: whether units stand in C groups, and the goodness of group c is the
        score of label c, instead of that of all units under a candidate label.
    """

    first_site: LabelSite
    later_site: LabelSite
    carries_label: bool
    by_group: bool = False


PATHWAYS = {
    # The label is part of the input alone (paper, eq. 1).
    "standard": Pathway("input", "none", carries_label=True),
    # Every layer measures its label-free features shifted by the label (paper, eq. 7).
    "ffcl": Pathway("output", "output", carries_label=False),
    # No label enters. DeeperForward, and CwComp before it, train convolutions so.
    "groups": Pathway("none", "none", carries_label=False, by_group=True),
}


def _rms_normalise(x: jax.Array) -> jax.Array:
    return math.sqrt(x.shape[-1]) * normalise.l2_normalise(x)


# What hides a layer's goodness from the next one: its length becomes fixed. Of a map it
# is that of all positions together.
NORMALISATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "l2": normalise.l2_normalise,  # to 1, as in the paper
    "rms": _rms_normalise,  # to the root of the width, as Hinton has it
    "layer": normalise.layer_norm,  # mean 0 and variance 1
    # The same of the units of each class alone; an image has none, and is taken whole.
    "group": normalise.layer_norm,
    # And then each channel over the training set, by the layer that reads it.
    "channel": normalise.layer_norm,
}


@dataclasses.dataclass(frozen=True)
class Architecture:
    """All that is fixed about a network before it is trained; hashable, for jit.

    Attributes:
      pathway: a name in PATHWAYS.
      goodness: what layers are trained and labels are judged by.
      activation: a name in ``layer.ACTIVATIONS``.
      norm_gate: whether activations are gated by their norm; None: see ``Layer``.
      widths: units of each layer, or channels where layers are convolutions.
      num_classes: C.
      label_scale: of the label in the input.
      normalisation: a name in NORMALISATIONS.
      ensemble: a name in ``evaluate.ENSEMBLES``.
      precision: of the operands of matrix products.
      maps: the shapes of convolutions; None: layers are dense.
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
    maps: Maps | None = None

    def normalise(self, x: jax.Array, channels: int = 0) -> jax.Array:
        """What is done to the inputs of every layer, in the type of its products.

        Args:
          x: rows (..., D).
          channels: of the layer that made them; 0 for images.
        """
        if self.normalisation == "group" and channels:
            normal = normalise.group_norm(x, self.num_classes, channels)
        else:
            normal = NORMALISATIONS[self.normalisation](x)
        return normal.astype(product.storage_type(self.precision))

    def pass_on(self, index: int, features: jax.Array) -> jax.Array:
        """The inputs of the layer above ``index``: pooled, as rows, normalised."""
        if self.maps is not None:
            factor = 1 + self.maps.pool[index]
            shape = self.maps.makes(self.widths, index)
            features = convolve.pool(features, shape, factor)
            features = features.reshape(*features.shape[:-2], -1)
        return self.normalise(features, self.widths[index])

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
            standardise=self.standardises,
            **self._convolution(index),
        )

    def _convolution(self, index: int) -> dict[str, Any]:
        if self.maps is None:
            return {}
        reads = self.maps.reads(self.widths, index)
        return {"reads": reads, "kernel": self.maps.kernel}

    @property
    def standardises(self) -> bool:
        """Whether layers know the mean and the scale of their inputs' channels."""
        return self.normalisation == "channel"

    @property
    def carries_label(self) -> bool:
        """Whether the inputs of the layers above the first depend on the label."""
        return PATHWAYS[self.pathway].carries_label

    @property
    def by_group(self) -> bool:
        """Whether the score of a label is the goodness of a group of units."""
        return PATHWAYS[self.pathway].by_group

    def step_size(self, index: int) -> int:
        """About how many numbers a convolution makes of an example."""
        assert self.maps is not None
        positions = self.maps.makes(self.widths, index).positions
        is_many = not self.by_group and self.goodness.shifted is None
        copies = self.num_classes if is_many else 1
        fan_in = self.maps.fan_in(self.widths, index)
        return positions * (fan_in + copies * self.widths[index])

    def measured_width(self, index: int) -> int:
        """Over how many units the goodness of layer ``index`` is measured."""
        if not self.by_group:
            return self.widths[index]
        positions = 1
        if self.maps is not None:
            positions = self.maps.makes(self.widths, index).positions
        return positions * self.widths[index] // self.num_classes

    def row_size(self, index: int) -> int:
        """How many values an input of layer ``index`` > 0 has."""
        if self.maps is None:
            return self.widths[index - 1]
        return self.maps.reads(self.widths, index).size


def as_program(arch: Architecture, index: int) -> tuple[Architecture, int]:
    """A network and index that stand for all layers that run the same programs.

    Above the first layer only the width tells them apart, so a deep network compiles
    no more programs than one of two layers. Convolutions differ in the maps that they
    read, too.
    """
    width = arch.widths[index]
    if arch.maps is not None:
        reads, pool = arch.maps.reads(arch.widths, index), arch.maps.pool[index]
        below = ((), ()) if index == 0 else ((reads.channels,), (0,))
        maps = Maps(reads, arch.maps.kernel, (*below[1], pool))
        arch = dataclasses.replace(
            arch, widths=(*below[0], width), maps=maps, ensemble="all"
        )
        return arch, min(index, 1)
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
      What goes on to the next layer once it is passed on, and what goodness is measured
      on: (..., W), or (K, ..., W) where it depends on the label.
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
    positive: ArrayLike | None = None,
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
      positive: ``positives`` in a step of training; without it, each label is judged
        as in evaluation.
    """
    if arch.by_group:
        features, _ = run_layer(arch, index, params, x, labels[0], gate_on)
        measured = arrange(arch, features)[None]
        if positive is None:
            scores = arch.goodness(measured, goodness_state)
        else:
            scores = arch.goodness.in_training(measured, goodness_state, positive)
        return jnp.take_along_axis(scores[0].T, labels, axis=0), measured
    shifted = arch.goodness.shifted
    is_shift = arch.layer(index).label_site == "output"
    if shifted is None or not is_shift or len(labels) <= _FEW:
        _, measured = run_layer(arch, index, params, x, labels, gate_on)
        if positive is None:
            return measure(arch, measured, goodness_state), measured
        values = arch.goodness.in_training(measured, goodness_state, positive)
        return _over_positions(arch, values), measured
    features, measured = run_layer(arch, index, params, x, labels[0], gate_on)
    scores = shifted(features, params["label_kernel"])
    if arch.maps is not None:
        scores = jnp.mean(scores, axis=-2)
    return jnp.take_along_axis(scores.T, labels, axis=0), measured[None]


_FEW = 2  # labels, as in the paper's training: the plain way takes less time


def arrange(arch: Architecture, h: jax.Array) -> jax.Array:
    """What goodness is measured on: the units of a layer, or a row for each group."""
    if not arch.by_group:
        return h
    has_positions = arch.maps is not None
    return convolve.groups(h, arch.num_classes, has_positions=has_positions)


def measure(arch: Architecture, measured: jax.Array, state: State) -> jax.Array:
    """Goodness: of each group, or of all units; of a map, the mean over positions."""
    return _over_positions(arch, arch.goodness(measured, state))


def _over_positions(arch: Architecture, values: jax.Array) -> jax.Array:
    if arch.maps is None or arch.by_group:
        return values
    return jnp.mean(values, axis=-1)


def positives(arch: Architecture, labels: jax.Array) -> ArrayLike:
    """What of a training step has its true label, as goodness is measured on it.

    Args:
      arch: the network.
      labels: (1 + K, B): the true labels and wrong ones.

    Returns:
      (1 + K, B); (1 + K, B, 1) of maps; (1, B, C) of groups.
    """
    if arch.by_group:
        return labels[:1, :, None] == jnp.arange(arch.num_classes)[None, None]
    positive = np.zeros(labels.shape, bool)
    positive[0] = True
    return positive if arch.maps is None else positive[..., None]


def same_size(arch: Architecture, features: Sequence[jax.Array]) -> list[jax.Array]:
    """The maps of all layers, averaged down to the smallest; dense ones as they are."""
    if arch.maps is None:
        return list(features)
    shapes = [arch.maps.makes(arch.widths, index) for index in range(len(features))]
    least = shapes[-1].height
    return [
        convolve.pool(h, shape, shape.height // least)
        for h, shape in zip(features, shapes, strict=True)
    ]


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
        x = jax.lax.stop_gradient(arch.pass_on(index, features))
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
        x = arch.pass_on(index, h)
    return features


def add_label(params: Params, features: jax.Array, label: jax.Array) -> jax.Array:
    """What goodness is measured on in a layer of ffcl (paper, eq. 7)."""
    shift = params["label_kernel"][label]
    return features + (shift if features.ndim == 1 else shift[None])


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
      inputs: (N, D), or (N, C, D): under each label; packed or not.
      gate_on: see ``Layer``.

    Returns:
      (N, W), or (N, C, W) where they depend on the label; packed.
    """
    labels = jnp.arange(arch.num_classes)

    def one_example(x):
        # One label is enough where the features do not depend on it.
        candidates = labels if arch.carries_label else labels[:1]
        x = product.unpack(x)
        features, _ = run_layer(arch, index, params, x, candidates, gate_on)
        return product.pack(arch.pass_on(index, features))

    return _map_in_place(jax.vmap(one_example), inputs, chunk_size(arch))


def _map_in_place(
    function: Callable[[jax.Array], jax.Array], inputs: jax.Array, size: int
) -> jax.Array:
    """A function of examples, chunk by chunk, each written where it belongs.

    ``jax.lax.map`` would cut off a last, shorter chunk and join it to the others: a
    copy of all inputs before, and one of all outputs after.
    """
    num_whole, rest = divmod(len(inputs), size)

    def write(index: jax.Array, outputs: jax.Array) -> jax.Array:
        chunk = jax.lax.dynamic_slice_in_dim(inputs, index * size, size)
        return jax.lax.dynamic_update_slice_in_dim(
            outputs, function(chunk), index * size, axis=0
        )

    shape = jax.eval_shape(function, inputs)
    outputs = jnp.zeros(shape.shape, shape.dtype)
    if num_whole:
        outputs = jax.lax.fori_loop(0, num_whole, write, outputs)
    if rest:
        outputs = outputs.at[-rest:].set(function(inputs[-rest:]))
    return outputs


def chunk_size(arch: Architecture) -> int:
    """How many examples at a time: some 4 million activations, all labels together.

    Of a convolution the windows count, too, of which there are more.
    """
    if arch.maps is None:
        return max(1, 2**22 // (arch.num_classes * max(arch.widths)))
    return max(1, 2**22 // max(map(arch.step_size, range(len(arch.widths)))))


def stored_bytes(arch: Architecture, index: int, num_examples: int) -> int:
    """The bytes of layer ``index``'s inputs for the whole training set."""
    copies = arch.num_classes if arch.carries_label else 1
    size = product.storage_type(arch.precision).itemsize
    return size * num_examples * copies * arch.row_size(index)


def input_width(arch: Architecture, lower: Sequence[Params], inputs: jax.Array) -> int:
    """The width of the inputs that a layer above ``lower`` sees."""
    return arch.row_size(len(lower)) if lower else inputs.shape[-1]
