import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_networks import TRAINING, architecture

from ffjax.model import evaluate, normalise, pathway
from ffjax.training import program


def untrained(name, function, widths=(16, 12)):
    arch = architecture(name, function, widths)
    inputs = 13 if name == "standard" else 12
    params, states = [], []
    for index, width in enumerate(widths):
        key = jax.random.key(index)
        layer = program.init_layer(arch, index, key, inputs, TRAINING)
        params.append(layer.params)
        states.append(layer.goodness_state)
        inputs = width
    return arch, params, states


def score_by_loop(arch, params, states, images):
    """The definition in plain Python: every image, every label, every layer."""
    scores = np.zeros((len(images), len(params) + 1, arch.num_classes))
    for n, image in enumerate(images):
        for label in range(arch.num_classes):
            x = pathway.encode(arch, jnp.asarray(image))
            parts = []
            for index in range(len(params)):
                features, measured = arch.layer(index).apply(
                    {"params": params[index]}, x, jnp.int32(label)
                )
                scores[n, index, label] = arch.goodness(measured, states[index])
                parts.append(measured)
                x = normalise.l2_normalise(features)
            whole = jnp.concatenate(parts)
            scores[n, -1, label] = arch.goodness(whole, arch.goodness.combine(states))
    return scores


@pytest.mark.parametrize(
    "function", ["burstiness", "topk", "softmax_energy_margin", "triplet_margin"]
)
@pytest.mark.parametrize("name", ["standard", "ffcl"])
def test_vmapped_scores_equal_a_loop_over_labels(rng, name, function, monkeypatch):
    monkeypatch.setattr(pathway, "chunk_size", lambda arch: 2)  # 5 images: 2 + 2 + 1
    arch, params, states = untrained(name, function)
    if function == "softmax_energy_margin":
        states = [jnp.float32(0.5), jnp.float32(1.5)]
    if function == "triplet_margin":
        states = [
            (jnp.float32(0.5), *jnp.asarray(rng.normal(size=(2, width)), jnp.float32))
            for width in arch.widths
        ]
    images = rng.normal(size=(5, 12)).astype(np.float32)
    found = evaluate.score_images(arch, params, states, jnp.asarray(images))
    expected = score_by_loop(arch, params, states, images)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_the_concatenation_does_not_change_the_mean_of_squares(rng):
    arch, params, states = untrained("ffcl", "sos", widths=(16, 16))
    images = jnp.asarray(rng.normal(size=(50, 12)), jnp.float32)
    scores = np.asarray(evaluate.score_images(arch, params, states, images))
    np.testing.assert_allclose(scores[:, -1], scores[:, :-1].mean(1), rtol=1e-5)
    without = scores[:, :-1].sum(1).argmax(-1)
    np.testing.assert_array_equal(evaluate.ENSEMBLES["all"](scores).argmax(-1), without)


def test_the_later_layers_vote_without_the_first_and_the_concatenation():
    scores = np.arange(2 * 4 * 3, dtype=np.float32).reshape(2, 4, 3) ** 2
    expected = scores[:, 1] + scores[:, 2]
    np.testing.assert_array_equal(evaluate.ENSEMBLES["later"](scores), expected)
    scores[:, 1:3, 2] += 1000
    labels = np.array([2, 2])
    assert evaluate.evaluate(scores, labels, "later").accuracy == 100.0


def test_a_planted_winner_is_predicted_and_every_image_counts():
    labels = np.array([2, 0, 1, 1, 2])
    scores = np.zeros((5, 3, 3), np.float32)
    scores[np.arange(5), 0, labels] = 5.0  # layer 1 knows
    scores[:, 1, 0] = 1.0  # layer 2 always says 0
    scores[:, 2, 1] = 2.0  # the concatenation always says 1
    result = evaluate.evaluate(scores, labels)
    assert result.accuracy == 100.0
    assert result.accuracy_layers == [100.0, 20.0]
    assert result.accuracy_concat == 40.0
    chex.assert_trees_all_equal(result.confusion, np.diag([1, 2, 2]))


def test_confusion_has_true_labels_as_rows():
    scores = np.zeros((3, 2, 3), np.float32)
    scores[:, :, 2] = 1.0
    result = evaluate.evaluate(scores, np.array([0, 0, 2]))
    expected = np.array([[0, 0, 2], [0, 0, 0], [0, 0, 1]])
    np.testing.assert_array_equal(result.confusion, expected)
    assert result.accuracy == pytest.approx(100 / 3)


@pytest.mark.parametrize("name", ["standard", "ffcl"])
def test_the_label_changes_the_score(rng, name):
    arch, params, states = untrained(name, "burstiness")
    images = jnp.asarray(rng.normal(size=(3, 12)), jnp.float32)
    scores = np.asarray(evaluate.score_images(arch, params, states, images))
    assert (np.ptp(scores, axis=-1) > 1e-4).all()
