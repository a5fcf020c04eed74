import copy
import pickle
from typing import Any

import jax
import numpy as np
import pytest

import ffjax
from ffjax.errors import UserError
from ffjax.model import evaluate

SMALL = {
    "num_layers": 2,
    "width": 16,
    "epochs": 8,
    "batch_size": 20,
    "learning_rate": 3e-3,
    "progress": False,
}


@pytest.fixture(scope="module")
def network(toy):
    return ffjax.fit(*toy, **SMALL)


def test_any_number_of_images_and_one_program(network, toy):
    images = np.concatenate([toy[0]] * 2)
    whole = network.scores(images)
    compiled: Any = evaluate.score_images
    programs = compiled._cache_size()
    for count in (1, 2, 127, 128, 129, 300):
        np.testing.assert_array_equal(network.scores(images[:count]), whole[:count])
    assert compiled._cache_size() == programs


def test_scores_are_those_of_the_definition(network, toy):
    flat = (toy[0] / 255 - network.mean[0]) / network.std[0]
    scores = evaluate.score_images(
        network.arch,
        [layer.params for layer in network.layers],
        [layer.goodness_state for layer in network.layers],
        flat.astype(np.float32),
    )
    np.testing.assert_allclose(
        network.scores(toy[0]), scores.sum(1), rtol=1e-4, atol=1e-4
    )


def test_probabilities_are_the_softmax_of_the_scores(network, toy):
    found = network.predict_proba(toy[0])
    np.testing.assert_allclose(found, jax.nn.softmax(network.scores(toy[0])), atol=1e-5)
    np.testing.assert_allclose(found.sum(-1), 1)


def test_evaluation(network, toy):
    images, labels = toy
    found = network.evaluate(images, labels)
    predicted = network.predict(images)
    assert found.accuracy == pytest.approx(100 * np.mean(predicted == labels))
    assert len(found.accuracy_layers) == 2
    for true in range(4):
        for guess in range(4):
            both = np.sum((labels == true) & (predicted == guess))
            assert found.confusion[true, guess] == both
    with pytest.raises(UserError, match="labels: 9 is none of the network's classes"):
        network.evaluate(images, labels * 0 + 9)


def test_equal_by_content_copied_and_pickled(network, toy):
    for other in (
        pickle.loads(pickle.dumps(network)),
        copy.deepcopy(network),
        ffjax.fit(*toy, **SMALL),
    ):
        assert other == network
        assert hash(other) == hash(network)
        np.testing.assert_array_equal(other.scores(toy[0]), network.scores(toy[0]))
    other = ffjax.fit(*toy, **SMALL, seed=1)
    assert other != network
    assert network != "a network"


def test_in_one_line(network):
    assert repr(network) == (
        "Network(16-16, ffcl burstiness gelu, images (12,), 4 classes)"
    )
    assert "\n" not in repr(network.history)
    assert "2 layers" in repr(network.history)


def test_images_of_any_shape_and_type(rng):
    images = rng.integers(0, 256, size=(30, 4, 4, 3)).astype(np.uint8)
    images[..., 2] = 7  # a constant channel must not divide by zero
    labels = rng.integers(0, 2, size=30)
    network = ffjax.fit(images, labels, num_layers=1, width=8, epochs=1, progress=False)
    assert len(network.mean) == 3
    assert np.isfinite(network.scores(images)).all()
    with pytest.raises(UserError, match=r"each has shape \(4, 4\)"):
        network.predict(images[..., 0])


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (np.full((2, 12), 1e308), "holds values of up to 1e\\+308"),
        ([[1.0] * 12, [1.0]], "not an array"),
        (np.zeros((0, 12)), r"shape \(0, 12\)"),
        (np.full((1, 12), np.inf), "holds NaN or infinite"),
        ("images", r"shape \(\)"),
    ],
)
def test_images_that_cannot_be_predicted(network, images, message):
    with pytest.raises(UserError, match=message):
        network.predict(images)
