import os
import re

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import numpy as np
import pytest

jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture(scope="module", autouse=True)
def few_programs():
    """Each compiled program has mappings in memory, of which Linux allows 65,530."""
    yield
    jax.clear_caches()


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def x64():
    """Double precision for one test: numerical derivatives need it."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(params=["cpu", "default"])
def branch(request, monkeypatch):
    """A test for the code of the CPU, and for that of a GPU, run on the CPU."""

    def choose(*operands, **branches):
        return branches[request.param](*operands)

    jax.clear_caches()  # of programs with the other branch
    with monkeypatch.context() as patch:
        patch.setattr(jax.lax, "platform_dependent", choose)
        yield request.param
    jax.clear_caches()


@pytest.fixture
def cuda_loop_conditions():
    """What decides about each loop of a program as it is lowered for a GPU."""

    def conditions(fn, *args):
        traced = jax.jit(fn).trace(*args)
        text = traced.lower(lowering_platforms=("cuda",)).as_text()
        loops = re.findall(r"stablehlo\.while.*?cond \{(.*?)\} do \{", text, re.DOTALL)
        assert len(loops) == text.count("stablehlo.while")
        return loops

    return conditions


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
