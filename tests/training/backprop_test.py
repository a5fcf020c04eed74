import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ffjax import config, data, records
from ffjax.model import evaluate
from ffjax.runs import attempt
from ffjax.runs.order import Run
from ffjax.training import backprop, machine
from ffjax.training.optimizer import Training

NETWORK = backprop.Network((16, 12), "gelu", False, 4)


TRAINING = Training(epochs=6, batch_size=20, learning_rate=3e-3)


def train_toy(toy, seed=0, **callbacks):
    key = jax.random.key(seed)
    images, labels = toy
    return backprop.train_network(NETWORK, key, images, labels, TRAINING, **callbacks)


def test_it_learns_the_toy_problem(toy):
    images, labels = toy
    trained = train_toy(toy)
    assert trained.losses[-1] < 0.3 * trained.losses[0]
    scores = backprop.score_images(NETWORK, trained.params, jnp.asarray(images))
    result = evaluate.evaluate(np.asarray(scores), labels)
    assert result.accuracy > 95
    assert result.confusion.sum() == len(labels)


def test_every_layer_gets_a_gradient_of_the_cross_entropy(toy):
    images, labels = (part[:20] for part in toy)
    state = backprop.init(NETWORK, jax.random.key(1), 12, TRAINING)
    before = jax.tree.map(np.asarray, state.params)
    logits = backprop.score_images(NETWORK, state.params, jnp.asarray(images))[:, 0]
    chances = np.asarray(jax.nn.softmax(logits))[np.arange(20), labels]
    state, losses = backprop.train_epochs(
        state,
        jnp.zeros(1),
        jax.random.key(2),
        (jnp.asarray(images), jnp.asarray(labels)),
        jnp.float32(0.1),
        jnp.int32(0),
        jnp.int32(1),
        network=NETWORK,
        training=TRAINING.as_program(),
    )
    assert losses[0] == pytest.approx(-np.log(chances).mean(), rel=1e-5)
    changed = jax.tree.map(lambda a, b: bool((a != b).any()), before, state.params)
    assert all(jax.tree.leaves(changed))


def test_spans_of_epochs_give_the_same_result(toy):
    seen = []
    shown = train_toy(toy, on_epochs=lambda *news: seen.append(news))
    chex.assert_trees_all_equal(shown, train_toy(toy))
    assert {layer for layer, _ in seen} == {0}
    assert len(seen[-1][1]) == 6


def test_divergence_is_seen(toy):
    images, labels = toy
    broken = images.copy()
    broken[3] = np.nan
    trained = train_toy((broken, labels))
    assert trained.is_diverged
    assert trained.losses.shape == (1,)


def test_a_run_has_a_whole_record(tmp_path):
    fields = config.default()
    fields.update({"trainer": "backprop", "num_layers": 2, "width": 16, "epochs": 2})
    fields.batch_size = 50
    (cell,) = config.expand(fields)
    dataset = data.load("fashion_mini", train_limit=100, test_limit=50)
    (found,) = attempt.run_group([Run(cell, 0)], dataset, machine.here(1))
    assert records.read(records.write(tmp_path, found)) == found
    assert found.status == "ok"
    assert found.accuracy_layers == [None, None]
    assert found.accuracy_concat is None
    assert [len(losses) for losses in found.losses] == [2]
