r"""Goodness functions: activations -> one number that says how well a layer likes them.

A goodness function is pure and reduces the last axis of h, of width d; every leading
axis is a batch axis. Its keyword arguments are its parameters, and their defaults are
the paper's. To add your own, decorate it with ``register`` in a file of yours:

    import jax.numpy as jnp
    from ffjax.goodness import register

    @register
    def l4_over_l2(h):
        return jnp.mean(h**4, axis=-1) / (jnp.mean(h**2, axis=-1) + 1e-8) ** 2

and train it with ``--config.goodness=my_module:l4_over_l2``, or from Python:
``make("my_module:l4_over_l2")``. It is swept, reported and compared like the others.
A function may also have a state, statistics of the batch and know the positives: see
``register``.
"""

# Imported for what they do: they enter the paper's thirteen functions into GOODNESS,
# and then those of the field.
from ffjax.goodness import functions as _functions  # noqa: F401, I001
from ffjax.goodness import field as _field  # noqa: F401
from ffjax.goodness.registry import (
    GOODNESS,
    Definition,
    Goodness,
    State,
    check_param,
    find,
    make,
    register,
    source_hash,
)

__all__ = [
    "GOODNESS",
    "Definition",
    "Goodness",
    "State",
    "check_param",
    "find",
    "make",
    "register",
    "source_hash",
]
