"""The paper's table of small networks: 2x500, MNIST and Fashion-MNIST, 22 accuracies.

    python -m ffjax.main --config=experiments/small/small.py --workdir=experiments/small

The paper prints the better of two runs, with and without the norm gate; so does the
report, once both are there.
"""

from ffjax import config


def get_config():
    """The 22 cells, each with and without the norm gate."""
    axes = {
        "norm_gate": (False, True),
        "dataset": ("fashion_mnist", "mnist"),
    }
    goodness = ("sos", "variance", "neg_entropy", "topk", "contrast_topk")
    fields = config.default()
    fields.pathway = "standard"
    fields.num_layers = 2
    fields.width = 500
    fields.grid = {
        "small": config.product(goodness=["sos"], activation=["relu"], **axes)
        + config.product(goodness=goodness, activation=("gelu", "swish"), **axes)
    }
    return fields
