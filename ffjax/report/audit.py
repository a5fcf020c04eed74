"""Judges claims: comparisons on our cells and, by the same test, on the paper's tables.

A claim makes comparisons; the verdict follows from them and is never typed. A single
counterexample refutes a claim. It holds only when all of its comparisons were made;
until then the verdict says how many were. A difference that is no larger than the
spread of the seeds decides nothing. Times count only where a run had the machine to
itself. Nothing here imports jax.
"""

import dataclasses
import functools
import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence

from ffjax.paper import names, numbers
from ffjax.records import Record
from ffjax.report import cells as cells_lib
from ffjax.report.cells import Cell, Setting

HOLDS = "holds"
FAILS = "does not hold"
UNDECIDED = "undecided"
PARTLY = "no counterexample"
OPEN = "not judged"

AGAINST = " ✗"  # ends a comparison that speaks against the claim
CLOSE = " ≈"  # ends a comparison that the spread of the seeds leaves undecided

FULL, SMALL = "4x2000", "2x500"
SMOOTH = ("gelu", "swish")


@dataclasses.dataclass(frozen=True)
class Method:
    """What a claim compares: the best cell of a method.

    Attributes:
      pathway: of the label.
      goodness: function.
      activations: the best of these.
      gate: the norm gate; None for the better of on and off.
      parameter: of the goodness function; None for the paper's default.
    """

    pathway: str
    goodness: str
    activations: tuple[str, ...] = SMOOTH
    gate: bool | None = None
    parameter: float | None = None

    @property
    def text(self) -> str:
        """How it is printed; several activations are left out."""
        single = self.activations[0] if len(self.activations) == 1 else ""
        text = names.phrase(self.pathway, self.goodness, single)
        if self.parameter is not None:
            name = numbers.DEFAULTS[self.goodness][0]
            text += f", {names.parameter(name, self.parameter)}"
        if self.gate:
            text += ", norm gate"
        return text

    def matches(self, cell: Cell) -> bool:
        """Whether a cell of its pathway and goodness function is one of its cells."""
        spec = cell.spec
        return (
            spec.activation in self.activations
            and self.gate in (None, spec.norm_gate)
            and not spec.goodness_params  # the paper has no other parameters
            and self._has_parameter(cell)
        )

    def _has_parameter(self, cell: Cell) -> bool:
        if self.goodness not in numbers.DEFAULTS:
            return True
        default = numbers.DEFAULTS[self.goodness][1]
        wanted = default if self.parameter is None else self.parameter
        return numbers.close(float(wanted), parameter_of(cell))


def parameter_of(cell: Cell) -> float:
    """The parameter of a goodness function that has one."""
    name, default = numbers.DEFAULTS[cell.spec.goodness]
    given = getattr(cell.spec, name)
    return float(default if given is None else given)


@dataclasses.dataclass(frozen=True)
class Value:
    """A number and its spread over the seeds; None for a single seed."""

    number: float
    spread: float | None = None

    def __sub__(self, other: "Value") -> "Value":
        """The difference, with the spread of both."""
        return Value(self.number - other.number, _joint(self.spread, other.spread))

    def over(self, other: "Value") -> "Value":
        """The quotient, with its spread to first order."""
        ratio = self.number / other.number
        relative = [
            None if value.spread is None else value.spread / value.number
            for value in (self, other)
        ]
        joint = _joint(*relative)
        return Value(ratio, None if joint is None else ratio * joint)


def _joint(first: float | None, second: float | None) -> float | None:
    """The spread of a difference; a single seed is taken to spread like the other."""
    known = [spread for spread in (first, second) if spread is not None]
    if not known:
        return None
    return math.hypot(known[0], known[-1])


def value_of(cell: Cell) -> Value:
    """The accuracy of a cell."""
    return Value(cell.mean, cell.std)


class Scope:
    """The cells that claims are judged on.

    Args:
      cells: the cells.
      dataset: judge on this dataset in place of those that a claim names.
      size: the size that stands for the paper's 4x2000.
      seeded: the cells for claims about seeds; the same as ``cells`` unless given.
    """

    def __init__(
        self,
        cells: Iterable[Cell],
        *,
        dataset: str | None = None,
        size: str = FULL,
        seeded: Iterable[Cell] | None = None,
    ):
        """Indexes the cells."""
        self.dataset = dataset
        self.size = size
        self._index = _indexed(cells)
        self._seeded = self._index if seeded is None else _indexed(seeded)

    @property
    def is_paper(self) -> bool:
        """Whether claims are judged on the datasets that they name."""
        return self.dataset is None

    def datasets(self, *wanted: str) -> tuple[str, ...]:
        """The datasets to judge on: those wanted, or the scope's own."""
        return wanted if self.dataset is None else (self.dataset,)

    def sizes(self, dataset: str) -> tuple[str, str]:
        """The smaller and the larger network; twice the same if there is no other."""
        if self.dataset is None:
            return SMALL, FULL
        known = {size for where, size, *_ in self._index if where == dataset}
        return min([*known, self.size], key=_units), self.size

    def best(
        self,
        method: Method,
        dataset: str,
        *,
        size: str | None = None,
        seeded: bool = False,
    ) -> Cell | None:
        """The best cell of a method."""
        index = self._seeded if seeded else self._index
        key = (dataset, size or self.size, method.pathway, method.goodness)
        return cells_lib.best(filter(method.matches, index.get(key, ())))

    def sweep(self, pathway: str, goodness: str, dataset: str) -> dict[float, Cell]:
        """Cells with GELU and without norm gate, by the function's parameter."""
        points: dict[float, Cell] = {}
        for cell in self._index.get((dataset, self.size, pathway, goodness), ()):
            if cell.spec.activation == "gelu" and not cell.spec.norm_gate:
                points.setdefault(round(parameter_of(cell), 6), cell)
        return dict(sorted(points.items()))


_Key = tuple[str, str, str, str]


def _indexed(cells: Iterable[Cell]) -> dict[_Key, list[Cell]]:
    index: dict[_Key, list[Cell]] = {}
    for cell in cells:
        spec = cell.spec
        key = (spec.dataset, spec.size, spec.pathway, spec.goodness)
        index.setdefault(key, []).append(cell)
    return index


def _units(size: str) -> int:
    """Of all layers: of 4x2000 as of 2000-2000-2000-2000."""
    layers, _, width = size.partition("x")
    return int(layers) * int(width) if width else sum(map(int, size.split("-")))


@dataclasses.dataclass(frozen=True)
class _Line:
    """A comparison that was made, and how close it was."""

    text: str
    passed: bool | None  # None: undecided
    margin: float
    quiet: bool = False  # not shown if it passed

    @property
    def marked(self) -> str:
        if self.passed is None:
            return self.text + CLOSE
        return self.text if self.passed else self.text + AGAINST


class Finding:
    """What a claim came to: its comparisons and what it lacked."""

    def __init__(self, scope: Scope, *, names_datasets: bool = False):
        """Starts with nothing; its lines name their dataset if there are several."""
        self._scope = scope
        self._names_datasets = names_datasets
        self._lines: list[_Line] = []
        self._remarks: list[str] = []
        self._num_missing = 0
        self._has_single_seed = False
        self.missing: list[str] = []
        self.reason = ""

    def test(self, passed: bool, text: str, margin: float = 0.0) -> None:
        """A comparison that needs no spread."""
        self._lines.append(_Line(text, passed, margin))

    def within(
        self, value: Value, low: float, high: float, text: str, *, quiet: bool = False
    ) -> None:
        """Whether a value is between two bounds, clear of both by its spread.

        Args:
          value: what is compared.
          low: a bound.
          high: a bound.
          text: what the reader sees.
          quiet: whether the reader sees it only if it did not pass.
        """
        margin = min(value.number - low, high - value.number)
        passed = margin > 0
        if value.spread is None:
            self._has_single_seed = True
        elif abs(margin) <= value.spread:
            passed = None
        self._lines.append(_Line(text, passed, margin, quiet))

    def compare(
        self,
        first: Method,
        second: Method,
        dataset: str,
        *,
        low: float = 0.0,
        high: float = math.inf,
        sizes: tuple[str, str] | None = None,
    ) -> None:
        """Whether first minus second is between two bounds, in percentage points.

        Args:
          first: a method.
          second: another, or the same at another size.
          dataset: on which they are compared.
          low: a bound.
          high: a bound.
          sizes: of the two networks; the scope's unless given.
        """
        a, b = (
            self._scope.best(method, dataset, size=size)
            for method, size in zip((first, second), sizes or (None, None), strict=True)
        )
        one, other = first.text, second.text
        if sizes:
            one, other = f"{one} {sizes[0]}", f"{other} {sizes[1]}"
        if a is None or b is None:
            lacking = [*([one] if a is None else []), *([other] if b is None else [])]
            self.miss(self.at(dataset, " and ".join(lacking)))
            return
        gap = value_of(a) - value_of(b)
        text = f"{one} {a.text}, {other} {b.text} ({gap.number:+.2f} pp)"
        self.within(gap, low, high, self.at(dataset, text))

    def bound(
        self, method: Method, dataset: str, low: float, high: float, extra: str = ""
    ) -> None:
        """Whether the accuracy of a method is between two bounds."""
        cell = self._scope.best(method, dataset)
        if cell is None:
            self.miss(self.at(dataset, method.text))
            return
        text = f"{method.text} {cell.text}{extra}"
        self.within(value_of(cell), low, high, self.at(dataset, text))

    def compare_times(
        self, first: Method, second: Method, dataset: str, low: float, high: float
    ) -> None:
        """Whether the training times have a ratio between two bounds."""
        cells = [self._scope.best(method, dataset) for method in (first, second)]
        pair = self.at(dataset, f"{first.text} and {second.text}")
        a, b = cells
        if a is None or b is None or not (a.runs and b.runs):
            self.miss(f"the times of {pair}")
            return
        times = timed_alike(a, b)
        if times is None:
            self.miss(f"comparable times of {pair}")
            self.reason = (
                "no times of runs that had the same machine to themselves for long "
                "enough"
            )
            return
        ratio = times[0].over(times[1])
        text = f"{first.text} takes {ratio.number:.2f} times as long as {second.text}"
        self.within(ratio, low, high, self.at(dataset, text))

    def at(self, dataset: str, text: str) -> str:
        """A text with its dataset, where a claim speaks of several."""
        return f"{names.label(dataset)}: {text}" if self._names_datasets else text

    def miss(self, text: str, count: int = 1) -> None:
        """Comparisons that could not be made, and what they lack."""
        self.missing.append(text)
        self._num_missing += count

    def remark(self, text: str) -> None:
        """Something to show that decides nothing."""
        self._remarks.append(text)

    @property
    def numbers(self) -> list[str]:
        """What speaks against the claim, remarks, then the rest, closest first."""
        order = {False: 0, None: 1, True: 2}
        lines = [line for line in self._lines if not (line.quiet and line.passed)]
        lines.sort(key=lambda line: (order[line.passed], line.margin))
        texts = [line.marked for line in lines]
        first = sum(not line.passed for line in lines)
        return [*texts[:first], *self._remarks, *texts[first:]]

    @property
    def kind(self) -> str:
        """HOLDS, FAILS, UNDECIDED, PARTLY or OPEN."""
        outcomes = {line.passed for line in self._lines}
        if False in outcomes:
            return FAILS
        if None in outcomes:
            return UNDECIDED
        if not outcomes:
            return OPEN
        return PARTLY if self._num_missing else HOLDS

    @property
    def text(self) -> str:
        """The verdict in words."""
        made = len(self._lines)
        wanted = made + self._num_missing
        if self.kind == OPEN:
            return f"{OPEN}: {self.reason or 'not enough cells run'}"
        text = self.kind
        if self.kind == PARTLY:
            text = f"{PARTLY} in {made} of {names.count(wanted, 'comparison')}"
        if self.kind == UNDECIDED:
            close = sum(line.passed is None for line in self._lines)
            among = f"{close} of {made} comparisons " if made > 1 else ""
            text = f"{UNDECIDED}: {among}within the spread of the seeds"
        return f"{text}, one seed" if self._has_single_seed else text


def timed_alike(first: Cell, second: Cell) -> tuple[Value, Value] | None:
    """Training times of runs that can be compared, or None if there are none."""
    for key in sorted({_time_key(run) for run in first.runs if run.is_timed}):
        values = []
        for cell in (first, second):
            times = [
                run.time.train_s
                for run in cell.runs
                if run.is_timed and _time_key(run) == key
            ]
            if times:
                spread = statistics.stdev(times) if len(times) > 1 else None
                values.append(Value(statistics.fmean(times), spread))
        if len(values) == 2:
            return values[0], values[1]
    return None


def _time_key(run: Record) -> tuple[str, int]:
    """Runs of a group share its time, so groups of other sizes are no match."""
    return run.device, run.group_size


Check = Callable[[Scope, Finding], None]


@dataclasses.dataclass(frozen=True)
class Claim:
    """A claim of the paper.

    Attributes:
      id: a short name.
      text: what the paper claims, in our words.
      where: the paper's section or table.
      check: makes its comparisons.
      datasets: those that the paper speaks of.
      sizes: of the paper's networks.
      note: what to know when reading the verdict.
      only_paper: whether it speaks of accuracies or datasets that others lack.
    """

    id: str
    text: str
    where: str
    check: Check
    datasets: tuple[str, ...] = ("fashion_mnist",)
    sizes: tuple[str, ...] = (FULL,)
    note: str = ""
    only_paper: bool = False


@dataclasses.dataclass(frozen=True)
class Verdict:
    """A claim, judged.

    Attributes:
      claim: what was judged.
      kind: HOLDS, FAILS, UNDECIDED, PARTLY or OPEN.
      text: the same in words, with how many comparisons and seeds it rests on.
      numbers: our comparisons.
      missing: what was not there to compare.
      paper_kind: what the same test says of the paper's own tables.
      paper_text: the same in words.
      paper_numbers: the comparisons in the paper's own tables.
      paper_run: what these are of, if not of the same setting.
    """

    claim: Claim
    kind: str
    text: str
    numbers: tuple[str, ...]
    missing: tuple[str, ...]
    paper_kind: str
    paper_text: str
    paper_numbers: tuple[str, ...]
    paper_run: str = ""


def judge(claim: Claim, scope: Scope) -> Finding:
    """Makes the comparisons of a claim."""
    datasets = scope.datasets(*claim.datasets)
    finding = Finding(scope, names_datasets=len(datasets) > 1)
    claim.check(scope, finding)
    return finding


def verdicts(claims: Iterable[Claim], scope: Scope) -> list[Verdict]:
    """Judges claims on a scope, and on the paper's own tables."""
    return [_verdict(claim, scope) for claim in claims]


def _verdict(claim: Claim, scope: Scope) -> Verdict:
    ours, papers = judge(claim, scope), _judge_paper(claim)
    where = " and ".join(names.label(dataset) for dataset in claim.datasets)
    run = f"{where}, {' and '.join(claim.sizes)}, 60 epochs"
    return Verdict(
        claim=claim,
        kind=ours.kind,
        text=ours.text,
        numbers=tuple(ours.numbers),
        missing=tuple(ours.missing),
        paper_kind=papers.kind,
        paper_text=papers.text,
        paper_numbers=tuple(papers.numbers),
        paper_run="" if scope.is_paper else run,
    )


@functools.cache
def _judge_paper(claim: Claim) -> Finding:
    return judge(claim, paper_scope())


def at_paper_settings(claims: Sequence[Claim], cells: Iterable[Cell]) -> list[Verdict]:
    """Every claim, judged on the cells at the paper's own settings."""
    own = [cell for cell in cells if numbers.at_settings(cell.spec)]
    return verdicts(claims, Scope(own))


def at_other_settings(
    claims: Sequence[Claim], cells: Iterable[Cell]
) -> dict[Setting, list[Verdict]]:
    """The claims that can be judged at each other setting."""
    groups = cells_lib.by_setting(cells)
    # Another size may be compared with this, if nothing else differs.
    pools: dict[Setting, list[Cell]] = {}
    for setting, members in groups.items():
        pools.setdefault(_without_size(setting), []).extend(members)
    general = [claim for claim in claims if not claim.only_paper]
    audits = {}
    for setting in groups:
        if setting.is_paper:
            continue
        pool = pools[_without_size(setting)]
        scope = Scope(pool, dataset=setting.spec.dataset, size=setting.spec.size)
        judged = [v for v in verdicts(general, scope) if v.kind != OPEN]
        if judged:
            audits[setting] = judged
    return audits


def _without_size(setting: Setting) -> Setting:
    return Setting(dataclasses.replace(setting.spec, num_layers=1, width=1, widths=()))


@functools.cache
def paper_scope() -> Scope:
    """The paper's own tables as cells."""
    single: dict[numbers.Row, Cell] = {}
    seeded = []
    # A sweep takes what was run without the gate before the better of both.
    for row in sorted(
        _printed_runs(), key=lambda row: (row.norm_gate is None, _trust(row))
    ):
        cell = Cell(
            id="paper",
            spec=cells_lib.spec_of(row),
            seeds=row.seeds,
            accuracies=(row.accuracy,),
            std=row.std,
        )
        if row.std is not None:
            seeded.append(cell)
        else:
            key = dataclasses.replace(row, table="", accuracy=0.0, note="")
            single.setdefault(key, cell)
    return Scope(single.values(), seeded=seeded)


def _trust(row: numbers.Row) -> int:
    return numbers.trust(row.table)


def _printed_runs() -> Iterator[numbers.Row]:
    return (row for row in numbers.rows() if row.activation != "best")
