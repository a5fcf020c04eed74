import collections
import pathlib

import pytest
from small_runs import cells

from ffjax import cli, config
from ffjax.errors import UserError
from ffjax.runs import cost, order

_GRID = str(pathlib.Path(__file__).parents[2] / "configs" / "grid.py")


@pytest.fixture(scope="module")
def papers():
    return config.expand(cli.load_config(_GRID))


def _runs(made):
    return [(cell.id, seed) for cell in made for seed in cell.seeds]


def _work(made):
    return sum(cost.cpu_seconds(cell.spec) * len(cell.seeds) for cell in made)


def _groups(made, size):
    return list(order.groups(order.ordered(made), lambda spec: size))


# Order.


def test_runs_that_share_a_dataset_and_a_program_are_adjacent():
    made = cells(
        seeds=(42, 43),
        learning_rate=(1e-3, 1e-2),
        goodness=("sos", "burstiness"),
        dataset=("mnist", "usps"),
    )
    runs = order.ordered(made)
    assert len({run.name for run in runs}) == len(runs) == 16
    assert [run.spec.dataset for run in runs] == ["mnist"] * 8 + ["usps"] * 8
    assert [run.spec.goodness for run in runs[:8]] == ["sos"] * 4 + ["burstiness"] * 4


# Groups.


def test_what_differs_in_numbers_alone_is_one_group():
    made = _groups(
        cells(
            seeds=(1, 2),
            norm_gate=(False, True),
            goodness=("sos", "topk"),
            learning_rate=(1e-3, 1e-2),
            threshold=(1.0, 2.0),
        ),
        100,
    )
    assert [len(runs) for runs in made] == [16, 16]
    assert [{run.spec.goodness for run in runs} for runs in made] == [{"sos"}, {"topk"}]


@pytest.mark.parametrize(
    "field",
    [
        {"width": (8, 16)},
        {"activation": ("gelu", "relu")},
        {"pathway": ("ffcl", "standard")},
        {"k_fraction": (0.1, 0.5)},
        {"label_scale": (1.0, 5.0)},
        {"train_limit": (60, 70)},
    ],
)
def test_what_differs_in_more_is_not(field):
    assert len(_groups(cells(goodness="topk", **field), 100)) == 2


def test_groups_are_no_larger_than_asked_for_and_complete():
    made = cells(seeds=range(7), goodness=("sos", "topk"))
    groups = _groups(made, 3)
    assert [len(part) for part in groups] == [3, 3, 1, 3, 3, 1]
    assert [run for part in groups for run in part] == order.ordered(made)


def test_backpropagation_is_not_grouped():
    groups = _groups(cells(seeds=(1, 2), trainer="backprop"), 9)
    assert [len(part) for part in groups] == [1, 1]


# Shards.


@pytest.mark.parametrize(("count", "slack"), [(1, 0), (2, 0.01), (4, 0.01), (60, 0.1)])
def test_shards_of_the_papers_grid_are_disjoint_complete_and_balanced(
    papers, count, slack
):
    shards = [order.shard(papers, index, count) for index in range(1, count + 1)]
    seen = collections.Counter(run for part in shards for run in _runs(part))
    assert set(seen) == set(_runs(papers))
    assert set(seen.values()) == {1}
    ids = [cell.id for part in shards for cell in part]
    assert count == 60 or len(ids) == len(set(ids)), "a cell's seeds stay together"
    work = [_work(part) for part in shards]
    assert max(work) <= (1 + slack) * sum(work) / count + 1e-6
    assert shards == [order.shard(papers, i, count) for i in range(1, count + 1)]


def test_what_can_be_grouped_stays_together(papers):
    families = [
        {order.family(cell.spec) for cell in order.shard(papers, index, 4)}
        for index in range(1, 5)
    ]
    assert min(map(len, families)) > 10
    assert len(set.union(*families)) == sum(map(len, families)), "none is in two"


def test_the_order_of_the_cells_is_kept(papers):
    part = order.shard(papers, 2, 3)
    assert len(part) > 10
    assert part == [cell for cell in papers if cell in part]


def test_the_seeds_of_one_cell_are_split_where_it_is_all_there_is():
    (cell,) = cells(seeds=range(10), goodness="sos")
    shards = [order.shard([cell], index, 4) for index in range(1, 5)]
    assert sorted(len(part[0].seeds) for part in shards) == [2, 2, 3, 3]
    assert sorted(seed for part in shards for seed in part[0].seeds) == [*range(10)]


def test_more_shards_than_runs():
    made = cells(goodness=("sos", "topk"))
    shards = [order.shard(made, index, 5) for index in range(1, 6)]
    assert sorted(len(part) for part in shards) == [0, 0, 0, 1, 1]


@pytest.mark.parametrize("text", ["1/4", "4/4", "1/1"])
def test_good_shards(text):
    assert "/".join(map(str, order.parse_shard(text))) == text


@pytest.mark.parametrize(
    "text", ["5/4", "0/4", "a/b", "4", "1/0", "1/", "/2", "-1/2", "1/2/3", "1.0/2", " "]
)
def test_bad_shards_are_refused(text):
    with pytest.raises(UserError, match="must be i/n with i from 1 to n") as caught:
        order.parse_shard(text)
    assert repr(text) in str(caught.value)


# What settles most of the paper first.


def test_by_value_keeps_all_runs_and_starts_with_what_is_worth_most(papers):
    some = papers[:60]
    runs = order.by_value(some)
    assert sorted(run.name for run in runs) == sorted(
        run.name for run in order.ordered(some)
    )
    # Numbers of the paper that are known after the first half of the hours.
    halves = []
    for arranged in (runs, order.ordered(some)):
        left = sum(cost.cpu_seconds(run.spec) for run in arranged) / 2
        known = set()
        for run in arranged:
            left -= cost.cpu_seconds(run.spec)
            if left >= 0:
                known |= set(order._settled(run))
        halves.append(len(known))
    assert halves[0] > halves[1] > 0


def test_by_value_runs_without_the_gate_first():
    made = cells(
        dataset="fashion_mnist",
        pathway="ffcl",
        activation="gelu",
        goodness=("burstiness", "sos"),
        norm_gate=(True, False),
        num_layers=4,
        width=2000,
        batch_size=500,
        epochs=60,
        train_limit=0,
        test_limit=0,
    )
    runs = order.by_value(made)
    assert all(order._settled(run) for run in runs), "numbers of the paper"
    assert [run.spec.norm_gate for run in runs] == [False, False, True, True]
