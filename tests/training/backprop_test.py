import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ffjax import config, data, records
from ffjax.model import evaluate
from ffjax.runs import attempt, machine
from ffjax.training import backprop, program

NETWORK = backprop.Network((16, 12), "gelu", False, 4)


def train_toy(toy, seed=0, **changes):
    settings = {"epochs": 6, "batch_size": 20, "learning_rate": 3e-3, **changes}
    return backprop.train_network(NETWORK, jax.random.key(seed), *toy, **settings)


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
    state = backprop.init(NETWORK, jax.random.key(1), 12, program.PAPER_OPTIMIZER)
    before = jax.tree.map(np.asarray, state.params)
    logits = backprop.score_images(NETWORK, state.params, jnp.asarray(images))[:, 0]
    chances = np.asarray(jax.nn.softmax(logits))[np.arange(20), labels]
    state, losses = backprop.train_epochs(
        state,
        jnp.zeros(1),
        jax.random.key(2),
        jnp.asarray(images),
        jnp.asarray(labels),
        jnp.float32(0.1),
        jnp.int32(0),
        jnp.int32(1),
        network=NETWORK,
        batch_size=20,
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


def test_a_run_has_a_whole_record(tmp_path):
    spec = config.make_spec(
        trainer="backprop", num_layers=2, width=16, epochs=2, batch_size=50
    )
    dataset = data.load("fashion_mini", train_limit=100, test_limit=50)
    found = attempt.train_and_evaluate([(spec, 0)], dataset, machine.here())[0]
    record = {"cell": "c", "spec": vars(spec), "seed": 0, **found}
    record |= {"device": "cpu", "versions": {}, "commit": None}
    assert records.read(records.write(tmp_path, record))["status"] == "ok"
    assert found["accuracy_layers"] == [None, None]
    assert found["accuracy_concat"] is None
    assert np.shape(found["losses"]) == (1, 2)
