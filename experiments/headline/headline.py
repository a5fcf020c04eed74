r"""The paper's main methods beside backpropagation and Hinton's Forward-Forward.

    python -m ffjax.main --config=experiments/headline/headline.py \
        --workdir=experiments/headline

takes about 2 hours on 2 cores. FFCL with the sixth moment is as good as
backpropagation on Fashion-MNIST (89.6 %) and USPS (94.2 %), 0.4 points behind on MNIST.

Sections, each of which can be run alone (``headline.py:usps``): ``usps``, ``mnist`` and
``fashion_mnist`` at 2x500 with 60 epochs (Hinton's network, with hard wrong labels, 20)
and three seeds, ``cifar10`` at 2x500 with 30 epochs and one seed, ``hinton``, Hinton's
network at the size of public PyTorch code (3x1000), and ``large``, the paper's best run
at its full size (4x2000).
"""

from typing import Any

from configs import hinton as hinton_preset
from ffjax import config

SEEDS = (42, 43, 44)

METHODS = (
    {"pathway": "ffcl", "goodness": "burstiness", "activation": "gelu"},
    {"pathway": "ffcl", "goodness": "moment", "p": 6, "activation": "gelu"},
    {"trainer": "backprop", "activation": "gelu"},
    {"pathway": "standard", "goodness": "burstiness", "activation": "swish"},
    {"pathway": "standard", "goodness": "entmax", "alpha": 1.5, "activation": "gelu"},
    {"pathway": "standard", "goodness": "sos", "activation": "relu"},
)


def hinton(num_layers: int, width: int) -> dict[str, Any]:
    """What configs/hinton.py changes, for a network of another size."""
    preset, plain = hinton_preset.get_config(), config.default()
    preset.num_layers, preset.width = num_layers, width
    return {name: value for name, value in preset.items() if value != plain[name]}


SECTIONS = {
    dataset: tuple(
        {**method, "dataset": dataset, "seeds": SEEDS}
        for method in (*METHODS, hinton(2, 500))
    )
    for dataset in ("usps", "mnist", "fashion_mnist")
} | {
    "cifar10": tuple(
        {**method, "dataset": "cifar10", "epochs": 30} for method in METHODS
    ),
    "hinton": (hinton(3, 1000),),
    "large": config.product(goodness="moment", p=6, num_layers=4, width=2000),
}


def get_config(section: str | None = None):
    """All sections, or some of them."""
    return config.grid(SECTIONS, section, num_layers=2, width=500)
