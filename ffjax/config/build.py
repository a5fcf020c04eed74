"""What a run is made of: its network and its training, from its fields."""

from collections.abc import Sequence
from typing import Any, cast

from ffjax import goodness
from ffjax.config import goodness_params
from ffjax.config.spec import PARAM_FIELDS, RunSpec, check_shape
from ffjax.model.pathway import Architecture
from ffjax.model.product import Precision
from ffjax.training import backprop
from ffjax.training.objective import Objective
from ffjax.training.optimizer import Optimizer, Training


def architecture(
    spec: RunSpec, num_classes: int, image_shape: Sequence[int] = ()
) -> Architecture:
    """The network of a run.

    Args:
      spec: the run.
      num_classes: of its dataset.
      image_shape: of its images, which convolutions need.
    """
    return Architecture(
        pathway=spec.pathway,
        goodness=goodness.make(spec.goodness, **_goodness_arguments(spec)),
        activation=spec.activation,
        norm_gate=spec.norm_gate,
        widths=spec.layer_widths,
        num_classes=num_classes,
        label_scale=spec.label_scale,
        normalisation=spec.normalisation,
        ensemble=spec.ensemble,
        precision=cast(Precision, spec.precision),
        maps=check_shape(spec, image_shape, num_classes),
    )


def backprop_network(
    spec: RunSpec, num_classes: int, image_shape: Sequence[int] = ()
) -> backprop.Network:
    """The network of a run where the trainer is backpropagation."""
    return backprop.Network(
        widths=spec.layer_widths,
        activation=spec.activation,
        norm_gate=spec.norm_gate,
        num_classes=num_classes,
        precision=cast(Precision, spec.precision),
        maps=check_shape(spec, image_shape, num_classes),
    )


def training(spec: RunSpec) -> Training:
    """How a run is trained."""
    return Training(
        epochs=spec.epochs,
        batch_size=spec.batch_size,
        learning_rate=spec.learning_rate,
        threshold=spec.threshold,
        objective=Objective(
            negatives=spec.negatives,
            loss=spec.loss,
            scale=spec.loss_scale,
            peer_normalisation=spec.peer_normalisation,
            dropout=spec.dropout,
        ),
        optimizer=Optimizer(spec.schedule, spec.weight_decay),
    )


def _goodness_arguments(spec: RunSpec) -> dict[str, Any]:
    """The goodness function's parameters that are set in this run."""
    known = goodness.find(spec.goodness).defaults
    values = {
        name: getattr(spec, field)
        for name, field in PARAM_FIELDS.items()
        if name in known and getattr(spec, field) is not None
    }
    return {**values, **goodness_params.parse(spec.goodness_params)}
