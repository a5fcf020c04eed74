"""Learning rates and weight decay; what reaches a program as data."""

import dataclasses
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from small_networks import architecture, train

from ffjax.training import optimizer
from ffjax.training.objective import Objective
from ffjax.training.optimizer import Optimizer, Training


def rates(schedule, num_steps):
    """The step of each update: plain gradient descent shows the learning rate."""
    rate: Any = optimizer.SCHEDULES[schedule](jnp.float32(0.5), num_steps)
    steps = range(num_steps)
    return [float(np.asarray(rate(n) if callable(rate) else rate)) for n in steps]


def test_schedules():
    assert rates("constant", 4) == [0.5] * 4
    expected = [0.25 * (1 + np.cos(np.pi * step / 8)) for step in range(8)]
    np.testing.assert_allclose(rates("cosine", 8), expected, rtol=1e-5)
    expected = [0.5, 0.5, 0.5, 0.5, 0.5, 0.375, 0.25, 0.125]
    np.testing.assert_allclose(rates("half_linear", 8), expected, rtol=1e-5)


def test_any_span_of_epochs_gives_the_same_result_with_a_schedule(toy):
    options: dict[str, Any] = {"optimizer": Optimizer("cosine", weight_decay=0.01)}
    whole = train(toy, architecture(widths=(16,)), **options)
    parts = train(toy, architecture(widths=(16,)), **options, on_epochs=lambda *_: None)
    chex.assert_trees_all_equal(whole, parts)


PARAMS = {"kernel": jnp.ones((2, 3)), "bias": jnp.ones(3)}


def step(tx, grads, state, params, number) -> Any:
    """Step ``number`` of an optimiser, counted from 0."""
    every = optimizer.bias_corrections(jnp.int32(number), 1)
    corrections = jax.tree.map(lambda leaf: leaf[0], every)
    return tx.update(grads, state, params, corrections=corrections)


def test_weight_decay_shrinks_weights_but_not_biases():
    made = Optimizer(weight_decay=0.1)
    still = jax.tree.map(jnp.zeros_like, PARAMS)
    updates, _ = step(made.make(0.5, 1), still, made.init(PARAMS), PARAMS, 0)
    np.testing.assert_allclose(updates["kernel"], -0.05, rtol=1e-6)
    assert not updates["bias"].any()


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_it_is_adam_to_the_bit(rng, decay):
    """As compiled programs, which is how layers are trained."""
    made, rate, num_steps = Optimizer(weight_decay=decay), 0.01, 30
    tx = made.make(rate, num_steps)
    plain = optax.adam(rate)
    if decay:
        mask = {"kernel": True, "bias": False}
        plain = optax.adamw(rate, weight_decay=decay, mask=mask)
    all_grads = jax.tree.map(
        lambda leaf: jnp.asarray(
            rng.normal(size=(num_steps, *leaf.shape)), jnp.float32
        ),
        PARAMS,
    )

    def run(update, state):
        def one(carry, batch):
            params, state = carry
            grads, corrections = batch
            updates, state = update(grads, state, params, corrections)
            return (optax.apply_updates(params, updates), state), updates

        batches = (all_grads, optimizer.bias_corrections(jnp.int32(0), num_steps))
        return jax.lax.scan(one, (PARAMS, state), batches)[1]

    found = jax.jit(
        lambda state: run(
            lambda g, s, p, corrections: tx.update(g, s, p, corrections=corrections),
            state,
        )
    )(made.init(PARAMS))
    expected = jax.jit(
        lambda state: run(lambda g, s, p, _: plain.update(g, s, p), state)
    )(plain.init(PARAMS))
    chex.assert_trees_all_equal(found, expected)


def test_corrections_go_on_from_epoch_to_epoch():
    first, second = (
        np.concatenate(parts)
        for parts in zip(
            *(optimizer.bias_corrections(jnp.int32(epoch), 4) for epoch in range(3)),
            strict=True,
        )
    )
    steps = np.arange(1, 13)
    np.testing.assert_allclose(first, 1 - 0.9**steps, rtol=1e-6)
    np.testing.assert_allclose(second, 1 - 0.999**steps, rtol=1e-3)


@pytest.mark.parametrize("schedule", optimizer.SCHEDULES)
def test_the_learning_rate_may_be_a_traced_number(schedule):
    made = Optimizer(schedule)
    ones = jax.tree.map(jnp.ones_like, PARAMS)

    def first(rate):
        return step(made.make(rate, 4), ones, made.init(PARAMS), PARAMS, 0)[0]

    found = jax.jit(first)(jnp.float32(0.5))
    chex.assert_trees_all_close(found, first(0.5), rtol=1e-6)
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


@pytest.mark.parametrize("schedule", optimizer.SCHEDULES)
def test_the_number_of_epochs_is_a_part_of_schedules_alone(schedule):
    short, long = (
        Training(epochs=epochs, optimizer=Optimizer(schedule)).as_program()
        for epochs in (5, 6)
    )
    assert (short == long) == (schedule == "constant")


def test_every_field_of_a_training_is_tried_above():
    names = {field.name for field in dataclasses.fields(Training)}
    data = {"epochs", "learning_rate", "threshold"}
    assert names == data | {"batch_size", "objective", "optimizer"}


@pytest.mark.parametrize(("examples", "batches"), [(1, 1), (20, 1), (21, 2), (40, 2)])
def test_batches_of_an_epoch(examples, batches):
    assert Training(batch_size=20).num_batches(examples) == batches
