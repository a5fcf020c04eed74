"""The run of ``python -m ffjax.main`` with no config: a small network on embedded data.

FFCL burstiness on fashion_mini, about a minute on 2 cores.
"""

from ffjax import config


def get_config():
    """A network that learns the embedded part of Fashion-MNIST while you watch."""
    fields = config.default()
    fields.dataset = "fashion_mini"
    fields.num_layers = 2
    fields.width = 500
    fields.epochs = 30
    fields.batch_size = 100
    return fields
