"""The best that a user of PyTorch can do: compiled, in bfloat16, lower layers kept.

Every variant trains the same layer from the same weights on the same batches, in turns:
the recipe as it stands, with ``torch.compile``, with autocast to bfloat16, with both;
each with the lower layers run again at every step and with their outputs kept as ffjax
keeps them; and ffjax in float32 and in bfloat16. All but the recipe as it stands have
PyTorch's fused Adam. Goodness is measured in float32 everywhere.
"""

import dataclasses
import functools
import itertools
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
import torch
from torch import Tensor

from experiments.benchmark import cases, measure, recipe
from experiments.benchmark.measure import Bench, Prepared, Row
from ffjax.model import pathway
from ffjax.training.program import Examples

PRECISIONS = ("float32", "bfloat16")
_TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class Variant(NamedTuple):
    """A way to train a layer."""

    framework: str  # "torch" or "ffjax"
    lower: str  # outputs of the layers below: "recomputed" at every step, or "kept"
    compiled: bool
    precision: str

    @property
    def is_plain(self) -> bool:
        """Whether it is the recipe as it stands."""
        return self == PLAIN


PLAIN = Variant("torch", "recomputed", False, "float32")
OURS = tuple(Variant("ffjax", "kept", True, name) for name in PRECISIONS)
THEIRS = tuple(
    Variant("torch", *choices)
    for choices in itertools.product(("recomputed", "kept"), (False, True), PRECISIONS)
)


def compile_problem() -> str:
    """Why ``torch.compile`` does not work here; empty if it does."""
    # Its own pool of processes would stay and take time from what is measured.
    torch._inductor.config.compile_threads = 1  # pyright: ignore
    try:
        torch.compile(lambda x: x.sin() + x.exp())(torch.ones(7))
    except Exception as error:  # no compiler, no headers of Python, ...
        reason = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        return f"torch.compile is left out: it needs a C++ compiler (g++); {reason}"
    finally:
        torch._dynamo.reset()
    return ""


def variants(with_compile: bool) -> list[Variant]:
    """All that can be measured here."""
    theirs = [v for v in THEIRS if with_compile or not v.compiled]
    return [*theirs, *OURS]


def measure_rivals(
    bench: Bench,
    network: Prepared,
    wanted: list[Variant],
    progress: Callable[[str], None],
) -> list[Row]:
    """All rounds of every variant, layer after layer: a row for each measurement."""
    rows: list[Row] = []
    ours, theirs = _Ours(bench, network), _Theirs(bench, network)
    for index in range(network.case.num_layers):
        ways = {variant: _way(variant, ours, theirs, index) for variant in wanted}
        compiling = {}
        for variant, way in ways.items():
            progress(f"compiling layer {index + 1} of {network.case}: {variant}")
            compiling[variant] = way.prepare()
        for turn in range(bench.size.rounds):
            progress(f"round {turn + 1}, rivals: layer {index + 1} of {network.case}")
            once = _time_inputs(ours, theirs, index, turn)
            for variant in measure.rotated(wanted, turn):
                seconds, loss = ways[variant].epoch(jax.random.key(1000 + turn))
                row = _row(network, index, turn, variant)
                inputs = once[variant.framework, variant.precision]
                inputs = inputs if variant.lower == "kept" else 0.0
                row["compile_seconds"] = compiling[variant]
                row["seconds"] = seconds
                row["inputs_seconds"] = inputs
                row["amortised_seconds"] = seconds + inputs / cases.EPOCHS
                row["loss"] = loss
                rows.append(row)
        torch._dynamo.reset()  # it keeps only a few programs of a function
        ours.advance(index)
        theirs.advance(index)
    return rows


def _row(network: Prepared, index: int, turn: int, variant: Variant) -> Row:
    case = network.case
    return {
        "pathway": case.pathway,
        "goodness": case.goodness,
        "width": case.width,
        "layer": index + 1,
        **variant._asdict(),
        "round": turn + 1,
    }


def _time_inputs(
    ours: "_Ours", theirs: "_Theirs", index: int, turn: int
) -> dict[tuple[str, str], float]:
    """Seconds for a layer's kept inputs; those of the first layer are the images."""
    sides = [("torch", theirs), ("ffjax", ours)]
    keys = list(itertools.product(sides, PRECISIONS))
    return {
        (name, precision): side.seconds_of_inputs(index, precision)
        for (name, side), precision in measure.rotated(keys, turn)
    }


class _Way(NamedTuple):
    """How a variant trains a layer."""

    prepare: Callable[[], float]  # compiles; seconds
    epoch: Callable[[jax.Array], tuple[float, float]]  # key -> seconds, loss


def _way(variant: Variant, ours: "_Ours", theirs: "_Theirs", index: int) -> _Way:
    return (ours if variant.framework == "ffjax" else theirs).way(variant, index)


class _Ours:
    """The network in ffjax, in both precisions, and the inputs of its next layer."""

    def __init__(self, bench: Bench, network: Prepared):
        self._bench = bench
        self._networks = {
            name: dataclasses.replace(
                network, arch=dataclasses.replace(network.arch, precision=name)
            )
            for name in PRECISIONS
        }
        self._inputs = {
            name: pathway.encode(network.arch, bench.images)
            for name, network in self._networks.items()
        }
        self._below = self._inputs

    def way(self, variant: Variant, index: int) -> _Way:
        network = self._networks[variant.precision]
        examples = Examples(self._inputs[variant.precision], self._bench.labels)

        def epoch(key: jax.Array) -> tuple[float, float]:
            return measure.one_epoch(network, index, key, examples)

        def prepare() -> float:
            first = measure.timed(lambda: epoch(jax.random.key(0)))[0]
            return max(0.0, first - epoch(jax.random.key(0))[0])

        return _Way(prepare, epoch)

    def seconds_of_inputs(self, index: int, precision: str) -> float:
        if index == 0:
            return 0.0
        return measure.timed(lambda: self._computed(index - 1, precision))[0]

    def advance(self, index: int) -> None:
        """Goes on to the next layer."""
        self._below = self._inputs
        self._inputs = {
            name: jax.block_until_ready(self._computed(index, name))
            for name in PRECISIONS
        }

    def _computed(self, index: int, precision: str) -> jax.Array:
        network = self._networks[precision]
        params = network.params[index]
        return measure.advance(network.arch, index, params, self._below[precision])


class _Theirs:
    """The same in PyTorch."""

    def __init__(self, bench: Bench, network: Prepared):
        self._bench = bench
        self._prepared = network
        self._network = measure.make_torch_network(network, bench.images.shape[-1])
        encoded = recipe.kept_images(self._network, bench.torch_images)
        self._inputs = {name: encoded.to(_TYPES[name]) for name in PRECISIONS}
        self._below = self._inputs

    def way(self, variant: Variant, index: int) -> _Way:
        step = functools.partial(_forward, self._network, index, variant)
        if variant.compiled:
            step = torch.compile(step, dynamic=False)
        inputs = self._inputs[variant.precision]
        train = functools.partial(self._train, variant, index, step, inputs)

        def prepare() -> float:
            started = time.perf_counter()
            train(jax.random.key(0), num_batches=1)
            first = time.perf_counter() - started
            return max(0.0, first - train(jax.random.key(0), num_batches=1)[0])

        return _Way(prepare, train)

    def _train(
        self,
        variant: Variant,
        index: int,
        step: Callable[..., tuple[Tensor, Tensor]],
        inputs: Tensor,
        key: jax.Array,
        num_batches: int | None = None,
    ) -> tuple[float, float]:
        """Seconds and mean loss of an epoch, or of some batches, from given weights."""
        network, bench = self._network, self._bench
        start = self._prepared.layers[index]
        measure.load_layer(network, index, *start)
        parameters = network.layer_parameters(index)
        fused = None if variant.is_plain else True
        optimizer = torch.optim.Adam(parameters, recipe.LEARNING_RATE, fused=fused)
        batches = measure.torch_batches(bench, key)[:num_batches]
        labels = bench.torch_labels

        def epoch() -> float:
            losses = []
            for rows, wrong in batches:
                right = labels[rows]
                if variant.lower == "kept":
                    x = recipe.kept_batch(network, inputs, rows, right, wrong)
                else:
                    x = bench.torch_images[rows]
                loss, seen = step(x, right, wrong, network.running_means[index])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                recipe.follow(network, index, seen)
                losses.append(loss.item())
            return sum(losses) / len(losses)

        result = measure.timed(epoch)
        measure.load_layer(network, index, *start)
        return result

    def seconds_of_inputs(self, index: int, precision: str) -> float:
        if index == 0:
            return 0.0
        return measure.timed(lambda: self._computed(index - 1, precision))[0]

    def advance(self, index: int) -> None:
        """Goes on to the next layer."""
        self._below = self._inputs
        self._inputs = {name: self._computed(index, name) for name in PRECISIONS}

    def _computed(self, index: int, precision: str) -> Tensor:
        """A layer's outputs for all images, in parts that fit the cache."""
        batch_size = self._bench.size.batch_size
        with torch.no_grad(), _autocast(precision):
            return torch.stack(list(self._parts(index, precision, batch_size)))

    def _parts(self, index: int, precision: str, batch_size: int) -> Iterator[Tensor]:
        for of_label in self._below[precision]:
            parts = of_label.split(batch_size)
            outputs = [recipe.next_inputs(self._network, index, x) for x in parts]
            yield torch.cat(outputs).to(_TYPES[precision])


def _forward(
    network: recipe.Network,
    index: int,
    variant: Variant,
    x: Tensor,
    labels: Tensor,
    wrong: Tensor,
    mean: Tensor,
) -> tuple[Tensor, Tensor]:
    """The loss of a batch; ``x`` are images, or kept inputs of the layer."""
    with _autocast(variant.precision):
        if variant.lower == "recomputed":
            x = recipe.layer_inputs(network, index, x, labels, wrong)
        return recipe.layer_loss(network, index, x, labels, wrong, mean)


def _autocast(precision: str) -> torch.autocast:
    return torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16")
