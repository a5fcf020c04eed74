"""How much work a run is, before it runs: for time left, for shards and for --list.

Only matrix products are counted; they dominate. The rates below turn them into hours.
"""

import functools
import math
from collections.abc import Iterable

from ffjax import config, data

# Measured on 2 x86 cores: 117 with ffcl and 135 with standard, in layers of 2000 units
# with batches of 500 (experiments/benchmark/results).
CPU_RATE = 125e9  # FLOP/s of matrix products
# On the same cores; a GPU's programs take about as long. The first layer and the later
# ones have a program each.
COMPILE_SECONDS = 3.0
# The paper's appendix: a standard run at 4x2000 takes 30 to 60 s on one A100.
A100_SECONDS = 45.0


def flops(spec: config.RunSpec) -> float:
    """Floating-point operations in the matrix products of one run."""
    train_size, test_size, num_inputs, num_classes = sizes(spec)
    carries_label = spec.pathway == "standard"
    candidates = num_classes if carries_label else 1
    first, later = num_inputs * spec.width, (spec.num_layers - 1) * spec.width**2
    # In the first layer a product forward and one for the weights' gradient.
    step = 2 * (2 * first + _later_products(spec, num_classes) * later)
    look = 2 * (first + candidates * later)
    return float(train_size * (spec.epochs * step + look) + test_size * look)


def _later_products(spec: config.RunSpec, num_classes: int) -> int:
    """Products of a step in a layer above the first: forward and of gradients."""
    if spec.trainer == "backprop":
        return 3  # its inputs have a gradient, too
    if spec.pathway != "standard":
        return 2
    # Inputs depend on the label: there are as many kinds as a step has labels.
    kinds = num_classes if spec.negatives == "all" else 2
    tried = num_classes - 1 if spec.negatives == "hard" else 0
    return 2 * kinds + tried


def cpu_seconds(spec: config.RunSpec) -> float:
    """About how long one run takes on 2 CPU cores."""
    return _compile_seconds(spec) + flops(spec) / CPU_RATE


def a100_seconds(spec: config.RunSpec) -> float:
    """About how long one run takes on an A100, judged by the paper's runs."""
    known = config.RunSpec(dataset="fashion_mnist", pathway="standard")
    rate = flops(known) / (A100_SECONDS - _compile_seconds(known))
    return _compile_seconds(spec) + flops(spec) / rate


def describe(cells: Iterable[config.Cell]) -> str:
    """How many cells and runs there are, and about how long they take."""
    cells = list(cells)
    runs = [cell.spec for cell in cells for _ in cell.seeds]
    gpu = _amount(sum(map(a100_seconds, runs)), "GPU-")
    cpu = _amount(sum(map(cpu_seconds, runs)), "")
    return (
        f"{count(len(cells), 'cell')}, {count(len(runs), 'run')}: "
        f"about {gpu} on one A100, or {cpu} on 2 CPU cores"
    )


def _compile_seconds(spec: config.RunSpec) -> float:
    return COMPILE_SECONDS * min(spec.num_layers, 2)


def count(number: int, noun: str) -> str:
    """A number with its noun: 1 run, 2 runs."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _amount(seconds: float, prefix: str) -> str:
    for size, name in ((3600, "hours"), (60, "minutes"), (1, "seconds")):
        if seconds >= 1.5 * size or size == 1:
            value = seconds / size
            shown = f"{value:.1f}" if value < 10 else f"{value:.0f}"
            return f"{shown} {prefix}{name}"
    raise AssertionError


def sizes(spec: config.RunSpec) -> tuple[int, int, int, int]:
    """Training and test images of a run, values of an image, classes."""
    train_size, test_size, num_inputs, num_classes = _full_sizes(spec.dataset)
    if spec.train_limit:
        train_size = min(train_size, spec.train_limit)
    if spec.test_limit:
        test_size = min(test_size, spec.test_limit)
    train_size = round(train_size * (1 - spec.valid_fraction))
    return train_size, test_size, num_inputs, num_classes


@functools.cache
def _full_sizes(dataset: str) -> tuple[int, int, int, int]:
    """Training and test images, values of an image, classes."""
    known = data.DATASETS.get(dataset)
    if known is not None:
        num_inputs = math.prod(known.image_shape)
        return known.train_size, known.test_size, num_inputs, len(known.class_names)
    found = data.load(dataset)  # a user's own file: only its arrays tell
    num_inputs = found.train_images.shape[1]
    sizes = len(found.train_labels), len(found.test_labels)
    return *sizes, num_inputs, found.num_classes
