"""Records for tests: made-up ones for the report, always the same; what to compare."""

import random
from collections.abc import Callable
from typing import Any

import msgspec

from ffjax import records
from ffjax.config import spec as spec_lib
from ffjax.config.spec import RunSpec, cell_id
from ffjax.paper import numbers

NAMES = ["T-shirt", "Trouser", "Pullover", "Dress", "Coat"]
NAMES += ["Sandal", "Shirt", "Sneaker", "Bag", "Boot"]
TEST_SIZE = 10_000  # so that an accuracy with two decimals is a count
ALONE = records.Busy(own=0.95, others=0.01)


def spec(**changes: Any) -> RunSpec:
    """FFCL burstiness at the paper's full settings, with changes."""
    made = RunSpec(**changes)
    if made.goodness not in numbers.DEFAULTS:
        return made
    name, default = numbers.DEFAULTS[made.goodness]
    given = getattr(made, name)
    return RunSpec(**{**changes, name: default if given is None else given})


def record(
    made: RunSpec | None = None,
    *,
    seed: int = 42,
    accuracy: float = 88.0,
    train_s: float = 10.0,
    **changes: Any,
) -> records.Record:
    """A whole record of ``made``; ``changes`` replace its fields."""
    made = spec() if made is None else made
    classes = 26 if made.dataset == "emnist_letters" else 10
    right = round(TEST_SIZE * accuracy / 100)
    fields: dict[str, Any] = {
        "cell": spec_lib.cell_id(made),
        "spec": made,
        "seed": seed,
        "status": "ok",
        "accuracy": 100 * right / TEST_SIZE,
        "accuracy_layers": [
            round(accuracy * 0.97**i, 2) for i in range(made.num_layers)
        ],
        "accuracy_concat": accuracy,
        "confusion": confusion(right, classes),
        "losses": _losses(made, seed),
        "time": records.Times(compile_s=2.5, train_s=train_s, eval_s=0.4),
        "train_size": 60_000,
        "test_size": TEST_SIZE,
        "device": "cpu",
        "versions": {"python": "3.11", "jax": "0.10.2"},
        "commit": "0123abc",
        "busy": ALONE,
        "finished": "2026-11-16T04:05:06+00:00",
    }
    return records.Record(**{**fields, **changes})


def changed(made: records.Record, **changes: Any) -> records.Record:
    """The same record with other fields; an accuracy brings its confusion matrix."""
    if "accuracy" in changes:
        right = round(TEST_SIZE * changes["accuracy"] / 100)
        changes["confusion"] = confusion(right, len(made.confusion))
    return msgspec.structs.replace(made, **changes)


def confusion(right: int, classes: int) -> list[list[int]]:
    """Counts of TEST_SIZE images, of which ``right`` are right; all classes alike."""
    sizes = _parts(TEST_SIZE, classes)
    rights = _parts(right, classes)
    matrix = []
    for label, (size, hit) in enumerate(zip(sizes, rights, strict=True)):
        wrong = _parts(size - hit, classes - 1)
        matrix.append([*wrong[:label], hit, *wrong[label:]])
    return matrix


def _parts(total: int, count: int) -> list[int]:
    """A total in nearly equal parts."""
    return [total // count + (i < total % count) for i in range(count)]


def _losses(made: RunSpec, seed: int) -> list[list[float | None]]:
    rng = random.Random(f"{cell_id(made)} {seed}")  # new fields do not change it
    return [
        [
            round(1.4 / (1 + 0.3 * layer) * 0.93**epoch + 0.02 * rng.random(), 6)
            for epoch in range(made.epochs)
        ]
        for layer in range(made.num_stages)
    ]


def paper_specs() -> list[tuple[RunSpec, list[int]]]:
    """(spec, seeds) of every run behind the paper's 282 numbers, each once."""
    seeds: dict[RunSpec, set[int]] = {}
    for row in numbers.rows():
        for activation in row.activations:
            for gate in (False, True) if row.norm_gate is None else (row.norm_gate,):
                made = spec(
                    dataset=row.dataset,
                    pathway=row.pathway,
                    goodness=row.goodness,
                    activation=activation,
                    norm_gate=gate,
                    k_fraction=row.k_fraction,
                    alpha=row.alpha,
                    p=row.p,
                    num_layers=row.num_layers,
                    width=row.width,
                )
                seeds.setdefault(made, set()).update(row.seeds)
    return [(made, sorted(its)) for made, its in seeds.items()]


def paper_grid(
    accuracy: Callable[[RunSpec, int], float],
    train_s: Callable[[RunSpec], float] = lambda made: 10.0,
) -> list[records.Record]:
    """Records of the paper's whole grid with given accuracies and times."""
    return [
        record(made, seed=seed, accuracy=accuracy(made, seed), train_s=train_s(made))
        for made, seeds in paper_specs()
        for seed in seeds
    ]


def near_paper(made: RunSpec, seed: int) -> float:
    """An accuracy near the paper's, for pages that look real."""
    row = numbers.orientation(made)
    rng = random.Random(f"{cell_id(made)} {seed}")  # new fields do not change it
    if made.goodness == "moment" and made.p == 2:
        return 10.0  # chance, at any size
    base = row.accuracy if row else 60.0
    base -= 3.0 if made.num_layers == 2 else 0.0
    base -= 6.0 if made.epochs < 60 else 0.0
    return round(min(99.0, base + rng.gauss(0.0, 0.4)), 2)


def quick_grid() -> list[records.Record]:
    """What a small grid on the embedded set gives."""
    methods: list[dict[str, Any]] = [{"goodness": "sos", "activation": "relu"}]
    methods += [{"goodness": g} for g in ("sos", "topk", "entmax", "burstiness")]
    methods += [{"goodness": "moment", "p": p} for p in (2, 4, 6, 8)]
    size = {"num_layers": 2, "width": 500, "epochs": 10, "batch_size": 100}
    made = [
        spec(dataset="fashion_mini", pathway=pathway, **size, **method)
        for method in methods
        for pathway in ("standard", "ffcl")
        if pathway == "standard" or method.get("activation") != "relu"
    ]
    return [
        record(
            one,
            accuracy=near_paper(one, 42),
            class_names=NAMES,
            train_size=5000,
            data={"source": "embedded"},
        )
        for one in made
    ]


def lasting(workdir: Any) -> dict[tuple[str, int], records.Record]:
    """All records of a folder without what differs between two runs of the same."""
    stored, problems = records.read_all(workdir)
    assert not problems
    nothing = {"time": records.Times(), "finished": "", "commit": None, "busy": None}
    return {
        (record.cell, record.seed): msgspec.structs.replace(record, **nothing)
        for record in stored
    }
