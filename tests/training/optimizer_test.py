"""Learning rates and weight decay; what reaches a program as data."""

import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_networks import architecture, train

from ffjax.training import optimizer
from ffjax.training.objective import Objective
from ffjax.training.optimizer import Optimizer, Training


def rates(schedule, num_steps):
    """The step of each update: plain gradient descent shows the learning rate."""
    rate = optimizer.SCHEDULES[schedule](jnp.float32(0.5), num_steps)
    return [float(rate(step) if callable(rate) else rate) for step in range(num_steps)]


def test_schedules():
    assert rates("constant", 4) == [0.5] * 4
    expected = [0.25 * (1 + np.cos(np.pi * step / 8)) for step in range(8)]
    np.testing.assert_allclose(rates("cosine", 8), expected, rtol=1e-5)
    expected = [0.5, 0.5, 0.5, 0.5, 0.5, 0.375, 0.25, 0.125]
    np.testing.assert_allclose(rates("half_linear", 8), expected, rtol=1e-5)


def test_any_span_of_epochs_gives_the_same_result_with_a_schedule(toy):
    options = {"optimizer": Optimizer("cosine", weight_decay=0.01)}
    whole = train(toy, architecture(widths=(16,)), **options)
    parts = train(toy, architecture(widths=(16,)), **options, on_epochs=lambda *_: None)
    chex.assert_trees_all_equal(whole, parts)


def test_weight_decay_shrinks_weights_but_not_biases():
    params = {"kernel": jnp.ones((2, 3)), "bias": jnp.ones(3)}
    tx = Optimizer(weight_decay=0.1).make(0.5, 1)
    still = jax.tree.map(jnp.zeros_like, params)
    updates, _ = tx.update(still, tx.init(params), params)
    np.testing.assert_allclose(updates["kernel"], -0.05, rtol=1e-6)
    assert not updates["bias"].any()


def test_the_learning_rate_may_be_a_traced_number():
    params = {"kernel": jnp.ones((2, 3)), "bias": jnp.ones(3)}
    still = jax.tree.map(jnp.ones_like, params)
    for schedule in optimizer.SCHEDULES:
        made = Optimizer(schedule)

        def step(rate, made=made):
            return made.make(rate, 4).update(still, made.init(params), params)[0]

        found = jax.jit(step)(jnp.float32(0.5))
        chex.assert_trees_all_close(found, step(0.5), rtol=1e-6)
        # Adam's first step has the length of the learning rate.
        np.testing.assert_allclose(found["bias"], -0.5, rtol=1e-5)


@pytest.mark.parametrize(
    "other",
    [{"epochs": 5}, {"learning_rate": 0.5}, {"threshold": 7.0}],
)
def test_numbers_are_no_part_of_the_program(other):
    assert Training(**other) != Training()
    assert Training(**other).as_program() == Training().as_program()


@pytest.mark.parametrize(
    "other",
    [
        {"batch_size": 7},
        {"objective": Objective(loss="symba")},
        {"optimizer": Optimizer("cosine")},
    ],
)
def test_the_rest_is_compiled_in(other):
    assert Training(**other).as_program() != Training().as_program()
    hash(Training(**other))


def test_every_field_of_a_training_is_tried_above():
    names = {field.name for field in dataclasses.fields(Training)}
    data = {"epochs", "learning_rate", "threshold"}
    assert names == data | {"batch_size", "objective", "optimizer"}


@pytest.mark.parametrize(("examples", "batches"), [(1, 1), (20, 1), (21, 2), (40, 2)])
def test_batches_of_an_epoch(examples, batches):
    assert Training(batch_size=20).num_batches(examples) == batches
