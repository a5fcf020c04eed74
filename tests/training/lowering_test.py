"""Every compiled program lowers for CUDA, without a GPU at hand."""

import jax
import jax.numpy as jnp
import pytest

from ffjax import goodness
from ffjax.model import evaluate, layer, pathway
from ffjax.training import backprop, objective, program

NUM, INPUTS, WIDTH, CLASSES = 50, 12, 16, 4


def architecture(name, function="burstiness", activation="gelu", norm_gate=False):
    return pathway.Architecture(
        name, goodness.make(function), activation, norm_gate, (WIDTH,) * 2, CLASSES, 5.0
    )


def abstract(tree):
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), tree)


def state_of(arch, index, inputs, optimizer=program.PAPER_OPTIMIZER):
    return jax.eval_shape(
        lambda key: program.init_layer(arch, index, key, inputs, optimizer),
        jax.random.key(0),
    )


def lower_for_cuda(program, *args, **static):
    traced = jax.jit(lambda *args: program(*args, **static))
    exported = jax.export.export(traced, platforms=["cuda"])(*abstract(args))
    assert exported.platforms == ("cuda",)
    assert len(exported.mlir_module_serialized) > 0


def first_inputs(arch):
    return INPUTS + (1 if arch.pathway == "standard" else 0)


def lower_training(arch, index, inputs, lower=(), **static):
    width = WIDTH if index else first_inputs(arch)
    number = jnp.float32(1)
    lower_for_cuda(
        program.train_epochs,
        state_of(arch, index, width, static.get("optimizer", program.PAPER_OPTIMIZER)),
        jnp.zeros(3),
        jax.random.key(0),
        inputs,
        jnp.zeros(NUM, jnp.int32),
        lower,
        program.Hyper(number, number),
        jnp.int32(0),
        jnp.int32(1),
        arch=arch,
        index=index,
        batch_size=20,
        **static,
    )


@pytest.mark.parametrize("function", goodness.GOODNESS)
@pytest.mark.parametrize("name", pathway.PATHWAYS)
def test_training_of_the_first_layer(name, function):
    arch = architecture(name, function)
    lower_training(arch, 0, jnp.zeros((NUM, first_inputs(arch))))


@pytest.mark.parametrize("activation", layer.ACTIVATIONS)
def test_training_with_every_activation_and_the_gate(activation):
    arch = architecture("ffcl", activation=activation, norm_gate=True)
    lower_training(arch, 0, jnp.zeros((NUM, INPUTS)))


def test_training_of_later_layers():
    lower_training(architecture("ffcl"), 1, jnp.zeros((NUM, WIDTH)))
    arch = architecture("standard")
    lower_training(arch, 1, jnp.zeros((NUM, CLASSES, WIDTH)))
    below = state_of(arch, 0, INPUTS + 1).params
    lower_training(arch, 1, jnp.zeros((NUM, INPUTS + 1)), lower=(below,))


@pytest.mark.parametrize(
    ("negatives", "loss"), [("hard", "softplus"), ("all", "symba"), ("all", "softmax")]
)
@pytest.mark.parametrize("name", pathway.PATHWAYS)
def test_training_with_every_objective_and_schedule(name, negatives, loss):
    arch = architecture(name)
    inputs = (NUM, CLASSES, WIDTH) if arch.carries_label else (NUM, WIDTH)
    lower_training(
        arch,
        1,
        jnp.zeros(inputs),
        objective=objective.Objective(negatives, loss, 2.0, peer_normalisation=0.1),
        optimizer=program.Optimizer("cosine", weight_decay=0.1),
    )


@pytest.mark.parametrize("function", ["burstiness", "entmax", "softmax_energy_margin"])
@pytest.mark.parametrize("name", pathway.PATHWAYS)
def test_evaluation_and_the_step_between_layers(name, function):
    arch = architecture(name, function)
    states = [state_of(arch, 0, first_inputs(arch)), state_of(arch, 1, WIDTH)]
    params = [state.params for state in states]
    running = [state.goodness_state for state in states]
    images = jnp.zeros((NUM, INPUTS))
    lower_for_cuda(
        lambda p, s, x: evaluate.score_images(arch, p, s, x), params, running, images
    )
    inputs = jnp.zeros((NUM, first_inputs(arch)))
    lower_for_cuda(lambda p, x: pathway.advance(arch, 0, p, x), params[0], inputs)


def test_backpropagation():
    network = backprop.Network((WIDTH,) * 2, "gelu", True, CLASSES)
    optimizer = program.Optimizer("half_linear", weight_decay=0.1)
    state = jax.eval_shape(
        lambda key: backprop.init(network, key, INPUTS, optimizer), jax.random.key(0)
    )
    images = jnp.zeros((NUM, INPUTS))
    lower_for_cuda(
        backprop.train_epochs,
        state,
        jnp.zeros(3),
        jax.random.key(0),
        images,
        jnp.zeros(NUM, jnp.int32),
        jnp.float32(1),
        jnp.int32(0),
        jnp.int32(1),
        network=network,
        batch_size=20,
        optimizer=optimizer,
    )
    lower_for_cuda(
        lambda params, x: backprop.score_images(network, params, x),
        state.params,
        images,
    )
