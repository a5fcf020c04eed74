r"""bfloat16 against float32: does the faster precision cost accuracy?

    python -m ffjax.main --config=experiments/precision/precision.py \
        --workdir=experiments/precision

trains the six methods of the headline experiment at 2x500 on Fashion-MNIST in bfloat16,
60 epochs and three seeds each, in ten minutes on 2 cores. Their float32 records are
those of experiments/headline.
"""

from experiments.headline import headline
from ffjax import config

RUNS = tuple(
    {**method, "precision": "bfloat16", "seeds": headline.SEEDS}
    for method in headline.METHODS
)


def get_config():
    """The six methods in bfloat16."""
    return config.grid({"bfloat16": RUNS}, None, num_layers=2, width=500)
