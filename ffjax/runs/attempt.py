"""Runs from arrays to the part of their records that depends on them."""

import contextlib
import dataclasses
import functools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ffjax.training import backprop, networks, program
from ffjax import config, data
from ffjax.runs import cost, checkpoint
from ffjax.model import evaluate
from ffjax.errors import UserError
from ffjax.runs.machine import Machine

# A run but for its data: what is run, and the seed.
Member = tuple[config.RunSpec, int]


def group_size(spec: config.RunSpec, machine: Machine, wanted: int = 0) -> int:
    """How many runs like this one to train in one program; ``wanted`` if it is set.

    On a CPU that is one for each device: its cores are busy with a single run, and two
    in one program take about twice as long. Elsewhere it is as many as fit the memory.
    """
    if wanted:
        return wanted
    num_devices = len(machine.devices)
    if machine.is_cpu:
        return num_devices
    train_size, _, num_inputs, num_classes = cost.sizes(spec)
    stored, rest = networks.member_bytes(
        spec.architecture(num_classes), train_size, num_inputs, spec.batch_size
    )
    if stored > machine.memory_budget:
        stored = 0  # then they are not stored at all
    return num_devices * max(1, int(machine.memory_budget / (stored + rest)))


def attempt(
    members: Sequence[Member],
    dataset: data.Dataset,
    machine: Machine,
    *,
    kept: Sequence[checkpoint.Layers] | None = None,
    on_epochs: program.OnEpochs | None = None,
    on_halved: Callable[[int, Exception], None],
) -> list[dict[str, Any] | Exception]:
    """Trains a group; one that cannot be trained whole is cut in halves, down to one.

    Args:
      members: runs of one ``plan.family``.
      dataset: what they learn.
      machine: where.
      kept: of each run, where its finished layers are kept.
      on_epochs: called with progress.
      on_halved: called with the new size of a group and the reason.

    Returns:
      Of each run what ``train_and_evaluate`` gives, or what kept it from that.
    """
    try:
        return list(
            train_and_evaluate(
                members, dataset, machine, kept=kept, on_epochs=on_epochs
            )
        )
    except Exception as error:  # out of memory, a user's function
        if len(members) == 1 or isinstance(error, UserError):
            return [error] * len(members)
        half = (len(members) + 1) // 2
        on_halved(half, error)
    outcomes: list[dict[str, Any] | Exception] = []
    for part in (slice(None, half), slice(half, None)):
        outcomes += attempt(
            members[part],
            dataset,
            machine,
            kept=None if kept is None else kept[part],
            on_epochs=on_epochs,
            on_halved=on_halved,
        )
    return outcomes


def halved(half: int, error: Exception) -> str:
    """What to tell about a group that could not be trained whole."""
    why = "not enough memory" if is_out_of_memory(error) else repr(error)
    why = " ".join(why.split())[:200]
    return f"a group of runs failed ({why}); tried again with at most {half} at once"


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that the memory of a device or of the host is used up."""
    return isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error)


def train_and_evaluate(
    members: Sequence[Member],
    dataset: data.Dataset,
    machine: Machine,
    *,
    kept: Sequence[checkpoint.Layers] | None = None,
    on_epochs: program.OnEpochs | None = None,
) -> list[dict[str, Any]]:
    """One run or a group, from arrays to the part of their records that they decide.

    Args:
      members: runs of one ``plan.family``.
      dataset: what they learn.
      machine: where.
      kept: of each run, where finished layers are kept, and taken from after an
        interruption.
      on_epochs: called with progress.
    """
    loaded = [one.load() for one in kept] if kept is not None else []
    trained = [layers for layers, *_ in loaded] or [[] for _ in members]
    earlier = [times for _, *times in loaded] or [(0.0, 0.0) for _ in members]
    share = 1 / len(members)  # of the group's time
    with _compile_clock() as clock:
        started = time.perf_counter()

        def times() -> tuple[float, float]:
            """Seconds of training and of compilation, for each member."""
            train_s = time.perf_counter() - started - clock.seconds
            return share * train_s, share * clock.seconds

        def keep(index: int, layers: Sequence[program.TrainedLayer | None]) -> None:
            now = times()
            for one, layer, before in zip(kept or (), layers, earlier, strict=False):
                if layer is not None:
                    one.save(index, layer, before[0] + now[0], before[1] + now[1])

        trainer = _TRAINERS[members[0][0].trainer]
        networks, score = trainer(members, dataset, machine, trained, on_epochs, keep)
        train_s, compile_s = times()
        trained_at = time.perf_counter()
        test = score(dataset.test_images, dataset.test_labels)
        valid = None
        if len(dataset.valid_labels):
            valid = score(dataset.valid_images, dataset.valid_labels)
        eval_compile_s = share * clock.seconds - compile_s
        eval_s = share * (time.perf_counter() - trained_at) - eval_compile_s
    outcomes = []
    for position, (spec, _) in enumerate(members):
        outcome = _outcome(spec, dataset, networks[position], test[position])
        outcome["time"] = {
            "compile_s": earlier[position][1] + compile_s + eval_compile_s,
            "train_s": earlier[position][0] + train_s,
            "eval_s": eval_s,
        }
        if valid is not None:
            outcome["accuracy_valid"] = valid[position].accuracy
            outcome["valid_size"] = len(dataset.valid_labels)
        if len(members) > 1:  # times are shares of the group's, and rounding differs
            outcome["group_size"] = len(members)
        outcomes.append(outcome)
    return outcomes


def _outcome(
    spec: config.RunSpec,
    dataset: data.Dataset,
    layers: Sequence[program.TrainedLayer],
    test: evaluate.Evaluation,
) -> dict[str, Any]:
    missing = spec.num_layers - len(test.accuracy_layers)
    outcome: dict[str, Any] = {
        "status": "diverged" if layers[-1].is_diverged else "ok",
        "accuracy": test.accuracy,
        "accuracy_layers": [*test.accuracy_layers, *[None] * missing],
        "accuracy_concat": test.accuracy_concat if spec.trainer == "ff" else None,
        "confusion": test.confusion.tolist(),
        "losses": [layer.losses.tolist() for layer in layers],
        "train_size": len(dataset.train_labels),
        "test_size": len(dataset.test_labels),
        "class_names": list(dataset.class_names),
        "data": dataset.source,
    }
    if layers[-1].is_diverged:
        epoch = len(layers[-1].losses) - 1
        outcome["diverged_at"] = {"layer": len(layers) - 1, "epoch": epoch}
    return outcome


# The layers of each trained network, and how well each labels images.
_Trained = tuple[
    list[list[program.TrainedLayer]],
    Callable[[np.ndarray, np.ndarray], list[evaluate.Evaluation]],
]


def _train_forward_forward(
    members: Sequence[Member],
    dataset: data.Dataset,
    machine: Machine,
    trained: Sequence[Sequence[program.TrainedLayer]],
    on_epochs: program.OnEpochs | None,
    on_layer: networks.OnLayer,
) -> _Trained:
    spec, seed = members[0]
    arch = spec.architecture(dataset.num_classes)
    training = {**spec.training(), "memory_budget": machine.memory_budget}
    arrays = dataset.train_images, dataset.train_labels
    if len(members) == 1:
        layers = program.train_network(
            arch,
            jax.random.key(seed),
            *arrays,
            **training,
            trained=trained[0],
            on_epochs=on_epochs,
            on_layer=lambda index, layer: on_layer(index, [layer]),
        )
        part = dataclasses.replace(arch, widths=arch.widths[: len(layers)])
        params = [layer.params for layer in layers]
        states = [layer.goodness_state for layer in layers]
        score = functools.partial(evaluate.score_images, part, params, states)
        return [layers], _judge(lambda images: [score(images)], spec.ensemble)
    for name in ("learning_rate", "threshold"):
        del training[name]
    together = [
        networks.Member(
            jax.random.key(seed), one.learning_rate, one.threshold, one.norm_gate, found
        )
        for (one, seed), found in zip(members, trained, strict=True)
    ]
    networks = networks.train_networks(
        arch,
        together,
        *arrays,
        devices=machine.devices,
        **training,
        on_epochs=on_epochs,
        on_layer=on_layer,
    )

    def score_all(images):
        return networks.score_images(arch, together, networks, images, machine.devices)

    return networks, _judge(score_all, spec.ensemble)


def _train_backprop(
    members: Sequence[Member],
    dataset: data.Dataset,
    machine: Machine,
    trained: Sequence[Sequence[program.TrainedLayer]],
    on_epochs: program.OnEpochs | None,
    on_layer: networks.OnLayer,
) -> _Trained:
    # There is nothing whole to keep before the end, and nothing to group.
    del machine, trained, on_layer
    ((spec, seed),) = members
    model = spec.backprop_network(dataset.num_classes)
    whole = backprop.train_network(
        model,
        jax.random.key(seed),
        dataset.train_images,
        dataset.train_labels,
        **spec.training(),
        on_epochs=on_epochs,
    )
    score = functools.partial(backprop.score_images, model, whole.params)
    return [[whole]], _judge(lambda images: [score(images)], spec.ensemble)


_TRAINERS = {"ff": _train_forward_forward, "backprop": _train_backprop}


def _judge(
    score: Callable[[jax.Array], list[Any]], ensemble: str
) -> Callable[[np.ndarray, np.ndarray], list[evaluate.Evaluation]]:
    def judge(images, labels):
        all_scores = score(jnp.asarray(images))
        for scores in all_scores:
            while not scores.is_ready():  # lets Ctrl-C through, unlike waiting in XLA
                time.sleep(0.005)
        return [
            evaluate.evaluate(np.asarray(scores), labels, ensemble)
            for scores in all_scores
        ]

    return judge


class _CompileClock:
    seconds = 0.0


@contextlib.contextmanager
def _compile_clock() -> Iterator[_CompileClock]:
    """Adds up the time that XLA compiles while it is open."""
    clock = _CompileClock()

    def listen(event: str, duration_secs: float, **_: Any) -> None:
        if event.endswith(("backend_compile_duration", "to_mlir_module_duration")):
            clock.seconds += duration_secs

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield clock
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
