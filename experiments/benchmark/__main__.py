"""Measures how fast ffjax is, and writes a table, a chart and the numbers.

python -m experiments.benchmark [--size=small|full] [--output=DIR] [--goodness=NAMES]
"""

import dataclasses
import itertools
import os
import pathlib
import sys
import tempfile
import time
from concurrent import futures
from typing import Any

from absl import flags

from experiments.benchmark import cases
from ffjax import cli
from ffjax.errors import UserError


def define_flags(argv: list[str]) -> None:
    """The flags of this command."""
    del argv
    flags.DEFINE_enum(
        "size",
        "small",
        list(cases.SIZES),
        "small: layers of 500, within 2 minutes on 2 cores; full: 4x2000 with 5,000 "
        "images and every goodness function, within an hour; tiny: only a test.",
    )
    flags.DEFINE_string("output", "runs/benchmark", "Folder for the results.")
    flags.DEFINE_list("goodness", [], "The goodness functions [those of the size].")
    flags.DEFINE_integer("rounds", 0, "How often to measure [3].", lower_bound=0)


def main() -> int:
    """Measures everything, shows it and writes it."""
    values = flags.FLAGS
    try:
        import torch  # noqa: F401

        from experiments.benchmark import measure, show
    except ImportError as error:
        raise UserError(
            f"the benchmark needs PyTorch and entmax ({error}): install '.[bench]'"
        ) from None
    size = cases.SIZES[values.size]
    if values.goodness:
        unknown = set(values.goodness) - set(cases.SIZES["full"].goodness)
        if unknown:
            known = ", ".join(cases.SIZES["full"].goodness)
            raise UserError(f"goodness={unknown.pop()!r}: must be one of {known}")
        size = dataclasses.replace(size, goodness=tuple(values.goodness))
    if values.rounds:
        size = dataclasses.replace(size, rounds=values.rounds)
    started = time.perf_counter()
    machine = show.describe_machine()
    found: dict[str, Any] = {
        "size": {"name": values.size, **dataclasses.asdict(size)},
        "machine": machine,
        **measure_all(measure, size),
        **measure_processes(values.size, size.rounds if values.size == "full" else 1),
    }
    found["seconds"] = time.perf_counter() - started
    folder = pathlib.Path(values.output)
    show.write(found, folder)
    show.print_tables(found)
    print(f"\nWritten to {folder}/: benchmark.json, benchmark.md, benchmark.png")
    return 0


def measure_all(measure, size: cases.Size) -> dict[str, list]:
    """All rounds of everything that one process can measure."""
    bench = measure.Bench(size, cases.load_images(size))
    plan = cases.plan(size)
    total = sum(map(len, plan.values()))
    networks = {name: [] for name in plan}
    for name, wanted in plan.items():
        for case in wanted:
            done = sum(map(len, networks.values()))
            _progress(f"preparing {done + 1}/{total}: {_describe(case)}")
            networks[name].append(bench.prepare(case))
    evaluations = [
        {"pathway": p.case.pathway, "goodness": p.case.goodness}
        for p in networks["training"]
    ]
    for turn in range(size.rounds):
        for name, prepared in networks.items():
            for one in prepared:
                _progress(
                    f"round {turn + 1}/{size.rounds}, {name}: {_describe(one.case)}"
                )
                variants = name == "training" and one.case.goodness == "burstiness"
                bench.measure_training(one, turn, variants)
        for pathway in cases.PATHWAYS:
            _progress(f"round {turn + 1}/{size.rounds}, all functions: {pathway}")
            of_pathway = [o for o in networks["training"] if o.case.pathway == pathway]
            bench.measure_together(of_pathway, turn)
        for one, row in zip(networks["training"], evaluations, strict=True):
            _progress(
                f"round {turn + 1}/{size.rounds}, evaluation: {_describe(one.case)}"
            )
            bench.measure_evaluation(one, row, turn)
    found = {
        name: [row for one in prepared for row in one.rows]
        for name, prepared in networks.items()
    }
    found["width"] = [row for row in found["width"] if row["layer"] == 2]
    return {**found, "evaluation": evaluations}


def measure_processes(size: str, rounds: int) -> dict[str, list]:
    """Peak memory and time to the first step, each in processes of its own."""
    from experiments.benchmark import child

    plain = {**os.environ, "JAX_PLATFORMS": "cpu"}
    _progress("memory")
    networks = list(itertools.product(cases.PATHWAYS, ("torch", "ffjax")))
    with futures.ThreadPoolExecutor(2) as pool:  # memory, unlike time, can be shared

        def peaks(network):
            pathway, framework = network
            return child.run("memory", framework, pathway, size, environment=plain)[1]

        memory = [
            {"pathway": pathway, "framework": framework, **found}
            for (pathway, framework), found in zip(
                networks, pool.map(peaks, networks), strict=True
            )
        ]
    starts = {"none": [], "empty": [], "filled by an earlier start": []}
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


def _describe(case: cases.Case) -> str:
    return f"{case.pathway} {case.goodness} {len(case.widths)}x{case.widths[0]}"


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
    else:
        print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    cli.run(main, define_flags)
