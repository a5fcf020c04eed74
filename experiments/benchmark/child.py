"""Processes of their own, for what one process cannot tell apart.

python -m experiments.benchmark.child memory ffjax|torch PATHWAY SIZE
python -m experiments.benchmark.child start

Both print one JSON object. The first trains a burstiness network for an epoch a layer,
evaluates it, and tells its peak memory before and after; the second trains the demo's
network for one step on embedded images.
"""

import json
import pathlib
import re
import resource
import subprocess
import sys
import time
from typing import Any

from experiments.benchmark import cases

_ROOT = pathlib.Path(__file__).parents[2]


def run(*arguments: str, environment: dict[str, str]) -> tuple[float, dict[str, Any]]:
    """Runs this module in a process of its own: its seconds, and what it printed."""
    command = [sys.executable, "-m", "experiments.benchmark.child", *arguments]
    started = time.perf_counter()
    done = subprocess.run(
        command, cwd=_ROOT, env=environment, check=True, stdout=subprocess.PIPE
    )
    return time.perf_counter() - started, json.loads(done.stdout)


def measure_memory(framework: str, pathway: str, size: cases.Size) -> dict[str, float]:
    """Peak bytes of a process: with everything loaded, and after training."""
    dataset = cases.load_images(size)
    widths = (size.width,) * size.num_layers
    program = _train_ffjax if framework == "ffjax" else _train_torch
    work = program(pathway, widths, size, dataset)
    loaded = _peak_bytes()
    work()
    return {"loaded": loaded, "peak": _peak_bytes()}


def _train_ffjax(pathway, widths, size, dataset):
    import jax
    import jax.numpy as jnp

    from ffjax import goodness
    from ffjax.model import evaluate
    from ffjax.model.pathway import Architecture
    from ffjax.training import program

    arch = Architecture(
        pathway=pathway,
        goodness=goodness.make("burstiness"),
        activation="gelu",
        norm_gate=False,
        widths=widths,
        num_classes=dataset.num_classes,
        label_scale=cases.LABEL_SCALE,
    )
    key = jax.random.key(0)

    def work():
        layers = program.train_network(
            arch,
            key,
            dataset.train_images,
            dataset.train_labels,
            epochs=1,
            batch_size=size.batch_size,
            learning_rate=cases.LEARNING_RATE,
            threshold=cases.THRESHOLD,
        )
        evaluate.score_images(
            arch,
            [layer.params for layer in layers],
            [layer.goodness_state for layer in layers],
            jnp.asarray(dataset.test_images),
        ).block_until_ready()

    return work


def _train_torch(pathway, widths, size, dataset):
    import torch

    from experiments.benchmark import recipe

    images = torch.from_numpy(dataset.train_images.copy())
    labels = torch.from_numpy(dataset.train_labels.copy()).long()
    test_images = torch.from_numpy(dataset.test_images.copy())
    num_classes = dataset.num_classes

    def work():
        network = recipe.Network(
            pathway, "burstiness", images.shape[-1], widths, num_classes
        )
        for index in range(len(widths)):
            parameters = network.layer_parameters(index)
            optimizer = torch.optim.Adam(parameters, cases.LEARNING_RATE)
            order = torch.randperm(len(images)).split(size.batch_size)
            shifts = [torch.randint(1, num_classes, rows.shape) for rows in order]
            batches = [
                (rows, (labels[rows] + shift) % num_classes)
                for rows, shift in zip(order, shifts, strict=True)
            ]
            recipe.train_epoch(network, index, optimizer, images, labels, batches)
        recipe.score_images(network, test_images, size.batch_size)

    return work


def _peak_bytes() -> float:
    # Not ru_maxrss where there is a choice: a child inherits that of its parent.
    status = pathlib.Path("/proc/self/status")
    if status.exists():
        found = re.search(r"VmHWM:\s*(\d+) kB", status.read_text())
        if found:
            return float(found.group(1)) * 1024
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def measure_start() -> dict[str, float]:
    """Seconds from this point to the loss of the first training step of the demo.

    The embedded images are loaded, the program is compiled or read from the cache that
    FFJAX_CACHE_DIR names, and one step is made.
    """
    started = time.perf_counter()
    import jax

    from ffjax import config, data, demo
    from ffjax.model import pathway
    from ffjax.runs import machine
    from ffjax.training import program

    machine.use_compilation_cache()
    imported = time.perf_counter()
    spec = config.expand(demo.get_config(), {})[0].spec
    dataset = data.load(spec.dataset, train_limit=spec.batch_size)
    arch = spec.architecture(dataset.num_classes)
    layer = program.train_layer(
        arch,
        0,
        jax.random.key(0),
        pathway.encode(arch, jax.numpy.asarray(dataset.train_images)),
        jax.numpy.asarray(dataset.train_labels),
        epochs=1,
        batch_size=spec.batch_size,
        learning_rate=spec.learning_rate,
        threshold=spec.threshold,
    )
    assert layer.losses.shape == (1,)
    return {"imports": imported - started, "all": time.perf_counter() - started}


def main(arguments: list[str]) -> None:
    if arguments[0] == "memory":
        framework, pathway, size = arguments[1:]
        found = measure_memory(framework, pathway, cases.SIZES[size])
    else:
        found = measure_start()
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:])
