"""The paper's tables: which of our cells stands beside which number."""

import pytest
import records as made_up

from ffjax.paper import numbers
from ffjax.report import cells, tables


def built(records):
    return {t.id: t for t in tables.paper_tables(cells.gather(records))}


def run_entries(table):
    return [entry for entry in table.entries if entry.cell]


def test_every_number_of_the_paper_has_its_place():
    known = built(made_up.paper_grid(made_up.near_paper))
    own = [known[name] for name in numbers.TABLES]
    assert sum(table.num_entries for table in own) == 282
    assert sum(table.num_run for table in own) == 282
    assert set(known) - set(numbers.TABLES) == {"tab:ffcl_lift"}


def test_the_better_gate_is_taken_as_in_the_paper():
    made = [
        made_up.record(made_up.spec(norm_gate=gate), accuracy=accuracy)
        for gate, accuracy in ((False, 88.0), (True, 88.3))
    ]
    (entry,) = run_entries(built(made)["tab:main"])
    assert entry.ours == 88.3
    assert entry.difference == pytest.approx(88.3 - 88.41)


def test_the_interaction_table_has_ours_where_the_paper_has_none():
    made = made_up.spec(goodness="topk", activation="relu", pathway="standard")
    (entry,) = run_entries(
        built([made_up.record(made, accuracy=70.0)])["tab:interaction"]
    )
    assert (entry.row, entry.ours) == (None, 70.0)


def test_five_epochs_never_stand_beside_the_papers_sixty():
    known = built([made_up.record(made_up.spec(epochs=5))])
    assert not any(table.num_run for table in known.values())


def test_a_users_own_function_stands_in_the_papers_tables():
    made = [
        made_up.record(
            made_up.spec(goodness="mine:own", pathway=pathway), accuracy=80.0
        )
        for pathway in ("standard", "ffcl")
    ]
    known = built(made)
    (line,) = [x for x in known["tab:goodness"].lines if x.labels == ("own",)]
    assert [entry and entry.ours for entry in line.entries] == [80.0, 80.0]
    assert len(run_entries(known["tab:fashion_full"])) == 2
    # ... and does not count as a number of the paper.
    assert known["tab:goodness"].num_entries == 22


def test_what_ffcl_adds_is_ours_after_minus_before():
    made = [
        made_up.record(made_up.spec(goodness="sos", pathway=pathway), accuracy=accuracy)
        for pathway, accuracy in (("standard", 60.0), ("ffcl", 81.5))
    ]
    (line,) = [x for x in built(made)["tab:ffcl_lift"].lines if x.is_run]
    assert line.labels == ("SoS",)
    assert line.lift == ("+21.50", "+20.95")


def test_a_mean_over_fewer_seeds_than_the_papers_says_so():
    (entry,) = run_entries(built([made_up.record()])["tab:seeds"])
    assert entry.seeds_text == "1 of 5 seeds"
    five = [made_up.record(seed=seed) for seed in range(42, 47)]
    (entry,) = run_entries(built(five)["tab:seeds"])
    assert entry.seeds_text == ""


@pytest.mark.parametrize(
    ("accuracy", "near"), [(88.41, True), (86.42, True), (86.40, False), (99.0, True)]
)
def test_progress_counts_what_is_measured_and_what_is_near(accuracy, near):
    made = made_up.record(accuracy=accuracy)
    agreement = tables.agreement(built([made]).values())
    count = len(numbers.matching(made.spec))
    assert count > 3
    assert len(agreement.entries) == count
    # The numbers of the seeds' table differ a little from the others.
    assert (agreement.num_near >= count - 1) == near
    assert agreement.text.startswith(f"{count} of 282 numbers of the paper measured")


def test_nothing_measured_is_no_progress():
    agreement = tables.agreement(built([]).values())
    assert agreement.text.startswith("0 of 282 ")
    assert agreement.num_near == 0
