"""Cells -> records."""

import contextlib
import dataclasses
import datetime
import importlib.metadata
import os
import pathlib
import subprocess
import time
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import ffjax
from ffjax import config, data, evaluate, network, progress, results, train


def run(cells: Sequence[config.Cell], workdir: str, *, data_dir: str = "") -> int:
    """Runs every cell with every seed that has no record yet; returns the exit code."""
    results.prepare_workdir(workdir)
    runs = [(cell, seed) for cell in cells for seed in cell.seeds]
    records = []
    with progress.Display(len(runs)) as display:
        for cell, seed in runs:
            record = _find_record(display, workdir, cell, seed)
            if record is None:
                record = _run_cell(display, workdir, cell, seed, data_dir)
            else:
                display.skip_cell()
            records.append(record)
    progress.summarise(display, records, workdir)
    return 0


def _find_record(display, workdir, cell, seed) -> results.Record | None:
    try:
        return results.find(workdir, cell.id, seed, dataclasses.asdict(cell.spec))
    except results.BrokenRecord as error:
        display.print(f"{error}; it is run again")
        return None


def _run_cell(display, workdir, cell, seed, data_dir) -> results.Record:
    spec = cell.spec
    dataset = data.load(
        spec.dataset,
        data_dir=data_dir,
        train_limit=spec.train_limit,
        test_limit=spec.test_limit,
        valid_fraction=spec.valid_fraction,
    )
    network.check_batch_size(spec.batch_size, len(dataset.train_labels))
    display.start_cell(f"{cell.id} seed {seed}", spec.num_layers, spec.epochs)
    outcome = train_and_evaluate(spec, seed, dataset, on_epochs=display.epochs_done)
    record = {
        "cell": cell.id,
        "spec": dataclasses.asdict(spec),
        "seed": seed,
        **outcome,
        **provenance(),
    }
    results.write(workdir, record)
    result = f"{record['accuracy']:.2f} %"
    if record["status"] == "diverged":
        result += " (diverged)"
    display.finish_cell(cell.id, result, record["accuracy"])
    return record


def train_and_evaluate(
    spec: config.RunSpec,
    seed: int,
    dataset: data.Dataset,
    *,
    trained: Sequence[train.TrainedLayer] = (),
    on_epochs: train.OnEpochs | None = None,
    on_layer: train.OnLayer | None = None,
) -> dict[str, Any]:
    """One run, from arrays to the part of its record that depends on them."""
    arch = spec.architecture(dataset.num_classes)
    with _compile_clock() as clock:
        started = time.perf_counter()
        layers = train.train_network(
            arch,
            jax.random.key(seed),
            dataset.train_images,
            dataset.train_labels,
            epochs=spec.epochs,
            batch_size=spec.batch_size,
            learning_rate=spec.learning_rate,
            threshold=spec.threshold,
            memory_budget=memory_budget(),
            trained=trained,
            on_epochs=on_epochs,
            on_layer=on_layer,
        )
        trained_at, train_compile_s = time.perf_counter(), clock.seconds

        def judge(images, labels):
            params = [layer.params for layer in layers]
            states = [layer.goodness_state for layer in layers]
            part = dataclasses.replace(arch, widths=arch.widths[: len(layers)])
            scores = evaluate.score_images(part, params, states, jnp.asarray(images))
            return evaluate.evaluate(np.asarray(scores), labels)

        test = judge(dataset.test_images, dataset.test_labels)
        valid = None
        if len(dataset.valid_labels):
            valid = judge(dataset.valid_images, dataset.valid_labels)
        ended_at = time.perf_counter()
    missing = spec.num_layers - len(layers)
    outcome: dict[str, Any] = {
        "status": "diverged" if layers[-1].is_diverged else "ok",
        "accuracy": test.accuracy,
        "accuracy_layers": [*test.accuracy_layers, *[None] * missing],
        "accuracy_concat": test.accuracy_concat,
        "confusion": test.confusion.tolist(),
        "losses": [layer.losses.tolist() for layer in layers],
        "time": {
            "compile_s": clock.seconds,
            "train_s": trained_at - started - train_compile_s,
            "eval_s": ended_at - trained_at - (clock.seconds - train_compile_s),
        },
        "train_size": len(dataset.train_labels),
        "test_size": len(dataset.test_labels),
        "class_names": list(dataset.class_names),
        "data": dataset.source,
    }
    if valid is not None:
        outcome["accuracy_valid"] = valid.accuracy
        outcome["valid_size"] = len(dataset.valid_labels)
    if layers[-1].is_diverged:
        epoch = len(layers[-1].losses) - 1
        outcome["diverged_at"] = {"layer": len(layers) - 1, "epoch": epoch}
    return outcome


def memory_budget() -> float:
    """How many bytes a layer's inputs under all labels may take on the first device.

    A quarter of its memory: the inputs of two layers exist at once while the next ones
    are computed, and the rest is left for the program and for other processes.
    """
    device = jax.local_devices()[0]
    stats = device.memory_stats()
    if stats and "bytes_limit" in stats:
        return stats["bytes_limit"] / 4
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 4


def provenance() -> dict[str, Any]:
    """Where and with what a run was made."""
    packages = ("jax", "jaxlib", "flax", "optax", "numpy")
    versions = {name: importlib.metadata.version(name) for name in packages}
    return {
        "device": jax.local_devices()[0].device_kind,
        "versions": {"ffjax": ffjax.__version__, **versions},
        "commit": _commit(),
        "finished": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def _commit() -> str | None:
    """The commit of ffjax's own checkout, with a plus if files differ from it."""
    folder = pathlib.Path(ffjax.__file__).parent
    command = [
        "git",
        "-C",
        str(folder),
        "describe",
        "--always",
        "--abbrev=40",
        "--dirty=+",
    ]
    if not (folder.parent / ".git").exists():  # an installed package, not a checkout
        return None
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip()


class _CompileClock:
    seconds = 0.0


@contextlib.contextmanager
def _compile_clock() -> Iterator[_CompileClock]:
    """Adds up the time that XLA compiles while it is open."""
    clock = _CompileClock()

    def listen(event: str, duration: float, **_: Any) -> None:
        if event.endswith(("backend_compile_duration", "to_mlir_module_duration")):
            clock.seconds += duration

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield clock
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
