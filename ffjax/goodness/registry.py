"""The table of goodness functions: entering, looking up and setting parameters."""

import dataclasses
import difflib
import functools
import importlib
import inspect
from collections.abc import Callable, Sequence
from typing import TypeAlias, overload

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from ffjax.errors import PARAMETERS, UserError
from ffjax.goodness import own, source

MOMENTUM = 0.9  # of the running means that some functions keep

Function: TypeAlias = Callable[..., jax.Array]
Param: TypeAlias = bool | int | float | str  # the value of a function's parameter
State: TypeAlias = jax.Array | np.ndarray | tuple[()]  # a running mean, or nothing


@dataclasses.dataclass(frozen=True)
class Definition:
    """An entry of GOODNESS: a function, and what ``register`` was given with it."""

    name: str
    fn: Function
    running: Function | None = None
    shifted: Function | None = None

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
    *, running: Function | None = None, shifted: Function | None = None
) -> Callable[[Function], Definition]: ...


def register(
    fn: Function | None = None,
    *,
    running: Function | None = None,
    shifted: Function | None = None,
) -> Definition | Callable[[Function], Definition]:
    """Decorator: enters a function into GOODNESS under its own name.

    Args:
      fn: ``fn(h, *, parameter=default, ...)``; with ``running``,
        ``fn(h, running_mean, *, ...)``.
      running: a function of h whose exponential running mean over the training batches
        is handed to ``fn`` as a constant: the layer's state, like that of batch norm.
      shifted: a faster way to the goodness of h under many shifts, if there is any:
        ``shifted(h, v, *, ...)`` of h (..., d) and v (C, d) equals ``fn(h + v_c)`` for
        each of them, (..., C). For a function without ``running``.
    """
    if fn is None:
        return functools.partial(_register, running=running, shifted=shifted)
    return _register(fn, running=running, shifted=shifted)


def _register(
    fn: Function, *, running: Function | None, shifted: Function | None
) -> Definition:
    _check_signature(fn, num_arrays=1 if running is None else 2)
    definition = Definition(fn.__name__, fn, running, shifted)
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


@dataclasses.dataclass(frozen=True)
class Goodness:
    """A goodness function with its parameters set: hashable, so jit can tell it apart.

    ``g(h)`` measures h. A function with a running mean also takes the layer's state,
    ``g(h, state)``; without it, its initial value is used. State is an empty tuple for
    the functions that have none.
    """

    definition: Definition
    params: tuple[tuple[str, Param], ...]

    def __call__(self, activations: ArrayLike, state: State = ()) -> jax.Array:
        """Goodness of the activations over their last axis."""
        h = jnp.asarray(activations)
        if not jnp.issubdtype(h.dtype, jnp.floating):
            h = h.astype(jnp.float32)
        arrays = [h]
        if self.definition.running is not None:
            mean = self._running_mean(state)
            arrays.append(jax.lax.stop_gradient(mean).astype(h.dtype))
        value = self._call(self.definition.fn, *arrays, **dict(self.params))
        own.check_value(self.definition.address, value, h, h.shape[:-1])
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

    def _call(self, fn: Function, /, *arrays: jax.Array, **params: Param) -> jax.Array:
        if self.definition.is_built_in:
            return fn(*arrays, **params)
        return own.call(self.definition.address, fn, *arrays, **params)

    def init(self) -> State:
        """The state of an untrained layer."""
        return () if self.definition.running is None else jnp.zeros((), jnp.float32)

    def update(self, state: State, h: jax.Array) -> State:
        """The state after a batch of activations, positive and negative ones alike."""
        running = self.definition.running
        if running is None:
            return state
        mean = self._call(lambda h: jnp.mean(running(h)), jax.lax.stop_gradient(h))
        return MOMENTUM * self._running_mean(state) + (1 - MOMENTUM) * mean

    def combine(self, states: Sequence[State]) -> State:
        """The state for the concatenation of several layers: the mean of theirs."""
        if self.definition.running is None:
            return ()
        means = [self._running_mean(state) for state in states]
        return sum(means[1:], start=means[0]) / len(means)

    def _running_mean(self, state: State) -> jax.Array:
        if isinstance(state, tuple):
            return jnp.zeros((), jnp.float32)
        return jnp.asarray(state)


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
