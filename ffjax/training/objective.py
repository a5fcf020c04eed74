"""What a layer learns from: inputs, wrong labels, and the loss of their goodness.

Shapes: B examples, K wrong labels for each. All of it is local to one layer. The
defaults are the paper's; the rest is from the literature around it.
"""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp

# Goodness under some labels: (K, B) labels -> (K, B).
Measure = Callable[[jax.Array], jax.Array]


def wrong_labels(labels: jax.Array, num_classes: int) -> jax.Array:
    """All labels but the true ones: (B,) -> (C - 1, B)."""
    shifts = jnp.arange(1, num_classes, dtype=labels.dtype)
    return (labels[None] + shifts[:, None]) % num_classes


def _random(drawn, labels, num_classes, measure: Measure) -> jax.Array:
    """The label that was drawn for this step, each wrong one equally likely (paper)."""
    del labels, num_classes, measure
    return drawn[None]


def _hard(drawn, labels, num_classes, measure: Measure) -> jax.Array:
    """The wrong label with the highest goodness under the current parameters."""
    del drawn
    wrong = wrong_labels(labels, num_classes)
    hardest = jnp.argmax(measure(wrong), axis=0, keepdims=True)
    return jnp.take_along_axis(wrong, hardest, axis=0)


def _all(drawn, labels, num_classes, measure: Measure) -> jax.Array:
    """Every wrong label."""
    del drawn, measure
    return wrong_labels(labels, num_classes)


# How a step finds its wrong labels:
# (drawn (B,), true labels (B,), C, measure) -> (K, B).
NEGATIVES: dict[str, Callable[..., jax.Array]] = {
    "random": _random,
    "hard": _hard,
    "all": _all,
}


def _softplus(scores, threshold) -> jax.Array:
    r"""mean softplus(tau - g+) + mean softplus(g- - tau) (paper, eq. 2).

    On a GPU the same is computed of all rows, with a sign for each: cut apart, their
    gradients would have to be put together again, by a kernel of its own in every step.
    A CPU would find the signs anew for every unit.
    """
    return jax.lax.platform_dependent(
        scores, threshold, cpu=_softplus_apart, default=_softplus_signed
    )


def _softplus_apart(scores: jax.Array, threshold: jax.Array) -> jax.Array:
    return jnp.mean(jax.nn.softplus(threshold - scores[0])) + jnp.mean(
        jax.nn.softplus(scores[1:] - threshold)
    )


def _softplus_signed(scores: jax.Array, threshold: jax.Array) -> jax.Array:
    num_wrong, size = len(scores) - 1, scores.shape[1]
    is_true = jax.lax.broadcasted_iota(jnp.int32, scores.shape, 0) == 0
    margin = jnp.where(is_true, threshold - scores, scores - threshold)
    weight = jnp.where(is_true, 1 / size, 1 / (num_wrong * size))
    return jnp.sum(weight * jax.nn.softplus(margin))


def _symba(scores, threshold) -> jax.Array:
    r"""mean softplus(g- - g+): the two compete, and no threshold is needed.

    With ``scale`` as its alpha this is the loss of SymBa, log(1 + exp(-alpha (G_pos -
    G_neg))): Lee and Song, "SymBa: Symmetric Backpropagation-Free Contrastive Learning
    with Forward-Forward Algorithm for Optimizing Convergence", arXiv:2303.08418.
    """
    del threshold
    return jnp.mean(jax.nn.softplus(scores[1:] - scores[:1]))


def _softmax(scores, threshold) -> jax.Array:
    r"""mean of log(exp g+ + sum exp g-) - g+: cross-entropy, goodness being the logit.

    Over two labels it is the symba loss, so it is offered with all labels alone.
    """
    del threshold
    return jnp.mean(jax.nn.logsumexp(scores, axis=0) - scores[0])


# (goodness (1 + K, B) under the true label and K wrong ones, threshold) -> loss.
LOSSES: dict[str, Callable[..., jax.Array]] = {
    "softplus": _softplus,
    "symba": _symba,
    "softmax": _softmax,
}
# The others compare goodness with goodness, and ignore the threshold.
USES_THRESHOLD = ("softplus",)


@dataclasses.dataclass(frozen=True)
class Objective:
    """What a layer minimises; hashable, for jit.

    Attributes:
      negatives: a name in NEGATIVES.
      loss: a name in LOSSES.
      scale: goodness and threshold are multiplied by it in the loss. It is the alpha of
        SymBa and the inverse temperature of softmax; the width d turns the mean of
        squares and a threshold of 1 into Hinton's sum of squares and threshold d.
      peer_normalisation: weight of a penalty on units whose mean activation differs
        from that of their peers, see ``peer_penalty``.
      dropout: the share of the layer's inputs that each step leaves out.
    """

    negatives: str = "random"
    loss: str = "softplus"
    scale: float = 1.0
    peer_normalisation: float = 0.0
    dropout: float = 0.0

    def drop(self, key: jax.Array, x: jax.Array) -> jax.Array:
        """Inputs (B, D) or (K, B, D) with some entries 0, the others larger for it.

        The K labels of an example lose the same entries, so that only the label tells
        them apart. A byte of randomness an entry: the share is a multiple of 1/256.
        """
        kept = round(256 * (1 - self.dropout))
        mask = jax.random.bits(key, x.shape[-2:], jnp.uint8) < kept
        return jnp.where(mask.reshape((1,) * (x.ndim - 2) + mask.shape), x, 0) * (
            256 / kept
        )

    def choose(
        self,
        drawn: jax.Array,
        labels: jax.Array,
        num_classes: int,
        measure: Measure,
    ) -> jax.Array:
        """The true labels and then the wrong ones of a step, (1 + K, B).

        Args:
          drawn: (B,), a random wrong label for each example.
          labels: (B,), the true ones.
          num_classes: C.
          measure: the layer's goodness under given labels, with no gradient.
        """
        wrong = NEGATIVES[self.negatives](drawn, labels, num_classes, measure)
        return jnp.concatenate([labels[None], wrong])

    def __call__(
        self, scores: jax.Array, measured: jax.Array, threshold: jax.Array
    ) -> jax.Array:
        """The loss of a batch.

        Args:
          scores: (1 + K, B), goodness under the labels of ``choose``.
          measured: (1 + K, B, ..., W), what it was measured on.
          threshold: tau.
        """
        scores, threshold = self.scale * scores, self.scale * threshold
        loss = LOSSES[self.loss](scores, threshold)
        if self.peer_normalisation:
            loss = loss + self.peer_normalisation * peer_penalty(measured[0])
        return loss


def peer_penalty(h: jax.Array) -> jax.Array:
    """The variance over units of their mean activation on positive examples (B, W).

    Of a map (B, P, W), a unit at a position counts as a unit.

    Peer normalisation: Hinton's code for "The Forward-Forward Algorithm"
    (arXiv:2212.13345) pulls the mean activity of each unit towards that of its layer,
    so that no unit is off or very active for good. The mean is that of the batch.
    """
    return jnp.var(jnp.mean(h, axis=0))
