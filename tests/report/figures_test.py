"""The figures: which are drawn, the same each time, whatever the names."""

import re

import pytest
import records as made_up

from ffjax import records, report


def figures(workdir, made):
    for one in made:
        records.write(workdir, one)
    report.write(workdir)
    return {path.name: path for path in (workdir / "report/figures").iterdir()}


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    made = made_up.quick_grid()
    made += [made_up.record(), made_up.record(made_up.spec(activation="swish"))]
    made += [made_up.record(made_up.spec(goodness="sos"))]
    return figures(tmp_path_factory.mktemp("grid"), made)


def test_every_kind_is_drawn_as_png_and_pdf(drawn):
    kinds = {re.split(r"[-.]", name)[0] for name in drawn}
    assert kinds == {"agreement", "sweeps", "heat", "layers", "curves"}
    for path in drawn.values():
        start = b"%PDF" if path.suffix == ".pdf" else b"\x89PNG"
        assert path.read_bytes().startswith(start)
    assert {"agreement.png", "agreement.pdf"} <= set(drawn)


def test_the_picture_of_agreement_needs_something_to_show(tmp_path):
    assert "agreement.png" not in figures(tmp_path, made_up.quick_grid()[:3])


def test_the_same_records_give_the_same_files(tmp_path):
    made = [made_up.record(), made_up.record(made_up.spec(goodness="sos"))]
    first, second = (figures(tmp_path / name, made) for name in "ab")
    assert first.keys() == second.keys()
    assert first
    for name, path in first.items():
        assert path.read_bytes() == second[name].read_bytes(), name


@pytest.mark.parametrize(
    "odd",
    [
        {"goodness": "_$\\frac{", "dataset": "../$x_.npz"},
        {"goodness": "\u2603\U0001f600 " * 30, "dataset": "/"},
    ],
)
def test_figures_survive_odd_names(tmp_path, odd):
    made = [
        made_up.record(made_up.spec(activation=activation, **odd))
        for activation in ("gelu", "swish")
    ]
    made.append(made_up.record(made_up.spec(dataset=odd["dataset"], goodness="sos")))
    names = figures(tmp_path, made)
    assert len(names) == 6
    assert all(re.fullmatch(r"[A-Za-z0-9.-]+", name) for name in names)
    assert {path.name for path in tmp_path.iterdir()} == {"results", "report"}
