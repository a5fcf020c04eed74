"""Several networks of one architecture trained in one program, over all devices.

Runs that differ in their seed, learning rate, threshold or norm gate have the same
program; here it is vmapped over them, and where there are several devices each has an
equal share of them. Devices never talk to each other. A network of a group is the one
that is trained alone, to the rounding of float32.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from absl import logging
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ffjax.model import evaluate, pathway
from ffjax.training import program
from ffjax.training.objective import Objective
from ffjax.model.pathway import Architecture

_AXIS = "member"


class Member(NamedTuple):
    """In what the networks of a group differ."""

    key: jax.Array
    learning_rate: float
    threshold: float
    norm_gate: bool
    trained: Sequence[program.TrainedLayer] = ()  # of an earlier, interrupted call


# Called after a layer: (layer, that of each member, None if it diverged before).
OnLayer = Callable[[int, list[program.TrainedLayer | None]], None]


def train_networks(
    arch: Architecture,
    members: Sequence[Member],
    images: np.ndarray,
    labels: np.ndarray,
    *,
    devices: Sequence[Any],
    epochs: int,
    batch_size: int,
    objective: Objective = program.PAPER_OBJECTIVE,
    optimizer: program.Optimizer = program.PAPER_OPTIMIZER,
    memory_budget: float = 4e9,
    on_epochs: program.OnEpochs | None = None,
    on_layer: OnLayer | None = None,
) -> list[list[program.TrainedLayer]]:
    """``train.train_network`` for several networks; each ends where it diverges.

    Args:
      arch: the networks, but for their norm gates.
      members: in what they differ.
      images: (N, D) float32.
      labels: (N,) integers in 0..C-1.
      devices: over which to spread them.
      epochs: for each layer.
      batch_size: examples a step.
      objective: which wrong labels, and the loss.
      optimizer: the learning rate's schedule and the weight decay.
      memory_budget: bytes that the inputs of a layer may take on one device.
      on_epochs: called with progress: the mean of the members' losses.
      on_layer: called with each layer as it is finished.
    """
    mesh, padded = _spread(members, devices)
    arch = _with_gates(arch, padded)
    layers: list[list[program.TrainedLayer]] = [[] for _ in members]
    shared = NamedSharding(mesh, PartitionSpec())
    inputs = encoded = jax.device_put(pathway.encode(arch, jnp.asarray(images)), shared)
    targets = jax.device_put(jnp.asarray(labels, jnp.int32), shared)
    hyper = _place(
        mesh,
        [
            program.Hyper(jnp.float32(one.learning_rate), jnp.float32(one.threshold))
            for one in padded
        ],
    )
    # The layers that all members have already.
    known = min(len(one.trained) for one in members)
    stacked: list[Any] = []  # of each layer below, the parameters of all members
    is_recomputed = False
    for index in range(len(arch.widths)):
        if index > 0:
            num_local = len(padded) // mesh.size
            needed = num_local * pathway.stored_bytes(arch, index, len(labels))
            if not is_recomputed and needed <= memory_budget:
                below, of_below = pathway.as_program(arch, index - 1)
                inputs = _advance(
                    stacked[-1], inputs, mesh=mesh, arch=below, index=of_below
                )
            else:
                inputs, is_recomputed = encoded, True
            logging.info(
                "layer %d: %d inputs on each of %d devices, %s (%.2f GB)",
                index + 1,
                num_local,
                mesh.size,
                "recomputed at every step" if is_recomputed else "kept",
                needed / 1e9,
            )
        if index < known:
            found = [one.trained[index] for one in padded]
            params = _place(mesh, _params(arch, padded, found))
        else:
            state, losses = _train_layer(
                arch,
                index,
                padded,
                mesh,
                inputs,
                targets,
                tuple(stacked) if is_recomputed else (),
                hyper,
                epochs=epochs,
                batch_size=batch_size,
                objective=objective,
                optimizer=optimizer,
                on_epochs=on_epochs,
            )
            params = state.params
            found = _finish(params, state.goodness_state, losses)
        stacked.append(params)
        new: list[program.TrainedLayer | None] = []
        for of_member, layer in zip(layers, found[: len(members)], strict=True):
            # What diverged is carried along, for an unchanged program, and left out.
            is_over = bool(of_member) and of_member[-1].is_diverged
            new.append(None if is_over else layer)
            of_member += [] if is_over else [layer]
        if index >= known and on_layer is not None:
            on_layer(index, new)
        if all(of_member[-1].is_diverged for of_member in layers):
            break
    return layers


def score_images(
    arch: Architecture,
    members: Sequence[Member],
    networks: Sequence[Sequence[program.TrainedLayer]],
    images: np.ndarray,
    devices: Sequence[Any],
) -> list[Any]:
    """``evaluate.score_images`` for the networks of a group, each (N, L + 1, C)."""
    scores: list[Any] = [None] * len(networks)
    of_depth: dict[int, list[int]] = {}
    for position, layers in enumerate(networks):
        of_depth.setdefault(len(layers), []).append(position)
    for depth, positions in of_depth.items():
        part = dataclasses.replace(arch, widths=arch.widths[:depth])
        mesh, padded = _spread(positions, devices)
        judged = [members[position] for position in padded]
        part = _with_gates(part, judged)
        params, states = [], []
        for index in range(depth):
            found = [networks[position][index] for position in padded]
            params.append(_place(mesh, _params(part, judged, found)))
            states.append(_place(mesh, [layer.goodness_state for layer in found]))
        shared = NamedSharding(mesh, PartitionSpec())
        placed = jax.device_put(jnp.asarray(images), shared)
        all_scores = _score_images(params, states, placed, mesh=mesh, arch=part)
        for row, position in enumerate(positions):
            scores[position] = all_scores[row]
    return scores


def member_bytes(
    arch: Architecture, num_examples: int, num_inputs: int, batch_size: int
) -> tuple[int, int]:
    """About what a member needs on its device: its layers' inputs, and all the rest.

    The rest is a layer's parameters with gradient and optimiser, and a batch of
    activations under two labels with what their gradient needs.
    """
    width = max(arch.widths)
    stored = pathway.stored_bytes(arch, 1, num_examples) if len(arch.widths) > 1 else 0
    params = (max(num_inputs, width) + arch.num_classes + 1) * width
    return stored, 4 * (4 * params + 16 * batch_size * width)


def _train_layer(
    arch: Architecture,
    index: int,
    members: Sequence[Member],
    mesh: Mesh,
    inputs: jax.Array,
    labels: jax.Array,
    lower: Sequence[Any],
    hyper: program.Hyper,
    *,
    epochs: int,
    batch_size: int,
    objective: Objective,
    optimizer: program.Optimizer,
    on_epochs: program.OnEpochs | None,
) -> tuple[program.LayerState, np.ndarray]:
    width = pathway.input_width(arch, lower, inputs)
    states, keys = [], []
    for member in members:
        layer_key = jax.random.fold_in(member.key, index)
        init_key, train_key = jax.random.split(layer_key)
        keys.append(train_key)
        states.append(_init_layer(arch, index, init_key, width, member, optimizer))
    key = _place(mesh, keys)
    has_own_inputs = index > 0 and not lower
    one, of_one = (arch, index) if lower else pathway.as_program(arch, index)

    def program(state, losses, first, last):
        return _train_epochs(
            state,
            losses,
            key,
            inputs,
            labels,
            lower,
            hyper,
            first,
            last,
            mesh=mesh,
            has_own_inputs=has_own_inputs,
            arch=one,
            index=of_one,
            batch_size=batch_size,
            objective=objective,
            optimizer=optimizer,
        )

    def report(losses: np.ndarray) -> None:
        sound = np.isfinite(losses).all(axis=-1)
        if on_epochs is not None:
            on_epochs(index, losses[sound if sound.any() else slice(None)].mean(axis=0))

    losses = np.full((len(members), epochs), np.nan, np.float32)
    losses = jax.device_put(losses, NamedSharding(mesh, PartitionSpec(_AXIS)))
    return program.run_epochs(
        program, _place(mesh, states), losses, report if on_epochs else None
    )


@functools.partial(
    jax.jit,
    static_argnames=(
        "mesh",
        "has_own_inputs",
        "arch",
        "index",
        "batch_size",
        "objective",
        "optimizer",
    ),
    donate_argnames=("state", "losses"),
)
def _train_epochs(
    state, losses, key, inputs, labels, lower, hyper, first, last, *,
    mesh, has_own_inputs, **program,
):  # fmt: skip
    """``train.train_epochs`` of all members."""
    one = functools.partial(program.train_epochs, **program)
    own_inputs = 0 if has_own_inputs else None
    axes = (0, 0, 0, own_inputs, None, 0, 0, None, None)
    arguments = (state, losses, key, inputs, labels, lower, hyper, first, last)
    return _over_members(one, axes, mesh)(*arguments)


@functools.partial(jax.jit, static_argnames=("mesh", "arch", "index"))
def _advance(params, inputs, *, mesh, arch, index):
    """``pathway.advance`` of all members."""
    one = functools.partial(pathway.advance, arch, index)
    own_inputs = 0 if index > 0 else None
    return _over_members(one, (0, own_inputs), mesh)(params, inputs)


@functools.partial(jax.jit, static_argnames=("mesh", "arch"))
def _score_images(params, goodness_states, images, *, mesh, arch):
    """``evaluate.score_images`` of all members."""
    one = functools.partial(evaluate.score_images, arch)
    return _over_members(one, (0, 0, None), mesh)(params, goodness_states, images)


def _over_members(
    function: Callable[..., Any], axes: tuple[int | None, ...], mesh: Mesh
) -> Callable[..., Any]:
    """A function of one member, vmapped on each device over those that it has."""

    def on_device(*arguments):
        batched = [x for x, axis in zip(arguments, axes, strict=True) if axis == 0]
        if jax.tree.leaves(batched)[0].shape[0] > 1:
            return jax.vmap(function, in_axes=axes)(*arguments)
        # Products of matrices, not of stacks of one, which are slower on a CPU.
        alone = [
            jax.tree.map(lambda leaf: leaf[0], x) if axis == 0 else x
            for x, axis in zip(arguments, axes, strict=True)
        ]
        return jax.tree.map(lambda leaf: leaf[None], function(*alone))

    if mesh.size == 1:
        return on_device
    specs = tuple(
        PartitionSpec(_AXIS) if axis == 0 else PartitionSpec() for axis in axes
    )
    return jax.shard_map(
        on_device,
        mesh=mesh,
        in_specs=specs,
        out_specs=PartitionSpec(_AXIS),
        check_vma=False,  # it does not know all that the layers are made of
    )


def _spread(members: Sequence[Any], devices: Sequence[Any]):
    """The devices to use, and the members filled up to an equal number on each."""
    num_local = -(-len(members) // len(devices))
    num_devices = -(-len(members) // num_local)
    mesh = Mesh(np.array(devices[:num_devices]), (_AXIS,))
    missing = num_local * num_devices - len(members)
    return mesh, [*members, *[members[-1]] * missing]


def _place(mesh: Mesh, trees: Sequence[Any]) -> Any:
    """Stacks what each member has, spread over the devices."""
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)
    return jax.device_put(stacked, NamedSharding(mesh, PartitionSpec(_AXIS)))


def _with_gates(arch: Architecture, members: Sequence[Member]) -> Architecture:
    gates = {member.norm_gate for member in members}
    return dataclasses.replace(arch, norm_gate=gates.pop() if len(gates) == 1 else None)


def _init_layer(
    arch: Architecture, index: int, key, width: int, member: Member, optimizer
) -> program.LayerState:
    plain = dataclasses.replace(arch, norm_gate=member.norm_gate)
    state = program.init_layer(plain, index, key, width, optimizer)
    if arch.norm_gate is not None:
        return state
    # Compared only, the gate has no gradient, so the optimiser leaves it as it is.
    params = {**state.params, "gate": jnp.float32(member.norm_gate)}
    opt_state = optimizer.make(0.0, num_steps=1).init(params)
    return program.LayerState(params, opt_state, state.goodness_state)


def _params(
    arch: Architecture, members: Sequence[Member], layers: Sequence[program.TrainedLayer]
) -> list[Any]:
    """The parameters of finished layers as the group's program takes them."""
    if arch.norm_gate is not None:
        return [layer.params for layer in layers]
    return [
        {**layer.params, "gate": jnp.float32(member.norm_gate)}
        for member, layer in zip(members, layers, strict=True)
    ]


def _finish(params: Any, goodness_state: Any, losses) -> list[program.TrainedLayer]:
    params, goodness_state = jax.device_get((params, goodness_state))
    params = {name: leaf for name, leaf in params.items() if name != "gate"}
    found = []
    for row in range(len(losses)):
        parts = (params, goodness_state, losses)
        own = jax.tree.map(lambda leaf, row=row: leaf[row], parts)
        found.append(program.finish_layer(*own))
    return found
