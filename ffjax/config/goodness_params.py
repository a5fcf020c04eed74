"""Parameters of a goodness function as one field of a run: "q=4.0,beta=0.5"."""

import math
from collections.abc import Mapping

from ffjax.errors import UserError

ALLOWED = "NAME=NUMBER pairs separated by commas, such as 'q=4,beta=0.5'"


def parse(text: str) -> dict[str, int | float]:
    """The values by name; raises a UserError where the text is something else."""
    values: dict[str, int | float] = {}
    for part in filter(None, str(text).replace(" ", "").split(",")):
        name, _, value = part.partition("=")
        try:
            values[name] = _number(value)
            if not name.isidentifier() or not math.isfinite(values[name]):
                raise ValueError
        except ValueError:
            raise UserError(f"goodness_params={text!r}: must be {ALLOWED}") from None
    return values


def render(values: Mapping[str, int | float]) -> str:
    """The one text for these values: the inverse of ``parse``."""
    return ",".join(f"{name}={values[name]!r}" for name in sorted(values))


def _number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        return float(text)
