"""A user's own goodness function: trained, swept, reported and compared."""

import pathlib
import re
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from experiments.own_goodness import own_goodness
from ffjax import config, goodness, records
from ffjax.config import build
from ffjax.config.spec import Way, cell_id
from ffjax.errors import UserError
from ffjax.paper import names, numbers
from ffjax.report import details
from ffjax.runs import run

OWN = own_goodness.OWN


def test_its_formula(rng: np.random.Generator):
    h = rng.normal(size=(3, 8)).astype(np.float32)
    values = goodness.make(OWN, q=3.0)(jnp.asarray(h))
    expected = np.mean(np.abs(h) ** 3, -1) ** (1 / 3) / np.sqrt(np.mean(h**2, -1))
    np.testing.assert_allclose(values, expected, rtol=1e-5)
    assert np.isfinite(goodness.make(OWN)(jnp.zeros((2, 8)))).all()


def test_its_parameters_are_a_part_of_the_run():
    spec = config.make_spec(goodness=OWN)
    assert spec.goodness_params == "q=4.0"
    assert spec == config.make_spec(goodness=OWN, goodness_params="q=4")
    other = config.make_spec(goodness=OWN, goodness_params="q=6")
    assert cell_id(other) != cell_id(spec)
    assert build.architecture(other, 10).goodness.params == (("q", 6.0),)
    assert config.make_spec(goodness="sos").goodness_params == ""
    margin = config.make_spec(goodness="softmax_energy_margin")
    assert margin.goodness_params == ""
    with pytest.raises(UserError, match=r"has no parameter 'r' \(it has: q\)"):
        config.make_spec(goodness=OWN, goodness_params="r=6")
    with pytest.raises(UserError, match=r"'p' \(it has: none; p is set by p\)"):
        config.make_spec(goodness="moment", goodness_params="p=6")


def test_a_built_in_function_with_other_parameters_is_not_the_papers():
    row = next(r for r in numbers.rows() if r.goodness == "softmax_energy_margin")
    fields = {
        name: getattr(row, name)
        for name in ("dataset", "pathway", "goodness", "num_layers", "width")
    }
    fields["activation"] = row.activations[0]
    spec = config.make_spec(**fields, norm_gate=bool(row.norm_gate))
    assert numbers.matches(row, spec)
    other = config.make_spec(**fields, goodness_params="margin=0.7")
    assert not numbers.matches(row, other)
    assert names.parameter_text(other) == "margin = 0.7"


def test_the_worked_example(tmp_path: pathlib.Path):
    """The example's own sweep, tiny: runs, and a report with its curve."""
    assert len(config.expand(own_goodness.get_config())) == 16
    sweep = own_goodness.get_config("sweep")
    chosen: dict[str, Any] = {
        "pathway": "ffcl",
        "width": 8,
        "epochs": 1,
        "num_layers": 1,
        "train_limit": 100,
        "test_limit": 50,
    }
    cells = config.expand(sweep, chosen)
    assert [c.spec.goodness_params for c in cells] == [
        f"q={q}" for q in (3.0, 4.0, 6.0, 8.0, 12.0)
    ]
    assert len(config.expand(sweep, {**chosen, "goodness_params": "q=6"})) == 1
    assert run.run(cells[:3], str(tmp_path), Way()) == 0
    whole, problems = records.read_all(tmp_path)
    assert not problems
    parameters = {record.spec.goodness_params for record in whole}
    assert parameters == {"q=3.0", "q=4.0", "q=6.0"}
    page = (tmp_path / "report" / "index.html").read_text()
    assert "norm_ratio q = 6" in page
    (packed,) = re.findall(r'id="data">([^<]*)<', page)
    titles = [chart["title"] for chart in details.unpacked(packed)["charts"]]
    assert any("norm_ratio over q" in title for title in titles)
    assert len(list((tmp_path / "report" / "figures").glob("sweeps-*.png"))) == 1
