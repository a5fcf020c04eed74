import json

from experiments import summary
from experiments.headline import headline
from ffjax import config


def test_the_readmes_table_is_that_of_the_records():
    readme = summary.README.read_text(encoding="utf-8")
    table = summary.make_table(summary.gather())
    assert summary.insert(readme, table) == readme
    assert table.count("\n") > 5


def test_an_entry_is_the_mean_over_the_seeds_beside_the_papers_number(tmp_path):
    cell = config.expand(headline.get_config("mnist"))[0]
    template = next((summary.FOLDER / "headline" / "results").glob("*.json"))
    record = json.loads(template.read_text())
    (tmp_path / "results").mkdir()
    for seed, accuracy in ((42, 97.0), (43, 98.0)):
        changed = {"cell": cell.id, "seed": seed, "accuracy": accuracy}
        path = tmp_path / "results" / f"{cell.id}-seed{seed}.json"
        path.write_text(json.dumps({**record, **changed}))
    table = summary.gather(tmp_path)
    # 98.09 is the paper's number for FFCL burstiness with GELU on MNIST.
    assert table["FFCL, burstiness, GELU"]["mnist"].text == "97.50 ± 0.71 (98.09)"
    assert summary.make_table(table).splitlines() == [
        "| 2x500, test accuracy in % | MNIST |",
        "|---|---|",
        "| FFCL, burstiness, GELU | 97.50 ± 0.71 (98.09) |",
    ]
    summary.draw(table, tmp_path / "summary.png")
    assert (tmp_path / "summary.png").stat().st_size > 5000
