"""Every compiled program lowers for CUDA, without a GPU at hand."""

import importlib
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_networks import TRAINING, architecture, machine, member

import ffjax
from ffjax import goodness
from ffjax.goodness import sanity
from ffjax.model import evaluate, layer, pathway
from ffjax.training import backprop, networks, program
from ffjax.training.objective import Objective
from ffjax.training.optimizer import Optimizer, Training

# Where every program is made: those of networks are made of the others' functions.
PROGRAMS = {
    "ffjax.goodness.sanity._measure": sanity._measure,
    "ffjax.model.evaluate.score_images": evaluate.score_images,
    "ffjax.training.backprop.score_images": backprop.score_images,
    "ffjax.training.backprop.train_epochs": backprop.train_epochs,
    "ffjax.training.networks.advance_members": networks.advance_members,
    "ffjax.training.networks.measure_members": networks.measure_members,
    "ffjax.training.networks.score_members": networks.score_members,
    "ffjax.training.networks.train_members": networks.train_members,
    "ffjax.training.program.train_epochs": program.train_epochs,
}
GROUPS = {1: [member(0)], 3: [member(0), member(1, norm_gate=True), member(2)]}


def lower(compiled, *arguments, **static):
    """Lowers a program for CUDA; returns its output's shapes."""
    traced = compiled.trace(*arguments, **static)
    lowered = traced.lower(lowering_platforms=("cuda",))
    assert "module" in lowered.as_text()[:200]
    return traced.out_info


@pytest.fixture
def lowered(monkeypatch):
    """Programs are lowered for CUDA in place of being run; their outputs are zeros."""
    names = []

    def lowering(name):
        compiled = getattr(networks, name)

        def instead(*arguments, **static):
            names.append(name)
            shapes = lower(compiled, *arguments, **static)
            return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)

        return instead

    for name in (
        "measure_members",
        "train_members",
        "advance_members",
        "score_members",
    ):
        monkeypatch.setattr(networks, name, lowering(name))
    return names


def run(toy, arch, members, budget=4e9):
    images, labels = toy
    found = networks.train_networks(arch, members, images, labels, machine(budget))
    networks.score_networks(arch, members, found, images, machine().devices)


def test_every_program_is_known():
    """A new one belongs into this file, and into the table above."""
    folder = pathlib.Path(ffjax.__file__).parent
    found, num_jits = set(), 0
    for path in folder.rglob("*.py"):
        count = path.read_text().count("jax.jit")
        num_jits += count
        if count:
            name = ".".join(path.relative_to(folder.parent).with_suffix("").parts)
            found |= {
                f"{name}.{key}"
                for key, value in vars(importlib.import_module(name)).items()
                if isinstance(value, type(evaluate.score_images))
                and value.__module__ == name
            }
    assert found == set(PROGRAMS)
    assert num_jits == len(PROGRAMS)  # none is made inside of a function


@pytest.mark.parametrize("size", GROUPS)
@pytest.mark.parametrize("function", goodness.GOODNESS)
@pytest.mark.parametrize("name", pathway.PATHWAYS)
def test_networks(toy, lowered, name, function, size):
    """First layer, the step to the next, later layer, evaluation; inputs recomputed."""
    arch = architecture(name, function)
    run(toy, arch, GROUPS[size])
    assert lowered == [
        "train_members",
        "advance_members",
        "train_members",
        "score_members",
    ]
    lowered.clear()
    networks.train_networks(arch, GROUPS[size], toy[0], toy[1], machine(0))
    assert lowered == ["train_members", "train_members"]


@pytest.mark.parametrize("name", pathway.PATHWAYS)
def test_the_step_between_later_layers(toy, lowered, name):
    arch = architecture(name, widths=(16, 12, 8))
    run(toy, arch, GROUPS[3])
    assert lowered.count("advance_members") == 2


@pytest.mark.parametrize("budget", [4e9, 0])
@pytest.mark.parametrize("size", GROUPS)
def test_layers_that_measure_their_inputs(toy, lowered, size, budget):
    run(toy, architecture(normalisation="channel"), GROUPS[size], budget)
    assert [name for name in lowered if name != "advance_members"] == [
        "measure_members",
        "train_members",
        "measure_members",
        "train_members",
        "score_members",
    ]


@pytest.mark.parametrize("activation", layer.ACTIVATIONS)
def test_every_activation_and_the_gate(toy, lowered, activation):
    arch = architecture(activation=activation, normalisation="rms")
    run(toy, arch, [member(0, norm_gate=True)])
    assert len(lowered) == 4


@pytest.mark.parametrize(
    ("negatives", "loss"), [("hard", "softplus"), ("all", "symba"), ("all", "softmax")]
)
@pytest.mark.parametrize("name", pathway.PATHWAYS)
@pytest.mark.parametrize("schedule", ["cosine", "half_linear"])
def test_every_objective_and_schedule(toy, lowered, name, negatives, loss, schedule):
    objective = Objective(negatives, loss, 2.0, peer_normalisation=0.1, dropout=0.2)
    optimizer = Optimizer(schedule, weight_decay=0.1)
    own = member(0, objective=objective, optimizer=optimizer)
    run(toy, architecture(name), [own])
    assert len(lowered) == 4


def test_the_trial_of_a_function_of_ones_own():
    h = jnp.zeros((2, 8, 16))
    value, slope = lower(sanity._measure, goodness.make("burstiness"), h)
    assert (value.shape, slope.shape) == ((2, 8), h.shape)


@pytest.mark.parametrize("name", pathway.PATHWAYS)
def test_the_scores_of_a_single_network(toy, name):
    arch = architecture(name)
    width = toy[0].shape[-1] + (name == "standard")
    layers = [
        program.init_layer(arch, index, jax.random.key(0), inputs, TRAINING)
        for index, inputs in enumerate((width, arch.widths[0]))
    ]
    params = [state.params for state in layers]
    states = [state.goodness_state for state in layers]
    out = lower(evaluate.score_images, arch, params, states, jnp.asarray(toy[0]))
    assert out.shape == (205, 3, 4)


def test_backpropagation(toy):
    network = backprop.Network((16, 12), "gelu", True, 4)
    training = Training(batch_size=20, optimizer=Optimizer("half_linear", 0.1))
    state = backprop.init(network, jax.random.key(0), toy[0].shape[-1], training)
    examples = jnp.asarray(toy[0]), jnp.asarray(toy[1])
    _, losses = lower(
        backprop.train_epochs,
        state,
        jnp.zeros(3),
        jax.random.key(0),
        examples,
        jnp.float32(1),
        jnp.int32(0),
        jnp.int32(1),
        network=network,
        training=training.as_program(),
    )
    assert losses.shape == (3,)
    scores = lower(backprop.score_images, network, state.params, examples[0])
    assert scores.shape == (205, 1, 4)
    assert scores.dtype == np.float32
