"""What a value may be, and the exception for mistakes that a user can mend."""

import dataclasses
import math
from collections.abc import Callable, Iterable
from typing import TypeGuard


class UserError(ValueError):
    """A wrong value, name or file given by the user.

    The message is a single line that names the field or file, its value and what is
    allowed. The commands print it without a traceback and exit with code 2.
    """


@dataclasses.dataclass(frozen=True)
class Domain:
    """The values that a field or parameter may have.

    Attributes:
      allows: whether it may have a value.
      words: the same for people, to stand after "must be".
    """

    allows: Callable[[object], bool]
    words: str

    def check(self, name: str, value: object) -> None:
        """Raises a UserError for a value that is not allowed."""
        if not self.allows(value):
            raise UserError(f"{name}={shown(value)}: must be {self.words}")


def shown(value: object, length: int = 80) -> str:
    """A value for an error message, cut where it is long."""
    try:
        text = repr(value)
    except ValueError:  # an integer of thousands of digits
        text = "a number too large to print"
    text = " ".join(text.split())
    return text if len(text) <= length else f"{text[: length - 1]}…"


def choice(names: Iterable[str]) -> Domain:
    """Some names, and nothing else."""
    names = tuple(names)
    return Domain(
        lambda value: isinstance(value, str) and value in names,
        f"one of {', '.join(names)}",
    )


def integer(low: int, high: int | None = None, words: str = "") -> Domain:
    """Integers from ``low`` to ``high``, both included."""
    above = f"an integer >= {low}"
    within = f"an integer from {low} to {high}"
    return Domain(
        lambda value: (
            is_integer(value) and low <= value and (high is None or value <= high)
        ),
        words or (above if high is None else within),
    )


def number(allows: Callable[[float], bool], words: str) -> Domain:
    """Finite numbers for which ``allows`` holds."""
    return Domain(lambda value: is_number(value) and allows(value), words)


def optional(domain: Domain) -> Domain:
    """None, or a value of the domain."""
    return Domain(lambda value: value is None or domain.allows(value), domain.words)


def is_integer(value: object) -> TypeGuard[int]:
    """Whether a value is an integer that is no truth value."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether a value is a finite number that a float can hold."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


# Parameters that several goodness functions share, built-in or a user's own, by name.
PARAMETERS = {
    "fraction": number(lambda value: 0 < value <= 1, "a number in (0, 1]"),
    "alpha": number(lambda value: value >= 1, "a number >= 1"),
    "p": integer(1, 32),
}
