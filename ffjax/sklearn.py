"""Forward-Forward networks as a scikit-learn classifier (the extra ``sklearn``)."""

import inspect
import textwrap
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
except ImportError:
    raise ImportError("scikit-learn is missing; pip install 'ffjax[sklearn]'") from None
from sklearn.utils import check_random_state, validation
from sklearn.utils.multiclass import check_classification_targets

from ffjax.config import spec as spec_lib
from ffjax.network import History, Network, fitting

# Small tables call for other values than images: every label is compared at every step,
# and steps are many.
_DEFAULTS: dict[str, Any] = {
    "num_layers": 2,
    "width": 500,
    "epochs": 30,
    "batch_size": 20,
    "learning_rate": 3e-3,
    "schedule": "cosine",
    "negatives": "all",
    "loss": "softmax",
    "dropout": 0.4,
}
_OWN = {"random_state": 42, "verbose": False}

_validate: Any = validation.validate_data  # its types say less than it does


class ForwardForwardClassifier(ClassifierMixin, BaseEstimator):
    """A network whose layers are trained one by one, each with its own goodness.

    The features are normalised together, by one mean and one standard deviation, as
    pixels are; scale them before if they differ in kind. The same data, parameters and
    ``random_state`` give the same network.

    Parameters:
      random_state: an integer; or a RandomState or None, from which one is drawn.
      verbose: whether to show how far training is.
      PARAMETERS

    Attributes:
      classes_: the labels, in order.
      n_features_in_: features of the training data.
      network_: the trained ``ffjax.Network``, whose labels are places in ``classes_``.
      history_: the loss of each layer and epoch.
    """

    classes_: np.ndarray
    n_features_in_: int
    network_: Network
    history_: History

    def __init__(self, **params: Any):
        """A classifier; the values are checked when it is fitted."""
        defaults = _parameters()
        for name in params:
            if name not in defaults:
                raise TypeError(
                    f"ForwardForwardClassifier has no parameter {name!r}; known are "
                    f"{', '.join(defaults)}"
                )
        for name, default in defaults.items():
            setattr(self, name, params.get(name, default))

    def fit(self, X: ArrayLike, y: ArrayLike) -> "ForwardForwardClassifier":
        """Trains a network on features X (N, D) and labels y (N,)."""
        features, labels = _validate(self, X, y)
        check_classification_targets(labels)
        self.classes_, codes = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"y: 1 class ({self.classes_[0]!r}); at least 2 classes are needed"
            )
        fields = {name: getattr(self, name) for name in _fields()}
        # A batch is never larger than a fold of the data.
        if fields["batch_size"] is not None:
            fields["batch_size"] = min(fields["batch_size"], len(features))
        self.network_ = fitting.fit(
            features,
            codes,
            num_classes=len(self.classes_),
            seed=self._seed(),
            progress=bool(self.verbose),  # pyright: ignore[reportAttributeAccessIssue]
            **fields,
        )
        self.history_ = self.network_.history
        return self

    def predict(self, X: ArrayLike) -> np.ndarray:
        """The label of highest total goodness of each row, (N,)."""
        scores = self._scores(X)
        return self.classes_[np.argmax(scores, axis=-1)]

    def predict_proba(self, X: ArrayLike) -> np.ndarray:
        """The softmax of the total goodness over the labels, (N, C).

        For frequencies, put the classifier into a ``CalibratedClassifierCV``.
        """
        validation.check_is_fitted(self)
        return self.network_.predict_proba(self._check(X))

    def decision_function(self, X: ArrayLike) -> np.ndarray:
        """Total goodness of each label, (N, C); of two, the second's lead, (N,)."""
        scores = self._scores(X).astype(np.float64)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def _scores(self, X: ArrayLike) -> np.ndarray:
        validation.check_is_fitted(self)
        return self.network_.scores(self._check(X))

    def _check(self, X: ArrayLike) -> np.ndarray:
        return _validate(self, X, reset=False)

    def _seed(self) -> int:
        state: Any = self.random_state  # pyright: ignore[reportAttributeAccessIssue]
        if isinstance(state, int | np.integer):
            return int(state)
        return int(check_random_state(state).randint(2**31 - 1))


def _fields() -> dict[str, Any]:
    """The fields of a run that are parameters, with their defaults here."""
    return {**fitting.fit_fields(), **_DEFAULTS}


def _parameters() -> dict[str, Any]:
    return {**_OWN, **_fields()}


def _document() -> None:
    """Gives the classifier the signature and help that scikit-learn reads."""
    keyword = inspect.Parameter.KEYWORD_ONLY
    itself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = [
        inspect.Parameter(name, keyword, default=default)
        for name, default in _parameters().items()
    ]
    signature = inspect.Signature([itself, *parameters])
    ForwardForwardClassifier.__init__.__signature__ = signature  # type: ignore[attr-defined]
    text = textwrap.indent(spec_lib.describe_fields(_fields()), " " * 6)
    ForwardForwardClassifier.__doc__ = (ForwardForwardClassifier.__doc__ or "").replace(
        "      PARAMETERS", text
    )


_document()
