"""What cannot be trained is refused before it starts, with the figure."""

import jax

from ffjax.errors import UserError
from ffjax.goodness import sanity
from ffjax.model import pathway
from ffjax.model.layer import ACTIVATIONS
from ffjax.model.pathway import Architecture
from ffjax.training.machine import Machine
from ffjax.training.optimizer import Training


def check(
    arch: Architecture, training: Training, shape: tuple[int, ...], machine: Machine
) -> None:
    """Raises a UserError for what cannot be trained.

    Args:
      arch: the network.
      training: how it is to be trained.
      shape: (N, D) of the images.
      machine: where.
    """
    check_batch_size(training.batch_size, shape[0])
    check_precision(arch.precision, machine)
    check_memory(arch, training, shape, machine)
    # Last, because it tries the function at the layer's full width.
    check_goodness(arch)


def check_batch_size(batch_size: int, train_size: int) -> None:
    """Raises a UserError if a batch would be larger than the training set."""
    if batch_size > train_size:
        raise UserError(
            f"batch_size={batch_size}: must not be larger than the training set "
            f"({train_size} images)"
        )


def check_precision(precision: str, machine: Machine) -> None:
    """Raises a UserError for a precision that the devices do not have."""
    if precision == "tensorfloat32" and machine.is_cpu:
        raise UserError(
            "precision='tensorfloat32': needs a GPU; a CPU has float32 and bfloat16"
        )


def member_bytes(
    arch: Architecture, training: Training, shape: tuple[int, ...]
) -> tuple[int, int]:
    """About what a member needs on its device: its layers' inputs, and all the rest.

    The rest is the layers' parameters, gradient and optimiser of the one in training,
    and a batch of activations under two labels with what their gradient needs.

    Args:
      arch: the network.
      training: how it is trained.
      shape: (N, D) of the images.
    """
    num_examples, num_inputs = shape
    stored = max(
        (
            pathway.stored_bytes(arch, index, num_examples)
            for index in range(1, len(arch.widths))
        ),
        default=0,
    )
    if arch.maps is None:
        below = [num_inputs, *arch.widths[:-1]]
        activations = 16 * training.batch_size * max(arch.widths)
    else:
        indices = range(len(arch.widths))
        below = [arch.maps.fan_in(arch.widths, index) for index in indices]
        activations = 4 * training.batch_size * max(map(arch.step_size, indices))
    sizes = [
        (fan_in + arch.num_classes + 1) * width
        for fan_in, width in zip(below, arch.widths, strict=True)
    ]
    return stored, 4 * (sum(sizes) + 3 * max(sizes) + activations)


def check_memory(
    arch: Architecture, training: Training, shape: tuple[int, ...], machine: Machine
) -> None:
    """Raises a UserError for a network that cannot fit a device, before it is made."""
    _, needed = member_bytes(arch, training, shape)
    needed += 4 * shape[0] * shape[1]  # the images
    if needed > machine.memory:
        size = "x".join(map(str, dict.fromkeys(arch.widths)))
        raise UserError(
            f"width={size}: {len(arch.widths)} layers with batch_size="
            f"{training.batch_size} need about {needed / 1e9:.3g} GB, but "
            f"{machine.devices[0].device_kind} has {machine.memory / 1e9:.3g} GB"
        )


def check_goodness(arch: Architecture) -> None:
    """Raises a UserError for a function that cannot be learned with.

    That is one of one's own that gives no gradient, or one with a state for each unit
    where a unit is a channel at a position: maps of other sizes have other units.
    """
    width = arch.measured_width(0)
    states = jax.tree.leaves(jax.eval_shape(lambda: arch.goodness.init(width)))
    if arch.maps is not None and arch.by_group and any(leaf.ndim for leaf in states):
        raise UserError(
            f"goodness={arch.goodness.definition.name!r}: has a state for each unit, "
            "which groups of maps cannot have; take pathway='ffcl' or layer='dense'"
        )
    if arch.goodness.definition.is_built_in:
        return
    activate = ACTIVATIONS[arch.activation]
    complaint = sanity.problem(arch.goodness, width, activate)
    if complaint is not None:
        raise UserError(complaint)
