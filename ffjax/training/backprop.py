"""The reference: the same layers under a softmax head, trained end to end.

Images go in as they are, without a label and without the length normalisation that
keeps Forward-Forward layers from reading the goodness of the layer below.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

from ffjax.model import layer
from ffjax.training import program

# Uniform in +-1/sqrt(fan_in), as in the layers.
_HEAD_INIT = nn.initializers.variance_scaling(1 / 3, "fan_in", "uniform")


class Network(nn.Module):
    """Layers without a label, and a linear head: images (..., D) -> logits (..., C)."""

    widths: tuple[int, ...]
    activation: str
    norm_gate: bool
    num_classes: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """The logits of images."""
        no_label = jnp.zeros(x.shape[:-1], jnp.int32)
        for width in self.widths:
            x, _ = layer.Layer(
                width, self.activation, self.norm_gate, "none", self.num_classes
            )(x, no_label)
        return nn.Dense(self.num_classes, kernel_init=_HEAD_INIT)(x)


@functools.partial(
    jax.jit,
    static_argnames=("network", "batch_size", "optimizer"),
    donate_argnames=("state", "losses"),
)
def train_epochs(
    state: program.LayerState,
    losses: jax.Array,
    key: jax.Array,
    images: jax.Array,
    labels: jax.Array,
    learning_rate: jax.Array,
    first: jax.Array,
    last: jax.Array,
    *,
    network: Network,
    batch_size: int,
    optimizer: program.Optimizer = program.PAPER_OPTIMIZER,
) -> tuple[program.LayerState, jax.Array]:
    """Trains the network from epoch ``first`` up to ``last``: see ``train``'s."""
    num_steps = losses.shape[0] * -(-labels.shape[0] // batch_size)
    tx = optimizer.make(learning_rate, num_steps)

    def loss_of(params, rows):
        logits: Any = network.apply({"params": params}, images[rows])
        return jnp.mean(
            optax.softmax_cross_entropy_with_integer_labels(logits, labels[rows])
        )

    def run_step(state: program.LayerState, rows):
        loss, grads = jax.value_and_grad(loss_of)(state.params, rows)
        updates, opt_state = tx.update(grads, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
        return program.LayerState(params, opt_state, ()), loss

    def run_epoch(epoch, carry):
        state, losses = carry
        order_key = jax.random.fold_in(key, epoch)
        order = program.shuffle(order_key, labels.shape[0], batch_size)
        state, step_losses = jax.lax.scan(run_step, state, order)
        return state, losses.at[epoch].set(jnp.mean(step_losses))

    return jax.lax.fori_loop(first, last, run_epoch, (state, losses))


def init(
    network: Network, key: jax.Array, num_inputs: int, optimizer: program.Optimizer
) -> program.LayerState:
    """A fresh network for images of so many values."""
    params = network.init(key, jnp.zeros((num_inputs,)))["params"]
    return program.LayerState(params, optimizer.make(0.0, num_steps=1).init(params), ())


def train_network(
    network: Network,
    key: jax.Array,
    images: np.ndarray,
    labels: np.ndarray,
    *,
    epochs: int,
    batch_size: int,
    learning_rate: float,
    optimizer: program.Optimizer = program.PAPER_OPTIMIZER,
    on_epochs: program.OnEpochs | None = None,
) -> program.TrainedLayer:
    """Trains a network; all of it comes back as one layer.

    Args:
      network: what to train.
      key: the run's key.
      images: (N, D) float32.
      labels: (N,) integers in 0..C-1.
      epochs: for the whole network.
      batch_size: examples a step.
      learning_rate: Adam's.
      optimizer: the learning rate's schedule and the weight decay.
      on_epochs: called with progress, as for layer 0.
    """
    init_key, train_key = jax.random.split(key)
    inputs, targets = jnp.asarray(images), jnp.asarray(labels, jnp.int32)

    def program(state, losses, first, last):
        return train_epochs(
            state,
            losses,
            train_key,
            inputs,
            targets,
            jnp.float32(learning_rate),
            first,
            last,
            network=network,
            batch_size=batch_size,
            optimizer=optimizer,
        )

    report = None if on_epochs is None else functools.partial(on_epochs, 0)
    state = init(network, init_key, inputs.shape[-1], optimizer)
    return program.run_program(program, state, epochs, report)


@functools.partial(jax.jit, static_argnames=("network",))
def score_images(network: Network, params, images: jax.Array) -> jax.Array:
    """The logits of images (N, D) as ``evaluate.evaluate`` takes them: (N, 1, C)."""
    logits = jax.lax.map(
        lambda image: network.apply({"params": params}, image),
        images,
        batch_size=1000,
    )
    return logits[:, None, :]
