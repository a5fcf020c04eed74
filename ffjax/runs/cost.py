"""How much work a run is, before it runs: for time left, for shards and for --list.

Of whole runs only matrix products are counted; they dominate. The rates below turn them
into hours.
"""

import functools
import itertools
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ffjax import data
from ffjax.config import Cell, RunSpec
from ffjax.config.spec import check_shape
from ffjax.paper import names

# Measured on 2 x86 cores: 117 with ffcl and 135 with standard, in layers of 2000 units
# with batches of 500 (experiments/benchmark/results).
CPU_RATE = 125e9  # FLOP/s of matrix products
# On the same cores; a GPU's programs take about as long. The first layer and the later
# ones have a program each.
COMPILE_SECONDS = 3.0
# The paper's appendix: a standard run at 4x2000 takes 30 to 60 s on one A100.
A100_SECONDS = 45.0
# What a training step does with a value that a layer reads or makes takes about as long
# as so many operations of products: 1.5 ns beside 400 GFLOP/s on a core, measured with
# convolutions in bfloat16.
_VALUE_FLOPS = 600


def flops(spec: RunSpec) -> float:
    """Floating-point operations in the matrix products of one run."""
    size = sizes(spec)
    carries_label = spec.pathway == "standard"
    candidates = size.classes if carries_label else 1
    layers = _layers(spec, size.image_shape, size.classes)
    first, *above = (one.products for one in layers)
    step = 2 * sum(
        _step_products(spec, size.classes, index) * one.products
        for index, one in enumerate(layers)
    )
    look = 2 * (first + candidates * sum(above))
    return float(size.train * (spec.epochs * step + look) + size.test * look)


def stage_work(
    spec: RunSpec, image_shape: Sequence[int], num_classes: int
) -> list[float]:
    """The work of a step in each of a run's trainings, of an image and in any unit.

    With it the time left is known while the first layer is trained. Beside products,
    what is done with single values counts: the first of some convolutions has a
    fiftieth of the next one's products, and takes a quarter of its time.
    """
    work = [
        _step_products(spec, num_classes, index)
        * (2 * one.products + _VALUE_FLOPS * one.values / 2)
        for index, one in enumerate(_layers(spec, image_shape, num_classes))
    ]
    return [sum(work)] if spec.num_stages == 1 else work


class _Layer(NamedTuple):
    """What a layer does with an image."""

    positions: int  # 1 of a dense layer
    fan_in: int
    width: int

    @property
    def products(self) -> int:
        """Multiplications."""
        return self.positions * self.fan_in * self.width

    @property
    def values(self) -> int:
        """How many are read and made."""
        return self.positions * (self.fan_in + self.width)


def _layers(
    spec: RunSpec, image_shape: Sequence[int], num_classes: int
) -> list[_Layer]:
    widths = spec.layer_widths
    maps = check_shape(spec, image_shape, num_classes)
    if maps is None:
        below = (math.prod(image_shape), *widths)
        return [_Layer(1, *pair) for pair in itertools.pairwise(below)]
    return [
        _Layer(maps.reads(widths, index).positions, maps.fan_in(widths, index), width)
        for index, width in enumerate(widths)
    ]


def _step_products(spec: RunSpec, num_classes: int, index: int) -> int:
    """Products of a step in a layer: forward and of gradients."""
    if index == 0:
        return 2  # forward, and the gradient of its weights
    if spec.trainer == "backprop":
        return 3  # its inputs have a gradient, too
    if spec.pathway != "standard":
        return 2
    # Inputs depend on the label: there are as many kinds as a step has labels.
    kinds = num_classes if spec.negatives == "all" else 2
    tried = num_classes - 1 if spec.negatives == "hard" else 0
    return 2 * kinds + tried


def cpu_seconds(spec: RunSpec) -> float:
    """About how long one run takes on 2 CPU cores."""
    return _compile_seconds(spec) + flops(spec) / CPU_RATE


def a100_seconds(spec: RunSpec) -> float:
    """About how long one run takes on an A100, judged by the paper's runs."""
    known = RunSpec(dataset="fashion_mnist", pathway="standard")
    rate = flops(known) / (A100_SECONDS - _compile_seconds(known))
    return _compile_seconds(spec) + flops(spec) / rate


def describe(cells: Iterable[Cell]) -> str:
    """How many cells and runs there are, and about how long they take."""
    cells = list(cells)
    runs = [cell.spec for cell in cells for _ in cell.seeds]
    gpu = names.amount(sum(map(a100_seconds, runs)), "GPU-")
    cpu = names.amount(sum(map(cpu_seconds, runs)))
    return (
        f"{names.count(len(cells), 'cell')}, {names.count(len(runs), 'run')}: "
        f"about {gpu} on one A100, or {cpu} on 2 CPU cores"
    )


def _compile_seconds(spec: RunSpec) -> float:
    return COMPILE_SECONDS * min(spec.num_layers, 2)


class Sizes(NamedTuple):
    """How large a dataset is."""

    train: int  # images
    test: int  # images
    inputs: int  # values of an image
    classes: int
    image_shape: tuple[int, ...]


def sizes(spec: RunSpec) -> Sizes:
    """The images that a run uses."""
    full = _full_sizes(spec.dataset)
    train = min(full.train, spec.train_limit or full.train)
    return full._replace(
        train=round(train * (1 - spec.valid_fraction)),
        test=min(full.test, spec.test_limit or full.test),
    )


@functools.cache
def _full_sizes(dataset: str) -> Sizes:
    known = data.DATASETS.get(dataset)
    if known is not None:
        num_inputs = math.prod(known.image_shape)
        classes = len(known.class_names)
        counts = known.train_size, known.test_size
        return Sizes(*counts, num_inputs, classes, known.image_shape)
    own = data.load(dataset)  # a user's own file: only its arrays say
    num_inputs = own.train_images.shape[1]
    counts = len(own.train_labels), len(own.test_labels)
    return Sizes(*counts, num_inputs, own.num_classes, own.image_shape)
