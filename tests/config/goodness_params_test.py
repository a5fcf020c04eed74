import pytest

from ffjax.config import goodness_params
from ffjax.errors import UserError


def test_values_survive():
    values = {"q": 4, "beta": 0.1, "gamma": -1e-30}
    text = goodness_params.render(values)
    assert text == "beta=0.1,gamma=-1e-30,q=4"
    assert goodness_params.parse(text) == values
    assert type(goodness_params.parse(text)["q"]) is int
    assert goodness_params.parse(" q = 4 , beta=.1,") == {"q": 4, "beta": 0.1}
    assert goodness_params.parse("") == {}


@pytest.mark.parametrize("text", ["q", "q=", "=4", "4=q", "q=x", "q=nan", "a b=inf"])
def test_other_texts_are_named(text):
    with pytest.raises(UserError, match=r"goodness_params=.*: must be NAME=NUMBER"):
        goodness_params.parse(text)
