"""The table of goodness functions: entering, looking up and setting parameters."""

import dataclasses
import difflib
import functools
import importlib
import inspect
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar, overload

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from ffjax.errors import PARAMETERS, UserError
from ffjax.goodness import own, source

MOMENTUM = 0.9  # of the running means that some functions keep

_T = TypeVar("_T")
Function: TypeAlias = Callable[..., jax.Array]
# Of the activations; or the function's own values.
Running: TypeAlias = Function | Literal["goodness"]
# One array, or several of them.
Statistic: TypeAlias = Callable[..., jax.Array | tuple[jax.Array, ...]]
Param: TypeAlias = bool | int | float | str  # the value of a function's parameter
# The running mean of one statistic, or of several; () for functions without any.
State: TypeAlias = jax.Array | np.ndarray | tuple[jax.Array | np.ndarray, ...]


@dataclasses.dataclass(frozen=True)
class Definition:
    """An entry of GOODNESS: a function, and what ``register`` was given with it."""

    name: str
    fn: Function
    running: Running | None = None
    batch: Statistic | None = None
    positive: bool = False
    shifted: Function | None = None

    @property
    def has_state(self) -> bool:
        """Whether a layer keeps running means for it."""
        return self.running is not None or self.batch is not None

    @property
    def num_arrays(self) -> int:
        """How many arrays the function takes, ahead of its parameters."""
        return 1 + sum((bool(self.running), bool(self.batch), self.positive))

    @property
    def defaults(self) -> dict[str, Param]:
        """The function's parameters and their defaults."""
        parameters = inspect.signature(self.fn).parameters.values()
        return {p.name: p.default for p in parameters if p.kind == p.KEYWORD_ONLY}

    @property
    def is_built_in(self) -> bool:
        """Whether the function is part of this package, not of a user's own module."""
        package, _, _ = __name__.rpartition(".")
        return self.fn.__module__.startswith(f"{package}.")

    @property
    def address(self) -> str:
        """What ``find`` knows it by: "module:function", or its name alone."""
        if self.is_built_in or self.fn.__module__ == "__main__":
            return self.name
        return f"{self.fn.__module__}:{self.name}"

    def __call__(self, *args: jax.Array, **params: Param) -> jax.Array:
        """Calls the plain function, so that a decorated name still works."""
        return self.fn(*args, **params)


GOODNESS: dict[str, Definition] = {}


@overload
def register(fn: Function) -> Definition: ...


@overload
def register(
    *,
    running: Running | None = None,
    batch: Statistic | None = None,
    positive: bool = False,
    shifted: Function | None = None,
) -> Callable[[Function], Definition]: ...


def register(
    fn: Function | None = None,
    *,
    running: Running | None = None,
    batch: Statistic | None = None,
    positive: bool = False,
    shifted: Function | None = None,
) -> Definition | Callable[[Function], Definition]:
    """Decorator: enters a function into GOODNESS under its own name.

    The three in the middle hand ``fn`` an array more each, in this order:
    ``fn(h, running, batch, positive, *, ...)`` has all of them.

    Args:
      fn: ``fn(h, *, parameter=default, ...)``.
      running: ``running(h)``, a number an example (...) or a vector (..., d); or
        "goodness", what ``fn`` itself gives. Its mean over a batch, positive and
        negative examples alike, goes into an exponential running mean, which ``fn``
        gets as a constant: the layer's state, like that of batch norm. ``fn`` sees
        what the steps before made of it.
      batch: ``batch(h, positive)``, a statistic of all examples of a step, h (n, d) and
        positive (n,): a number, an array (..., d), or a tuple of these. In training
        ``fn`` gets that of the step's own batch, and gradients go through it. In
        evaluation it gets the running mean, frozen, as in batch norm, and each example
        by itself: no prediction depends on other images. So in training such a function
        may also look across the leading axes of h, which are the batch.
      positive: whether ``fn`` gets which examples have their true label, (...). In
        evaluation a candidate label is judged as if it were the true one.
      shifted: a faster way to the goodness of h under many shifts, if there is any:
        ``shifted(h, v, *, ...)`` of h (..., d) and v (C, d) equals ``fn(h + v_c)`` for
        each of them, (..., C). For a function of h alone.
    """
    if fn is None:
        return functools.partial(
            _register, running=running, batch=batch, positive=positive, shifted=shifted
        )
    return _register(fn)


def _register(
    fn: Function,
    *,
    running: Running | None = None,
    batch: Statistic | None = None,
    positive: bool = False,
    shifted: Function | None = None,
) -> Definition:
    definition = Definition(fn.__name__, fn, running, batch, positive, shifted)
    _check_signature(fn, definition.num_arrays)
    # A user's module may be imported under two names; a built-in may not be replaced.
    existing = GOODNESS.get(fn.__name__)
    if existing is not None and existing.is_built_in:
        raise UserError(f"goodness={fn.__name__!r}: built in; choose another name")
    GOODNESS[fn.__name__] = definition
    return definition


def _check_signature(fn: Function, num_arrays: int) -> None:
    """Tells parameters from arrays: ``make(name)`` needs a default for each of them."""
    parameters = list(inspect.signature(fn).parameters.values())
    for parameter in parameters[num_arrays:]:
        is_keyword = parameter.kind == parameter.KEYWORD_ONLY
        if not is_keyword or parameter.default is parameter.empty:
            raise UserError(
                f"goodness={fn.__name__!r}: parameter {parameter.name!r} must be "
                f"keyword-only and have a default: ({parameters[0].name}, *, "
                f"{parameter.name}=...)"
            )


class _Statistics(NamedTuple):
    """Of a batch, of a state, or only their shapes; () for what there is not."""

    running: Any
    batch: Any


@dataclasses.dataclass(frozen=True)
class Goodness:
    """A goodness function with its parameters set: hashable, so jit can tell it apart.

    ``g(h)`` measures h. A function with a state also takes that of the layer,
    ``g(h, state)``; without it, its initial value is used. State is an empty tuple for
    the functions that have none.
    """

    definition: Definition
    params: tuple[tuple[str, Param], ...]

    def __call__(self, activations: ArrayLike, state: State = ()) -> jax.Array:
        """Goodness of activations over their last axis, each judged as a candidate."""
        h = jnp.asarray(activations)
        if not jnp.issubdtype(h.dtype, jnp.floating):
            h = h.astype(jnp.float32)
        frozen = self._frozen(state, h)
        if self.definition.batch is None:
            return self._measure(h, frozen, np.True_)
        alone = jax.vmap(lambda one: self._measure(one, frozen, np.True_))
        return alone(h.reshape(-1, h.shape[-1])).reshape(h.shape[:-1])

    def in_training(self, h: jax.Array, state: State, positive: ArrayLike) -> jax.Array:
        """Goodness of all examples of a training step.

        Args:
          h: (..., d), positive and negative examples.
          state: of the layer.
          positive: (...), which of them have their true label.
        """
        known = self._frozen(state, h)
        if self.definition.batch is not None:
            known = known._replace(batch=self._of_batch(h, positive).batch)
        return self._measure(h, known, positive)

    def _measure(
        self, h: jax.Array, known: _Statistics, positive: ArrayLike
    ) -> jax.Array:
        definition = self.definition
        arrays = [h]
        if definition.running is not None:
            arrays.append(known.running)
        if definition.batch is not None:
            arrays.append(known.batch)
        if definition.positive:
            arrays.append(jnp.broadcast_to(positive, h.shape[:-1]))
        value = self._call(definition.fn, *arrays, **dict(self.params))
        own.check_value(definition.address, value, h, h.shape[:-1])
        return value

    @property
    def shifted(self) -> Callable[[jax.Array, jax.Array], jax.Array] | None:
        """The faster way to the goodness under many shifts; see ``register``."""
        fn = self.definition.shifted
        return None if fn is None else functools.partial(self._shifted, fn)

    def _shifted(self, fn: Function, h: jax.Array, shifts: jax.Array) -> jax.Array:
        value = self._call(fn, h, shifts, **dict(self.params))
        shape = (*h.shape[:-1], len(shifts))
        own.check_value(self.definition.address, value, h, shape)
        return value

    def _call(self, fn: Callable[..., _T], /, *arrays: Any, **params: Param) -> _T:
        if self.definition.is_built_in:
            return fn(*arrays, **params)
        return own.call(self.definition.address, fn, *arrays, **params)

    def init(self, width: int) -> State:
        """The state of an untrained layer of so many units."""
        shapes = jax.tree.leaves(self._shapes(width))
        return _state([jnp.zeros(shape.shape, jnp.float32) for shape in shapes])

    def update(self, state: State, h: jax.Array, positive: ArrayLike) -> State:
        """The state after a training step; h and positive as in ``in_training``."""
        if not self.definition.has_state:
            return state
        old = jax.tree.leaves(self._means(state, h.shape[-1]))
        mean = self._means(state, h.shape[-1]).running
        seen = self._of_batch(jax.lax.stop_gradient(h), positive, mean)
        new = jax.tree.leaves(seen)
        pairs = zip(old, new, strict=True)
        return _state([MOMENTUM * mean + (1 - MOMENTUM) * now for mean, now in pairs])

    def combine(self, states: Sequence[State]) -> State:
        """The state for the concatenation of several layers.

        Of numbers it is the mean; vectors of units are concatenated as the units are.
        """
        parts = zip(*map(jax.tree.leaves, states), strict=True)
        return _state([_combine(part) for part in parts])

    def _frozen(self, state: State, h: jax.Array) -> _Statistics:
        """What the function knows from the steps before, as constants."""
        return jax.tree.map(
            lambda mean: jax.lax.stop_gradient(mean).astype(h.dtype),
            self._means(state, h.shape[-1]),
        )

    def _means(self, state: State, width: int) -> _Statistics:
        """A state by what it is the mean of."""
        means = jax.tree.leaves(state) or jax.tree.leaves(self.init(width))
        structure = jax.tree.structure(self._shapes(width))
        return jax.tree.unflatten(structure, map(jnp.asarray, means))

    def _shapes(self, width: int) -> _Statistics:
        """The shapes of the statistics for a layer of this width; checked."""
        definition = self.definition
        if not definition.has_state:
            return _Statistics((), ())
        h = jax.ShapeDtypeStruct((2, width), jnp.float32)
        positive = jax.ShapeDtypeStruct((2,), jnp.bool_)
        shapes = jax.eval_shape(self._of_batch, h, positive)
        own.check_statistics(definition.address, shapes._asdict(), width)
        return shapes

    def _of_batch(
        self, h: jax.Array, positive: ArrayLike, mean: ArrayLike = 0.0
    ) -> _Statistics:
        """The statistics of the examples (..., d) of a step.

        Args:
          h: positive and negative examples.
          positive: which is which.
          mean: the running mean of goodness before it, where goodness depends on it.
        """
        running, batch = self.definition.running, self.definition.batch
        of_running, of_batch = (), ()
        if batch is not None:
            every = jnp.broadcast_to(positive, h.shape[:-1]).reshape(-1)
            of_batch = self._call(batch, h.reshape(-1, h.shape[-1]), every)
        if running == "goodness":
            known = _Statistics(jnp.asarray(mean, h.dtype), of_batch)
            of_running = jnp.mean(self._measure(h, known, positive))
        elif running is not None:
            values = self._call(running, h)
            own.check_running(self.definition.address, values, h)
            of_running = jnp.mean(values, axis=tuple(range(h.ndim - 1)))
        return _Statistics(of_running, of_batch)


def _state(means: Sequence[jax.Array]) -> State:
    return means[0] if len(means) == 1 else tuple(means)


def _combine(means: Sequence[ArrayLike]) -> jax.Array:
    arrays = [jnp.asarray(mean) for mean in means]
    if arrays[0].ndim > 0:
        return jnp.concatenate(arrays, axis=-1)
    return sum(arrays[1:], start=arrays[0]) / len(arrays)


def make(name: str | Definition, **params: Param) -> Goodness:
    """The goodness function called ``name`` with the given parameters.

    Args:
      name: a name in GOODNESS, or "module:function" for a function of your own; or the
        function itself, as ``register`` gave it.
      **params: values for the function's keyword arguments; the rest keep the paper's
        defaults. topk, contrast_topk and ln_topk take ``fraction``, entmax takes
        ``alpha``, moment takes ``p``.
    """
    definition = name if isinstance(name, Definition) else find(name)
    name, defaults = definition.name, definition.defaults
    for key, value in params.items():
        if key not in defaults:
            allowed = ", ".join(defaults) or "none"
            raise UserError(
                f"goodness={name!r}: has no parameter {key!r} (it has: {allowed})"
            )
        check_param(key, value)
    return Goodness(definition, tuple(sorted({**defaults, **params}.items())))


def find(name: str) -> Definition:
    """Looks a name up in GOODNESS, importing the module of a "module:function" name."""
    if not isinstance(name, str):
        raise UserError(f"goodness={name!r}: must be a string, the function's name")
    if ":" in name:
        return _find_in_module(name)
    if name not in GOODNESS:
        close = difflib.get_close_matches(name, GOODNESS, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise UserError(
            f"goodness={name!r}: unknown; {hint}known are {', '.join(GOODNESS)}, "
            "and module:function for your own"
        )
    return GOODNESS[name]


def _find_in_module(name: str) -> Definition:
    module_name, _, function_name = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except UserError:
        raise
    except Exception as error:  # whatever a user's module does when it is run
        raise UserError(
            f"goodness={name!r}: cannot import module {module_name!r}: "
            f"{own.describe(error)}; it must lie in the current folder or on PYTHONPATH"
        ) from error
    definition = getattr(module, function_name, None)
    if not isinstance(definition, Definition):
        raise UserError(
            f"goodness={name!r}: {module_name} has no goodness function "
            f"{function_name!r}; decorate it with ffjax.goodness.register"
        )
    return definition


def source_hash(function: Definition | str) -> str | None:
    """Tells versions of a user's own function apart: a hash of its source files.

    None for built-in functions; see ``source`` for which files count. They are read
    when a function is first asked about, and the answer holds for this process: later
    edits are not part of what was imported.
    """
    definition = find(function) if isinstance(function, str) else function
    return None if definition.is_built_in else _source_hash(definition.fn)


_source_hash = functools.cache(source.function_hash)


def check_param(name: str, value: object) -> None:
    """Raises a UserError if a parameter of this name cannot have this value."""
    if name in PARAMETERS:
        PARAMETERS[name].check(name, value)
