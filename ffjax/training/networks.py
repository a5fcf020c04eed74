"""Training M >= 1 networks of an architecture, layer after layer, over all devices.

Networks that differ in seed, learning rate, threshold or norm gate share a program: it
is vmapped over them, and where there are several devices each has an equal share of
them. Devices never talk to each other. A network of a group is the one that is trained
alone, to the rounding of float32; a network alone is a group of one, whose program has
no stacked products.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import chex
import jax
import jax.numpy as jnp
import numpy as np
from absl import logging
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ffjax.goodness import State
from ffjax.model import evaluate, pathway, product
from ffjax.model.pathway import Architecture, Params
from ffjax.training import checks
from ffjax.training import program as program_lib
from ffjax.training.machine import Machine
from ffjax.training.optimizer import Training
from ffjax.training.program import (
    Examples,
    Hyper,
    LayerState,
    Program,
    Stops,
    TrainedLayer,
)

AXIS = "member"  # of the mesh: what is spread over devices
_T = TypeVar("_T")


class Member(NamedTuple):
    """In what the networks of a group differ.

    Attributes:
      key: of the network; layer k draws from ``fold_in(key, k)``.
      training: how it is trained; members share ``training.as_program()`` and epochs.
      norm_gate: whether activations are gated by their norm.
      trained: layers of an earlier, interrupted call with the same arguments.
    """

    key: jax.Array
    training: Training
    norm_gate: bool
    trained: Sequence[TrainedLayer] = ()


# Called after some epochs of a layer: (layer, its losses so far).
OnEpochs = Callable[[int, np.ndarray], None]
# Called after a layer: (layer, that of each member, None if it diverged before).
OnLayer = Callable[[int, list[TrainedLayer | None]], None]


class Look(NamedTuple):
    """Looks at the networks while they are trained; training is the same to the bit.

    A look costs a pass of its images through the layers so far, and their number of
    layers a compilation.

    Attributes:
      every: epochs of a layer between two looks; the last is after its last epoch.
      images: (N, D) float32 to be scored.
      call: called with (layer, its epochs so far, scores (N, L + 1, C) of each member).
    """

    every: int
    images: np.ndarray
    call: Callable[[int, int, list[jax.Array]], None]


def train_networks(
    arch: Architecture,
    members: Sequence[Member],
    images: np.ndarray,
    labels: np.ndarray,
    machine: Machine,
    *,
    on_epochs: OnEpochs | None = None,
    on_layer: OnLayer | None = None,
    look: Look | None = None,
) -> list[list[TrainedLayer]]:
    """Trains all layers of all members in order; a network ends where it diverges.

    Args:
      arch: the networks, but for their norm gates.
      members: in what they differ.
      images: (N, D) float32.
      labels: (N,) integers in 0..C-1.
      machine: the devices over which to spread them, and their memory.
      on_epochs: called with progress: the mean of the members' losses.
      on_layer: called with each layer as it is finished.
      look: called with how the networks score images meanwhile.
    """
    chex.assert_rank(images, 2)
    chex.assert_shape(labels, (len(images),))
    checks.check(arch, members[0].training, images.shape, machine)
    group = _Group(arch, members, machine.devices)
    inputs = _Inputs(group, images, labels, machine.memory_budget)
    networks: list[list[TrainedLayer]] = [[] for _ in members]
    # The layers that all members have already.
    known = min(len(member.trained) for member in members)
    for index in range(len(arch.widths)):
        if index > 0:
            inputs.advance(index)
        if index < known:
            layers = [member.trained[index] for member in group.padded]
            inputs.add_layer(
                group.place([layer.params for layer in layers]),
                group.place([layer.goodness_state for layer in layers]),
            )
        else:
            state, losses = _train_layer(group, index, inputs, on_epochs, look)
            inputs.add_layer(state.params, state.goodness_state)
            layers = _finish(state, losses)
        # What diverged is carried along, for an unchanged program, and left out.
        new = [
            None if layers_so_far and layers_so_far[-1].is_diverged else layer
            for layers_so_far, layer in zip(networks, layers, strict=False)
        ]
        for layers_so_far, layer in zip(networks, new, strict=True):
            layers_so_far += [] if layer is None else [layer]
        if index >= known and on_layer is not None:
            on_layer(index, new)
        if all(layers_so_far[-1].is_diverged for layers_so_far in networks):
            break
    return networks


def score_networks(
    arch: Architecture,
    members: Sequence[Member],
    networks: Sequence[Sequence[TrainedLayer]],
    images: np.ndarray,
    devices: Sequence[Any],
) -> list[jax.Array]:
    """``evaluate.score_images`` for each network, (N, L + 1, C).

    Networks that diverged have fewer layers than others, and are scored apart.
    """
    scores: dict[int, jax.Array] = {}
    depths = [len(layers) for layers in networks]
    for depth in dict.fromkeys(depths):
        positions = [at for at, layers in enumerate(networks) if len(layers) == depth]
        part = dataclasses.replace(arch, widths=arch.widths[:depth])
        group = _Group(part, [members[at] for at in positions], devices)
        filled = [*positions, *[positions[-1]] * (len(group.padded) - len(positions))]
        params, states = [], []
        for index in range(depth):
            layers = [networks[at][index] for at in filled]
            params.append(group.place([layer.params for layer in layers]))
            states.append(group.place([layer.goodness_state for layer in layers]))
        stacked = score_members(
            params,
            states,
            group.share(images),
            group.hyper.gate_on,
            mesh=group.mesh,
            arch=group.arch,
        )
        scores |= {at: stacked[row] for row, at in enumerate(positions)}
    return [scores[at] for at in range(len(networks))]


class _Group:
    """The members of a program, spread over devices."""

    def __init__(
        self,
        arch: Architecture,
        members: Sequence[Member],
        devices: Sequence[Any],
    ):
        num_local = -(-len(members) // len(devices))
        num_devices = -(-len(members) // num_local)
        self.num_members = len(members)
        self.num_local = num_local
        self.mesh = Mesh(np.array(devices[:num_devices]), (AXIS,))
        # Filled up to an equal number on each device.
        missing = num_local * num_devices - len(members)
        self.padded = [*members, *[members[-1]] * missing]
        gates = {member.norm_gate for member in members}
        is_mixed = len(gates) > 1
        self.arch = dataclasses.replace(
            arch, norm_gate=None if is_mixed else gates.pop()
        )
        self.hyper = self.place(
            [
                Hyper(
                    jnp.float32(member.training.learning_rate),
                    jnp.float32(member.training.threshold),
                    jnp.bool_(member.norm_gate) if is_mixed else None,
                )
                for member in self.padded
            ]
        )

    def place(self, trees: Sequence[_T]) -> _T:
        """Stacks what each member has, spread over the devices."""
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)
        return jax.device_put(stacked, NamedSharding(self.mesh, PartitionSpec(AXIS)))

    def share(self, array: np.ndarray | jax.Array) -> jax.Array:
        """An array that all members read, on each device."""
        sharding = NamedSharding(self.mesh, PartitionSpec())
        return jax.device_put(jnp.asarray(array), sharding)


class _Inputs:
    """The inputs of the layer in training: kept, or recomputed where memory is short.

    Attributes:
      below: of each layer below, the parameters of all members.
      states: of each layer below, the goodness function's state.
    """

    def __init__(
        self, group: _Group, images: np.ndarray, labels: np.ndarray, budget: float
    ):
        self.below: list[Params] = []
        self.states: list[State] = []
        self._group = group
        self._budget = budget
        self._labels = group.share(np.asarray(labels, np.int32))
        encoded = pathway.encode(group.arch, jnp.asarray(images))
        self._encoded = group.share(product.pack(encoded))
        self._inputs = self._encoded
        self._is_recomputed = False

    def add_layer(self, params: Params, goodness_state: State) -> None:
        """Puts a trained layer on top."""
        self.below.append(params)
        self.states.append(goodness_state)

    def advance(self, index: int) -> None:
        """Goes on from layer ``index - 1``, which is trained, to layer ``index``."""
        arch, mesh = self._group.arch, self._group.mesh
        stored = pathway.stored_bytes(arch, index, len(self._labels))
        needed = self._group.num_local * stored
        if not self._is_recomputed and needed <= self._budget:
            below, of_below = pathway.as_program(arch, index - 1)
            self._inputs = advance_members(
                self.below[-1],
                self._inputs,
                self._group.hyper.gate_on,
                mesh=mesh,
                arch=below,
                index=of_below,
            )
        else:
            # From here on each step runs the encoded images up through the layers.
            self._inputs, self._is_recomputed = self._encoded, True
        logging.info(
            "layer %d: %d x inputs on each of %d devices, %s (%.2f GB of %.2f)",
            index + 1,
            self._group.num_local,
            mesh.size,
            "recomputed at every step" if self._is_recomputed else "kept",
            needed / 1e9,
            self._budget / 1e9,
        )

    def examples(self) -> Examples:
        """What the next layer learns from."""
        lower = tuple(self.below) if self._is_recomputed else ()
        return Examples(self._inputs, self._labels, lower)


def _train_layer(
    group: _Group,
    index: int,
    inputs: _Inputs,
    on_epochs: OnEpochs | None,
    look: Look | None,
) -> tuple[LayerState, np.ndarray]:
    training, examples = group.padded[0].training, inputs.examples()
    width = pathway.input_width(group.arch, examples.lower, examples.inputs)
    states, keys = [], []
    for member in group.padded:
        layer_key = jax.random.fold_in(member.key, index)
        init_key, train_key = jax.random.split(layer_key)
        keys.append(train_key)
        states.append(
            program_lib.init_layer(group.arch, index, init_key, width, training)
        )
    key, fresh = group.place(keys), group.place(states)
    program = Program.of(group.arch, index, training, has_lower=bool(examples.lower))
    if group.arch.standardises:
        fresh = measure_members(
            fresh, examples, group.hyper.gate_on, mesh=group.mesh, program=program
        )

    def span(state, losses, first, last):
        return train_members(
            state,
            losses,
            key,
            examples,
            group.hyper,
            first,
            last,
            mesh=group.mesh,
            program=program,
        )

    def report(losses: np.ndarray) -> None:
        sound = np.isfinite(losses).all(axis=-1)
        if on_epochs is not None:
            on_epochs(index, losses[sound if sound.any() else slice(None)].mean(axis=0))

    slots = program_lib.num_slots(training.epochs)
    losses = np.full((len(group.padded), slots), np.nan, np.float32)
    losses = jax.device_put(losses, NamedSharding(group.mesh, PartitionSpec(AXIS)))
    return program_lib.run_epochs(
        span,
        fresh,
        losses,
        training.epochs,
        report if on_epochs else None,
        None if look is None else _stops(group, index, inputs, look),
    )


def _stops(group: _Group, index: int, inputs: _Inputs, look: Look) -> Stops:
    """The looks at a layer in training, on top of the layers below it."""
    arch = dataclasses.replace(group.arch, widths=group.arch.widths[: index + 1])
    images = group.share(look.images)

    def call(epochs: int, state: LayerState) -> None:
        scores = score_members(
            [*inputs.below, state.params],
            [*inputs.states, state.goodness_state],
            images,
            group.hyper.gate_on,
            mesh=group.mesh,
            arch=arch,
        )
        look.call(index, epochs, list(scores[: group.num_members]))

    return Stops(look.every, call)


def _finish(state: LayerState, losses: np.ndarray) -> list[TrainedLayer]:
    """The layer of each member, on the host."""
    params, goodness_state = jax.device_get((state.params, state.goodness_state))
    layers = []
    for row in range(len(losses)):
        own, own_state = jax.tree.map(
            lambda leaf, row=row: leaf[row], (params, goodness_state)
        )
        layers.append(program_lib.finish_layer(own, own_state, losses[row]))
    return layers


@functools.partial(
    jax.jit, static_argnames=("mesh", "program"), donate_argnames=("state", "losses")
)
def train_members(
    state, losses, key, examples, hyper, first, last, *, mesh, program
):  # fmt: skip
    """``train_epochs`` of all members."""
    axes = (0, 0, 0, _axes(program, examples), 0, None, None)
    one = functools.partial(program_lib.train_epochs, program=program)
    arguments = (state, losses, key, examples, hyper, first, last)
    return _over_members(one, axes, mesh)(*arguments)


@functools.partial(jax.jit, static_argnames=("mesh", "program"))
def measure_members(state, examples, gate_on, *, mesh, program):
    """``with_statistics`` of all members."""
    one = functools.partial(program_lib.with_statistics, program=program)
    axes = (0, _axes(program, examples), 0)
    return _over_members(one, axes, mesh)(state, examples, gate_on)


def _axes(program: Program, examples: Examples) -> Any:
    """Which of the examples are a member's own: see ``_over_members``."""
    # Above the first layer, members have inputs of their own unless recomputed.
    own_inputs = 0 if program.index > 0 and not examples.lower else None
    return Examples(own_inputs, None, 0)  # pyright: ignore[reportArgumentType]


@functools.partial(jax.jit, static_argnames=("mesh", "arch", "index"))
def advance_members(params, inputs, gate_on, *, mesh, arch, index):
    """``pathway.advance`` of all members."""
    one = functools.partial(pathway.advance, arch, index)
    own_inputs = 0 if index > 0 else None
    return _over_members(one, (0, own_inputs, 0), mesh)(params, inputs, gate_on)


@functools.partial(jax.jit, static_argnames=("mesh", "arch"))
def score_members(params, goodness_states, images, gate_on, *, mesh, arch):
    """``evaluate.score_images`` of all members."""
    one = functools.partial(evaluate.score_images, arch)
    arguments = (params, goodness_states, images, gate_on)
    return _over_members(one, (0, 0, None, 0), mesh)(*arguments)


def _over_members(
    function: Callable[..., Any], axes: tuple[Any, ...], mesh: Mesh
) -> Callable[..., Any]:
    """A function of one member, vmapped on each device over those that it has.

    Args:
      function: of one member.
      axes: of each argument 0 where each member has its own, None where all share it.
      mesh: the devices.
    """

    def on_device(*arguments):
        sizes = jax.tree.leaves(_where_own(axes, arguments, lambda leaf: leaf.shape[0]))
        if max(sizes) > 1:
            return jax.vmap(function, in_axes=axes)(*arguments)
        # Products of matrices, not of stacks of one, which are slower on a CPU.
        alone = _where_own(axes, arguments, lambda leaf: leaf[0], lambda leaf: leaf)
        return jax.tree.map(lambda leaf: leaf[None], function(*alone))

    if mesh.size == 1:
        return on_device
    return jax.shard_map(
        on_device,
        mesh=mesh,
        in_specs=jax.tree.map(
            lambda axis: PartitionSpec() if axis is None else PartitionSpec(AXIS),
            axes,
            is_leaf=lambda axis: axis is None,
        ),
        out_specs=PartitionSpec(AXIS),
        check_vma=False,  # it does not know all that the layers are made of
    )


def _where_own(axes, arguments, own, shared=lambda leaf: None):
    """Applies ``own`` to what each member has for itself, ``shared`` to the rest."""
    return jax.tree.map(
        lambda axis, tree: jax.tree.map(shared if axis is None else own, tree),
        axes,
        arguments,
        is_leaf=lambda axis: axis is None,
    )
