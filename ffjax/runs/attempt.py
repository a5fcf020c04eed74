"""A group of runs from arrays to records: trained, evaluated, timed."""

import datetime
import functools
import itertools
import math
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ffjax import goodness
from ffjax.config import build
from ffjax.config.spec import RunSpec, check_shape
from ffjax.data import Dataset
from ffjax.errors import UserError
from ffjax.goodness import own
from ffjax.model import evaluate
from ffjax.model.evaluate import Evaluation
from ffjax.network import Network
from ffjax.network.history import measure
from ffjax.paper.names import shortened
from ffjax.records import Curve, Place, Point, Record, Times
from ffjax.runs import clock, cost
from ffjax.runs.checkpoint import Kept, Layers
from ffjax.runs.order import Run
from ffjax.runs.provenance import provenance
from ffjax.training import backprop, checks
from ffjax.training.machine import Machine
from ffjax.training.networks import (
    Look,
    Member,
    OnEpochs,
    OnLayer,
    score_networks,
    train_networks,
)
from ffjax.training.program import TrainedLayer, wait_for

Outcome = Record | Exception


def group_size(spec: RunSpec, machine: Machine, wanted: int = 0) -> int:
    """How many runs like this one to train in one program; ``wanted`` if it is set.

    On a CPU that is one for each device: its cores are busy with a single run, and two
    in one program take about twice as long. Elsewhere it is as many as fit the memory.
    """
    if wanted:
        return wanted
    num_devices = len(machine.devices)
    if machine.is_cpu:
        return num_devices
    sizes = cost.sizes(spec)
    stored, rest = checks.member_bytes(
        build.architecture(spec, sizes.classes, sizes.image_shape),
        build.training(spec),
        (sizes.train, sizes.inputs),
    )
    if stored > machine.memory_budget:
        stored = 0  # then they are not stored at all
    return num_devices * max(1, int(machine.memory_budget / (stored + rest)))


class Extras(NamedTuple):
    """What is asked of runs besides their records."""

    eval_every: int = 0  # epochs of a layer between two evaluations; 0 = never
    on_network: Callable[[Run, Network], None] | None = None  # called with each network


NOTHING_ELSE = Extras()


def attempt(
    runs: Sequence[Run],
    dataset: Dataset,
    machine: Machine,
    *,
    kept: Sequence[Layers] = (),
    extras: Extras = NOTHING_ELSE,
    on_epochs: OnEpochs | None = None,
    on_halved: Callable[[int, Exception], None],
) -> list[Outcome]:
    """Trains a group; if it cannot be trained whole it is cut in halves, down to one.

    Args:
      runs: of one ``order.family``.
      dataset: what they learn.
      machine: where.
      kept: of each run, where its finished layers are kept; or nothing.
      extras: what is asked for besides records.
      on_epochs: called with progress.
      on_halved: called with the new size of a group and the reason.

    Returns:
      Of each run its record, or what kept it from that.
    """
    try:
        return list(
            run_group(
                runs, dataset, machine, kept=kept, extras=extras, on_epochs=on_epochs
            )
        )
    except Exception as error:  # out of memory, a user's function
        if len(runs) == 1 or isinstance(error, UserError):
            return [error] * len(runs)
        half = (len(runs) + 1) // 2
        on_halved(half, error)
    outcomes: list[Outcome] = []
    for part in (slice(None, half), slice(half, None)):
        outcomes += attempt(
            runs[part],
            dataset,
            machine,
            kept=kept[part],
            extras=extras,
            on_epochs=on_epochs,
            on_halved=on_halved,
        )
    return outcomes


def halved(half: int, error: Exception) -> str:
    """What to say about a group that could not be trained whole."""
    why = "not enough memory" if is_out_of_memory(error) else repr(error)
    why = shortened(" ".join(why.split()))
    return f"a group of runs failed ({why}); tried again with at most {half} at once"


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that the memory of a device or of the host is used up."""
    return isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error)


def describe(error: Exception) -> str:
    """An error in a line; one inside a user's own code with its file and line."""
    is_said = isinstance(error, UserError | WorkerError)
    return " ".join(str(error).split()) if is_said else own.describe(error)


class WorkerError(Exception):
    """What kept a run from its result in another process, described there."""


def portable(outcome: Outcome) -> Outcome:
    """An outcome that another process can be sent, whatever the error is made of."""
    if not isinstance(outcome, Exception) or isinstance(outcome, UserError):
        return outcome
    error = WorkerError(describe(outcome))
    error.add_note("".join(traceback.format_exception(outcome)))
    return error


class _Trained(NamedTuple):
    """Trained networks."""

    layers: list[list[TrainedLayer]]  # of each network
    score: Callable[[np.ndarray], list[jax.Array]]  # images -> (N, L + 1, C) of each


def run_group(
    runs: Sequence[Run],
    dataset: Dataset,
    machine: Machine,
    *,
    kept: Sequence[Layers] = (),
    extras: Extras = NOTHING_ELSE,
    on_epochs: OnEpochs | None = None,
) -> list[Record]:
    """The records of a run, or of several that are trained in one program.

    Args:
      runs: of one ``order.family``.
      dataset: what they learn.
      machine: where.
      kept: of each run, where finished layers are kept, and taken from after an
        interruption; or nothing.
      extras: what is asked for besides records.
      on_epochs: called with progress.
    """
    with clock.compile_clock() as compiling:
        timer = _Timer(compiling, len(runs))
        loaded = [layers.load() for layers in kept]
        earlier = loaded or [Kept([], Times(), []) for _ in runs]
        points = [list(before.points) for before in earlier]
        look = _look(dataset, runs[0].spec, extras.eval_every, points, timer)

        def keep(index: int, layers: Sequence[TrainedLayer | None]) -> None:
            for at, layer in enumerate(layers):
                if kept and layer is not None:
                    seen = [point for point in points[at] if point.layer == index]
                    kept[at].save(index, layer, timer.trained(earlier[at].times), seen)

        trainer = _TRAINERS[runs[0].spec.trainer]
        trained = [before.layers for before in earlier]
        watch = _Watch(on_epochs, keep, look)
        result = trainer(runs, dataset, machine, trained, watch)
        trained_times = [timer.trained(before.times) for before in earlier]
        timer.start_evaluation()
        test = _judge(result, dataset.test_images, dataset.test_labels, runs[0].spec)
        valid: Sequence[Evaluation | None] = [None] * len(runs)
        if len(dataset.valid_labels):
            arrays = dataset.valid_images, dataset.valid_labels
            valid = _judge(result, *arrays, runs[0].spec)
        times = [timer.evaluated(times) for times in trained_times]
    # Of a group, times are shares, and rounding differs from that of a run alone.
    common = {"busy": timer.busy.read(), "group_size": len(runs), **provenance()}
    return [
        _record(
            run,
            dataset,
            layers,
            (test[at], valid[at]),
            time=times[at],
            curve=_curve(dataset, points[at]),
            network=_save(run, dataset, layers, points[at], extras),
            **common,
        )
        for at, (run, layers) in enumerate(zip(runs, result.layers, strict=True))
    ]


def _save(
    run: Run,
    dataset: Dataset,
    layers: Sequence[TrainedLayer],
    points: Sequence[Point],
    extras: Extras,
) -> str:
    """Hands the network of a run on, if it is asked for; where it will be kept."""
    is_whole = run.spec.trainer == "ff" and not layers[-1].is_diverged
    if extras.on_network is None or not is_whole:
        return ""
    extras.on_network(run, _network(run.spec, dataset, layers, points))
    return f"networks/{run.name}.safetensors"


class _Watch(NamedTuple):
    """What is called while runs are trained."""

    on_epochs: OnEpochs | None
    on_layer: OnLayer
    look: Look | None


def _look(
    dataset: Dataset,
    spec: RunSpec,
    every: int,
    points: Sequence[list[Point]],
    timer: "_Timer",
) -> Look | None:
    """Measures accuracies during training, on validation images or else on test ones.

    Args:
      dataset: with the images.
      spec: of one of the runs.
      every: how many epochs of a layer; 0 = never.
      points: of each run, to which its accuracies are added.
      timer: which counts this as evaluation.
    """
    if not every:
        return None
    images, labels = dataset.test_images, dataset.test_labels
    if len(dataset.valid_labels):
        images, labels = dataset.valid_images, dataset.valid_labels

    def call(layer: int, epochs: int, scores: list[jax.Array]) -> None:
        started = time.perf_counter()
        for of_run, found in zip(points, scores, strict=True):
            wait_for(found)
            point = measure(layer, epochs, found, labels, spec.ensemble)
            of_run.extend([] if point is None else [point])
        timer.looked += time.perf_counter() - started

    return Look(every, images, call)


def _curve(dataset: Dataset, points: list[Point]) -> Curve | None:
    images = "validation" if len(dataset.valid_labels) else "test"
    return Curve(images, points) if points else None


def _network(
    spec: RunSpec,
    dataset: Dataset,
    layers: Sequence[TrainedLayer],
    points: Sequence[Point],
) -> Network:
    """The network of a run, for images as its dataset has them."""
    return Network(
        build.architecture(spec, dataset.num_classes, dataset.image_shape),
        tuple(layers),
        dataset.image_shape,
        dataset.mean,
        dataset.std,
        classes=tuple(range(dataset.num_classes)),
        class_names=dataset.class_names,
        points=tuple(points),
    )


class _Timer:
    """Seconds of a group's training and evaluation; each run has an equal share."""

    def __init__(self, compiling: clock.CompileClock, num_runs: int):
        self.busy = clock.BusyClock()
        self._compiling = compiling
        self._share = 1 / num_runs
        self._started = time.perf_counter()
        self._compiled = 0.0
        self.looked = 0.0  # seconds of evaluation during training

    def trained(self, earlier: Times) -> Times:
        """The times so far of a run that took ``earlier`` before an interruption."""
        compile_s = self._compiling.seconds
        train_s = time.perf_counter() - self._started - compile_s - self.looked
        return Times(
            compile_s=earlier.compile_s + self._share * compile_s,
            train_s=earlier.train_s + self._share * max(0.0, train_s),
        )

    def start_evaluation(self) -> None:
        self._started = time.perf_counter()
        self._compiled = self._compiling.seconds

    def evaluated(self, trained: Times) -> Times:
        compile_s = self._compiling.seconds - self._compiled
        eval_s = time.perf_counter() - self._started - compile_s + self.looked
        return Times(
            compile_s=trained.compile_s + self._share * compile_s,
            train_s=trained.train_s,
            eval_s=self._share * max(0.0, eval_s),
        )


def _record(
    run: Run,
    dataset: Dataset,
    layers: Sequence[TrainedLayer],
    evaluations: Sequence[Evaluation | None],
    **common: Any,
) -> Record:
    """A record.

    Args:
      run: which run.
      dataset: what it learned.
      layers: of its network.
      evaluations: on the test images, and on the validation images if there are any.
      **common: further fields.
    """
    test, valid = evaluations
    assert test is not None  # there always are test images
    spec, is_diverged = run.spec, layers[-1].is_diverged
    missing = spec.num_layers - len(test.accuracy_layers)
    last = Place(layer=len(layers) - 1, epoch=len(layers[-1].losses) - 1)
    return Record(
        cell=run.cell.id,
        spec=spec,
        seed=run.seed,
        status="diverged" if is_diverged else "ok",
        diverged_at=last if is_diverged else None,
        accuracy=test.accuracy,
        accuracy_layers=[*test.accuracy_layers, *[None] * missing],
        accuracy_concat=test.accuracy_concat if spec.trainer == "ff" else None,
        confusion=test.confusion.tolist(),
        losses=[_finite(layer.losses) for layer in layers],
        train_size=len(dataset.train_labels),
        test_size=len(dataset.test_labels),
        accuracy_valid=None if valid is None else valid.accuracy,
        valid_size=len(dataset.valid_labels),
        class_names=list(dataset.class_names),
        data=dict(dataset.source),
        goodness_source=goodness_source(spec),
        finished=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        **common,
    )


def goodness_source(spec: RunSpec) -> str:
    """What a user's own goodness function was made of; empty for a built-in."""
    if ":" not in spec.goodness:
        return ""
    return goodness.source_hash(spec.goodness) or ""


def _finite(losses: np.ndarray) -> list[float | None]:
    """Losses as JSON can hold them."""
    return [loss if math.isfinite(loss) else None for loss in losses.tolist()]


def _train_forward_forward(
    runs: Sequence[Run],
    dataset: Dataset,
    machine: Machine,
    trained: Sequence[Sequence[TrainedLayer]],
    watch: _Watch,
) -> _Trained:
    spec, shape = runs[0].spec, dataset.image_shape
    arch = build.architecture(spec, dataset.num_classes, shape)
    members = [
        Member(
            jax.random.key(run.seed),
            build.training(run.spec),
            run.spec.norm_gate,
            layers,
        )
        for run, layers in zip(runs, trained, strict=True)
    ]
    networks = train_networks(
        arch,
        members,
        dataset.train_images,
        dataset.train_labels,
        machine,
        on_epochs=watch.on_epochs,
        on_layer=watch.on_layer,
        look=watch.look,
    )

    def score(images: np.ndarray) -> list[jax.Array]:
        return score_networks(arch, members, networks, images, machine.devices)

    return _Trained(networks, score)


def _train_backprop(
    runs: Sequence[Run],
    dataset: Dataset,
    machine: Machine,
    trained: Sequence[Sequence[TrainedLayer]],
    watch: _Watch,
) -> _Trained:
    # There is nothing whole to keep before the end, and nothing to group.
    del trained
    (run,) = runs
    _check_backprop_memory(run.spec, dataset, machine)
    model = build.backprop_network(run.spec, dataset.num_classes, dataset.image_shape)
    whole = backprop.train_network(
        model,
        jax.random.key(run.seed),
        dataset.train_images,
        dataset.train_labels,
        build.training(run.spec),
        on_epochs=watch.on_epochs,
        look=watch.look,
    )
    score = functools.partial(backprop.score_images, model, whole.params)
    return _Trained([[whole]], lambda images: [score(jnp.asarray(images))])


def _check_backprop_memory(spec: RunSpec, dataset: Dataset, machine: Machine) -> None:
    """Raises a UserError for a network that cannot fit, before it is made."""
    inputs = dataset.train_images.shape[1]
    widths = [inputs, *spec.layer_widths, dataset.num_classes]
    weights = sum((below + 1) * width for below, width in itertools.pairwise(widths))
    activations = sum(widths)
    maps = check_shape(spec, dataset.image_shape, dataset.num_classes)
    if maps is not None:
        units, indices = spec.layer_widths, range(spec.num_layers)
        seen = [maps.fan_in(units, index) for index in indices]
        places = [maps.makes(units, index).positions for index in indices]
        weights = sum((n + 1) * width for n, width in zip(seen, units, strict=True))
        # The windows are kept for the gradient.
        activations = sum(
            place * (n + width)
            for place, n, width in zip(places, seen, units, strict=True)
        )
    # Weights, their gradients and the two moments of Adam; activations of a batch.
    numbers = 4 * weights + 2 * spec.batch_size * activations
    needed = 4 * (numbers + dataset.train_images.size)
    if needed > machine.memory:
        raise UserError(
            f"width={spec.width}: {spec.num_layers} layers need about "
            f"{needed / 1e9:.3g} GB, but {machine.devices[0].device_kind} has "
            f"{machine.memory / 1e9:.3g} GB"
        )


_TRAINERS = {"ff": _train_forward_forward, "backprop": _train_backprop}


def _judge(
    trained: _Trained, images: np.ndarray, labels: np.ndarray, spec: RunSpec
) -> list[Evaluation]:
    all_scores = trained.score(images)
    for scores in all_scores:
        wait_for(scores)
    return [
        evaluate.evaluate(np.asarray(scores), labels, spec.ensemble)
        for scores in all_scores
    ]
