"""Networks as classifiers of scikit-learn, by its own checks and in its own tools."""

import pickle
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_digits
from sklearn.model_selection import (
    GridSearchCV,
    StratifiedKFold,
    cross_val_score,
    train_test_split,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import ffjax
from ffjax.errors import UserError
from ffjax.network import fitting
from ffjax.sklearn import ForwardForwardClassifier

# Compiling takes longer than training, and a layer above the first compiles again.
QUICK = {"num_layers": 1, "width": 32, "epochs": 20, "schedule": "constant"}


@parametrize_with_checks([ForwardForwardClassifier(**QUICK)])
def test_it_passes_scikit_learns_own_checks(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def digits():
    images, labels = load_digits(return_X_y=True)
    return train_test_split(images, labels, random_state=0)


@pytest.fixture(scope="module")
def fitted(digits):
    images, _, labels, _ = digits
    return ForwardForwardClassifier(**QUICK).fit(images, labels)


def test_the_defaults_do_well_on_digits():
    images, labels = load_digits(return_X_y=True)
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    scores = cross_val_score(ForwardForwardClassifier(), images, labels, cv=folds)
    assert scores.mean() >= 0.97


def test_parameters_are_the_arguments_of_fit():
    parameters = ForwardForwardClassifier().get_params()
    assert set(fitting.fit_fields()) | {"random_state", "verbose"} == set(parameters)
    for name in parameters:
        assert name in (ForwardForwardClassifier.__doc__ or "")
    changed = ForwardForwardClassifier(width=7).set_params(epochs=3)
    copied: Any = clone(changed)
    assert copied.get_params() == {**parameters, "width": 7, "epochs": 3}
    assert repr(changed) == "ForwardForwardClassifier(epochs=3, width=7)"
    with pytest.raises(TypeError, match="no parameter 'widht'"):
        ForwardForwardClassifier(widht=7)
    with pytest.raises(ValueError, match="Invalid parameter 'widht'"):
        changed.set_params(widht=7)


def test_what_it_learned(fitted, digits):
    _, images, _, labels = digits
    assert fitted.score(images, labels) > 0.9
    np.testing.assert_array_equal(fitted.classes_, np.arange(10))
    assert fitted.n_features_in_ == 64
    assert isinstance(fitted.network_, ffjax.Network)
    assert [len(losses) for losses in fitted.history_.losses] == [20]
    chances = fitted.predict_proba(images)
    np.testing.assert_array_equal(chances.argmax(1), fitted.predict(images))
    decisions = fitted.decision_function(images)
    np.testing.assert_array_equal(decisions.argmax(1), fitted.predict(images))
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict_proba(images), chances)


def test_strings_and_two_classes(digits):
    images, test_images, labels, _ = digits
    few = labels < 2
    names = np.array(["zero", "one"], object)[labels[few]]
    estimator = ForwardForwardClassifier(**QUICK).fit(images[few], names)
    assert estimator.classes_.tolist() == ["one", "zero"]
    decisions = estimator.decision_function(test_images)
    assert decisions.shape == (len(test_images),)
    expected = np.where(decisions > 0, "zero", "one")
    np.testing.assert_array_equal(estimator.predict(test_images), expected)


def test_the_random_state_decides(digits):
    images, _, labels, _ = digits
    images, labels = images[:100], labels[:100]

    def scores(random_state):
        made = ForwardForwardClassifier(**QUICK, random_state=random_state)
        return made.fit(images, labels).decision_function(images)

    np.testing.assert_array_equal(scores(0), scores(np.int64(0)))
    assert not np.array_equal(scores(0), scores(1))
    state = np.random.RandomState(3)
    assert not np.array_equal(scores(state), scores(state))
    np.testing.assert_array_equal(
        scores(np.random.RandomState(3)), scores(np.random.RandomState(3))
    )


def test_in_a_pipeline_a_search_and_a_calibration(digits):
    images, test_images, labels, test_labels = digits
    quick = ForwardForwardClassifier(**{**QUICK, "epochs": 5})
    pipeline = make_pipeline(StandardScaler(), quick)
    search = GridSearchCV(
        pipeline,
        {
            "forwardforwardclassifier__width": np.array([8, 32]),
            "forwardforwardclassifier__learning_rate": np.array([3e-3]),
        },
        cv=2,
        error_score="raise",  # pyright: ignore[reportArgumentType]  (as documented)
    )
    search.fit(images, labels)
    assert search.best_params_["forwardforwardclassifier__width"] == 32
    reached: Any = search.score(test_images, test_labels)
    assert reached > 0.8
    calibrated = CalibratedClassifierCV(quick, cv=2).fit(images, labels)
    chances = calibrated.predict_proba(test_images)
    np.testing.assert_allclose(chances.sum(1), 1)


def test_in_two_processes(digits):
    images, _, labels, _ = digits
    quick = ForwardForwardClassifier(**{**QUICK, "epochs": 5})
    arguments = {"X": images[:400], "y": labels[:400], "cv": 2, "error_score": "raise"}
    alone = cross_val_score(quick, **arguments)
    np.testing.assert_array_equal(cross_val_score(quick, **arguments, n_jobs=2), alone)


def test_wrong_parameters_are_named_when_it_is_fitted(digits):
    images, _, labels, _ = digits
    for wrong, message in (
        ({"width": 0}, "width=0: must be an integer >= 1"),
        ({"goodness": "sum"}, "goodness='sum'"),
        ({"random_state": -1}, "seed=-1"),
    ):
        with pytest.raises(UserError, match=message):
            ForwardForwardClassifier(**{**QUICK, **wrong}).fit(images, labels)
    with pytest.raises(ValueError, match="1 class"):
        ForwardForwardClassifier(**QUICK).fit(images, labels * 0)
