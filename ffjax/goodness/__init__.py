"""Goodness functions: activations -> one number that says how well a layer likes them."""

from ffjax.goodness.functions import (
    GOODNESS,
    Definition,
    Goodness,
    allowed_values,
    check_param,
    find,
    make,
    register,
)

__all__ = [
    "GOODNESS",
    "Definition",
    "Goodness",
    "allowed_values",
    "check_param",
    "find",
    "make",
    "register",
]
