"""Records for tests: made-up ones for the report, always the same; what to compare."""

import json
import random

from ffjax import paper, records

SETTINGS = {
    "epochs": 60,
    "batch_size": 500,
    "learning_rate": 1e-3,
    "threshold": 2.0,
    "label_scale": 5.0,
    "train_limit": 0,
    "test_limit": 0,
    "valid_fraction": 0.0,
}
NAMES = ["T-shirt", "Trouser", "Pullover", "Dress", "Coat"]
NAMES += ["Sandal", "Shirt", "Sneaker", "Bag", "Boot"]


def spec(**changes):
    """FFCL burstiness at the paper's full settings, with changes."""
    base = {
        "dataset": "fashion_mnist",
        "pathway": "ffcl",
        "goodness": "burstiness",
        "activation": "gelu",
        "norm_gate": False,
        "k_fraction": None,
        "alpha": None,
        "p": None,
        "num_layers": 4,
        "width": 2000,
        **SETTINGS,
    }
    made = {**base, **changes}
    parameters = paper.parameters(made)
    return {**made, **{name: parameters.get(name) for name in paper.PARAMETERS}}


def record(made=None, *, seed=42, accuracy=88.0, train_s=10.0, **changes):
    """One whole record of ``made``; ``changes`` replace its keys."""
    made = spec() if made is None else made
    layers, epochs = made["num_layers"], made["epochs"]
    classes = 26 if made["dataset"] == "emnist_letters" else 10
    each = 100
    right = round(each * accuracy / 100)
    wrong, rest = divmod(each - right, classes - 1)
    confusion = [
        [
            right if i == j else wrong + (1 if (j - i) % classes <= rest else 0)
            for j in range(classes)
        ]
        for i in range(classes)
    ]
    rng = random.Random(f"{made} {seed}")
    losses = [
        [
            round(1.4 / (1 + 0.3 * layer) * 0.93**epoch + 0.02 * rng.random(), 6)
            for epoch in range(epochs)
        ]
        for layer in range(layers)
    ]
    made_record = {
        "cell": _cell_id(made),
        "spec": made,
        "seed": seed,
        "status": "ok",
        "accuracy": accuracy,
        "accuracy_layers": [round(accuracy * 0.97**i, 2) for i in range(layers)],
        "accuracy_concat": accuracy,
        "confusion": confusion,
        "losses": losses,
        "time": {"compile_s": 2.5, "train_s": train_s, "eval_s": 0.4},
        "train_size": 60000,
        "test_size": classes * each,
        "device": "cpu",
        "versions": {"python": "3.11", "jax": "0.10.2"},
        "commit": "0123abc",
        "finished": "2026-11-16T04:05:06+00:00",
    }
    return {**made_record, **changes}


def _cell_id(made):
    parts = [made["dataset"], f"{made['num_layers']}x{made['width']}"]
    parts += [made["pathway"], made["activation"], made["goodness"]]
    parts += [f"{made[name]:g}" for name in paper.PARAMETERS if made[name] is not None]
    parts += [f"{made['epochs']}ep", "gate" if made["norm_gate"] else "nogate"]
    safe = "-".join(parts)
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in safe)


def paper_specs():
    """(spec, seeds) of every run behind the paper's 282 numbers, each once."""
    found = {}
    for row in paper.rows():
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
                seeds = found.setdefault(json.dumps(made), (made, set()))[1]
                seeds.update(row.seeds)
    return [(made, sorted(seeds)) for made, seeds in found.values()]


def paper_grid(accuracy, train_s=lambda made: 10.0):
    """Records of the paper's whole grid with given accuracies and times."""
    return [
        record(made, seed=seed, accuracy=accuracy(made, seed), train_s=train_s(made))
        for made, seeds in paper_specs()
        for seed in seeds
    ]


def near_paper(made, seed):
    """An accuracy near the paper's, for pages that look real."""
    row = paper.orientation(made)
    rng = random.Random(f"{made} {seed}")
    if made["goodness"] == "moment" and made["p"] == 2:
        return 10.0  # chance, at any size
    base = row.accuracy if row else 60.0
    if made["num_layers"] == 2:
        base -= 3.0
    if made["epochs"] < 60:
        base -= 6.0
    return round(min(99.0, base + rng.gauss(0.0, 0.4)), 2)


def quick_grid():
    """What a small grid on the embedded set gives."""
    methods = [{"goodness": "sos", "activation": "relu"}]
    methods += [{"goodness": g} for g in ("sos", "topk", "entmax", "burstiness")]
    methods += [{"goodness": "moment", "p": p} for p in (2, 4, 6, 8)]
    made = [
        spec(
            dataset="fashion_mini",
            pathway=pathway,
            num_layers=2,
            width=500,
            epochs=10,
            batch_size=100,
            **method,
        )
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


def lasting(workdir):
    """All records of a folder without what differs between two runs of the same."""
    found, problems = records.read_all(workdir)
    assert not problems
    changing = ("time", "finished", "commit")
    return {
        (record["cell"], record["seed"]): {
            key: value for key, value in record.items() if key not in changing
        }
        for record in found
    }
