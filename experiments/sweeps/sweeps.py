"""The paper's three sweeps on a small network: 2x500, Fashion-MNIST, 20 epochs.

python -m ffjax.main --config=experiments/sweeps/sweeps.py --workdir=experiments/sweeps
"""

from ffjax import config


def get_config():
    """The share of contrast top-k, the alpha of entmax and the order of the moment."""
    pathways = ("ffcl", "standard")
    fields = config.default()
    fields.num_layers = 2
    fields.width = 500
    fields.epochs = 20
    fields.grid = {
        "p_sweep": config.product(
            pathway=pathways, goodness=["moment"], p=(2, 3, 4, 5, 6, 8)
        ),
        "alpha_sweep": config.product(
            pathway=pathways, goodness=["entmax"], alpha=(1.0, 1.25, 1.5, 1.75, 2.0)
        ),
        "k_sweep": config.product(
            pathway=pathways,
            goodness=["contrast_topk"],
            k_fraction=(0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2),
        ),
    }
    return fields
