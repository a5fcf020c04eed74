"""Processes of their own, for what a single process cannot tell apart.

python -m experiments.benchmark.child memory ffjax|torch PATHWAY SIZE
python -m experiments.benchmark.child start

Both print a JSON object. The first trains a burstiness network for an epoch a layer,
evaluates it, and gives its peak memory before and after; the second trains a layer of
the demo's network for one step on embedded images.
"""

import dataclasses
import json
import pathlib
import re
import resource
import subprocess
import sys
import time
from collections.abc import Callable

from experiments.benchmark import cases
from ffjax import config, data, demo

_ROOT = pathlib.Path(__file__).parents[2]


def run(*arguments: str, environment: dict[str, str]) -> tuple[float, dict[str, float]]:
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
    case = cases.Case(pathway, "burstiness", size.num_layers, size.width)
    spec = dataclasses.replace(case.spec(size), epochs=1)
    prepare = _ffjax_run if framework == "ffjax" else _torch_run
    work = prepare(spec, dataset)
    loaded = _peak_bytes()
    work()
    return {"loaded": loaded, "peak": _peak_bytes()}


def _ffjax_run(spec: config.RunSpec, dataset: data.Dataset) -> Callable[[], None]:
    import jax

    from ffjax.config import build
    from ffjax.training import machine, networks

    arch = build.architecture(spec, dataset.num_classes)
    members = [networks.Member(jax.random.key(0), build.training(spec), spec.norm_gate)]
    here = machine.here()

    def work() -> None:
        trained = networks.train_networks(
            arch, members, dataset.train_images, dataset.train_labels, here
        )
        scores = networks.score_networks(
            arch, members, trained, dataset.test_images, here.devices
        )
        jax.block_until_ready(scores)

    return work


def _torch_run(spec: config.RunSpec, dataset: data.Dataset) -> Callable[[], None]:
    import torch

    from experiments.benchmark import recipe

    images = torch.from_numpy(dataset.train_images.copy())
    labels = torch.from_numpy(dataset.train_labels.copy()).long()
    test_images = torch.from_numpy(dataset.test_images.copy())
    num_classes, widths = dataset.num_classes, (spec.width,) * spec.num_layers

    def work() -> None:
        network = recipe.Network(
            spec.pathway, spec.goodness, images.shape[-1], widths, num_classes
        )
        for index in range(spec.num_layers):
            parameters = network.layer_parameters(index)
            optimizer = torch.optim.Adam(parameters, recipe.LEARNING_RATE)
            order = torch.randperm(len(images)).split(spec.batch_size)
            shifts = [torch.randint(1, num_classes, rows.shape) for rows in order]
            batches = [
                (rows, (labels[rows] + shift) % num_classes)
                for rows, shift in zip(order, shifts, strict=True)
            ]
            recipe.train_epoch(network, index, optimizer, images, labels, batches)
        recipe.score_images(network, test_images, spec.batch_size)

    return work


def _peak_bytes() -> float:
    # Not ru_maxrss where there is a choice: a child inherits that of its parent.
    status = pathlib.Path("/proc/self/status")
    if status.exists():
        peak = re.search(r"VmHWM:\s*(\d+) kB", status.read_text())
        if peak:
            return float(peak.group(1)) * 1024
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def measure_start() -> dict[str, float]:
    """Seconds from this point to the loss of the first training step of the demo.

    The embedded images are loaded, the program is compiled or read from the cache that
    FFJAX_CACHE_DIR names, and a step is made.
    """
    started = time.perf_counter()
    import jax

    from ffjax.config import build
    from ffjax.training import machine, networks

    machine.use_compilation_cache()
    imported = time.perf_counter()
    spec = config.expand(demo.get_config())[0].spec
    spec = dataclasses.replace(spec, num_layers=1, epochs=1)
    dataset = data.load(spec.dataset, train_limit=spec.batch_size)
    ((layer,),) = networks.train_networks(
        build.architecture(spec, dataset.num_classes),
        [networks.Member(jax.random.key(0), build.training(spec), spec.norm_gate)],
        dataset.train_images,
        dataset.train_labels,
        machine.here(),
    )
    assert layer.losses.shape == (1,)
    return {"imports": imported - started, "all": time.perf_counter() - started}


def main(arguments: list[str]) -> None:
    """Prints what was asked for."""
    if arguments[0] == "memory":
        framework, pathway, size = arguments[1:]
        measured = measure_memory(framework, pathway, cases.SIZES[size])
    else:
        measured = measure_start()
    print(json.dumps(measured))


if __name__ == "__main__":
    main(sys.argv[1:])
