"""Small networks, and how tests train them on the ``toy`` problem."""

import dataclasses
from typing import Any

import jax

from ffjax import goodness
from ffjax.model import pathway
from ffjax.training.machine import Machine
from ffjax.training.networks import Member, train_networks
from ffjax.training.optimizer import Training

TRAINING = Training(epochs=6, batch_size=20, learning_rate=3e-3, threshold=2.0)


def architecture(name="ffcl", function="burstiness", widths=(16, 12), **changes):
    fields = {
        "pathway": name,
        "goodness": goodness.make(function),
        "activation": "gelu",
        "norm_gate": False,
        "widths": widths,
        "num_classes": 4,
        "label_scale": 5.0,
    }
    return pathway.Architecture(**{**fields, **changes})


@dataclasses.dataclass(frozen=True)
class MachineWithBudget(Machine):
    """A machine with a budget for inputs of its own: 0 has them all recomputed."""

    budget: float = 0.0

    @property
    def memory_budget(self) -> float:
        return self.budget


def machine(budget=4e9, num_devices=1):
    devices = tuple(jax.local_devices()[:num_devices])
    return MachineWithBudget(devices, 16e9, budget)


def member(seed=0, *, norm_gate=False, trained=(), **changes):
    training = dataclasses.replace(TRAINING, **changes)
    return Member(jax.random.key(seed), training, norm_gate, trained)


def train(
    toy, arch, seed=0, *, budget=4e9, trained=(), on_epochs=None, on_layer=None,
    **changes,
):  # fmt: skip
    """The layers of a network that is trained alone."""
    alone = member(seed, norm_gate=arch.norm_gate, trained=trained, **changes)
    images, labels = toy
    (layers,) = train_networks(
        arch,
        [alone],
        images,
        labels,
        machine(budget),
        on_epochs=on_epochs,
        on_layer=on_layer,
    )
    return layers


def num_compiled(program: Any) -> int:
    """How many times a program was compiled so far."""
    return program._cache_size()
