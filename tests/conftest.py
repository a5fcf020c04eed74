import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import numpy as np
import pytest

jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def x64():
    """Double precision for one test: numerical derivatives need it."""
    with jax.enable_x64(True):
        yield


def make_toy():
    """A small separable problem: 4 classes, 12 inputs, 205 images."""
    random = np.random.default_rng(7)
    centres = random.normal(size=(4, 12)) * 2
    labels = random.integers(0, 4, size=205).astype(np.int32)
    images = centres[labels] + 0.5 * random.normal(size=(205, 12))
    return images.astype(np.float32), labels


@pytest.fixture(scope="session")
def toy():
    return make_toy()
