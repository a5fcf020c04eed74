"""Datasets by name: arrays in memory, in a fixed order, flattened and normalised.

``python -m ffjax.data --dataset=NAME`` takes a look at a dataset; README.md beside this
file says which there are and in what form. Nothing here imports jax or TensorFlow, and
TFDS only where it is needed.
"""

from ffjax.data.catalog import DATASETS
from ffjax.data.dataset import Dataset, load
from ffjax.data.identity import Source, canonical_name, check_name, fingerprint
from ffjax.data.pixels import normalise, statistics
from ffjax.data.verify import in_order

__all__ = [
    "DATASETS",
    "Dataset",
    "Source",
    "canonical_name",
    "check_name",
    "fingerprint",
    "in_order",
    "load",
    "normalise",
    "statistics",
]
