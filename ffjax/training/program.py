"""Training: layers one after another, each by its own goodness and its own optimiser.

No gradient crosses layers: a layer's inputs are plain arrays, computed from the layers
below before its training starts, or inside a step without being differentiated.
"""

import dataclasses
import functools
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
from absl import logging
from flax import struct

from ffjax.model import pathway
from ffjax.training.objective import Objective
from ffjax.model.pathway import Architecture, Params

_SPAN_SECONDS = (
    0.5  # how long one call of the compiled program may take between reports
)


# (learning rate, steps in all) -> learning rate of each step.
SCHEDULES: dict[str, Callable[[Any, int], optax.ScalarOrSchedule]] = {
    "constant": lambda rate, num_steps: rate,  # the paper's
    "cosine": optax.cosine_decay_schedule,
    # Constant for the first half, then linearly down to 0.
    "half_linear": lambda rate, num_steps: optax.linear_schedule(
        rate, 0.0, num_steps - num_steps // 2, transition_begin=num_steps // 2
    ),
}


@dataclasses.dataclass(frozen=True)
class Optimizer:
    """Adam; hashable, for jit. The defaults are the paper's.

    Attributes:
      schedule: a name in SCHEDULES.
      weight_decay: that of AdamW, for weights but not for biases.
    """

    schedule: str = "constant"
    weight_decay: float = 0.0

    def make(self, learning_rate: Any, num_steps: int) -> optax.GradientTransformation:
        """The optimiser for a training of so many steps."""
        rate = SCHEDULES[self.schedule](learning_rate, num_steps)
        if self.weight_decay == 0:
            return optax.adam(rate)
        return optax.adamw(rate, weight_decay=self.weight_decay, mask=_is_matrix)


def _is_matrix(params: Params) -> Any:
    return jax.tree.map(lambda leaf: leaf.ndim > 1, params)


PAPER_OBJECTIVE = Objective()
PAPER_OPTIMIZER = Optimizer()


class LayerState(struct.PyTreeNode):
    """What training changes: all of it is donated to the compiled program."""

    params: Params
    opt_state: optax.OptState
    goodness_state: Any  # the goodness function's running mean, or ()


class TrainedLayer(NamedTuple):
    """A finished layer."""

    params: Params
    goodness_state: Any
    losses: np.ndarray  # mean loss of each epoch; shorter than asked for if it diverged

    @property
    def is_diverged(self) -> bool:
        """Whether training stopped at a loss that is not finite."""
        return not np.isfinite(self.losses).all()


class Hyper(NamedTuple):
    """Numbers of a training program that do not need a compilation of their own."""

    learning_rate: jax.Array
    threshold: jax.Array


# Called after some epochs of a layer: (layer, its losses so far).
OnEpochs = Callable[[int, np.ndarray], None]
# Called after a layer: (layer, the layer).
OnLayer = Callable[[int, TrainedLayer], None]


def layer_loss(
    params: Params,
    goodness_state: Any,
    x: jax.Array,
    labels: jax.Array,
    threshold: jax.Array,
    *,
    arch: Architecture,
    index: int,
    objective: Objective = PAPER_OBJECTIVE,
) -> tuple[jax.Array, Any]:
    """The local loss of a batch, and the goodness's next state.

    Args:
      params: the layer's parameters.
      goodness_state: the goodness function's state.
      x: the layer's inputs, (B, D) or (1 + K, B, D) where they depend on the label.
      labels: (1 + K, B): the true labels and wrong ones.
      threshold: tau.
      arch: the network.
      index: which layer.
      objective: the loss.
    """
    scores, measured = pathway.score(arch, index, params, goodness_state, x, labels)
    loss = objective(scores, measured, threshold)
    return loss, arch.goodness.update(goodness_state, measured)


@functools.partial(
    jax.jit,
    static_argnames=("arch", "index", "batch_size", "objective", "optimizer"),
    donate_argnames=("state", "losses"),
)
def train_epochs(
    state: LayerState,
    losses: jax.Array,
    key: jax.Array,
    inputs: jax.Array,
    labels: jax.Array,
    lower: Sequence[Params],
    hyper: Hyper,
    first: jax.Array,
    last: jax.Array,
    *,
    arch: Architecture,
    index: int,
    batch_size: int,
    objective: Objective = PAPER_OBJECTIVE,
    optimizer: Optimizer = PAPER_OPTIMIZER,
) -> tuple[LayerState, jax.Array]:
    """Trains one layer from epoch ``first`` up to ``last``, as one compiled program.

    Shuffling, wrong labels and steps are all inside. ``first`` and ``last`` are data,
    so that one program serves a whole training or any part of it, with one result.

    Args:
      state: the layer; donated.
      losses: (epochs,), into which each epoch's mean loss is written; donated.
      key: the layer's key; every epoch draws from ``fold_in(key, epoch)``.
      inputs: (N, D), or (N, C, D): the inputs under each label. With ``lower``, the
        encoded images, which go through those layers at every step.
      labels: (N,) true labels.
      lower: parameters of the layers to recompute the inputs with; mostly empty.
      hyper: learning rate and threshold.
      first: the first epoch to run.
      last: one more than the last epoch to run.
      arch: the network.
      index: which layer.
      batch_size: B.
      objective: which wrong labels, and the loss.
      optimizer: the optimiser.
    """
    by_label = inputs.ndim == 3
    has_label = arch.layer(index).label_site == "input"
    num_steps = losses.shape[0] * -(-labels.shape[0] // batch_size)
    tx = optimizer.make(hyper.learning_rate, num_steps)

    def run_step(state: LayerState, batch):
        rows, drawn, step_key = batch

        def inputs_under(candidates):
            x = inputs[rows[None], candidates] if by_label else inputs[rows]
            x = pathway.propagate(arch, lower, x, candidates)
            if objective.dropout == 0:
                return x
            dropped = objective.drop(step_key, x)
            # The label's amplitude, where it is an input, always stays.
            return dropped.at[..., -1].set(x[..., -1]) if has_label else dropped

        def measure(candidates):
            x = inputs_under(candidates)
            layer = (state.params, state.goodness_state)
            return pathway.score(arch, index, *layer, x, candidates)[0]

        candidates = objective.choose(drawn, labels[rows], arch.num_classes, measure)
        x = inputs_under(candidates)
        gradient = jax.value_and_grad(layer_loss, has_aux=True)
        (loss, goodness_state), grads = gradient(
            state.params,
            state.goodness_state,
            x,
            candidates,
            hyper.threshold,
            arch=arch,
            index=index,
            objective=objective,
        )
        updates, opt_state = tx.update(grads, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
        return LayerState(params, opt_state, goodness_state), loss

    def run_epoch(epoch, carry):
        state, losses = carry
        order_key, label_key = jax.random.split(jax.random.fold_in(key, epoch))
        order = shuffle(order_key, labels.shape[0], batch_size)
        drawn = draw_wrong_labels(label_key, labels[order], arch.num_classes)
        step_keys = None
        if objective.dropout > 0:
            step_keys = jax.random.split(jax.random.fold_in(label_key, 1), len(order))
        batches = (order, drawn, step_keys)
        state, step_losses = jax.lax.scan(run_step, state, batches)
        return state, losses.at[epoch].set(jnp.mean(step_losses))

    return jax.lax.fori_loop(first, last, run_epoch, (state, losses))


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
    arch: Architecture,
    index: int,
    key: jax.Array,
    width: int,
    optimizer: Optimizer = PAPER_OPTIMIZER,
) -> LayerState:
    """A fresh layer for inputs of the given width."""
    variables = arch.layer(index).init(
        key, jnp.zeros((width,)), jnp.zeros((), jnp.int32)
    )
    params = variables["params"]
    opt_state = optimizer.make(0.0, num_steps=1).init(params)
    return LayerState(params, opt_state, arch.goodness.init())


def train_layer(
    arch: Architecture,
    index: int,
    key: jax.Array,
    inputs: jax.Array,
    labels: jax.Array,
    *,
    lower: Sequence[Params] = (),
    epochs: int,
    batch_size: int,
    learning_rate: float,
    threshold: float,
    objective: Objective = PAPER_OBJECTIVE,
    optimizer: Optimizer = PAPER_OPTIMIZER,
    on_epochs: OnEpochs | None = None,
) -> TrainedLayer:
    """Trains one layer; see ``train_epochs`` for the arguments.

    With ``on_epochs`` the program is called for as many epochs at a time as take about
    half a second, so that progress can be shown; the result is the same.
    """
    init_key, train_key = jax.random.split(key)
    width = pathway.input_width(arch, lower, inputs)
    hyper = Hyper(jnp.float32(learning_rate), jnp.float32(threshold))
    report = None if on_epochs is None else functools.partial(on_epochs, index)
    state = init_layer(arch, index, init_key, width, optimizer)
    if not lower:  # which would name the layers below
        arch, index = pathway.as_program(arch, index)

    def program(state, losses, first, last):
        return train_epochs(
            state,
            losses,
            train_key,
            inputs,
            labels,
            tuple(lower),
            hyper,
            first,
            last,
            arch=arch,
            index=index,
            batch_size=batch_size,
            objective=objective,
            optimizer=optimizer,
        )

    return run_program(program, state, epochs, report)


def run_program(
    program: Callable[..., tuple[LayerState, Any]],
    state: LayerState,
    epochs: int,
    report: Callable[[np.ndarray], None] | None,
) -> TrainedLayer:
    """Calls a compiled training program until its epochs are done or it diverges.

    Args:
      program: (state, losses, first epoch, one more than the last) -> state, losses.
      state: the fresh layer.
      epochs: of the whole training.
      report: called with the losses so far about twice a second.
    """
    losses = jnp.full((epochs,), jnp.nan, jnp.float32)
    state, done = run_epochs(program, state, losses, report)
    return finish_layer(state.params, state.goodness_state, done)


def run_epochs(
    program: Callable[..., tuple[LayerState, Any]],
    state: LayerState,
    losses: Any,
    report: Callable[[np.ndarray], None] | None,
) -> tuple[LayerState, np.ndarray]:
    """The loop of ``run_program``, for one layer or for several in one program.

    Args:
      program: (state, losses, first epoch, one more than the last) -> state, losses.
      state: the fresh layer, or several with an axis for them in front.
      losses: (epochs,) or (members, epochs), NaN; donated.
      report: called with the losses so far about twice a second.

    Returns:
      The trained state and the losses, NaN after all members have diverged.
    """
    epochs = losses.shape[-1]
    first, span = 0, epochs if report is None else 1
    while first < epochs:
        last = min(first + span, epochs)
        started = time.perf_counter()
        state, losses = program(state, losses, jnp.int32(first), jnp.int32(last))
        # Sleeping in Python, not waiting inside XLA, lets Ctrl-C through at once.
        while not losses.is_ready():
            time.sleep(0.005)
        done = np.asarray(losses)[..., :last]
        took = time.perf_counter() - started
        if report is not None:
            report(done)
        if not np.isfinite(done).all(axis=-1).any():
            break
        # The first call may have compiled, and says nothing about the speed.
        if first > 0 and took < _SPAN_SECONDS:
            span = max(1, int((last - first) * _SPAN_SECONDS / max(took, 1e-3)))
        first = last
    return state, np.asarray(losses)


def finish_layer(
    params: Params, goodness_state: Any, losses: np.ndarray
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
    leaves = jax.tree.leaves(tree)
    return all(bool((jnp.abs(leaf) < 1e18).all()) for leaf in leaves)


def train_network(
    arch: Architecture,
    key: jax.Array,
    images: np.ndarray,
    labels: np.ndarray,
    *,
    epochs: int,
    batch_size: int,
    learning_rate: float,
    threshold: float,
    objective: Objective = PAPER_OBJECTIVE,
    optimizer: Optimizer = PAPER_OPTIMIZER,
    memory_budget: float = 4e9,
    trained: Sequence[TrainedLayer] = (),
    on_epochs: OnEpochs | None = None,
    on_layer: OnLayer | None = None,
) -> list[TrainedLayer]:
    """Trains all layers in order; stops at the first one that diverges.

    Args:
      arch: the network.
      key: the run's key; layer k draws from ``fold_in(key, k)``.
      images: (N, D) float32.
      labels: (N,) integers in 0..C-1.
      epochs: for each layer.
      batch_size: examples a step.
      learning_rate: Adam's.
      threshold: tau.
      objective: which wrong labels, and the loss.
      optimizer: the learning rate's schedule and the weight decay.
      memory_budget: how many bytes the inputs of a layer under all labels may take; see
        ``pathway.stored_bytes``.
      trained: layers of an earlier, interrupted call with the same arguments.
      on_epochs: called with progress.
      on_layer: called with each layer as it is finished.
    """
    chex.assert_rank(images, 2)
    chex.assert_shape(labels, (len(images),))
    layers = list(trained)
    inputs = pathway.encode(arch, jnp.asarray(images))
    targets = jnp.asarray(labels, jnp.int32)
    lower: list[Params] = []
    for index in range(len(arch.widths)):
        if index > 0:
            below = layers[index - 1].params
            needed = pathway.stored_bytes(arch, index, len(labels))
            if not lower and needed <= memory_budget:
                inputs = pathway.advance(arch, index - 1, below, inputs)
                kept = "under all labels" if arch.carries_label else "once"
                logging.info(
                    "layer %d: inputs computed %s and kept (%.2f GB)",
                    index + 1,
                    kept,
                    needed / 1e9,
                )
            else:
                # From here on every step runs the encoded images up through the layers.
                if not lower:
                    inputs = pathway.encode(arch, jnp.asarray(images))
                lower = [layer.params for layer in layers[:index]]
                logging.info(
                    "layer %d: inputs recomputed at every step (%.2f GB would not fit "
                    "the memory budget of %.2f GB)",
                    index + 1,
                    needed / 1e9,
                    memory_budget / 1e9,
                )
        if index >= len(layers):
            layer = train_layer(
                arch,
                index,
                jax.random.fold_in(key, index),
                inputs,
                targets,
                lower=lower,
                epochs=epochs,
                batch_size=batch_size,
                learning_rate=learning_rate,
                threshold=threshold,
                objective=objective,
                optimizer=optimizer,
                on_epochs=on_epochs,
            )
            layers.append(layer)
            if on_layer is not None:
                on_layer(index, layer)
        if layers[index].is_diverged:
            return layers[: index + 1]
    return layers
