"""Measures how fast ffjax is, and writes a table, a chart and the numbers.

python -m experiments.benchmark [--size=small|full] [--output=DIR] [--goodness=NAMES]
    [--rivals=NAMES]
"""

import dataclasses
import itertools
import os
import pathlib
import sys
import tempfile
import time
from concurrent import futures
from typing import TYPE_CHECKING, Any

from absl import flags

from experiments.benchmark import cases
from ffjax import cli
from ffjax.errors import UserError

if TYPE_CHECKING:  # PyTorch may be missing, and --help works without it
    from experiments.benchmark.measure import Bench, Prepared, Row


def define_flags(argv: list[str]) -> None:
    """The flags of this command."""
    del argv
    flags.DEFINE_enum(
        "size",
        "small",
        list(cases.SIZES),
        "small: layers of 500, a few minutes on 2 cores; full: 4x2000 with 5,000 "
        "images and every goodness function, more than an hour; tiny: only a test.",
    )
    flags.DEFINE_string("output", "runs/benchmark", "Folder for the results.")
    flags.DEFINE_list(
        "goodness", [], "The goodness functions, or all [those of the size]."
    )
    flags.DEFINE_list(
        "rivals", ["burstiness"], "The goodness functions, all or none, for which "
        "PyTorch is compiled, in bfloat16, and keeps outputs of lower layers, too.",
    )  # fmt: skip
    flags.DEFINE_integer("rounds", 0, "How often to measure [3].", lower_bound=0)


def main() -> int:
    """Measures everything, shows it and writes it."""
    values = flags.FLAGS
    try:
        from experiments.benchmark import measure, show
    except ImportError as error:
        raise UserError(
            f"the benchmark needs PyTorch and entmax ({error}): install '.[bench]'"
        ) from None
    size = chosen_size(values.size, values.goodness, values.rounds)
    rivals = chosen_functions("rivals", values.rivals)
    started = time.perf_counter()
    machine = show.describe_machine()
    bench = measure.Bench(size, cases.load_images(size))
    busy = show.BusyClock()
    measured: dict[str, Any] = {
        "size": {"name": values.size, **dataclasses.asdict(size)},
        "machine": machine,
        **measure_all(bench, size),
        **measure_rivals(bench, size, rivals),
    }
    machine |= busy.read()  # before processes of our own, which are not this one
    measured |= measure_processes(
        values.size, size.rounds if values.size == "full" else 1
    )
    measured["seconds"] = time.perf_counter() - started
    folder = pathlib.Path(values.output)
    show.write(measured, folder)
    show.print_tables(measured)
    print(f"\nWritten to {folder}/: benchmark.json, benchmark.md, benchmark.png")
    return 0


def chosen_size(name: str, goodness: list[str], rounds: int) -> cases.Size:
    """A size with the functions and rounds that the user asked for."""
    size = cases.SIZES[name]
    return dataclasses.replace(
        size,
        goodness=chosen_functions("goodness", goodness) or size.goodness,
        rounds=rounds or size.rounds,
    )


def chosen_functions(flag: str, names: list[str]) -> tuple[str, ...]:
    """The goodness functions that a flag names."""
    known = cases.SIZES["full"].goodness
    if names == ["all"]:
        return known
    if names == ["none"]:
        return ()
    for function in names:
        if function not in known:
            allowed = ", ".join((*known, "all"))
            raise UserError(f"{flag}={function!r}: must be one of {allowed}")
    return tuple(names)


def measure_rivals(
    bench: "Bench", size: cases.Size, functions: tuple[str, ...]
) -> dict[str, Any]:
    """Every way to train with some functions, in PyTorch and in ffjax."""
    from experiments.benchmark import rivals

    rows: list[Row] = []
    if not functions:
        return {"rivals": rows, "skipped": ""}
    if problem := rivals.compile_problem():
        _progress(problem)
    wanted = rivals.variants(with_compile=not problem)
    for pathway, goodness in itertools.product(cases.PATHWAYS, functions):
        network = bench.prepare(
            cases.Case(pathway, goodness, size.num_layers, size.width)
        )
        rows += rivals.measure_rivals(bench, network, wanted, _progress)
    return {"rivals": rows, "skipped": problem}


def measure_all(bench: "Bench", size: cases.Size) -> dict[str, list["Row"]]:
    """All rounds of everything that a single process can measure."""
    plan = cases.plan(size)
    total = sum(map(len, plan.values()))
    networks: dict[str, list[Prepared]] = {name: [] for name in plan}
    for name, wanted in plan.items():
        for case in wanted:
            done = sum(map(len, networks.values()))
            _progress(f"preparing {done + 1}/{total}: {case}")
            networks[name].append(bench.prepare(case))
    evaluations: list[Row] = [
        {"pathway": network.case.pathway, "goodness": network.case.goodness}
        for network in networks["training"]
    ]
    for turn in range(size.rounds):
        _measure_round(bench, networks, evaluations, turn)
    rows = {
        name: [row for network in prepared for row in network.rows]
        for name, prepared in networks.items()
    }
    rows["width"] = [row for row in rows["width"] if row["layer"] == 2]
    return {**rows, "evaluation": evaluations}


def _measure_round(
    bench: "Bench",
    networks: dict[str, list["Prepared"]],
    evaluations: list["Row"],
    turn: int,
) -> None:
    """A sample of everything; adds to the rows of the networks and to evaluations."""
    about = f"round {turn + 1}/{bench.size.rounds}"
    for name, prepared in networks.items():
        for network in prepared:
            _progress(f"{about}, {name}: {network.case}")
            variants = name == "training" and network.case.goodness == "burstiness"
            bench.measure_training(network, turn, variants)
    trained = networks["training"]
    for pathway in cases.PATHWAYS:
        _progress(f"{about}, all functions: {pathway}")
        bench.measure_together([n for n in trained if n.case.pathway == pathway], turn)
    for network, row in zip(trained, evaluations, strict=True):
        _progress(f"{about}, evaluation: {network.case}")
        bench.measure_evaluation(network, row, turn)


def measure_processes(size: str, rounds: int) -> dict[str, list["Row"]]:
    """Peak memory and time to the first step, each in processes of its own."""
    from experiments.benchmark import child

    plain = {**os.environ, "JAX_PLATFORMS": "cpu"}
    _progress("memory")
    networks = list(itertools.product(cases.PATHWAYS, ("torch", "ffjax")))
    with futures.ThreadPoolExecutor(2) as pool:  # memory, unlike time, can be shared

        def peaks(network: tuple[str, str]) -> dict[str, float]:
            pathway, framework = network
            return child.run("memory", framework, pathway, size, environment=plain)[1]

        memory = [
            {"pathway": pathway, "framework": framework, **peak}
            for (pathway, framework), peak in zip(
                networks, pool.map(peaks, networks), strict=True
            )
        ]
    starts: dict[str, list[float]] = {
        name: [] for name in ("none", "empty", "filled by an earlier start")
    }
    for turn in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            kept = {**plain, "FFJAX_CACHE_DIR": folder}
            without = {**kept, "JAX_ENABLE_COMPILATION_CACHE": "false"}
            for name, environment in zip(starts, (without, kept, kept), strict=True):
                _progress(f"start {turn + 1}/{rounds}: {name}")
                starts[name].append(child.run("start", environment=environment)[0])
    return {
        "memory": memory,
        "start": [{"start": name, "seconds": s} for name, s in starts.items()],
    }


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
    else:
        print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    cli.run(main, define_flags)
