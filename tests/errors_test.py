"""What values may be, and how those that may not are named."""

import math

import pytest

from ffjax import errors
from ffjax.errors import UserError, choice, integer, number, optional, shown


@pytest.mark.parametrize(
    ("domain", "good", "bad"),
    [
        (choice(("a", "b")), ["a", "b"], ["c", "", None, 1, ["a"]]),
        (integer(1), [1, 10**30], [0, True, 1.0, "1", None]),
        (integer(0, 3), [0, 3], [-1, 4, False]),
        (
            number(lambda value: value > 0, "above 0"),
            [1, 0.5, 1e308],
            [0, -1.0, math.nan, math.inf, 10**400, True, "1", None],
        ),
        (optional(integer(1)), [None, 1], [0, "1"]),
        (errors.PARAMETERS["fraction"], [1, 1e-9, 0.02], [0, 1.01, True]),
        (errors.PARAMETERS["alpha"], [1, 1.5, 100], [0.99, math.inf]),
        (errors.PARAMETERS["p"], [1, 32], [0, 33, 2.0]),
    ],
)
def test_domains(domain, good, bad):
    for value in good:
        domain.check("x", value)
    for value in bad:
        with pytest.raises(UserError, match=r"x=.*: must be ") as error:
            domain.check("x", value)
        assert str(error.value).endswith(domain.words)


def test_words():
    assert choice(("a", "b")).words == "one of a, b"
    assert integer(1).words == "an integer >= 1"
    assert integer(1, 5).words == "an integer from 1 to 5"
    assert integer(0, words="a count").words == "a count"
    assert optional(integer(1)).words == integer(1).words


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a\nb", r"'a\nb'"),
        ({"a": 1}, "{'a': 1}"),
        ("x" * 78, f"'{'x' * 78}'"),
        ("x" * 79, f"'{'x' * 78}…"),
        pytest.param(10**5000, "a number too large to print", id="5,000 digits"),
    ],
)
def test_values_are_shown_on_one_line_of_bounded_length(value, text):
    assert shown(value) == text
    assert len(shown(value)) <= 80


def test_a_value_whose_repr_has_lines():
    class Odd:
        def __repr__(self):
            return "a\n   b"

    assert shown(Odd()) == "a b"


def test_a_user_error_is_a_value_error():
    assert issubclass(UserError, ValueError)
