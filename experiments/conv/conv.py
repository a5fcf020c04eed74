r"""Convolutional Forward-Forward networks: which goodness is best, and how good it is.

    python -m ffjax.main --config=experiments/conv/conv.py:compare \
        --workdir=experiments/conv/compare --config.data_dir=DIR
    python -m ffjax.main --config=experiments/conv/conv.py:depth,regularise,pathways \
        --workdir=experiments/conv/search --config.data_dir=DIR
    python -m ffjax.main --config=experiments/conv/conv.py:best,backprop \
        --workdir=experiments/conv --config.data_dir=DIR

Every layer is a convolution of 3 x 3 that learns by itself, after those below it: a
cross-entropy over the goodness of the labels, no gradient between layers, no
augmentation.

``compare`` trains the functions on both pathways with 6,000 images of CIFAR-10, with
a choice of scales and learning rates, and judges them by 2,000 others. ``depth`` and
``regularise`` compare settings of a network on images of CIFAR-10's training set that
it does not train on; ``pathways`` compares the best function of each pathway on 50,000
images of Fashion-MNIST. ``best`` trains a network a dataset on whole training sets,
with three seeds; ``backprop``, the same networks end to end, with one. A dataset can be
chosen: ``--config.dataset=mnist``.
"""

from ffjax import config

# What all networks share.
CONV = {
    "layer": "conv",
    "batch_size": 128,
    "schedule": "cosine",
    "precision": "bfloat16",
    "ensemble": "last",  # depth pays here
}
# Goodness of each label's channels, over all positions; the mean and the variance of
# every group are hidden from the next layer.
GROUPS = {
    **CONV,
    "pathway": "groups",
    "activation": "relu",
    "normalisation": "group",
}
# What short trials chose: the next layer sees which groups are strong.
DEEP = {
    **GROUPS,
    "goodness": "mean",
    "normalisation": "layer",
    "loss_scale": 10.0,
    "learning_rate": 0.01,
}
# Goodness of the channels at a position, shifted by the label; mean over positions.
FFCL = {
    **CONV,
    "pathway": "ffcl",
    "activation": "gelu",
    "normalisation": "layer",
    "negatives": "all",
    "loss": "softmax",
}

# Energy, selection and shape. Functions differ in scale and in the scale of their
# gradient, so that each has a choice of scales of the loss and of learning rates.
FUNCTIONS = ("mean", "sos", "topk", "entmax", "burstiness", "moment")
SETTINGS = {
    "groups": (
        (1.0, 0.001),
        (1.0, 0.003),
        (1.0, 0.01),
        (1.0, 0.03),
        (10.0, 0.003),
        (10.0, 0.01),
    ),
    "ffcl": ((1.0, 0.001), (1.0, 0.003), (1.0, 0.01), (10.0, 0.003)),
}

COMPARE = tuple(
    {
        **fields,
        "dataset": "cifar10",
        "widths": (60, 120, 240),
        "pool": (1, 1, 0),
        "epochs": 4,
        "train_limit": 8000,
        "valid_fraction": 0.25,
        "test_limit": 2000,
        "goodness": goodness,
        "loss_scale": scale,
        "learning_rate": rate,
    }
    for fields in (GROUPS, FFCL)
    for scale, rate in SETTINGS[str(fields["pathway"])]
    for goodness in FUNCTIONS
    # The label's shift adds a constant to the mean, whatever the image.
    if (fields["pathway"], goodness) != ("ffcl", "mean")
)

# Depth and normalisation, on 45,000 images.
DEPTH = tuple(
    {
        **DEEP,
        "dataset": "cifar10",
        "widths": (60, 120, 240, 240, 240),
        "pool": (1, 1, 0, 1, 0),
        "epochs": 8,
        "valid_fraction": 0.1,
        **candidate,
    }
    for candidate in (
        {},
        {"normalisation": "group"},
        {"dropout": 0.1},
        {"learning_rate": 0.004},
    )
)
# What keeps layers from learning images by heart, on 20,000.
REGULARISE = tuple(
    {
        **DEEP,
        "dataset": "cifar10",
        "widths": (60, 120, 240, 240),
        "pool": (1, 1, 0, 0),
        "epochs": 8,
        "train_limit": 24000,
        "valid_fraction": 1 / 6,
        "test_limit": 2000,
        **candidate,
    }
    for candidate in (
        {},
        {"weight_decay": 0.1},
        {"weight_decay": 0.3},
        {"weight_decay": 0.2, "dropout": 0.1},
        {"weight_decay": 0.3, "batch_size": 64},
        {"normalisation": "channel", "weight_decay": 0.2},
        {"normalisation": "channel", "weight_decay": 0.2, "dropout": 0.2},
        {"normalisation": "channel", "weight_decay": 0.2, "dropout": 0.4},
    )
)

# What the sections above chose.
CHOSEN = {
    **DEEP,
    "normalisation": "channel",
    # Half of that of ``regularise``, with three times as many steps.
    "weight_decay": 0.1,
    "dropout": 0.2,
}
# The network of each dataset.
_LARGE = {"widths": (100, 200, 400, 400), "pool": (1, 1, 0, 0), "epochs": 10}
_SMALL = {"widths": (60, 120, 240, 240), "pool": (1, 1, 0, 0), "epochs": 8}
NETWORKS = {"cifar10": _LARGE, "fashion_mnist": _LARGE, "mnist": _SMALL}

# The best function of each pathway with whole training sets, but for 10,000 images.
PATHWAYS = tuple(
    {
        **CHOSEN,
        **_SMALL,
        "dataset": "fashion_mnist",
        "valid_fraction": 0.1666667,
        **candidate,
    }
    for candidate in (
        {},
        {
            **FFCL,
            "goodness": "burstiness",
            "normalisation": "channel",
            "loss_scale": 1.0,
            "learning_rate": 0.003,
        },
    )
)

SEEDS = (42, 43, 44)
BEST = tuple(
    {**CHOSEN, **size, "dataset": dataset, "seeds": SEEDS}
    for dataset, size in NETWORKS.items()
)
BACKPROP = tuple(
    {
        "trainer": "backprop",
        "layer": "conv",
        **size,
        "dataset": dataset,
        "activation": "relu",
        "batch_size": 128,
        "learning_rate": 1e-3,
        "schedule": "cosine",
        "precision": "bfloat16",
    }
    for dataset, size in NETWORKS.items()
)

SECTIONS = {
    "best": BEST,
    "backprop": BACKPROP,
    "compare": COMPARE,
    "depth": DEPTH,
    "regularise": REGULARISE,
    "pathways": PATHWAYS,
}
_APART = ("compare", "depth", "regularise", "pathways")


def get_config(section: str | None = None):
    """The networks chosen and backpropagation, or a section."""
    return config.grid(SECTIONS, section, apart=_APART)
