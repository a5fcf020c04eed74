"""The engine of the audit: what a verdict says of what was compared."""

import math

import pytest
import records as made_up

from ffjax.records import Busy, Times
from ffjax.report import audit, cells, claims
from ffjax.report.audit import Claim, Method, Value


def burstiness(accuracies, pathway="ffcl", **changes):
    made = made_up.spec(pathway=pathway, **changes)
    return [
        made_up.record(made, seed=42 + i, accuracy=accuracy)
        for i, accuracy in enumerate(accuracies)
    ]


def ffcl_is_better(scope, finding):
    for dataset in scope.datasets("fashion_mnist", "mnist"):
        pair = (Method("ffcl", "burstiness"), Method("standard", "burstiness"))
        finding.compare(*pair, dataset)


CLAIM = Claim(
    "better", "FFCL is better", "nowhere", ffcl_is_better, ("fashion_mnist", "mnist")
)


def verdict(records):
    (found,) = audit.at_paper_settings([CLAIM], cells.gather(records))
    return found


def both(ours, other, dataset):
    return burstiness(ours, dataset=dataset) + burstiness(
        other, "standard", dataset=dataset
    )


def test_a_claim_holds_only_when_all_comparisons_were_made():
    half = both([88.0], [80.0], "mnist")
    assert verdict(half).kind == audit.PARTLY
    assert verdict(half).text == "no counterexample in 1 of 2 comparisons, one seed"
    whole = half + both([88.0], [80.0], "fashion_mnist")
    assert verdict(whole).text == "holds, one seed"


def test_a_single_counterexample_refutes_whatever_is_missing():
    found = verdict(both([80.0], [88.0], "mnist"))
    assert found.text == "does not hold, one seed"
    assert found.missing == ("Fashion-MNIST: FFCL burstiness and standard burstiness",)


def test_outside_the_papers_settings_the_same_rule_holds():
    """Seven of eight comparisons missing is no "holds"."""
    records = [
        made_up.record(made_up.spec(goodness=goodness, epochs=5), accuracy=accuracy)
        for goodness, accuracy in (("burstiness", 80.0), ("topk", 70.0))
    ]
    ((setting, verdicts),) = audit.at_other_settings(
        claims.CLAIMS, cells.gather(records)
    ).items()
    assert setting.spec.epochs == 5
    texts = {v.claim.id: v.text for v in verdicts}
    assert texts["burstiness-best"] == (
        "no counterexample in 1 of 8 comparisons, one seed"
    )
    assert audit.HOLDS not in {v.kind for v in verdicts}


@pytest.mark.parametrize(
    ("ours", "other", "text"),
    [
        ([88.0, 89.0], [87.9, 88.9], "undecided: within the spread of the seeds"),
        ([87.9, 88.9], [88.0, 89.0], "undecided: within the spread of the seeds"),
        ([88.0, 89.0], [80.0, 81.0], "holds"),
        ([80.0, 81.0], [88.0, 89.0], "does not hold"),
        ([88.0, 89.0], [88.2], "undecided: within the spread of the seeds"),
        ([88.0], [87.9], "holds, one seed"),
    ],
)
def test_a_difference_within_the_spread_decides_nothing(ours, other, text):
    records = burstiness(ours, width=100) + burstiness(other, "standard", width=100)
    audits = audit.at_other_settings([CLAIM], cells.gather(records))
    ((found,),) = audits.values()
    assert found.text == text


def test_what_is_undecided_neither_refutes_nor_confirms():
    close = both([88.0, 89.0], [88.1, 89.1], "mnist")
    clear = both([88.0, 89.0], [80.0, 81.0], "fashion_mnist")
    found = verdict(close + clear)
    assert found.text == (
        "undecided: 1 of 2 comparisons within the spread of the seeds"
    )
    assert found.numbers[0].endswith(audit.CLOSE)


def test_the_spread_of_a_difference_and_of_a_quotient():
    assert (Value(5.0, 3.0) - Value(1.0, 4.0)) == Value(4.0, 5.0)
    assert (Value(5.0, 3.0) - Value(1.0)).spread == pytest.approx(3 * math.sqrt(2))
    assert (Value(5.0) - Value(1.0)).spread is None
    ratio = Value(20.0, 1.0).over(Value(10.0, 0.5))
    assert ratio.number == 2.0
    assert ratio.spread == pytest.approx(2 * 0.05 * math.sqrt(2))


def timed(goodness, train_s, **changes):
    made = made_up.spec(goodness=goodness, pathway="standard")
    return made_up.record(made, train_s=train_s, **changes)


def cost_of_entmax(records):
    found = audit.at_paper_settings(claims.CLAIMS, cells.gather(records))
    return next(v for v in found if v.claim.id == "entmax-cost")


def test_times_of_runs_that_had_the_machine_are_compared():
    found = cost_of_entmax([timed("sos", 10.0), timed("entmax", 70.0)])
    assert found.text == "no counterexample in 1 of 2 comparisons, one seed"
    assert "7.00 times as long" in found.numbers[0]


@pytest.mark.parametrize(
    "why",
    [
        {"busy": None},
        {"busy": Busy(own=0.9, others=0.5)},
        {"busy": Busy(own=0.2, others=0.0)},
        {"time": Times(train_s=0.2)},
        {"device": "gpu"},
        {"group_size": 4},
    ],
)
def test_other_times_are_not_compared_and_the_verdict_says_why(why):
    found = cost_of_entmax([timed("sos", 10.0), timed("entmax", 70.0, **why)])
    assert found.text == (
        "not judged: no times of runs that had the same machine to themselves for "
        "long enough"
    )


def test_only_the_timed_seeds_of_a_cell_count():
    paused = timed("entmax", 700.0, seed=43, busy=Busy(own=0.1, others=0.0))
    found = cost_of_entmax([timed("sos", 10.0), timed("entmax", 70.0), paused])
    assert "7.00 times as long" in found.numbers[0]


def test_the_papers_numbers_of_another_run_say_so():
    quick = audit.at_other_settings(claims.CLAIMS, cells.gather(made_up.quick_grid()))
    ((_, verdicts),) = quick.items()
    runs = {v.claim.id: v.paper_run for v in verdicts}
    assert runs["p-sweep"] == "Fashion-MNIST, 4x2000, 60 epochs"
    assert runs["smooth-hurts-sos"] == "Fashion-MNIST and MNIST, 4x2000, 60 epochs"
    assert all(runs.values())
    assert verdict([made_up.record()]).paper_run == ""


def test_paper_settings_are_not_judged_twice():
    records = made_up.paper_grid(made_up.near_paper)
    audits = audit.at_other_settings(claims.CLAIMS, cells.gather(records))
    assert [setting.spec.size for setting in audits] == ["2x500", "2x500"]


def test_two_small_sizes_are_compared_with_each_other():
    method = {"pathway": "standard", "goodness": "sos", "activation": "relu"}
    records = [
        made_up.record(
            made_up.spec(num_layers=layers, width=100, epochs=2, **method),
            accuracy=accuracy,
        )
        for layers, accuracy in ((1, 60.0), (3, 50.0))
    ]
    audits = audit.at_other_settings(claims.CLAIMS, cells.gather(records))
    found = [v for vs in audits.values() for v in vs if v.claim.id == "sos-shrinks"]
    assert [v.kind for v in found] == [audit.HOLDS]
    assert "1x100 60.00, standard SoS ReLU 3x100 50.00" in found[0].numbers[0]
