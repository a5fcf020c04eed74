"""Negatives and losses, against formulas written out in NumPy."""

import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special
from small_networks import TRAINING, architecture, num_compiled, train

from ffjax import goodness
from ffjax.model import pathway
from ffjax.training import networks, objective, program
from ffjax.training.program import Hyper, Program

CLASSES, BATCH = 4, 6


def softplus(x):
    return np.log1p(np.exp(x))


def softplus_formula(positive, negative, tau):
    return softplus(tau - positive).mean() + softplus(negative - tau).mean()


def symba_formula(positive, negative, tau):
    return softplus(-(positive - negative)).mean()


def softmax_formula(positive, negative, tau):
    table = special.softmax(np.vstack([positive, negative]), axis=0)
    return -np.log(table[0]).mean()


FORMULAS = {
    "softplus": softplus_formula,
    "symba": symba_formula,
    "softmax": softmax_formula,
}


@pytest.mark.usefixtures("branch")
@pytest.mark.parametrize("scale", [1.0, 2.5])
@pytest.mark.parametrize("loss", objective.LOSSES)
def test_losses_are_their_formulas(rng, loss, scale):
    scores = rng.normal(size=(CLASSES, BATCH)).astype(np.float32)
    expected = FORMULAS[loss](scale * scores[0], scale * scores[1:], scale * 0.7)
    found = objective.Objective(loss=loss, scale=scale)(
        jnp.asarray(scores), jnp.zeros((CLASSES, BATCH, 3)), jnp.float32(0.7)
    )
    assert found == pytest.approx(expected, rel=1e-5)


@pytest.mark.usefixtures("branch")
def test_the_gradient_of_softplus_is_its_formula(rng):
    scores = rng.normal(size=(CLASSES, BATCH)).astype(np.float32)
    slope = jax.grad(objective.LOSSES["softplus"])(jnp.asarray(scores), jnp.float32(1))
    positive = -special.expit(1 - scores[:1]) / BATCH
    negative = special.expit(scores[1:] - 1) / (BATCH * (CLASSES - 1))
    expected = np.concatenate([positive, negative])
    np.testing.assert_allclose(slope, expected, rtol=1e-5)


def test_peer_penalty_is_the_variance_of_the_units_means(rng):
    h = rng.normal(size=(CLASSES, BATCH, 5)).astype(np.float32)
    scores = jnp.zeros((CLASSES, BATCH))
    plain, penalised = (
        objective.Objective(peer_normalisation=weight)(
            scores, jnp.asarray(h), jnp.float32(2)
        )
        for weight in (0.0, 3.0)
    )
    means = h[0].mean(axis=0)
    expected = 3 * np.square(means - means.mean()).mean()
    assert penalised - plain == pytest.approx(expected, rel=1e-4)


def choose(negatives, labels, drawn, table):
    """The labels of a step where label c of example i has goodness table[c, i]."""

    def measure(candidates):
        return jnp.take_along_axis(jnp.asarray(table), candidates, axis=0)

    return np.asarray(
        objective.Objective(negatives=negatives).choose(
            jnp.asarray(drawn), jnp.asarray(labels), CLASSES, measure
        )
    )


def test_negatives(rng):
    labels = np.array([0, 1, 2, 3, 0, 2], np.int32)
    drawn = np.array([1, 0, 3, 0, 2, 1], np.int32)
    table = rng.normal(size=(CLASSES, BATCH)).astype(np.float32)
    table[labels[:3], np.arange(3)] = 9  # the true label must not win
    for negatives in objective.NEGATIVES:
        np.testing.assert_array_equal(
            choose(negatives, labels, drawn, table)[0], labels
        )
    np.testing.assert_array_equal(choose("random", labels, drawn, table)[1:], [drawn])
    every = choose("all", labels, drawn, table)
    np.testing.assert_array_equal(
        np.sort(every, axis=0), np.tile(np.arange(CLASSES)[:, None], BATCH)
    )
    wrong_only = np.where(np.arange(CLASSES)[:, None] == labels, -np.inf, table)
    hard = choose("hard", labels, drawn, table)
    np.testing.assert_array_equal(hard[1:], [wrong_only.argmax(axis=0)])


def fresh_layer(arch, index, width):
    """A layer as train_network starts it from seed 0."""
    init_key, _ = jax.random.split(jax.random.fold_in(jax.random.key(0), index))
    params = program.init_layer(arch, index, init_key, width, TRAINING).params
    return program.TrainedLayer(params, (), np.zeros(1))


@pytest.mark.parametrize(
    ("name", "index", "budget"),
    [("ffcl", 0, 4e9), ("standard", 1, 4e9), ("standard", 1, 0)],
)
def test_a_step_with_hard_negatives_takes_the_hardest(toy, name, index, budget):
    """One step of the compiled program has the loss of the hardest wrong labels."""
    arch = architecture(name, widths=(16, 12)[: index + 1])
    images, labels = toy
    x = pathway.encode(arch, jnp.asarray(images))
    below = [fresh_layer(arch, 0, x.shape[-1])][:index]
    layers = train(
        toy,
        arch,
        epochs=1,
        batch_size=len(labels),
        budget=budget,
        trained=below,
        objective=objective.Objective(negatives="hard"),
    )
    lower = [layer.params for layer in below]
    params = fresh_layer(arch, index, pathway.input_width(arch, lower, x)).params

    @jax.jit
    def scores(label):
        candidates = jnp.full(len(labels), label)
        inputs = pathway.propagate(arch, lower, x, candidates)
        return arch.goodness(
            pathway.run_layer(arch, index, params, inputs, candidates)[1]
        )

    table = np.stack([scores(label) for label in jnp.arange(CLASSES)])
    positive = table[labels, np.arange(len(labels))]
    wrong = np.where(np.arange(CLASSES)[:, None] == labels, -np.inf, table).max(axis=0)
    expected = softplus_formula(positive, wrong, 2.0)
    assert layers[index].losses[0] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    ("name", "choice"),
    [
        ("ffcl", {"negatives": "hard", "peer_normalisation": 0.1}),
        ("ffcl", {"dropout": 0.2}),
        ("standard", {"dropout": 0.2}),
        ("standard", {"negatives": "hard", "loss": "symba"}),
        ("ffcl", {"negatives": "all", "loss": "softmax"}),
    ],
)
def test_every_objective_learns(toy, name, choice):
    chosen = objective.Objective(**choice)
    (layer,) = train(toy, architecture(name, widths=(16,)), objective=chosen)
    assert layer.losses[-1] < 0.8 * layer.losses[0]


@pytest.mark.parametrize(
    ("name", "choice"),
    [
        ("ffcl", {"loss": "softmax"}),
        ("standard", {"loss": "softmax"}),
        ("standard", {"loss": "symba", "peer_normalisation": 0.1}),
    ],
)
def test_no_objective_reaches_the_layers_below(toy, name, choice):
    arch = architecture(name)
    images, labels = (jnp.asarray(part[:20]) for part in toy)
    x = pathway.encode(arch, images)
    keys = jax.random.split(jax.random.key(3))
    lower = program.init_layer(arch, 0, keys[0], x.shape[-1], TRAINING).params
    upper = program.init_layer(arch, 1, keys[1], 16, TRAINING).params
    candidates = jnp.concatenate(
        [labels[None], objective.wrong_labels(labels, CLASSES)]
    )

    training = dataclasses.replace(TRAINING, objective=objective.Objective(**choice))

    def loss(lower, params):
        return program.layer_loss(
            params,
            (),
            pathway.propagate(arch, [lower], x, candidates),
            candidates,
            Hyper(jnp.float32(1), jnp.float32(2)),
            program=Program.of(arch, 1, training, has_lower=True),
        )[0]

    below, own = jax.jit(jax.grad(loss, argnums=(0, 1)))(lower, upper)
    assert all(not leaf.any() for leaf in jax.tree.leaves(below))
    assert all(leaf.any() for leaf in jax.tree.leaves(own))


@pytest.mark.parametrize(
    ("function", "choice"),
    [
        ("burstiness", {"negatives": "hard"}),
        ("moment", {"negatives": "all", "loss": "softmax", "dropout": 0.2}),
        ("sos", {"negatives": "all", "peer_normalisation": 0.1}),
    ],
)
def test_many_labels_at_once_train_as_one_by_one(toy, function, choice):
    fast = dataclasses.replace(
        architecture(widths=(16,)), goodness=goodness.make(function)
    )
    definition = dataclasses.replace(fast.goodness.definition, shifted=None)
    one_by_one = dataclasses.replace(
        fast, goodness=dataclasses.replace(fast.goodness, definition=definition)
    )
    assert fast.goodness.shifted is not None
    assert one_by_one.goodness.shifted is None
    chosen = objective.Objective(**choice)
    (layer,) = train(toy, fast, objective=chosen, epochs=2)
    (other,) = train(toy, one_by_one, objective=chosen, epochs=2)
    np.testing.assert_allclose(layer.losses, other.losses, rtol=1e-4)
    chex.assert_trees_all_close(layer.params, other.params, rtol=1e-2, atol=1e-4)


def test_dropout_leaves_out_the_same_entries_under_every_label(rng):
    x = jnp.asarray(rng.uniform(1, 2, (3, 50, 40)), jnp.float32)
    found = objective.Objective(dropout=0.25).drop(jax.random.key(0), x)
    kept = np.asarray(found) != 0
    np.testing.assert_array_equal(kept, np.broadcast_to(kept[:1], kept.shape))
    assert kept.mean() == pytest.approx(0.75, abs=0.05)
    np.testing.assert_allclose(found[kept], x[kept] / 0.75, rtol=1e-6)


def test_dropout_keeps_the_label(toy, monkeypatch):
    monkeypatch.setattr(objective.Objective, "drop", lambda _, key, x: 0 * x)
    # Nothing but the label is left, so the layer learns its weights for labels alone.
    (layer,) = train(
        toy,
        architecture("standard", widths=(16,)),
        objective=objective.Objective(dropout=0.31),
        epochs=1,
    )
    fresh = program.init_layer(
        architecture("standard", widths=(16,)),
        0,
        jax.random.split(jax.random.fold_in(jax.random.key(0), 0))[0],
        toy[0].shape[-1] + 1,
        TRAINING,
    ).params
    np.testing.assert_array_equal(layer.params["kernel"], fresh["kernel"])
    assert not np.array_equal(layer.params["label_kernel"], fresh["label_kernel"])


def test_one_program_a_layer(toy):
    hard = objective.Objective(negatives="hard", scale=1.5)
    arch = architecture(widths=(16,))
    train(toy, arch, objective=hard)
    count = num_compiled(networks.train_members)
    train(toy, arch, objective=hard, learning_rate=1e-4, threshold=1.0)
    assert num_compiled(networks.train_members) == count
