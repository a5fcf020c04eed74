"""Goodness functions: activations -> one number that says how well a layer likes them."""

from ffjax.goodness.functions import (
    GOODNESS,
    Definition,
    Goodness,
    State,
    allowed_values,
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
    "allowed_values",
    "check_param",
    "find",
    "make",
    "register",
    "source_hash",
]
