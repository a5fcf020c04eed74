r"""Every goodness function of the paper and of the field, trained alike.

    python -m ffjax.main --config=experiments/functions/functions.py \
        --workdir=experiments/functions --config.data_dir=DIR

Fashion-MNIST at 2x500 with GELU, 20 epochs, three seeds, both pathways: 168 runs, about
3 hours on 2 cores. A function has the threshold of its own: 2 for those of the paper
and for the mean, 1 for those of Shah and Tripathi (arXiv:2511.18567), whose threshold
is the width for a goodness that is not divided by it. SoS and game-theoretic (Shah),
which both have, run with both.

Sections, each of which can be run alone (``functions.py:field``): ``paper``, ``field``.
"""

from configs import grid
from ffjax import config

# Those of the benchmark; the first two are the paper's as well.
FIELD = (
    "sos",
    "game_theoretic_shah",
    "sparse_l1",
    "huber_norm",
    "oja",
    "outlier_trimmed",
    "attention_weighted",
    "fractal_dimension",
    "decorrelation",
    "softmax_energy_margin_shah",
    "info_nce",
    "triplet_margin",
    "bcm",
    "predictive_coding",
)

SECTIONS = {
    "paper": config.product(goodness=(*grid.GOODNESS, "mean"), pathway=grid.PATHWAYS),
    "field": tuple(
        {**cell, "threshold": 1.0}
        for cell in config.product(goodness=FIELD, pathway=grid.PATHWAYS)
    ),
}


def get_config(section: str | None = None):
    """Both sections, or one of them."""
    return config.grid(
        SECTIONS,
        section,
        dataset="fashion_mnist",
        num_layers=2,
        width=500,
        epochs=20,
        seeds=(42, 43, 44),
    )
