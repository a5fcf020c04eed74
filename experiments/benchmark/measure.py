"""Measurements: the same work in both frameworks, in turn, several times over.

Every network is first trained for a few epochs, because the cost of entmax depends on
the activations. Each round then trains every layer for one epoch from those weights,
in PyTorch and in ffjax, with the same batches and wrong labels: the losses must agree,
or the times would compare different things.
"""

import dataclasses
import functools
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from experiments.benchmark import cases, recipe
from ffjax import data, goodness
from ffjax.model import evaluate, pathway
from ffjax.training import program

Row = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A network after its first epochs, and its rows of results so far."""

    case: cases.Case
    arch: pathway.Architecture
    layers: list[tuple[Any, Any]]  # parameters and goodness state
    rows: list[Row]


class Bench:
    """The images, and what is measured on them."""

    def __init__(self, size: cases.Size, dataset: data.Dataset):
        self.size = size
        self.num_classes = dataset.num_classes
        self.images = jnp.asarray(dataset.train_images)
        self.labels = jnp.asarray(dataset.train_labels)
        self.test_images = jnp.asarray(dataset.test_images)
        self.torch_images = torch.from_numpy(dataset.train_images.copy())
        self.torch_labels = torch.from_numpy(dataset.train_labels.astype(np.int64))
        self.torch_test_images = torch.from_numpy(dataset.test_images.copy())
        self.hyper = program.Hyper(
            jnp.float32(cases.LEARNING_RATE), jnp.float32(cases.THRESHOLD)
        )

    def prepare(self, case: cases.Case) -> Prepared:
        """Compiles and trains a network in ffjax for a few epochs."""
        arch = pathway.Architecture(
            pathway=case.pathway,
            goodness=goodness.make(case.goodness),
            activation="gelu",
            norm_gate=False,
            widths=case.widths,
            num_classes=self.num_classes,
            label_scale=cases.LABEL_SCALE,
        )
        layers, rows = [], []
        inputs = pathway.encode(arch, self.images)
        for index in range(len(case.widths)):
            if index > 0:
                inputs = pathway.advance(arch, index - 1, layers[-1][0], inputs)
                jax.block_until_ready(inputs)  # not a part of the compilation
            key = jax.random.key(index)
            state = program.init_layer(arch, index, key, inputs.shape[-1])
            epochs = functools.partial(self._epochs, arch, index, key, inputs)
            # No epochs at all: only the compilation.
            compile_s, (state, _) = timed(functools.partial(epochs, state, 0))
            state, _ = epochs(state, self.size.start_epochs)
            layers.append((state.params, state.goodness_state))
            row = {
                "pathway": case.pathway,
                "goodness": case.goodness,
                "width": case.widths[index],
                "layer": index + 1,
                "compile": compile_s,
                "loss_error": 0.0,
            }
            rows.append(row)
        return Prepared(case, arch, layers, rows)

    def measure_training(self, prepared: Prepared, turn: int, variants: bool) -> None:
        """One epoch of every layer in both frameworks; adds samples to the rows.

        Args:
          prepared: the network.
          turn: the number of the round; which framework goes first depends on it.
          variants: whether to time a fused Adam in PyTorch, and ffjax without stored
            inputs, as well.
        """
        arch, rows = prepared.arch, prepared.rows
        network = make_torch_network(prepared, self.images.shape[-1])
        encoded = inputs = pathway.encode(arch, self.images)
        for index, row in enumerate(rows):
            if index > 0:
                below = prepared.layers[index - 1][0]
                advance = functools.partial(
                    pathway.advance, arch, index - 1, below, inputs
                )
                seconds, inputs = timed(advance)
                _add(row, "inputs", seconds)
            # A key of the round's own: other batches than in the epochs before.
            key = jax.random.key(1000 + turn)
            epoch = functools.partial(self._one_epoch, prepared, index, key)
            torch_epoch = functools.partial(
                self._one_torch_epoch, prepared, network, index, key
            )
            timers: dict[str, Callable[[], tuple[float, float]]] = {
                "torch": torch_epoch,
                "ffjax": functools.partial(epoch, inputs, ()),
                "products": functools.partial(self._products, prepared.case, index),
            }
            if variants:
                timers["torch_fused"] = functools.partial(torch_epoch, fused=True)
                if index > 0 and arch.carries_label:
                    lower = tuple(params for params, _ in prepared.layers[:index])
                    again = functools.partial(epoch, encoded, lower)
                    if turn == 0:
                        again()  # compiles
                    timers["ffjax_recomputed"] = again
            losses = {}
            for name in _rotated(list(timers), turn):
                seconds, losses[name] = timers[name]()
                _add(row, name, seconds)
            error = abs(losses["torch"] / losses["ffjax"] - 1)
            # Unlike max, this keeps a NaN.
            row["loss_error"] = float(np.maximum(row["loss_error"], error))

    def measure_together(self, networks: list[Prepared], turn: int) -> None:
        """One epoch of every layer in ffjax alone, all networks in turn.

        Goodness functions are compared by these samples: what the machine does
        meanwhile changes more from minute to minute than from one to the next.
        """
        key = jax.random.key(2000 + turn)
        inputs = [pathway.encode(one.arch, self.images) for one in networks]
        for index in range(len(networks[0].rows)):
            if index > 0:
                inputs = [
                    pathway.advance(one.arch, index - 1, one.layers[index - 1][0], x)
                    for one, x in zip(networks, inputs, strict=True)
                ]
            jax.block_until_ready(inputs)
            places = list(range(len(networks)))
            for place in _rotated(places, turn):
                one = networks[place]
                seconds, _ = self._one_epoch(one, index, key, inputs[place], ())
                _add(one.rows[index], "together", seconds)

    def measure_evaluation(self, prepared: Prepared, row: Row, turn: int) -> None:
        """Scores the test images in both frameworks; adds samples to the row."""
        arch = prepared.arch
        params = [params for params, _ in prepared.layers]
        states = [state for _, state in prepared.layers]
        network = make_torch_network(prepared, self.images.shape[-1])

        def ours():
            return evaluate.score_images(arch, params, states, self.test_images)

        def theirs():
            return recipe.score_images(
                network, self.torch_test_images, self.size.batch_size
            )

        timers = {"torch": theirs, "ffjax": ours}
        if not arch.carries_label:
            timers["forward"] = lambda: run_forward(arch, params, self.test_images)
        if turn == 0:
            row["compile"] = timed(ours)[0]
            if "forward" in timers:
                timed(timers["forward"])
        scores = {}
        for name in _rotated(list(timers), turn):
            seconds, scores[name] = timed(timers[name])
            _add(row, name, seconds)
        expected, found = scores["torch"].numpy(), np.asarray(scores["ffjax"])
        error = np.max(np.abs(found - expected) / (1 + np.abs(found)))
        row["score_error"] = float(np.maximum(row.get("score_error", 0.0), error))

    def _epochs(self, arch, index, key, inputs, state, last, lower=()):
        losses = jnp.full((self.size.start_epochs,), jnp.nan, jnp.float32)
        if not lower:
            arch, index = pathway.as_program(arch, index)
        return program.train_epochs(
            state,
            losses,
            key,
            inputs,
            self.labels,
            lower,
            self.hyper,
            jnp.int32(0),
            jnp.int32(last),
            arch=arch,
            index=index,
            batch_size=self.size.batch_size,
        )

    def _one_epoch(self, prepared, index, key, inputs, lower):
        arch = prepared.arch
        width = pathway.input_width(arch, lower, inputs)
        state = program.init_layer(arch, index, key, width)
        params, goodness_state = jax.tree.map(jnp.copy, prepared.layers[index])
        state = state.replace(params=params, goodness_state=goodness_state)
        jax.block_until_ready(state)
        seconds, (_, losses) = timed(
            lambda: self._epochs(arch, index, key, inputs, state, 1, lower)
        )
        return seconds, float(losses[0])

    def _one_torch_epoch(self, prepared, network, index, key, fused=None):
        load_layer(network, index, *prepared.layers[index])
        parameters = network.layer_parameters(index)
        optimizer = torch.optim.Adam(parameters, cases.LEARNING_RATE, fused=fused)
        # The batches of train.train_epochs.
        order_key, label_key = jax.random.split(jax.random.fold_in(key, 0))
        order = program.shuffle(order_key, len(self.labels), self.size.batch_size)
        wrong = program.draw_wrong_labels(
            label_key, self.labels[order], self.num_classes
        )
        batches = list(zip(_to_torch(order), _to_torch(wrong), strict=True))
        result = timed(
            lambda: recipe.train_epoch(
                network,
                index,
                optimizer,
                self.torch_images,
                self.torch_labels,
                batches,
            )
        )
        # The layers above expect the weights from before this epoch.
        load_layer(network, index, *prepared.layers[index])
        return result

    def _products(self, case, index):
        """An epoch of nothing but the layer's matrix products."""
        rows = cases.product_rows(case, index, self.size)
        fan_in = case.widths[index - 1] if index > 0 else self.images.shape[-1]
        batches, weights = _operands(
            cases.num_steps(self.size), rows, fan_in, case.widths[index]
        )
        return timed(lambda: run_products(batches, weights))[0], 0.0


def timed(function: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds until the result of a call is there, and the result."""
    started = time.perf_counter()
    result = jax.block_until_ready(function())
    return time.perf_counter() - started, result


@jax.jit
def run_products(batches: jax.Array, weights: jax.Array) -> jax.Array:
    """For each batch x: x W, and x' g with a g of the same shape as x W."""

    def step(_, x):
        return x.T @ (x @ weights), None

    return jax.lax.scan(step, jnp.zeros_like(weights), batches)[0]


@functools.partial(jax.jit, static_argnames="arch")
def run_forward(arch: pathway.Architecture, params, images: jax.Array) -> jax.Array:
    """A plain forward pass: images through all layers, and no goodness."""
    labels = jnp.zeros(len(images), jnp.int32)
    return pathway.propagate(arch, params, pathway.encode(arch, images), labels)


def make_torch_network(prepared: Prepared, num_inputs: int) -> recipe.Network:
    """The same network with the same weights in PyTorch."""
    case = prepared.case
    network = recipe.Network(
        case.pathway,
        case.goodness,
        num_inputs,
        case.widths,
        prepared.arch.num_classes,
    )
    for index, (params, state) in enumerate(prepared.layers):
        load_layer(network, index, params, state)
    return network


def load_layer(network: recipe.Network, index: int, params, state) -> None:
    """Copies a layer's weights into the PyTorch network."""
    kernel, label_kernel = params["kernel"], params.get("label_kernel")
    if network.pathway == "standard" and index == 0:
        kernel = jnp.concatenate([kernel, label_kernel])
    weights = {"weight": _to_torch(kernel.T), "bias": _to_torch(params["bias"])}
    network.layers[index].load_state_dict(weights)
    if network.pathway == "ffcl":
        label_weights = {"weight": _to_torch(label_kernel.T)}
        network.label_layers[index].load_state_dict(label_weights)
    if not isinstance(state, tuple):
        network.running_means[index] = _to_torch(state)


def _to_torch(array: jax.Array) -> torch.Tensor:
    values = np.array(array)
    return torch.from_numpy(
        values.astype(np.int64) if values.dtype.kind == "i" else values
    )


@functools.lru_cache(maxsize=1)
def _operands(num_batches: int, rows: int, fan_in: int, width: int):
    keys = jax.random.split(jax.random.key(0))
    batches = jax.random.normal(keys[0], (num_batches, rows, fan_in))
    weights = jax.random.normal(keys[1], (fan_in, width)) * fan_in**-0.5
    jax.block_until_ready(run_products(batches, weights))  # compiles
    return batches, weights


def _rotated(names: list[Any], turn: int) -> list[Any]:
    shift = turn % len(names)
    return names[shift:] + names[:shift]


def _add(row: Row, name: str, seconds: float) -> None:
    row.setdefault(name, []).append(seconds)
