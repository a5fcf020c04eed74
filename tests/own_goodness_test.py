"""A user's own goodness function: trained, swept, reported and compared."""

import json
import pathlib

import jax.numpy as jnp
import numpy as np
import pytest

from ffjax import config, goodness, paper
from ffjax.errors import UserError
from ffjax.runs import run

ROOT = pathlib.Path(__file__).parents[1]
OWN = "experiments.own_goodness.norm_ratio:norm_ratio"


@pytest.fixture(autouse=True)
def from_the_repository(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))


def test_its_formula(rng):
    h = rng.normal(size=(3, 8)).astype(np.float32)
    found = goodness.make(OWN, q=3.0)(jnp.asarray(h))
    expected = np.mean(np.abs(h) ** 3, -1) ** (1 / 3) / np.sqrt(np.mean(h**2, -1))
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert np.isfinite(goodness.make(OWN)(jnp.zeros((2, 8)))).all()


def test_its_parameters_are_a_part_of_the_run():
    spec = config.make_spec(goodness=OWN)
    assert spec.goodness_params == "q=4.0"
    assert spec == config.make_spec(goodness=OWN, goodness_params="q=4")
    other = config.make_spec(goodness=OWN, goodness_params="q=6")
    assert config.cell_id(other) != config.cell_id(spec)
    assert other.architecture(10).goodness.params == (("q", 6.0),)
    assert config.make_spec(goodness="sos").goodness_params == ""
    margin = config.make_spec(goodness="softmax_energy_margin")
    assert margin.goodness_params == ""
    with pytest.raises(UserError, match=r"has no parameter 'r' \(it has: q\)"):
        config.make_spec(goodness=OWN, goodness_params="r=6")
    with pytest.raises(UserError, match=r"'p' \(it has: none; p is set by p\)"):
        config.make_spec(goodness="moment", goodness_params="p=6")


def test_a_built_in_function_with_other_parameters_is_not_the_papers():
    row = next(r for r in paper.rows() if r.goodness == "softmax_energy_margin")
    fields = {
        name: getattr(row, name)
        for name in ("dataset", "pathway", "goodness", "num_layers", "width")
    }
    fields["activation"] = row.activations[0]
    spec = config.make_spec(**fields, norm_gate=bool(row.norm_gate))
    assert paper.matches(row, vars(spec))
    other = config.make_spec(**fields, goodness_params="margin=0.7")
    assert not paper.matches(row, vars(other))
    assert paper.parameter_text(vars(other)) == "margin = 0.7"


def test_the_worked_example(tmp_path):
    """The example's own sweep, tiny: runs, and a report with its curve."""
    scope: dict = {}
    path = ROOT / "experiments" / "own_goodness" / "own_goodness.py"
    exec(compile(path.read_text(), path, "exec"), scope)
    assert len(config.expand(scope["get_config"]())) == 16
    values = scope["get_config"]("sweep")
    sizes = {"width": 8, "epochs": 1, "num_layers": 1, "train_limit": 100}
    sizes["test_limit"] = 50
    chosen = {"pathway": "ffcl", **sizes}
    values.update(chosen)
    cells = config.expand(values, chosen)
    assert [c.spec.goodness_params for c in cells] == [
        f"q={q}" for q in (3.0, 4.0, 6.0, 8.0, 12.0)
    ]
    pinned = {**chosen, "goodness_params": "q=6"}
    assert len(config.expand(values, pinned)) == 1
    assert run.run(cells[:3], str(tmp_path)) == 0
    records = [json.loads(p.read_text()) for p in (tmp_path / "results").iterdir()]
    assert {r["spec"]["goodness_params"] for r in records} == {
        "q=3.0",
        "q=4.0",
        "q=6.0",
    }
    page = (tmp_path / "report" / "index.html").read_text()
    assert "norm_ratio over q" in page
    assert "q = 6" in page
