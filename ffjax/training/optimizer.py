"""The optimiser of a layer, and how a layer is trained."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import optax

from ffjax.model.pathway import Params
from ffjax.training.objective import Objective

Rate = float | jax.Array

# (learning rate, steps in all) -> learning rate of each step.
SCHEDULES: dict[str, Callable[[Rate, int], optax.ScalarOrSchedule]] = {
    "constant": lambda rate, num_steps: rate,  # the paper's
    "cosine": lambda rate, num_steps: optax.cosine_decay_schedule(
        rate,  # type: ignore[arg-type]  (a traced number will do)
        num_steps,
    ),
    # Constant for the first half, then linearly down to 0.
    "half_linear": lambda rate, num_steps: optax.linear_schedule(
        rate, 0.0, num_steps - num_steps // 2, transition_begin=num_steps // 2
    ),
}


@dataclasses.dataclass(frozen=True)
class Optimizer:
    """Adam; hashable, for jit. The defaults are the paper's.

    Attributes:
      schedule: a name in SCHEDULES.
      weight_decay: that of AdamW, for weights but not for biases.
    """

    schedule: str = "constant"
    weight_decay: float = 0.0

    def make(
        self, learning_rate: Rate, num_steps: int
    ) -> optax.GradientTransformationExtraArgs:
        """The optimiser for a training of so many steps.

        Its update needs the step's ``corrections``, see ``bias_corrections``.
        """
        decay = optax.add_decayed_weights(self.weight_decay, mask=_is_matrix)
        rate = SCHEDULES[self.schedule](learning_rate, num_steps)
        return optax.chain(
            _scale_by_adam(),
            *([decay] if self.weight_decay else []),
            optax.scale_by_learning_rate(rate),
        )

    def init(self, params: Params) -> optax.OptState:
        """The state before the first step, which no number of the training changes."""
        return self.make(0.0, num_steps=1).init(params)


_DECAYS = (0.9, 0.999)  # of the mean gradient and of the mean square
_EPS = 1e-8


class Corrections(NamedTuple):
    """By what Adam divides its means, which start at 0: 1 - decay^t in step t."""

    first: jax.Array
    second: jax.Array


class Moments(NamedTuple):
    """Adam's running means of the gradient and of its square."""

    first: Params
    second: Params


def bias_corrections(epoch: jax.Array, num_batches: int) -> Corrections:
    """Those of all steps of an epoch, (num_batches,).

    Steps take them from here, because two powers of the step's number are two kernels
    of a GPU in every step, which take as long to start as large ones.
    """
    steps = epoch * num_batches + 1 + jnp.arange(num_batches, dtype=jnp.int32)
    return Corrections(*(1 - decay**steps for decay in _DECAYS))


def _scale_by_adam() -> optax.GradientTransformationExtraArgs:
    """``optax.scale_by_adam``, to the bit, but for where its corrections come from."""

    def init(params: Params) -> Moments:
        return Moments(optax.tree.zeros_like(params), optax.tree.zeros_like(params))

    def update(
        updates: Params,
        state: Moments,
        params: Params | None = None,
        *,
        corrections: Corrections,
        **others: Any,
    ) -> tuple[Params, Moments]:
        del params, others
        first = optax.tree.update_moment(updates, state.first, _DECAYS[0], 1)
        second = optax.tree.update_moment(updates, state.second, _DECAYS[1], 2)
        scaled = jax.tree.map(
            lambda m, v: (
                (m / corrections.first) / (jnp.sqrt(v / corrections.second) + _EPS)
            ),
            first,
            second,
        )
        return scaled, Moments(first, second)

    # optax's type of an update has no extra arguments.
    return optax.GradientTransformationExtraArgs(init, cast(Any, update))


def _is_matrix(params: Params) -> Params:
    return jax.tree.map(lambda leaf: leaf.ndim > 1, params)


PAPER_OBJECTIVE = Objective()
PAPER_OPTIMIZER = Optimizer()


@dataclasses.dataclass(frozen=True)
class Training:
    """How each layer of a network is trained. The defaults are the paper's.

    Attributes:
      epochs: of each layer.
      batch_size: examples in a step.
      learning_rate: Adam's.
      threshold: tau of the loss.
      objective: which wrong labels, and the loss.
      optimizer: the learning rate's schedule and the weight decay.
    """

    epochs: int = 60
    batch_size: int = 500
    learning_rate: float = 1e-3
    threshold: float = 2.0
    objective: Objective = PAPER_OBJECTIVE
    optimizer: Optimizer = PAPER_OPTIMIZER

    def as_program(self) -> "Training":
        """What is compiled in: the other numbers reach the program as data.

        The number of epochs is a part of schedules alone.
        """
        is_constant = self.optimizer.schedule == "constant"
        epochs = 0 if is_constant else self.epochs
        return dataclasses.replace(
            self, epochs=epochs, learning_rate=0.0, threshold=0.0
        )

    def num_batches(self, num_examples: int) -> int:
        """Steps in an epoch."""
        return -(-num_examples // self.batch_size)
