"""``ffjax.fit``: from a user's own arrays to a network."""

import contextlib
import dataclasses
import difflib
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, SupportsIndex

import jax
import numpy as np
from numpy.typing import ArrayLike

from ffjax import data, goodness
from ffjax.config import build, goodness_params
from ffjax.config import spec as spec_lib
from ffjax.config.spec import RunSpec
from ffjax.errors import UserError, integer, shown
from ffjax.network import arrays
from ffjax.network.history import measure
from ffjax.network.network import Network
from ffjax.records import Point
from ffjax.training import checks, machine
from ffjax.training.networks import (
    Look,
    Member,
    OnEpochs,
    train_networks,
)
from ffjax.training.program import TrainedLayer

# Fields for which arrays of one's own call for other values than the paper's grid.
_FIT_DEFAULTS: dict[str, Any] = {
    "num_layers": 2,
    "width": 500,
    "epochs": 20,
    "batch_size": None,
}
_EVAL_EVERY = integer(0, words="an integer >= 0 (0 = after each layer)")


def fit(
    images: ArrayLike,
    labels: ArrayLike,
    *,
    num_classes: SupportsIndex | None = None,
    validation_data: tuple[ArrayLike, ArrayLike] | None = None,
    eval_every: SupportsIndex = 0,
    seed: SupportsIndex = 42,
    progress: bool = True,
    on_epochs: OnEpochs | None = None,
    **fields: Any,
) -> Network:
    """Trains a network on your own arrays.

    Args:
      images: (N, ...) of any numeric type; the last axis is taken as colour if there
        are four axes. They are normalised to zero mean and unit variance per channel.
      labels: (N,) or (N, 1): integers, whole floats, truth values or strings.
      num_classes: C, where labels are from 0 to C - 1 and some may not occur; without
        it, the labels that occur are the classes.
      validation_data: (images, labels), to measure accuracies during training; they do
        not change the network.
      eval_every: epochs of a layer between two such measurements; 0: one after each
        layer.
      seed: of the initial weights, the shuffling and the wrong labels.
      progress: whether to show how far it is.
      on_epochs: called with (layer, its losses so far) as training goes on.
      **fields: of a run, as on the command line. ``goodness`` may also be a function of
        your own, and numbers may be NumPy's.
        FIELDS

    Returns:
      The trained network.

    Raises:
      UserError: something cannot be what it is; a ValueError.
      FloatingPointError: training diverged.
    """
    chosen, every = _plain(seed), _plain(eval_every)
    spec_lib.SEED.check("seed", chosen)
    _EVAL_EVERY.check("eval_every", every)
    spec, blank, flat, codes = _prepare(images, labels, _plain(num_classes), fields)
    points: list[Point] = []
    look = None
    if validation_data is not None:
        look = _look(blank, validation_data, every or spec.epochs, points)
    machine.use_compilation_cache()
    training, here = build.training(spec), machine.here(num_devices=1)
    with _reporting(spec, blank, on_epochs, progress=progress) as report:
        (layers,) = train_networks(
            blank.arch,
            [Member(jax.random.key(chosen), training, spec.norm_gate)],
            flat,
            codes,
            here,
            on_epochs=report,
            look=look,
        )
    _check_converged(layers)
    return dataclasses.replace(blank, layers=tuple(layers), points=tuple(points))


def _check_converged(layers: Sequence[TrainedLayer]) -> None:
    if layers[-1].is_diverged:
        raise FloatingPointError(
            f"training diverged in layer {len(layers)}, epoch "
            f"{len(layers[-1].losses)}: try a smaller learning_rate"
        )


class _Prepared(NamedTuple):
    """What training starts from."""

    spec: RunSpec
    blank: Network  # without layers
    images: np.ndarray  # (N, D) float32, normalised
    labels: np.ndarray  # (N,) int32


def _prepare(
    images: ArrayLike,
    labels: ArrayLike,
    num_classes: int | None,
    fields: Mapping[str, Any],
) -> _Prepared:
    checked = arrays.check_images("images", images)
    given = arrays.check_labels("labels", labels, len(checked))
    classes = arrays.find_classes(given, num_classes)
    spec = make_spec(fields, len(checked))
    checks.check_batch_size(spec.batch_size, len(checked))
    # The values decide the order, so that equal images give equal networks.
    codes = arrays.encode("labels", given, classes)
    checked, codes = data.in_order(checked, codes)
    mean, std = arrays.statistics("images", checked)
    flat = arrays.normalise("images", checked, mean, std)
    arch = build.architecture(spec, len(classes), checked.shape[1:])
    names = tuple(map(str, classes))
    blank = Network(arch, (), checked.shape[1:], mean, std, classes, names)
    return _Prepared(spec, blank, flat, codes)


def _look(
    blank: Network,
    validation_data: tuple[ArrayLike, ArrayLike],
    every: int,
    points: list[Point],
) -> Look:
    """Accuracies on the validation images, as they are measured."""
    try:
        images, labels = validation_data
    except (TypeError, ValueError):
        raise UserError(
            f"validation_data={shown(validation_data)}: must be (images, labels)"
        ) from None
    checked = arrays.check_images("validation images", images)
    if checked.shape[1:] != blank.image_shape:
        raise UserError(
            f"validation images: each has shape {checked.shape[1:]}, but the others "
            f"have {blank.image_shape}"
        )
    known = arrays.check_labels("validation labels", labels, len(checked))
    codes = arrays.encode("validation labels", known, blank.classes)
    flat = arrays.normalise("validation images", checked, blank.mean, blank.std)

    def call(layer: int, epochs: int, scores: list[jax.Array]) -> None:
        point = measure(layer, epochs, scores[0], codes, blank.arch.ensemble)
        points.extend([] if point is None else [point])

    return Look(every, flat, call)


@contextlib.contextmanager
def _reporting(
    spec: RunSpec, blank: Network, on_epochs: OnEpochs | None, *, progress: bool
) -> Iterator[OnEpochs | None]:
    """What to call with progress: the user's function, the display, both or none."""
    if not progress:
        yield on_epochs
        return
    import rich.console

    # The display of the command; the runs are built on top of networks otherwise.
    from ffjax.runs.display import Display

    # A notebook passes for a terminal, but shows each state of a bar below the last.
    is_notebook = rich.console.Console().is_jupyter
    console = rich.console.Console(
        highlight=False,
        soft_wrap=True,
        force_jupyter=False,
        force_terminal=False if is_notebook else None,
    )
    with Display(1, console=console) as display:
        display.start_network(spec, blank.image_shape, len(blank.classes))

        def report(layer: int, losses: np.ndarray) -> None:
            display.epochs_done(layer, losses)
            if on_epochs is not None:
                on_epochs(layer, losses)

        yield report


def fit_fields() -> dict[str, Any]:
    """The fields of a run that ``fit`` takes, with its defaults."""
    return {
        name: _FIT_DEFAULTS.get(name, spec_lib.DEFAULTS[name])
        for name, about in spec_lib.ABOUT.items()
        if about.in_fit and about.role != "way"
    }


def make_spec(given: Mapping[str, Any], num_images: int) -> RunSpec:
    """The run that the arguments of ``fit`` describe."""
    known = fit_fields()
    for name in given:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            raise UserError(
                f"fit has no argument {name!r}; {hint}known are {', '.join(known)}"
            )
    given = {name: _plain(value) for name, value in given.items()}
    fields = {**known, **given}
    if fields["batch_size"] is None:
        fields["batch_size"] = min(spec_lib.DEFAULTS["batch_size"], num_images)
    if callable(fields["goodness"]):
        fields["goodness"] = _name_of(fields["goodness"])
    params = fields["goodness_params"]
    if isinstance(params, Mapping):
        plain = {name: _plain(value) for name, value in params.items()}
        fields["goodness_params"] = goodness_params.render(plain)
    spec = spec_lib.make_spec(**fields)
    spec_lib.check_used(spec, given)
    return spec


def _plain(value: Any) -> Any:
    """NumPy's numbers as Python's, and arrays of them as tuples."""
    if isinstance(value, np.generic) or (
        isinstance(value, np.ndarray) and value.ndim == 0
    ):
        return value.item()
    if isinstance(value, np.ndarray | list):
        return tuple(_plain(item) for item in value)
    return value


def _name_of(function: Callable[..., Any]) -> str:
    """The name under which a goodness function is registered; it is, after this."""
    if not isinstance(function, goodness.Definition):
        name = getattr(function, "__name__", "")
        if not name.isidentifier():
            raise UserError(
                f"goodness={shown(function)}: has no name that networks and files "
                "could call it by; define it with def"
            )
        function = goodness.register(function)
    # A module that was imported anew may have registered another of this name.
    goodness.GOODNESS[function.name] = function
    return function.name


def _document_fit() -> None:
    """Completes the help of ``fit`` and its signature with the fields of a run."""
    text = textwrap.indent(spec_lib.describe_fields(fit_fields()), " " * 8)
    fit.__doc__ = (fit.__doc__ or "").replace("        FIELDS", text)
    plain = inspect.signature(fit)
    keywords = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)
        for name, default in fit_fields().items()
    ]
    fixed = [p for p in plain.parameters.values() if p.kind != p.VAR_KEYWORD]
    signature = plain.replace(parameters=[*fixed, *keywords])
    fit.__signature__ = signature  # type: ignore[attr-defined]


_document_fit()
