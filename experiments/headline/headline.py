"""The paper's main methods beside backpropagation and Hinton's Forward-Forward.

    python -m ffjax.main --config=experiments/headline/headline.py \
        --workdir=experiments/headline

Sections, each of which can be run alone (``headline.py:usps``): ``usps``, ``mnist`` and
``fashion_mnist`` at 2x500 with 60 epochs (Hinton's network, with hard wrong labels, 20)
and three seeds, ``cifar10`` at 2x500 with 30 epochs and one seed, ``hinton``, Hinton's
network at the size of public PyTorch code (3x1000), and ``large``, the paper's best run
at its full size (4x2000).
"""

from ffjax import config
from ffjax.errors import UserError

SEEDS = (42, 43, 44)

METHODS = (
    {"pathway": "ffcl", "goodness": "burstiness", "activation": "gelu"},
    {"pathway": "ffcl", "goodness": "moment", "p": 6, "activation": "gelu"},
    {"trainer": "backprop", "activation": "gelu"},
    {"pathway": "standard", "goodness": "burstiness", "activation": "swish"},
    {"pathway": "standard", "goodness": "entmax", "alpha": 1.5, "activation": "gelu"},
    {"pathway": "standard", "goodness": "sos", "activation": "relu"},
)


def hinton(width):
    """The fields of configs/hinton.py."""
    return {
        "pathway": "standard",
        "goodness": "sos",
        "activation": "relu",
        "width": width,
        "epochs": 20,
        "batch_size": 100,
        "negatives": "hard",
        "threshold": 1.0,
        "loss_scale": float(width),
        "normalisation": "rms",
        "peer_normalisation": 0.03,
        "ensemble": "later",
        "schedule": "half_linear",
    }


SECTIONS = {
    dataset: tuple(
        {**method, "dataset": dataset, "seeds": SEEDS}
        for method in (*METHODS, hinton(500))
    )
    for dataset in ("usps", "mnist", "fashion_mnist")
} | {
    "cifar10": tuple(
        {**method, "dataset": "cifar10", "epochs": 30} for method in METHODS
    ),
    "hinton": ({**hinton(1000), "dataset": "mnist", "num_layers": 3},),
    "large": ({"goodness": "moment", "p": 6, "num_layers": 4, "width": 2000},),
}


def get_config(section=None):
    """All sections, or one of them."""
    if section is not None and section not in SECTIONS:
        raise UserError(
            f"config section {section!r}: must be one of {', '.join(SECTIONS)}"
        )
    fields = config.default()
    fields.num_layers = 2
    fields.width = 500
    fields.grid = {
        name: cells for name, cells in SECTIONS.items() if section in (None, name)
    }
    return fields
