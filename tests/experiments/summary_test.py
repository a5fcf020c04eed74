"""The tables of the READMEs are those of the records, and say what was run."""

import dataclasses
import json
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from configs import grid
from experiments import dot_chart, summary, tables
from experiments.conv import conv
from experiments.conv import table as conv_table
from experiments.full import full
from experiments.full import table as full_table
from experiments.functions import functions
from experiments.functions import table as functions_table
from experiments.headline import figure, headline
from experiments.headline import table as headline_table
from experiments.precision import precision
from experiments.precision import table as precision_table
from experiments.record import record
from experiments.record import table as record_table
from experiments.small import table as small_table
from experiments.sweeps import table as sweeps_table
from ffjax import config
from ffjax.config import Cell
from ffjax.errors import UserError
from ffjax.goodness import GOODNESS

PAGES = summary.pages()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name)
def test_the_tables_of_a_readme_are_those_of_the_records(page: pathlib.Path):
    readme = page.read_text(encoding="utf-8")
    assert summary.fill(readme) == readme


def test_every_experiment_with_a_table_shows_it():
    declared = {path.parent.name for path in tables.FOLDER.glob("*/table.py")}
    assert declared == {
        "conv",
        "fast",
        "full",
        "functions",
        "headline",
        "precision",
        "record",
        "small",
        "sweeps",
    }
    assert declared <= {page.parent.name for page in PAGES}


def test_a_block_is_filled_and_the_rest_stays():
    text = "a\n<!-- table: fast.run -->\nold\n<!-- end of table -->\nb\n"
    lines = summary.fill(text).splitlines()
    assert lines[:2] == ["a", "<!-- table: fast.run -->"]
    assert lines[-2:] == ["<!-- end of table -->", "b"]
    assert "old" not in lines
    assert any("89.35 ± 0.06" in line for line in lines)


def test_an_unknown_table_says_which_there_are():
    text = "<!-- table: record.nope -->\n<!-- end of table -->"
    with pytest.raises(UserError, match=r"record\.nope: must be one of search, chosen"):
        summary.fill(text)


def write_records(
    folder: pathlib.Path, runs: Iterable[tuple[Cell, int, Mapping[str, float]]]
):
    """Records of cells and seeds, right in all but the fields that are given."""
    (folder / "results").mkdir(parents=True)
    for cell, seed, fields in runs:
        text = json.dumps(make_record(cell, seed, **fields))
        (folder / "results" / f"{cell.id}-seed{seed}.json").write_text(text)


def make_record(cell: Cell, seed: int, *, accuracy: float, **fields: Any):
    """A record of 10,000 test images that fits together."""
    spec, right = cell.spec, round(100 * accuracy)
    return {
        "cell": cell.id,
        "spec": vars(spec),
        "seed": seed,
        "status": "ok",
        "accuracy": accuracy,
        "accuracy_layers": [accuracy] * spec.num_layers,
        "accuracy_concat": None,
        "confusion": [[right, 10_000 - right], [0, 0]],
        "losses": [[0.1] * spec.epochs] * spec.num_stages,
        "time": {},
        "train_size": 10,
        "test_size": 10_000,
        "device": "cpu",
        "versions": {},
        "commit": None,
        **fields,
    }


def test_an_entry_is_the_mean_over_the_seeds_beside_the_papers_number(
    tmp_path: pathlib.Path,
):
    cell = config.expand(headline.get_config("mnist"))[0]
    runs = [(cell, 42, {"accuracy": 97.0}), (cell, 43, {"accuracy": 98.0})]
    write_records(tmp_path, runs)
    # 98.09 is the paper's number for FFCL burstiness with GELU on MNIST.
    assert headline_table.methods(tmp_path).splitlines() == [
        "Test accuracy in %; mean ± standard deviation over the seeds; in brackets: "
        "paper, 4x2000, 60 epochs. Runs: 2x500, 60 epochs, seeds 42 to 43.",
        "",
        "| method | MNIST |",
        "| --- | --- |",
        "| FFCL, burstiness, GELU | 97.50 ± 0.71 (98.09) |",
    ]
    image = figure.draw(headline_table.measured(tmp_path), headline_table.name)
    assert image.startswith(b"\x89PNG")


def test_what_was_run_otherwise_is_marked(tmp_path: pathlib.Path):
    cells = config.expand(headline.get_config("usps"))
    own = [cell for cell in cells if cell.spec.normalisation == "l2"]
    (hinton,) = [cell for cell in cells if cell.spec.normalisation == "rms"]
    runs = [(cell, seed, {"accuracy": 90.0}) for cell in own for seed in (42, 44)]
    write_records(tmp_path, [*runs, (hinton, 42, {"accuracy": 91.0})])
    lines = headline_table.methods(tmp_path).splitlines()
    settings = "2x500, 60 epochs, seeds 42, 44; <sup>a</sup> 20 epochs, seed 42."
    assert lines[0].endswith(f"Runs: {settings}")
    assert "| Hinton's Forward-Forward | 91.00 <sup>a</sup> |" in lines
    assert sum("<sup>" in line for line in lines[1:]) == 1


def test_no_entry_of_another_setting_has_the_papers_number():
    for cell in config.expand(record.get_config()):
        assert tables.Entry(cell.spec, {42: 90.0}).paper is None


def test_two_runs_never_share_a_place(tmp_path: pathlib.Path):
    cells = config.expand(grid.get_config("p_sweep"))[:2]
    write_records(tmp_path, [(cell, 42, {"accuracy": 80.0}) for cell in cells])
    shown = tables.entries(cells, tmp_path)
    with pytest.raises(ValueError, match="two runs at"):
        tables.pivot(shown, "", lambda spec: "same", tables.dataset)


def test_small_counts_what_is_at_most_two_points_below_the_paper(
    tmp_path: pathlib.Path,
):
    # The paper: 61.07 for SoS with ReLU and 57.63 with GELU on Fashion-MNIST.
    accuracies = {("relu", False): 58.0, ("relu", True): 59.5, ("gelu", False): 55.0}
    runs = [
        (cell, 42, {"accuracy": accuracies[cell.spec.activation, cell.spec.norm_gate]})
        for cell in config.expand(grid.get_config("small"))
        if cell.spec.dataset == "fashion_mnist"
        and cell.spec.goodness == "sos"
        and (cell.spec.activation, cell.spec.norm_gate) in accuracies
    ]
    assert len(runs) == 3
    write_records(tmp_path, runs)
    lines = small_table.against_paper(tmp_path).splitlines()
    assert lines[0] == (
        "Within 2 points of the paper or better: 1 of 22, of which 2 have been run. "
        "Test accuracy in %; 2 runs without and 1 with the norm gate: 2x500, 60 "
        "epochs, seed 42."
    )
    assert "| Fashion-MNIST | SoS | ReLU | 58.00 | 59.50 | 61.07 | -1.57 |" in lines
    assert "| Fashion-MNIST | SoS | GELU | 55.00 |  | 57.63 | -2.63 |" in lines


def test_sweeps_put_the_pathways_side_by_side(tmp_path: pathlib.Path):
    cells = config.expand(grid.get_config("p_sweep"), sweeps_table.SIZE)
    runs = [
        (cell, 42, {"accuracy": 80.0 + (cell.spec.pathway == "ffcl")})
        for cell in cells
        if cell.spec.p == 6
    ]
    write_records(tmp_path, runs)
    # 86.74 and 89.04 are the paper's numbers for the sixth moment.
    wanted = "| p = 6 | 80.00 (86.74) | 81.00 (89.04) |"
    assert wanted in sweeps_table.sweep("p_sweep", tmp_path).splitlines()


def test_candidates_are_shown_by_validation_and_the_chosen_by_test(
    tmp_path: pathlib.Path,
):
    search = config.expand(record.get_config("search"))[0]
    final = config.expand(record.get_config())[0]
    valid = {"accuracy": 80.0, "accuracy_valid": 91.25}
    write_records(tmp_path / "search", [(search, 42, valid)])
    seeds = {42: 90.0, 43: 91.0}
    write_records(tmp_path, [(final, s, {"accuracy": a}) for s, a in seeds.items()])
    name = record_table.candidate(search.spec)
    assert record_table.search(tmp_path / "search").splitlines()[2] == (
        f"| {name} | Fashion-MNIST | 2x2000 | 24 | 42 | 91.25 |"
    )
    name = record_table.candidate(final.spec)
    assert record_table.chosen(tmp_path).splitlines()[-1] == (
        f"| {name} | Fashion-MNIST | 2x2000 | 24 | 42 to 43 | 90.50 ± 0.71 |"
    )


def test_what_was_chosen_for_the_record_was_a_candidate():
    assert record.CHOSEN
    for dataset, chosen in record.CHOSEN.items():
        assert chosen in record.CANDIDATES[dataset]


def test_full_has_the_runs_of_the_grid():
    def runs(cells: list[Cell]) -> set[tuple[str, int]]:
        return {(cell.id, seed) for cell in cells for seed in cell.seeds}

    assert runs(config.expand(full.get_config())) == runs(
        config.expand(grid.get_config())
    )
    gates = {
        name: {cell.spec.norm_gate for cell in config.expand(full.get_config(name))}
        for name in full.SECTIONS
    }
    assert gates.pop("gated") == {True}
    assert set(map(tuple, gates.values())) == {(False,)}


def test_full_leaves_small_networks_to_their_own_table():
    text = full_table.methods()
    assert "FFCL, burstiness, GELU" in text
    assert "2x500" not in text


def test_functions_are_ranked_by_the_better_pathway(tmp_path: pathlib.Path):
    accuracies = {
        ("sos", 2.0): (60.0, 81.0),
        ("sos", 1.0): (82.0, 70.0),
        ("predictive_coding", 1.0): (10.0, 85.0),
    }
    runs = [
        (cell, seed, {"accuracy": accuracies[own][cell.spec.pathway == "ffcl"] + seed})
        for cell in config.expand(functions.get_config())
        if (own := (cell.spec.goodness, cell.spec.threshold)) in accuracies
        for seed in (0, 2)
    ]
    assert len(runs) == 12
    write_records(tmp_path, runs)
    lines = functions_table.ranking(tmp_path).splitlines()
    assert lines[2:] == [
        "| goodness | standard | FFCL |",
        "| --- | --- | --- |",
        "| predictive coding, threshold 1 | 11.00 ± 1.41 | 86.00 ± 1.41 |",
        "| SoS, threshold 1 | 83.00 ± 1.41 | 71.00 ± 1.41 |",
        # The paper's numbers for SoS with GELU, which are for its own threshold.
        "| SoS, threshold 2 | 61.00 ± 1.41 (61.43) | 82.00 ± 1.41 (82.38) |",
    ]
    shown = functions_table.measured(tmp_path)
    image = dot_chart.draw(shown, functions_table.name)
    assert image.startswith(b"\x89PNG")
    assert dot_chart.draw([], functions_table.name).startswith(b"\x89PNG")


def test_a_function_in_convolutions_has_its_best_setting(tmp_path: pathlib.Path):
    valid = {
        ("sos", "groups", 1.0, 0.003): 47.0,
        ("sos", "groups", 1.0, 0.01): 40.0,
        ("sos", "ffcl", 1.0, 0.001): 30.0,
        ("mean", "groups", 10.0, 0.01): 50.0,
    }
    runs = [
        # The better it is in validation, the worse on the test images.
        (cell, 42, {"accuracy": 90 - valid[own], "accuracy_valid": valid[own]})
        for cell in config.expand(conv.get_config("compare"))
        if (
            own := (
                cell.spec.goodness,
                cell.spec.pathway,
                cell.spec.loss_scale,
                cell.spec.learning_rate,
            )
        )
        in valid
    ]
    assert len(runs) == len(valid)
    write_records(tmp_path, runs)
    assert conv_table.compare(tmp_path).splitlines() == [
        "Validation accuracy in %. Runs: 60-120-240, 4 epochs, seed 42.",
        "",
        "| goodness | groups | FFCL |",
        "| --- | --- | --- |",
        "| mean | 50.00 |  |",
        "| SoS | 47.00 | 30.00 |",
    ]
    assert conv_table.draw(tmp_path).startswith(b"\x89PNG")


def test_all_functions_run_on_both_pathways_with_a_threshold_of_their_own():
    cells = config.expand(functions.get_config())
    assert len(cells) == 2 * (13 + 1 + 14)
    assert {cell.spec.goodness for cell in cells} == {
        name for name, known in GOODNESS.items() if known.is_built_in
    }
    assert {cell.seeds for cell in cells} == {(42, 43, 44)}
    for cell in cells:
        of_field = cell.spec.goodness in functions.FIELD
        assert cell.spec.threshold in ((1.0, 2.0) if of_field else (2.0,))


def test_without_records_a_table_says_so(tmp_path: pathlib.Path):
    for make in (
        headline_table.methods,
        small_table.against_paper,
        full_table.methods,
        functions_table.ranking,
    ):
        assert make(tmp_path) == tables.NOTHING


def test_a_broken_record_is_an_error(tmp_path: pathlib.Path):
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "a-seed42.json").write_text("{")
    with pytest.raises(UserError, match=r"a-seed42\.json"):
        headline_table.methods(tmp_path)


def test_every_axis_of_the_figure_has_ticks():
    assert figure.ticks(4.8, 81) == [5, 10, 20, 40, 80]
    assert figure.ticks(44, 51) == [45, 50]


def test_precisions_are_compared_over_the_seeds_that_both_have(tmp_path: pathlib.Path):
    (whole, *_) = config.expand(headline.get_config("fashion_mnist"))
    (half, *_) = config.expand(precision.get_config())
    write_records(
        tmp_path / "float32",
        [(whole, 42, {"accuracy": 88.0}), (whole, 43, {"accuracy": 89.0})],
    )
    write_records(
        tmp_path / "bfloat16",
        [(half, 43, {"accuracy": 88.9}), (half, 44, {"accuracy": 80.0})],
    )
    text = precision_table.accuracy(tmp_path / "bfloat16", tmp_path / "float32")
    assert text.splitlines()[-1] == (
        "| FFCL, burstiness, GELU | 43 | 89.00 | 88.90 | -0.10 |"
    )


def test_every_run_in_bfloat16_has_a_run_in_float32():
    whole = {cell.spec for cell in config.expand(headline.get_config("fashion_mnist"))}
    cells = config.expand(precision.get_config())
    assert len(cells) == 6
    for cell in cells:
        assert cell.spec.precision == "bfloat16"
        assert dataclasses.replace(cell.spec, precision="float32") in whole
