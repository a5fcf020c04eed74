"""One layer's training as one compiled program.

No gradient crosses layers: a layer's inputs are plain arrays, computed from the layers
below before its training starts, or inside a step without being differentiated.
"""

import dataclasses
import functools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import struct

from ffjax.goodness import State
from ffjax.model import pathway, product
from ffjax.model.layer import INPUT_MEAN, INPUT_SCALE
from ffjax.model.pathway import Architecture, Params
from ffjax.training.optimizer import Training, bias_corrections

# How long a call of the compiled program may take between reports.
_SPAN_SECONDS = 0.5


class LayerState(struct.PyTreeNode):
    """What training changes: all of it is donated to the compiled program."""

    params: Params
    opt_state: optax.OptState
    goodness_state: State


class TrainedLayer(NamedTuple):
    """A finished layer."""

    params: Params
    goodness_state: State
    losses: np.ndarray  # mean loss of each epoch; shorter than asked for if it diverged

    @property
    def is_diverged(self) -> bool:
        """Whether training stopped at a loss that is not finite."""
        return not np.isfinite(self.losses).all()


class Hyper(NamedTuple):
    """Numbers of a training program that do not need a compilation of their own."""

    learning_rate: jax.Array
    threshold: jax.Array
    gate_on: jax.Array | None = None  # None where the architecture says so itself


class Examples(NamedTuple):
    """What a layer learns from.

    Attributes:
      inputs: (N, D), or (N, C, D): the inputs under each label, packed or not. With
        ``lower``, the encoded images, which go through those layers at every step.
      labels: (N,) true labels.
      lower: parameters of the layers to recompute the inputs with; mostly empty.
    """

    inputs: jax.Array
    labels: jax.Array
    lower: tuple[Params, ...] = ()


@dataclasses.dataclass(frozen=True)
class Program:
    """All that is compiled into the training of a layer; hashable, for jit."""

    arch: Architecture
    index: int
    training: Training

    @classmethod
    def of(
        cls, arch: Architecture, index: int, training: Training, *, has_lower: bool
    ) -> "Program":
        """The program of a layer; layers of the same shape share theirs."""
        if not has_lower:  # which would name the layers below
            arch, index = pathway.as_program(arch, index)
        return cls(arch, index, training.as_program())


class Stops(NamedTuple):
    """Where training pauses, so that somebody can look at the layer."""

    every: int  # epochs; and after the last of them
    look: Callable[[int, LayerState], None]  # (epochs done, the layer so far)


# (state, losses, first epoch, end of the last epoch) -> state, losses.
Span = Callable[
    [LayerState, jax.Array, jax.Array, jax.Array], tuple[LayerState, jax.Array]
]


def layer_loss(
    params: Params,
    goodness_state: State,
    x: jax.Array,
    labels: jax.Array,
    hyper: Hyper,
    *,
    program: Program,
) -> tuple[jax.Array, State]:
    """The local loss of a batch, and the goodness's next state.

    Args:
      params: the layer's parameters.
      goodness_state: the goodness function's state.
      x: the layer's inputs, (B, D) or (1 + K, B, D) where they depend on the label.
      labels: (1 + K, B): the true labels and wrong ones.
      hyper: threshold and gate.
      program: which layer, and its loss.
    """
    arch, index = program.arch, program.index
    positive = pathway.positives(arch, labels)
    scores, measured = pathway.score(
        arch, index, params, goodness_state, x, labels, hyper.gate_on, positive
    )
    loss = program.training.objective(scores, measured, hyper.threshold)
    return loss, arch.goodness.update(goodness_state, measured, positive)


@functools.partial(
    jax.jit, static_argnames=("program",), donate_argnames=("state", "losses")
)
def train_epochs(
    state: LayerState,
    losses: jax.Array,
    key: jax.Array,
    examples: Examples,
    hyper: Hyper,
    first: jax.Array,
    last: jax.Array,
    *,
    program: Program,
) -> tuple[LayerState, jax.Array]:
    """Trains a layer from epoch ``first`` up to ``last``, as one compiled program.

    Shuffling, wrong labels and steps are all inside. ``first`` and ``last`` are data,
    so that one program serves a whole training or any part of it, with one result.

    Args:
      state: the layer; donated.
      losses: (>= epochs,), into which each epoch's mean loss is written; donated.
      key: the layer's key; every epoch draws from ``fold_in(key, epoch)``.
      examples: what to learn from.
      hyper: learning rate, threshold and gate.
      first: the first epoch to run.
      last: one more than the last epoch to run.
      program: what is compiled in.
    """
    labels, training = examples.labels, program.training
    num_classes, dropout = program.arch.num_classes, training.objective.dropout
    num_steps = training.epochs * training.num_batches(labels.shape[0])
    tx = training.optimizer.make(hyper.learning_rate, num_steps)

    def run_step(state: LayerState, batch):
        rows, drawn, step_key, corrections = batch
        inputs_under = functools.partial(
            _inputs_under, program, examples, hyper, rows, step_key
        )

        def measure(candidates):
            layer = (state.params, state.goodness_state)
            x = inputs_under(candidates)
            return pathway.score(
                program.arch, program.index, *layer, x, candidates, hyper.gate_on
            )[0]

        candidates = training.objective.choose(
            drawn, labels[rows], num_classes, measure
        )
        x = inputs_under(candidates)
        gradient = jax.value_and_grad(layer_loss, has_aux=True)
        (loss, goodness_state), grads = gradient(
            state.params, state.goodness_state, x, candidates, hyper, program=program
        )
        updates, opt_state = tx.update(
            grads, state.opt_state, state.params, corrections=corrections
        )
        params = optax.apply_updates(state.params, updates)
        return LayerState(params, opt_state, goodness_state), loss

    def run_epoch(epoch, carry):
        state, losses = carry
        order_key, label_key = jax.random.split(jax.random.fold_in(key, epoch))
        order = shuffle(order_key, labels.shape[0], training.batch_size)
        drawn = draw_wrong_labels(label_key, labels[order], num_classes)
        step_keys = None
        if dropout > 0:
            step_keys = jax.random.split(jax.random.fold_in(label_key, 1), len(order))
        corrections = bias_corrections(epoch, len(order))
        batches = (order, drawn, step_keys, corrections)
        state, step_losses = jax.lax.scan(run_step, state, batches)
        return state, losses.at[epoch].set(jnp.mean(step_losses))

    return jax.lax.fori_loop(first, last, run_epoch, (state, losses))


def _inputs_under(
    program: Program,
    examples: Examples,
    hyper: Hyper,
    rows: jax.Array,
    step_key: jax.Array | None,
    candidates: jax.Array,
) -> jax.Array:
    """A layer's inputs for a batch under candidate labels (K, B), some of them dropped.

    Args:
      program: which layer.
      examples: what it learns from.
      hyper: the gate of the layers below, where these are recomputed.
      rows: (B,), the batch.
      step_key: of the dropout; None without.
      candidates: (K, B).
    """
    arch, inputs = program.arch, examples.inputs
    index = (rows[None], candidates) if inputs.ndim == 3 else (rows,)
    x = product.gather(inputs, *index)
    x = pathway.propagate(arch, examples.lower, x, candidates, hyper.gate_on)
    if step_key is None:
        return x
    dropped = program.training.objective.drop(step_key, x)
    if arch.layer(program.index).label_site == "input":
        # The label's amplitude always stays.
        return dropped.at[..., -1].set(x[..., -1])
    return dropped


def shuffle(key: jax.Array, num_examples: int, batch_size: int) -> jax.Array:
    """The rows of an epoch's batches, (ceil(N / B), B): all of 0..N-1, shuffled.

    The last batch is filled up with rows from the start of the epoch.
    """
    order = jax.random.permutation(key, num_examples)
    num_batches = -(-num_examples // batch_size)
    return jnp.resize(order, (num_batches, batch_size))


def draw_wrong_labels(key: jax.Array, labels: jax.Array, num_classes: int) -> jax.Array:
    """A wrong label for each label, each of the C - 1 equally likely."""
    shift = jax.random.randint(key, labels.shape, 1, num_classes)
    return (labels + shift) % num_classes


def init_layer(
    arch: Architecture, index: int, key: jax.Array, width: int, training: Training
) -> LayerState:
    """A fresh layer for inputs of the given width."""
    variables = arch.layer(index).init(
        key, jnp.zeros((width,)), jnp.zeros((), jnp.int32)
    )
    params = variables["params"]
    goodness_state = arch.goodness.init(arch.measured_width(index))
    return LayerState(params, training.optimizer.init(params), goodness_state)


_SAMPLE = 2000  # examples whose inputs are measured


def with_statistics(
    state: LayerState,
    examples: Examples,
    gate_on: jax.Array | None,
    *,
    program: Program,
) -> LayerState:
    """A fresh layer that knows the mean and scale of each channel of its inputs.

    They are measured on some 2,000 examples, which are spread over the training set.
    """
    x = examples.inputs[:: max(1, len(examples.inputs) // _SAMPLE)]
    no_label = jnp.zeros(len(x), jnp.int32)
    x = product.unpack(x)
    x = pathway.propagate(program.arch, examples.lower, x, no_label, gate_on)
    channels = len(state.params[INPUT_MEAN])
    split = x.astype(jnp.float32).reshape(-1, channels)
    mean, spread = jnp.mean(split, axis=0), jnp.std(split, axis=0)
    # A channel that is always 0 stays at 0.
    measured = {INPUT_MEAN: mean, INPUT_SCALE: 1 / (spread + 1e-3)}
    return state.replace(params={**state.params, **measured})


def num_slots(epochs: int) -> int:
    """The length of the array for so many losses: a power of two, at least 64.

    So trainings of different lengths share a program.
    """
    return max(64, 1 << (epochs - 1).bit_length())


def run_epochs(
    span: Span,
    state: LayerState,
    losses: jax.Array,
    epochs: int,
    report: Callable[[np.ndarray], None] | None,
    stops: Stops | None = None,
) -> tuple[LayerState, np.ndarray]:
    """Calls a training program until its epochs are done or all networks diverged.

    With ``report`` it is called for as many epochs at a time as take about half a
    second; the result is the same, and so it is with ``stops``.

    Args:
      span: the compiled program.
      state: the fresh layer, or several with an axis for them in front.
      losses: (``num_slots``,) or (members, ``num_slots``), NaN; donated.
      epochs: how many to run.
      report: called with the losses so far about twice a second.
      stops: where to let somebody look.

    Returns:
      The trained state and the losses (..., epochs), NaN after all members have
      diverged.
    """
    first, length = 0, epochs if report is None else 1
    while first < epochs:
        last = min(first + length, epochs)
        if stops is not None:
            last = min(last, (first // stops.every + 1) * stops.every)
        started = time.perf_counter()
        state, losses = span(state, losses, jnp.int32(first), jnp.int32(last))
        wait_for(losses)
        done = np.asarray(losses)[..., :last]
        took = time.perf_counter() - started
        if report is not None:
            report(done)
        if not np.isfinite(done).all(axis=-1).any():
            break
        if stops is not None and (last % stops.every == 0 or last == epochs):
            stops.look(last, state)
        # The first call may have compiled, and says nothing about the speed.
        if report is not None and first > 0 and took < _SPAN_SECONDS:
            length = max(1, int((last - first) * _SPAN_SECONDS / max(took, 1e-3)))
        first = last
    return state, np.asarray(losses)[..., :epochs]


def wait_for(array: jax.Array) -> None:
    """Waits in Python, not inside XLA, so that Ctrl-C gets through at once."""
    while not array.is_ready():  # pyright: ignore[reportAttributeAccessIssue]
        time.sleep(0.005)


def finish_layer(
    params: Params, goodness_state: State, losses: np.ndarray
) -> TrainedLayer:
    """A trained layer; its losses (epochs,) end where it diverged, if it did."""
    finite = np.isfinite(losses)
    if finite.all() and not _is_sound((params, goodness_state)):
        # The last step's loss was measured before that step.
        losses, finite[-1] = np.append(losses[:-1], np.float32(np.nan)), False
    if not finite.all():
        losses = losses[: int(np.argmin(finite)) + 1]
    return TrainedLayer(params, goodness_state, losses)


def _is_sound(tree: Any) -> bool:
    """Whether all numbers are finite, and their squares too; NaN is not below 1e18."""
    return all(bool((abs(leaf) < 1e18).all()) for leaf in jax.tree.leaves(tree))
