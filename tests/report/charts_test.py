"""The charts: whose curves they have, where they are cut, how they are thinned."""

import pytest
import records as made_up

from ffjax.report import cells, charts


def build(records):
    ((setting, members),) = cells.by_setting(cells.gather(records)).items()
    return charts.build(setting, members)


def test_a_sweep_has_both_curves_on_both_pathways():
    made = [
        made_up.record(made_up.spec(goodness="moment", p=p, pathway=pathway))
        for p in (2, 4, 6, 8)
        for pathway in ("ffcl", "standard")
    ]
    (chart,) = build(made).sweeps
    assert [line.name for line in chart.series] == [
        "ours, standard",
        "paper, standard",
        "ours, FFCL",
        "paper, FFCL",
    ]
    assert [point[0] for point in chart.series[0].points] == [2, 4, 6, 8]
    papers = chart.series[3].points
    assert (2, 10.0, None) in papers
    assert (6, 89.04, None) in papers


def test_the_papers_curve_of_another_run_says_so():
    (chart,) = build(made_up.quick_grid()).sweeps
    papers = [line.name for line in chart.series if line.paper]
    assert papers == [
        "paper (Fashion-MNIST, 4x2000, 60 epochs), standard",
        "paper (Fashion-MNIST, 4x2000, 60 epochs), FFCL",
    ]


def test_k_is_in_percent_on_a_logarithmic_axis():
    made = [
        made_up.record(made_up.spec(goodness="topk", k_fraction=k))
        for k in (0.0025, 0.01, 0.2)
    ]
    (chart,) = build(made).sweeps
    assert chart.log
    assert [point[0] for point in chart.series[0].points] == pytest.approx(
        [0.25, 1, 20]
    )


def test_two_values_are_no_sweep():
    made = [made_up.record(made_up.spec(goodness="moment", p=p)) for p in (4, 6)]
    assert build(made).sweeps == []


@pytest.mark.parametrize(
    ("ours", "papers", "floor"),
    [
        ([10, 85, 89, 84], [10, 85, 88, 84], pytest.approx(83.6)),  # an end at chance
        ([30, 34, 33], [86, 89, 84], None),  # far below the paper, but no outlier
        ([14, 37, 31], [10, 86, 89], None),  # cutting would gain little
    ],
)
def test_a_sweep_is_cut_only_where_that_helps(ours, papers, floor):
    series = [
        charts.Series("", 0, [(x, y, None) for x, y in enumerate(values)])
        for values in (ours, papers)
    ]
    assert charts._floor(series) == floor


def test_long_learning_curves_are_thinned_and_keep_their_ends():
    thinned = charts.thinned([float(i) for i in range(1000)], 120)
    assert len(thinned) <= 130
    assert thinned[0] == (1, 0.0)
    assert thinned[-1] == (1000, 999.0)
    assert charts.thinned([], 120) == []


def test_bars_are_the_best_of_each_function_best_first():
    made = [
        made_up.record(
            made_up.spec(goodness=goodness, activation=activation), accuracy=a
        )
        for goodness, activation, a in (
            ("sos", "gelu", 70.0),
            ("sos", "swish", 75.0),
            ("burstiness", "gelu", 88.0),
        )
    ]
    bars = build(made).bars
    assert [(line.label, line.bars[0].cell.mean) for line in bars] == [
        ("burstiness", 88.0),
        ("SoS", 75.0),
    ]


def test_a_diverged_run_has_a_curve_up_to_where_it_did():
    made = made_up.record(
        status="diverged",
        losses=[[0.5, 0.4, None]],
        accuracy_layers=[10.0] + [None] * 3,
    )
    (chart,) = build([made]).losses
    assert [point[:2] for point in chart.series[0].points] == [(1, 0.5), (2, 0.4)]
    assert build([made]).layers == []
