"""Measurements: the same work in both frameworks, in turn, several times over.

Every network is first trained for a few epochs, because the cost of entmax depends on
the activations. Each round then trains every layer for an epoch from those weights,
in PyTorch and in ffjax, with the same batches and wrong labels: the losses must agree,
or the times would compare different things.
"""

import dataclasses
import functools
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import torch

from experiments.benchmark import cases, recipe
from ffjax import data
from ffjax.config import build
from ffjax.goodness import State
from ffjax.model import evaluate, pathway
from ffjax.model.pathway import Architecture, Params
from ffjax.training import program
from ffjax.training.optimizer import Training
from ffjax.training.program import Examples, Hyper, LayerState, Program

Row = dict[str, Any]  # of a table: names, and samples in seconds
Timer = Callable[[], tuple[float, float]]  # seconds, and the loss
_T = TypeVar("_T")


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A network after its first epochs, and its rows of results so far."""

    case: cases.Case
    arch: Architecture
    training: Training
    layers: list[tuple[Params, State]]
    rows: list[Row]

    @property
    def params(self) -> list[Params]:
        """Of all layers."""
        return [params for params, _ in self.layers]


# Compiled once for each shape, as the members' program is in training.
advance = jax.jit(pathway.advance, static_argnums=(0, 1))


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

    def prepare(self, case: cases.Case) -> Prepared:
        """Compiles and trains a network in ffjax for a few epochs."""
        spec = case.spec(self.size)
        arch = build.architecture(spec, self.num_classes)
        network = Prepared(case, arch, build.training(spec), [], [])
        inputs = pathway.encode(arch, self.images)
        for index in range(case.num_layers):
            if index > 0:
                inputs = advance(arch, index - 1, network.params[-1], inputs)
                jax.block_until_ready(inputs)  # not a part of the compilation
            key = jax.random.key(index)
            state = program.init_layer(
                arch, index, key, inputs.shape[-1], network.training
            )
            examples = Examples(inputs, self.labels)
            epochs = functools.partial(_epochs, network, index, key, examples)
            # No epochs at all: only the compilation.
            compile_s, (state, _) = timed(functools.partial(epochs, state, 0))
            state, _ = epochs(state, self.size.start_epochs)
            network.layers.append((state.params, state.goodness_state))
            network.rows.append(
                {
                    "pathway": case.pathway,
                    "goodness": case.goodness,
                    "width": case.width,
                    "layer": index + 1,
                    "compile": compile_s,
                    "loss_error": 0.0,
                }
            )
        return network

    def measure_training(self, network: Prepared, turn: int, variants: bool) -> None:
        """One epoch of every layer in both frameworks; adds samples to the rows.

        Args:
          network: what to train.
          turn: the number of the round; which framework goes first depends on it.
          variants: whether to time a fused Adam in PyTorch, and ffjax without stored
            inputs, as well.
        """
        arch = network.arch
        theirs = make_torch_network(network, self.images.shape[-1])
        inputs = pathway.encode(arch, self.images)
        for index, row in enumerate(network.rows):
            if index > 0:
                below = network.params[index - 1]
                seconds, inputs = timed(
                    functools.partial(advance, arch, index - 1, below, inputs)
                )
                _add(row, "inputs", seconds)
            # A key of the round's own: other batches than in the epochs before.
            key = jax.random.key(1000 + turn)
            examples = Examples(inputs, self.labels)
            torch_epoch = functools.partial(
                self._torch_epoch, network, theirs, index, key
            )
            timers: dict[str, Timer] = {
                "torch": torch_epoch,
                "ffjax": functools.partial(one_epoch, network, index, key, examples),
                "products": functools.partial(self._products, network.case, index),
            }
            if variants:
                timers["torch_fused"] = functools.partial(torch_epoch, fused=True)
                timers |= self._recomputed(network, index, key, turn)
            losses = {}
            for name in rotated(list(timers), turn):
                seconds, losses[name] = timers[name]()
                _add(row, name, seconds)
            error = abs(losses["torch"] / losses["ffjax"] - 1)
            # Unlike max, this keeps a NaN.
            row["loss_error"] = float(np.maximum(row["loss_error"], error))

    def _recomputed(
        self, network: Prepared, index: int, key: jax.Array, turn: int
    ) -> dict[str, Timer]:
        """ffjax without stored inputs, where storing them makes a difference."""
        if index == 0 or not network.arch.carries_label:
            return {}
        encoded = pathway.encode(network.arch, self.images)
        examples = Examples(encoded, self.labels, tuple(network.params[:index]))
        again = functools.partial(one_epoch, network, index, key, examples)
        if turn == 0:
            again()  # compiles
        return {"ffjax_recomputed": again}

    def measure_together(self, networks: Sequence[Prepared], turn: int) -> None:
        """One epoch of every layer in ffjax alone, all networks in turn.

        Goodness functions are compared by these samples: what the machine does
        meanwhile changes more from minute to minute than from sample to sample.
        """
        key = jax.random.key(2000 + turn)
        inputs = [pathway.encode(network.arch, self.images) for network in networks]
        for index in range(len(networks[0].rows)):
            if index > 0:
                inputs = [
                    advance(n.arch, index - 1, n.params[index - 1], x)
                    for n, x in zip(networks, inputs, strict=True)
                ]
            jax.block_until_ready(inputs)
            for place in rotated(list(range(len(networks))), turn):
                examples = Examples(inputs[place], self.labels)
                seconds, _ = one_epoch(networks[place], index, key, examples)
                _add(networks[place].rows[index], "together", seconds)

    def measure_evaluation(self, network: Prepared, row: Row, turn: int) -> None:
        """Scores the test images in both frameworks; adds samples to the row."""
        arch, params = network.arch, network.params
        states = [state for _, state in network.layers]
        torch_network = make_torch_network(network, self.images.shape[-1])

        def ours() -> jax.Array:
            return evaluate.score_images(arch, params, states, self.test_images)

        def theirs() -> torch.Tensor:
            return recipe.score_images(
                torch_network, self.torch_test_images, self.size.batch_size
            )

        timers: dict[str, Callable[[], Any]] = {"torch": theirs, "ffjax": ours}
        if not arch.carries_label:
            timers["forward"] = lambda: run_forward(arch, params, self.test_images)
        if turn == 0:
            row["compile"] = timed(ours)[0]
            if "forward" in timers:
                timed(timers["forward"])
        scores = {}
        for name in rotated(list(timers), turn):
            seconds, scores[name] = timed(timers[name])
            _add(row, name, seconds)
        expected, measured = scores["torch"].numpy(), np.asarray(scores["ffjax"])
        error = np.max(np.abs(measured - expected) / (1 + np.abs(measured)))
        row["score_error"] = float(np.maximum(row.get("score_error", 0.0), error))

    def _torch_epoch(
        self,
        network: Prepared,
        theirs: recipe.Network,
        index: int,
        key: jax.Array,
        fused: bool | None = None,
    ) -> tuple[float, float]:
        load_layer(theirs, index, *network.layers[index])
        parameters = theirs.layer_parameters(index)
        optimizer = torch.optim.Adam(parameters, recipe.LEARNING_RATE, fused=fused)
        batches = torch_batches(self, key)
        images, labels = self.torch_images, self.torch_labels
        result = timed(
            lambda: recipe.train_epoch(
                theirs, index, optimizer, images, labels, batches
            )
        )
        # The layers above expect the weights from before this epoch.
        load_layer(theirs, index, *network.layers[index])
        return result

    def _products(self, case: cases.Case, index: int) -> tuple[float, float]:
        """An epoch of nothing but the layer's matrix products."""
        rows = cases.product_rows(case, index, self.size)
        fan_in = case.width if index > 0 else self.images.shape[-1]
        batches, weights = _operands(
            cases.num_steps(self.size), rows, fan_in, case.width
        )
        return timed(lambda: run_products(batches, weights))[0], 0.0


def _epochs(
    network: Prepared,
    index: int,
    key: jax.Array,
    examples: Examples,
    state: LayerState,
    last: int,
) -> tuple[LayerState, jax.Array]:
    """The first epochs of a layer by the program that ffjax trains it with."""
    training = network.training
    return program.train_epochs(
        state,
        jnp.full((training.epochs,), jnp.nan, jnp.float32),
        key,
        examples,
        Hyper(jnp.float32(training.learning_rate), jnp.float32(training.threshold)),
        jnp.int32(0),
        jnp.int32(last),
        program=Program.of(
            network.arch, index, training, has_lower=bool(examples.lower)
        ),
    )


def one_epoch(
    network: Prepared, index: int, key: jax.Array, examples: Examples
) -> tuple[float, float]:
    """Seconds and loss of an epoch in ffjax, from the prepared weights."""
    arch = network.arch
    width = pathway.input_width(arch, examples.lower, examples.inputs)
    state = program.init_layer(arch, index, key, width, network.training)
    params, goodness_state = jax.tree.map(jnp.copy, network.layers[index])
    state = state.replace(params=params, goodness_state=goodness_state)
    jax.block_until_ready(state)
    seconds, (_, losses) = timed(
        lambda: _epochs(network, index, key, examples, state, 1)
    )
    return seconds, float(losses[0])


def timed(function: Callable[[], _T]) -> tuple[float, _T]:
    """Seconds until the result of a call is there, and the result."""
    started = time.perf_counter()
    result = jax.block_until_ready(function())
    return time.perf_counter() - started, result


@jax.jit
def run_products(batches: jax.Array, weights: jax.Array) -> jax.Array:
    """For each batch x: x W, and x' g with a g of the same shape as x W."""

    def step(_: jax.Array, x: jax.Array) -> tuple[jax.Array, None]:
        return x.T @ (x @ weights), None

    return jax.lax.scan(step, jnp.zeros_like(weights), batches)[0]


@functools.partial(jax.jit, static_argnames="arch")
def run_forward(
    arch: Architecture, params: Sequence[Params], images: jax.Array
) -> jax.Array:
    """A plain forward pass: images through all layers, and no goodness."""
    labels = jnp.zeros(len(images), jnp.int32)
    return pathway.propagate(arch, params, pathway.encode(arch, images), labels)


def torch_batches(
    bench: Bench, key: jax.Array
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Rows and wrong labels of an epoch: the batches of ``program.train_epochs``."""
    order_key, label_key = jax.random.split(jax.random.fold_in(key, 0))
    order = program.shuffle(order_key, len(bench.labels), bench.size.batch_size)
    wrong = program.draw_wrong_labels(label_key, bench.labels[order], bench.num_classes)
    return list(zip(_to_torch(order), _to_torch(wrong), strict=True))


def make_torch_network(network: Prepared, num_inputs: int) -> recipe.Network:
    """The same network with the same weights in PyTorch."""
    case, widths = network.case, network.arch.widths
    theirs = recipe.Network(
        case.pathway, case.goodness, num_inputs, widths, network.arch.num_classes
    )
    for index, (params, state) in enumerate(network.layers):
        load_layer(theirs, index, params, state)
    return theirs


def load_layer(
    network: recipe.Network, index: int, params: Params, state: State
) -> None:
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


def _to_torch(array: jax.typing.ArrayLike) -> torch.Tensor:
    values = np.array(array)
    return torch.from_numpy(
        values.astype(np.int64) if values.dtype.kind == "i" else values
    )


@functools.lru_cache(maxsize=1)
def _operands(
    num_batches: int, rows: int, fan_in: int, width: int
) -> tuple[jax.Array, jax.Array]:
    keys = jax.random.split(jax.random.key(0))
    batches = jax.random.normal(keys[0], (num_batches, rows, fan_in))
    weights = jax.random.normal(keys[1], (fan_in, width)) * fan_in**-0.5
    jax.block_until_ready(run_products(batches, weights))  # compiles
    return batches, weights


def rotated(items: list[_T], turn: int) -> list[_T]:
    """The items in another order each turn, so that none is always the first."""
    shift = turn % len(items)
    return items[shift:] + items[:shift]


def _add(row: Row, name: str, seconds: float) -> None:
    row.setdefault(name, []).append(seconds)
