"""The reference: the same layers under a softmax head, trained end to end.

Images go in as they are, without a label and without the length normalisation that
keeps Forward-Forward layers from reading the goodness of the layer below. The head
reads the units of the last layer; of a convolution, each channel's mean over the map.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

from ffjax.model import convolve, layer, product
from ffjax.model.maps import Maps
from ffjax.model.pathway import Params
from ffjax.training.networks import Look, OnEpochs
from ffjax.training.optimizer import Training, bias_corrections
from ffjax.training.program import (
    LayerState,
    Stops,
    TrainedLayer,
    finish_layer,
    num_slots,
    run_epochs,
    shuffle,
)

# Uniform in +-1/sqrt(fan_in), as in the layers.
_HEAD_INIT = nn.initializers.variance_scaling(1 / 3, "fan_in", "uniform")


class Network(nn.Module):
    """Layers without a label, and a linear head: images (..., D) -> logits (..., C)."""

    widths: tuple[int, ...]
    activation: str
    norm_gate: bool
    num_classes: int
    precision: product.Precision = "float32"
    maps: Maps | None = None

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """The logits of images."""
        no_label = jnp.zeros(x.shape[:-1], jnp.int32)
        for index, width in enumerate(self.widths):
            h, _ = layer.Layer(
                width=width,
                activation=self.activation,
                norm_gate=self.norm_gate,
                label_site="none",
                num_classes=self.num_classes,
                precision=self.precision,
                reads=self.maps.reads(self.widths, index) if self.maps else None,
                kernel=self.maps.kernel if self.maps else 0,
            )(x, no_label)
            x = self._pass_on(index, h)
        head = nn.Dense(
            self.num_classes,
            kernel_init=_HEAD_INIT,
            precision=jax.lax.Precision.HIGHEST,
        )
        return head(x)

    def _pass_on(self, index: int, h: jax.Array) -> jax.Array:
        """What the next layer reads, or the head."""
        if self.maps is None:
            return h
        if index == len(self.widths) - 1:
            return jnp.mean(h, axis=-2)
        shape = self.maps.makes(self.widths, index)
        pooled = convolve.pool(h, shape, 1 + self.maps.pool[index])
        return pooled.reshape(*pooled.shape[:-2], -1)


@functools.partial(
    jax.jit,
    static_argnames=("network", "training"),
    donate_argnames=("state", "losses"),
)
def train_epochs(
    state: LayerState,
    losses: jax.Array,
    key: jax.Array,
    examples: tuple[jax.Array, jax.Array],
    learning_rate: jax.Array,
    first: jax.Array,
    last: jax.Array,
    *,
    network: Network,
    training: Training,
) -> tuple[LayerState, jax.Array]:
    """Trains the network from epoch ``first`` up to ``last``: see ``program``'s."""
    images, labels = examples
    num_steps = training.epochs * training.num_batches(labels.shape[0])
    tx = training.optimizer.make(learning_rate, num_steps)

    def loss_of(params, rows):
        logits: Any = network.apply({"params": params}, images[rows])
        return jnp.mean(
            optax.softmax_cross_entropy_with_integer_labels(logits, labels[rows])
        )

    def run_step(state: LayerState, batch):
        rows, corrections = batch
        loss, grads = jax.value_and_grad(loss_of)(state.params, rows)
        updates, opt_state = tx.update(
            grads, state.opt_state, state.params, corrections=corrections
        )
        params = optax.apply_updates(state.params, updates)
        return LayerState(params, opt_state, ()), loss

    def run_epoch(epoch, carry):
        state, losses = carry
        order_key = jax.random.fold_in(key, epoch)
        order = shuffle(order_key, labels.shape[0], training.batch_size)
        batches = (order, bias_corrections(epoch, len(order)))
        state, step_losses = jax.lax.scan(run_step, state, batches)
        return state, losses.at[epoch].set(jnp.mean(step_losses))

    return jax.lax.fori_loop(first, last, run_epoch, (state, losses))


def init(
    network: Network, key: jax.Array, num_inputs: int, training: Training
) -> LayerState:
    """A fresh network for images of so many values."""
    params = network.init(key, jnp.zeros((num_inputs,)))["params"]
    return LayerState(params, training.optimizer.init(params), ())


def train_network(
    network: Network,
    key: jax.Array,
    images: np.ndarray,
    labels: np.ndarray,
    training: Training,
    *,
    on_epochs: OnEpochs | None = None,
    look: Look | None = None,
) -> TrainedLayer:
    """Trains a network; all of it comes back as one layer.

    Args:
      network: what to train.
      key: the run's key.
      images: (N, D) float32.
      labels: (N,) integers in 0..C-1.
      training: how; threshold and objective have no meaning here.
      on_epochs: called with progress, as for layer 0.
      look: called with the logits (N, 1, C) of the network so far, as for layer 0.
    """
    init_key, train_key = jax.random.split(key)
    examples = jnp.asarray(images), jnp.asarray(labels, jnp.int32)

    def span(state, losses, first, last):
        return train_epochs(
            state,
            losses,
            train_key,
            examples,
            jnp.float32(training.learning_rate),
            first,
            last,
            network=network,
            training=training.as_program(),
        )

    report = None if on_epochs is None else functools.partial(on_epochs, 0)
    stops = None
    if look is not None:
        seen, call = jnp.asarray(look.images), look.call
        stops = Stops(
            look.every,
            lambda epochs, state: call(
                0, epochs, [score_images(network, state.params, seen)]
            ),
        )
    state = init(network, init_key, images.shape[-1], training)
    losses = jnp.full((num_slots(training.epochs),), jnp.nan, jnp.float32)
    state, done = run_epochs(span, state, losses, training.epochs, report, stops)
    return finish_layer(state.params, (), done)


@functools.partial(jax.jit, static_argnames=("network",))
def score_images(network: Network, params: Params, images: jax.Array) -> jax.Array:
    """The logits of images (N, D) as ``evaluate.evaluate`` takes them: (N, 1, C)."""
    logits = jax.lax.map(
        lambda image: network.apply({"params": params}, image),
        images,
        batch_size=1000,
    )
    return logits[:, None, :]
