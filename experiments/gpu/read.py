"""Facts of a compiled program: XLA's schedule for a GPU, in which a line is a launch.

Loops that XLA knows the length of carry ``known_trip_count`` and are launched ahead. At
every turn of any other loop the GPU waits for the host, and so it does at a branch.
"""

import dataclasses
import math
import re
from collections.abc import Iterator

# What is no kernel: names for memory that is there already.
_FREE = {
    "after-all",
    "bitcast",
    "call",
    "conditional",
    "constant",
    "copy-done",
    "get-tuple-element",
    "opt-barrier",
    "parameter",
    "tuple",
    "while",
}
_SLICES = {"dynamic-slice", "gather", "slice"}
_UPDATE = "dynamic-update-slice"
_THROUGH = {"bitcast", "copy", "reshape", "transpose"}

_LINE = re.compile(
    r"^  (?:ROOT )?%([\w.\-]+) = (.+?) ([a-z][\w\-]*)\((.*?)\)(?:, (.*))?$"
)
_HEAD = re.compile(r"^(ENTRY )?%([\w.\-]+) .*\{$")
_CALLED = re.compile(r"(?:calls|to_apply|body|true_computation)=%([\w.\-]+)")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_ARRAY = re.compile(r"\b(pred|[a-z]+(\d+)\w*)\[([\d,]*)\]")


@dataclasses.dataclass(frozen=True)
class Instruction:
    """A line of the program."""

    name: str
    shape: str
    opcode: str
    operands: tuple[str, ...]
    rest: str

    @property
    def is_launch(self) -> bool:
        """Whether the host starts a kernel or a copy for it."""
        return self.opcode not in _FREE

    @property
    def called(self) -> str | None:
        """The computation that it runs, if there is one."""
        match = _CALLED.search(self.rest)
        return match.group(1) if match else None

    @property
    def trips(self) -> int | None:
        """The turns of a loop, if XLA knows them."""
        match = _TRIPS.search(self.rest)
        return int(match.group(1)) if match else None


@dataclasses.dataclass(frozen=True)
class Facts:
    """What a part of a program costs, as far as its text says.

    Attributes:
      launches: kernels and copies, those of inner loops times their turns.
      loops: turns and launches a turn of each inner loop of known length.
      unknown_loops: inner loops of unknown length, and branches.
      sorts: how many there are.
      moved_bytes: read and written by the launches, caches not counted.
      products: shapes and precision of the matrix products, inner loops' too.
    """

    launches: int
    loops: tuple[tuple[int, int], ...]
    unknown_loops: int
    sorts: int
    moved_bytes: int
    products: tuple[str, ...]


class Module:
    """A compiled program, from ``compiled.as_text()``."""

    def __init__(self, text: str):
        self._computations: dict[str, list[Instruction]] = {}
        current: list[Instruction] = []
        for line in text.splitlines():
            head, instruction = _HEAD.match(line), _LINE.match(line)
            if head:
                current = self._computations.setdefault(head.group(2), [])
                if head.group(1):
                    self.entry = head.group(2)
            elif instruction:
                name, shape, opcode, operands, rest = instruction.groups()
                names = tuple(re.findall(r"%([\w.\-]+)", operands))
                current.append(Instruction(name, shape, opcode, names, rest or ""))

    def loop(self, trips: int) -> str:
        """The body of the only loop with so many turns."""
        bodies = {
            line.called
            for lines in self._computations.values()
            for line in lines
            if line.opcode == "while" and line.trips == trips
        }
        if len(bodies) != 1:
            raise ValueError(f"{len(bodies)} loops of {trips} turns, must be 1")
        return str(bodies.pop())

    def facts(self, computation: str) -> Facts:
        """What one pass through a computation costs."""
        launches = unknown = sorts = moved = 0
        loops: list[tuple[int, int]] = []
        products: list[str] = []
        for line in self._computations[computation]:
            products += self._products(line)
            sorts += self._sorts(line)
            if line.is_launch:
                launches += 1
                moved += self._moved_bytes(line, computation)
            elif line.opcode in ("while", "conditional", "call") and line.called:
                inner = self.facts(line.called)
                turns = (line.trips or 1) if line.opcode == "while" else 1
                is_known = line.opcode == "call" or line.trips is not None
                unknown += inner.unknown_loops + (not is_known)
                launches += turns * inner.launches
                moved += turns * inner.moved_bytes
                sorts += inner.sorts
                products += inner.products
                if line.trips:
                    loops.append((turns, inner.launches))
                loops += inner.loops
        return Facts(launches, tuple(loops), unknown, sorts, moved, tuple(products))

    def _inside(self, line: Instruction) -> Iterator[Instruction]:
        """The instructions that a kernel is made of, itself if it is not fused."""
        if line.opcode != "fusion" or line.called is None:
            yield line
            return
        for inner in self._computations[line.called]:
            yield from self._inside(inner)

    def _sorts(self, line: Instruction) -> int:
        if not line.is_launch:
            return 0
        is_sort = re.compile(r"Sort|TopK").search
        return sum(
            inner.opcode in ("sort", "topk")
            or (inner.opcode == "custom-call" and is_sort(inner.rest) is not None)
            for inner in self._inside(line)
        )

    def _products(self, line: Instruction) -> list[str]:
        if not line.is_launch:
            return []
        return [
            f"{_first_array(inner.shape)} {_precision(inner.rest)}"
            for inner in self._inside(line)
            if inner.opcode == "dot" or "$gemm" in inner.rest or "$lt" in inner.rest
        ]

    def _moved_bytes(self, line: Instruction, computation: str) -> int:
        """Bytes read and written by a launch."""
        if line.opcode != "fusion" or line.called is None:
            types = {own.name: own.shape for own in self._computations[computation]}
            shapes = [line.shape, *(types.get(name, "") for name in line.operands)]
            return sum(map(_num_bytes, shapes))
        inside = self._computations[line.called]
        updates = [own.operands[1] for own in inside if own.opcode == _UPDATE]
        if updates:  # in place: the new part is read and written, and nothing else
            return 2 * sum(
                _num_bytes(own.shape) for own in inside if own.name in updates
            )
        sources = [own for own in inside if own.opcode == "parameter"]
        return _num_bytes(line.shape) + sum(_read_bytes(own, inside) for own in sources)


def _read_bytes(source: Instruction, inside: list[Instruction]) -> int:
    """Bytes of an operand that a fused kernel reads: of slices only what they take."""
    whole, parts = _num_bytes(source.shape), 0
    for user in inside:
        if source.name not in user.operands:
            continue
        if user.opcode in _THROUGH:
            parts += _read_bytes(user, inside)
        elif user.opcode in _SLICES and user.operands[0] == source.name:
            parts += _num_bytes(user.shape)
        else:
            return whole
    return min(parts, whole)


def _num_bytes(shape: str) -> int:
    """The bytes of an array or of a tuple of arrays."""
    total = 0.0
    for kind, bits, dims in _ARRAY.findall(shape):
        size = 1 if kind == "pred" else int(bits) / 8
        total += size * math.prod(int(dim) for dim in dims.split(",") if dim)
    return int(total)


def _first_array(shape: str) -> str:
    match = _ARRAY.search(shape)
    return match.group(0) if match else shape


def _precision(rest: str) -> str:
    """How a product's operands are rounded: "highest" is not at all."""
    algorithm = re.search(r"algorithm=(\w+)", rest) or re.search(
        r'"algorithm":"ALG_(DOT\w+)"', rest
    )
    if algorithm:
        return algorithm.group(1).lower()
    highest = re.search(r"operand_precision=\{highest,highest\}", rest) or re.search(
        r'"operand_precision":\["HIGHEST","HIGHEST"\]', rest
    )
    return "highest" if highest else "default"
