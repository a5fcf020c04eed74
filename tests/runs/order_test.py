import collections
import pathlib

import pytest

from ffjax import cli, config
from ffjax.errors import UserError
from ffjax.runs import cost, order

_GRID = str(pathlib.Path(__file__).parents[1] / "configs" / "grid.py")
_SMALL = {"dataset": "fashion_mini", "num_layers": 2, "width": 8, "epochs": 2}


def _cells(seeds=(42,), **axes):
    made = config.default()
    made.update({**_SMALL, "seeds": tuple(seeds)})
    made.grid = {"all": config.product(**axes)}
    return config.expand(made)


def _runs(cells):
    return [(cell.id, seed) for cell in cells for seed in cell.seeds]


def _work(cells):
    return sum(cost.cpu_seconds(cell.spec) * len(cell.seeds) for cell in cells)


# Groups.


def test_what_differs_in_numbers_alone_is_one_group():
    cells = _cells(
        seeds=(1, 2),
        norm_gate=(False, True),
        goodness=("sos", "topk"),
        learning_rate=(1e-3, 1e-2),
        threshold=(1.0, 2.0),
    )
    made = list(order.groups(order.ordered(cells), lambda spec: 100))
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
        {"train_limit": (1000, 2000)},
    ],
)
def test_what_differs_in_more_is_not(field):
    cells = _cells(goodness=("topk",), **field)
    assert len(list(order.groups(order.ordered(cells), lambda spec: 100))) == 2


def test_groups_are_no_larger_than_asked_for_and_complete():
    runs = order.ordered(_cells(seeds=range(7), goodness=("sos", "topk")))
    made = list(order.groups(runs, lambda spec: 3))
    assert [len(part) for part in made] == [3, 3, 1, 3, 3, 1]
    assert [run for part in made for run in part] == runs


def test_backpropagation_is_not_grouped():
    runs = order.ordered(_cells(seeds=(1, 2), trainer=("backprop",)))
    assert [len(part) for part in order.groups(runs, lambda spec: 9)] == [1, 1]


# Shards.


@pytest.mark.parametrize(("count", "slack"), [(1, 0), (2, 0.01), (4, 0.01), (60, 0.1)])
def test_shards_of_the_papers_grid_are_disjoint_complete_and_balanced(count, slack):
    cells = config.expand(cli.load_config(_GRID))
    shards = [order.shard(cells, index, count) for index in range(1, count + 1)]
    found = collections.Counter(run for part in shards for run in _runs(part))
    assert set(found) == set(_runs(cells))
    assert set(found.values()) == {1}
    ids = [cell.id for part in shards for cell in part]
    assert count == 60 or len(ids) == len(set(ids)), "a cell's seeds stay together"
    work = [_work(part) for part in shards]
    assert max(work) <= (1 + slack) * sum(work) / count + 1e-6
    assert shards == [order.shard(cells, i, count) for i in range(1, count + 1)]


def test_what_can_be_grouped_stays_together():
    cells = config.expand(cli.load_config(_GRID))
    families = [
        {order.family(cell.spec) for cell in order.shard(cells, index, 4)}
        for index in range(1, 5)
    ]
    assert not set.intersection(*families)


def test_the_order_of_the_cells_is_kept():
    cells = config.expand(cli.load_config(_GRID))
    part = order.shard(cells, 2, 3)
    assert part == [cell for cell in cells if cell in part]


def test_the_seeds_of_one_cell_are_split_where_it_is_all_there_is():
    (cell,) = _cells(seeds=range(10), goodness=("sos",))
    shards = [order.shard([cell], index, 4) for index in range(1, 5)]
    assert sorted(len(part[0].seeds) for part in shards) == [2, 2, 3, 3]
    assert sorted(seed for part in shards for seed in part[0].seeds) == [*range(10)]


def test_more_shards_than_runs():
    cells = _cells(goodness=("sos", "topk"))
    shards = [order.shard(cells, index, 5) for index in range(1, 6)]
    assert sorted(len(part) for part in shards) == [0, 0, 0, 1, 1]


@pytest.mark.parametrize("text", ["1/4", "4/4", "1/1"])
def test_good_shards(text):
    assert "/".join(map(str, order.parse_shard(text))) == text


@pytest.mark.parametrize(
    "text", ["5/4", "0/4", "a/b", "4", "1/0", "1/", "/2", "-1/2", "1/2/3", "1.0/2", " "]
)
def test_bad_shards_are_told(text):
    with pytest.raises(UserError, match="must be i/n with i from 1 to n") as caught:
        order.parse_shard(text)
    assert repr(text) in str(caught.value)
