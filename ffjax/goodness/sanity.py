"""Can a goodness function be learned with? Asked before the first training step."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from ffjax.goodness import own
from ffjax.goodness.registry import Goodness

_SCALES = (1.0, 0.01)  # of the activations in a trained and in an untrained layer


def problem(
    goodness: Goodness,
    width: int,
    activate: Callable[[jax.Array], jax.Array] = lambda x: x,
) -> str | None:
    """What is wrong with a goodness function on ordinary activations, in one line.

    It is measured on 16 normal vectors, put through the activation: a NaN there would
    later look like a learning rate that is too high, and a constant like a network that
    does not learn. An error in the function or in its derivative is raised.

    Args:
      goodness: the function, with its parameters.
      width: of the layer, in full: a function may split the layer into blocks of a
        fixed size.
      activate: the layer's activation function.

    Returns:
      None if all is well. ``moment`` with p <= 2 is a constant on purpose.
    """
    normal = np.random.default_rng(0).normal(size=(len(_SCALES), 8, width))
    h = jnp.asarray(normal * np.reshape(_SCALES, (-1, 1, 1)), jnp.float32)
    address = goodness.definition.address
    measured = own.call(address, _measure, goodness, activate(h))
    complaint = _complaint(*jax.device_get(measured))
    return None if complaint is None else f"goodness={address!r}: {complaint}"


@functools.partial(jax.jit, static_argnums=0)
def _measure(goodness: Goodness, h: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Goodness of each vector, and its gradient, as in the first step of training."""
    state = goodness.init(h.shape[-1])
    is_positive = np.arange(h.shape[1]) % 2 == 0
    value, pull = jax.vjp(lambda h: goodness.in_training(h, state, is_positive), h)
    return value, pull(jnp.ones_like(value))[0]


def _complaint(value: np.ndarray, slope: np.ndarray) -> str | None:
    broken = ~np.isfinite(value)
    if broken.any():
        return (
            f"gives {value[broken][0]} for {broken.sum()} of {value.size} ordinary "
            "vectors of activations, before any training"
        )
    broken = ~np.isfinite(slope).all(axis=-1)
    if broken.any():
        return (
            f"has a gradient that is not finite for {broken.sum()} of {value.size} "
            "ordinary vectors of activations, before any training"
        )
    rounding = 8 * np.finfo(np.float32).eps * np.abs(value).max()
    if np.ptp(value) <= rounding:
        return f"gives {value.flat[0]:g} for every vector of activations: cannot learn"
    if not slope.any():
        return "has a gradient of zero for every vector of activations: cannot learn"
    return None
