"""The programs that the grid runs, compiled for a GPU that need not be there."""

import dataclasses
import functools
import hashlib
import importlib.metadata
import importlib.util
import itertools
import os
import pathlib
from collections.abc import Sequence
from typing import Any

# jax looks for no driver then, and this process's own arrays are on the CPU.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import ffjax
from configs import grid
from experiments.gpu import read
from ffjax.config import build, make_spec
from ffjax.errors import UserError
from ffjax.model import pathway, product
from ffjax.model.pathway import Architecture
from ffjax.runs import cost
from ffjax.training import networks, program
from ffjax.training.program import Examples, Hyper, Program

_CARDS = pathlib.Path(__file__).parent / "cards"
CARDS = tuple(sorted(path.stem for path in _CARDS.glob("*.textproto")))
NEEDED = ("jax-cuda12-plugin", "nvidia-cuda-nvcc-cu12")

# Kernels cannot be timed, so none is chosen by time.
_OPTIONS: dict[str, Any] = {"xla_gpu_autotune_level": 0}
# A few products with an odd number of rows have no tiles in Triton, which XLA takes
# where it cannot time; with a GPU at hand it would choose cuBLAS for them.
_BY_CUBLAS = {**_OPTIONS, "xla_gpu_enable_triton_gemm": False}
# What decides about the programs; the rest of ffjax may change.
_SOURCES = (
    "config",
    "entmax.py",
    "fusion.py",
    "goodness",
    "halving.py",
    "model",
    "training",
)


@dataclasses.dataclass(frozen=True)
class Case:
    """A program, of the paper's size.

    Attributes:
      kind: "train" a layer, "advance" to its inputs, or "evaluate" a network.
      goodness: the function; "" where the program has none.
      pathway: where the label enters.
      layer: 1 for the first; 0 for all of them.
      precision: of the products' operands.
      members: networks in the program; two of them are with and without the norm gate,
        as the grid pairs them, and more are seeds.
      devices: over which they are spread.
    """

    kind: str
    goodness: str
    pathway: str
    layer: int
    precision: str
    members: int
    devices: int

    @property
    def steps(self) -> int:
        """How many turns the loop has whose body is looked at."""
        shape = _sizes()
        if self.kind == "train":
            return self._training.num_batches(shape.train)
        images = shape.test if self.kind == "evaluate" else shape.train
        return images // pathway.chunk_size(self._architecture)

    @functools.cached_property
    def _spec(self):
        return make_spec(
            goodness=self.goodness or "sos",
            pathway=self.pathway,
            precision=self.precision,
        )

    @functools.cached_property
    def _training(self):
        return build.training(self._spec)

    @functools.cached_property
    def _architecture(self) -> Architecture:
        arch = build.architecture(self._spec, _sizes().classes)
        return dataclasses.replace(arch, norm_gate=None) if self.is_mixed else arch

    @property
    def is_mixed(self) -> bool:
        """Whether one network has a norm gate and the other has none."""
        return self.members == 2

    def lower(self, devices: Sequence[Any]) -> Any:
        """The program before XLA: what is traced, for these devices."""
        mesh = Mesh(np.array(devices[: self.devices]), (networks.AXIS,))
        place = _Placement(mesh, self.members)
        lowered = {
            "train": self._trace_train,
            "advance": self._trace_advance,
            "evaluate": self._trace_evaluate,
        }[self.kind](place)
        return lowered.lower(lowering_platforms=("cuda",))

    def _trace_train(self, place: "_Placement") -> Any:
        arch, index = self._architecture, self.layer - 1
        inputs = self._inputs(place, index)
        init = functools.partial(
            program.init_layer, arch, index, width=inputs.shape[-1],
            training=self._training,
        )  # fmt: skip
        key = jax.eval_shape(jax.random.key, 0)
        losses = jax.ShapeDtypeStruct((self._training.epochs,), jnp.float32)
        labels = place.shared((_sizes().train,), jnp.int32)
        number = place.shared((), jnp.int32)
        return networks.train_members.trace(
            place.own(jax.eval_shape(init, key)),
            place.own(losses),
            place.own(key),
            Examples(inputs, labels),
            place.own(self._hyper()),
            number,
            number,
            mesh=place.mesh,
            program=Program.of(arch, index, self._training, has_lower=False),
        )

    def _trace_advance(self, place: "_Placement") -> Any:
        index = self.layer - 2  # of the layer whose outputs these inputs are
        arch, of_below = pathway.as_program(self._architecture, index)
        inputs = self._inputs(place, index)
        return networks.advance_members.trace(
            place.own(self._params(index, inputs.shape[-1])),
            inputs,
            place.own(self._hyper().gate_on),
            mesh=place.mesh,
            arch=arch,
            index=of_below,
        )

    def _trace_evaluate(self, place: "_Placement") -> Any:
        arch, shape = self._architecture, _sizes()
        widths = [self._inputs(place, 0).shape[-1], *arch.widths]
        params = [self._params(i, widths[i]) for i in range(len(arch.widths))]
        states = [
            jax.eval_shape(functools.partial(arch.goodness.init, width))
            for width in arch.widths
        ]
        return networks.score_members.trace(
            place.own(params),
            place.own(states),
            place.shared((shape.test, shape.inputs), jnp.float32),
            place.own(self._hyper().gate_on),
            mesh=place.mesh,
            arch=arch,
        )

    def _inputs(self, place: "_Placement", index: int) -> Any:
        """The inputs of a layer for the whole training set."""
        arch, shape = self._architecture, _sizes()
        if index == 0:
            images = jax.ShapeDtypeStruct((shape.train, shape.inputs), jnp.float32)
            encoded = jax.eval_shape(
                lambda images: product.pack(pathway.encode(arch, images)), images
            )
            return place.shared(encoded.shape, encoded.dtype)
        labels = (shape.classes,) if arch.carries_label else ()
        kept = (shape.train, *labels, arch.widths[index - 1])
        numbers = jax.ShapeDtypeStruct(kept, product.storage_type(arch.precision))
        return place.own(jax.eval_shape(product.pack, numbers))

    def _params(self, index: int, width: int) -> Any:
        init = functools.partial(
            program.init_layer, self._architecture, index, width=width,
            training=self._training,
        )  # fmt: skip
        return jax.eval_shape(init, jax.eval_shape(jax.random.key, 0)).params

    def _hyper(self) -> Hyper:
        number: Any = jax.ShapeDtypeStruct((), jnp.float32)
        choice: Any = jax.ShapeDtypeStruct((), jnp.bool_)
        return Hyper(number, number, choice if self.is_mixed else None)


class _Placement:
    """Shapes in place of arrays, on devices that are only compiled for."""

    def __init__(self, mesh: Mesh, members: int):
        self.mesh = mesh
        self._members = members

    def own(self, tree: Any) -> Any:
        """What each member has, stacked and spread over the devices."""
        sharding = NamedSharding(self.mesh, PartitionSpec(networks.AXIS))
        return jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(
                (self._members, *leaf.shape), leaf.dtype, sharding=sharding
            ),
            tree,
        )

    def shared(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """What all members read."""
        sharding = NamedSharding(self.mesh, PartitionSpec())
        return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)


@functools.cache
def _sizes() -> cost.Sizes:
    """Fashion-MNIST's."""
    return cost.sizes(make_spec())


def all_cases(**pins: Sequence[Any]) -> list[Case]:
    """Every kind of program of the grid, the most telling first.

    Args:
      **pins: fields of ``Case`` with the values to keep; programs without a goodness
        function or a layer of their own serve all of them, and stay.
    """
    pathways, names = ("standard", "ffcl"), grid.GOODNESS
    spread = [(1, 1), (5, 1), (2, 1), (8, 8)]
    cases: dict[Case, None] = {}

    def add(
        kind: str,
        functions: Sequence[str],
        layers: Sequence[int],
        precision: str,
        group: tuple[int, int],
    ) -> None:
        for layer, way, function in itertools.product(layers, pathways, functions):
            members, devices = group
            case = Case(kind, function, way, layer, precision, members, devices)
            cases[case] = None

    for group, precision in itertools.product(spread, ("float32", "bfloat16")):
        add("train", names, (2,), precision, group)
        add("advance", ("",), (2, 3), precision, group)
        add("evaluate", names, (0,), precision, group)
        add("train", names, (1,), precision, group)
    return [
        case
        for case in cases
        if all(
            getattr(case, name) in (*kept, "", 0) for name, kept in pins.items() if kept
        )
    ]


@functools.cache
def topology(card: str, num_devices: int) -> Any:
    """Devices of a card that are only compiled for."""
    if importlib.util.find_spec("jax_cuda12_plugin") is None:
        raise UserError(
            f"experiments.gpu needs {' and '.join(NEEDED)}: install '.[gpu-check]'"
        )
    return topologies.get_topology_desc(
        platform="cuda",
        target_config=(_CARDS / f"{card}.textproto").read_text(),
        topology=f"1x1x{num_devices}",
    )


def is_installed() -> bool:
    """Whether this environment can compile for a GPU."""
    return importlib.util.find_spec("jax_cuda12_plugin") is not None


def lower(case: Case, card: str) -> Any:
    """A case's program for a card, before XLA."""
    return case.lower(topology(card, case.devices).devices)


def digest(lowered: Any, card: str) -> str:
    """A short name for a program and for all else that makes its row."""
    parts = [lowered.as_text(), card, importlib.metadata.version("jax")]
    parts += [pathlib.Path(read.__file__).read_text()]
    return hashlib.sha256("".join(parts).encode()).hexdigest()[:16]


@functools.cache
def source() -> str:
    """A short name for the code that the programs are made of."""
    root = pathlib.Path(ffjax.__file__).parent
    files = [
        file
        for name in _SOURCES
        for file in (
            [root / name] if "." in name else sorted(root.glob(f"{name}/*.py"))
        )
    ]
    files += [pathlib.Path(__file__), pathlib.Path(read.__file__)]
    content = b"".join(file.read_bytes() for file in files)
    return hashlib.sha256(content).hexdigest()[:16]


def describe(case: Case, card: str, lowered: Any) -> dict[str, Any]:
    """A row of the table: the program compiled, and what it says."""
    try:
        compiled, library = lowered.compile(compiler_options=_OPTIONS), "triton"
    except jax.errors.JaxRuntimeError as error:
        if "tile sizes" not in str(error):
            raise
        compiled, library = lowered.compile(compiler_options=_BY_CUBLAS), "cublas"
    memory = compiled.memory_analysis()
    module = read.Module(compiled.as_text())
    facts = module.facts(module.loop(case.steps))
    if case.kind != "train":  # nothing of these may wait, inside the loop or not
        unknown = module.facts(module.entry).unknown_loops
        facts = dataclasses.replace(facts, unknown_loops=unknown)
    return {
        **dataclasses.asdict(case),
        **dataclasses.asdict(facts),
        "steps": case.steps,
        "library": library,
        "temp_bytes": memory.temp_size_in_bytes,
        "argument_bytes": memory.argument_size_in_bytes,
        "output_bytes": memory.output_size_in_bytes - memory.alias_size_in_bytes,
        "card": card,
        "jax": importlib.metadata.version("jax"),
        "source": source(),
        "program": digest(lowered, card),
    }
