"""Evaluation: the goodness of every candidate label, and what it predicts.

Shapes: N examples, L layers, C classes.
"""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ffjax.goodness import State
from ffjax.model import pathway
from ffjax.model.pathway import Architecture, Params


class Evaluation(NamedTuple):
    """How well a network predicts; accuracies in percent."""

    accuracy: float  # of the ensemble
    accuracy_layers: list[float]  # of each layer alone
    accuracy_concat: float  # of the concatenated activations alone
    confusion: np.ndarray  # (C, C) counts: row = true label, column = predicted


def label_scores(
    arch: Architecture,
    params: Sequence[Params],
    goodness_states: Sequence[State],
    x: jax.Array,
    label: jax.Array,
    gate_on: jax.Array | None = None,
) -> jax.Array:
    """Goodness of one example under one candidate label, (L + 1,).

    The last entry is that of the concatenation of what the layers' goodness was
    measured on, before normalisation (paper, section 4.1).
    """
    measured = []
    for index, weights in enumerate(params):
        features, activity = pathway.run_layer(arch, index, weights, x, label, gate_on)
        measured.append(activity)
        x = arch.pass_on(index, features)
    return _scores(arch, goodness_states, measured)


def _scores(
    arch: Architecture, goodness_states: Sequence[State], measured: list[jax.Array]
) -> jax.Array:
    """Goodness of each layer's activations and of all together, (L + 1, ...)."""
    parts = zip(measured, goodness_states, strict=True)
    scores = [
        pathway.measure(arch, pathway.arrange(arch, activity), state)
        for activity, state in parts
    ]
    state = arch.goodness.combine(list(goodness_states))
    sized = [pathway.arrange(arch, h) for h in pathway.same_size(arch, measured)]
    scores.append(pathway.measure(arch, jnp.concatenate(sized, axis=-1), state))
    return jnp.stack(scores)


@functools.partial(jax.jit, static_argnames=("arch",))
def score_images(
    arch: Architecture,
    params: Sequence[Params],
    goodness_states: Sequence[State],
    images: jax.Array,
    gate_on: jax.Array | None = None,
) -> jax.Array:
    """Goodness of images (N, D) under every label: (N, L + 1, C), see ``label_scores``.

    Maps of different sizes are averaged down to the smallest for their concatenation.

    What does not depend on the label is computed once. The rest is vmapped over labels
    where it holds matrix products. Where labels only shift the features, all of them
    are measured at once if the goodness function has a way, and otherwise one by one:
    K copies of the features would not fit into a CPU's cache, and take twice the time.
    """
    labels = jnp.arange(arch.num_classes)

    def one_image(image):
        x = pathway.encode(arch, image)
        if arch.carries_label:

            def under(label):
                return label_scores(arch, params, goodness_states, x, label, gate_on)

            return jax.vmap(under, out_axes=-1)(labels)
        features = pathway.label_free_features(arch, params, x, gate_on)
        if arch.by_group:
            return _scores(arch, goodness_states, features)
        if arch.goodness.shifted is not None:
            shifts = [weights["label_kernel"] for weights in params]
            sized = pathway.same_size(arch, features)
            features.append(jnp.concatenate(sized, axis=-1))
            shifts.append(jnp.concatenate(shifts, axis=-1))
            found = list(map(arch.goodness.shifted, features, shifts))
            if arch.maps is not None:  # (P, C) of each
                found = [jnp.mean(values, axis=0) for values in found]
            return jnp.stack(found)

        def with_label(label):
            measured = [
                pathway.add_label(weights, h, label)
                for weights, h in zip(params, features, strict=True)
            ]
            return _scores(arch, goodness_states, measured)

        return jax.lax.map(with_label, labels).T

    return jax.lax.map(one_image, images, batch_size=pathway.chunk_size(arch))


# Goodness of the layers and of their concatenation (N, L + 1, C) -> total (N, C).
ENSEMBLES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "all": lambda scores: scores.sum(axis=1),  # the paper's: every one of them
    "later": lambda scores: scores[:, 1:-1].sum(
        axis=1
    ),  # layers but the first (Hinton)
    "last": lambda scores: scores[:, -2],  # where depth pays, as in convolutions
}


def evaluate(
    scores: np.ndarray, labels: np.ndarray, ensemble: str = "all"
) -> Evaluation:
    """Compares the labels of highest goodness with the true ones.

    Args:
      scores: (N, L + 1, C) of ``score_images``.
      labels: (N,) true labels.
      ensemble: a name in ENSEMBLES.
    """
    num_classes = scores.shape[-1]

    def accuracy(score):
        return 100.0 * float(np.mean(np.argmax(score, axis=-1) == labels))

    total = ENSEMBLES[ensemble](scores)
    confusion = np.zeros((num_classes, num_classes), np.int64)
    np.add.at(confusion, (labels, np.argmax(total, axis=-1)), 1)
    parts = [accuracy(scores[:, index]) for index in range(scores.shape[1])]
    return Evaluation(accuracy(total), parts[:-1], parts[-1], confusion)
