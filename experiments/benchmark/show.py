"""From samples to what a reader sees: goals, tables, a chart, and files."""

import importlib.metadata
import io
import json
import os
import pathlib
import platform
import re
import statistics
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import matplotlib
import torch
from rich import box, console, table

from experiments.benchmark import cases
from ffjax import atomic
from ffjax.paper import names

matplotlib.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes

Row = dict[str, Any]  # names, and samples in seconds
Measured = dict[str, Any]  # the content of benchmark.json: rows by part, and settings
Table = tuple[str, list[str], list[list[str]]]  # title, header, rows

TOLERANCE = 1e-3  # of losses and scores: more is not rounding but other work


def describe_machine() -> dict[str, Any]:
    """The processor, the threads of both frameworks, versions, and the load."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    cores = cores or os.cpu_count() or 1
    torch.set_num_threads(cores)
    try:
        about = pathlib.Path("/proc/cpuinfo").read_text()
    except OSError:
        about = ""
    model = re.search(r"model name\s*:\s*(.*)", about)
    packages = ("jax", "jaxlib", "torch", "entmax", "numpy")
    return {
        "processor": model.group(1) if model else platform.processor(),
        "cores": cores,
        "threads": f"{cores} of PyTorch (set), {cores} of XLA (its default)",
        "load_before": os.getloadavg()[0],
        "versions": {name: importlib.metadata.version(name) for name in packages},
    }


# --- Numbers --------------------------------------------------------------------------


def totals(rows: Iterable[Row], name: str) -> list[float]:
    """Seconds an epoch through all layers, one number a round.

    ffjax computes a layer's inputs once for its 60 epochs: a 60th of that is counted.
    """
    columns = []
    for row in rows:
        samples = row[name]
        if name == "ffjax" and "inputs" in row:
            pairs = zip(samples, row["inputs"], strict=True)
            samples = [sample + once / cases.EPOCHS for sample, once in pairs]
        columns.append(samples)
    return [sum(samples) for samples in zip(*columns, strict=True)]


def ratios(above: list[float], below: list[float]) -> list[float]:
    """A ratio for each round: both sides were measured within it."""
    return [a / b for a, b in zip(above, below, strict=True)]


class Goal(NamedTuple):
    """A ratio of two measurements, and what it should be."""

    figure: str
    goal: str  # ">= 2.0"
    above: list[float]  # a sample a round
    below: list[float]


def goals(measured: Measured) -> list[Row]:
    """The goals that this run measured: their value, and whether it is reached."""
    wanted = (
        *_against_torch(measured),
        *_against_sos(measured),
        *_against_bounds(measured),
    )
    # Of a network that this run does not have there are no samples.
    return [_judge(goal) for goal in wanted if goal.above and goal.below]


def _judge(goal: Goal) -> Row:
    samples = ratios(goal.above, goal.below)
    value, limit = statistics.median(samples), float(goal.goal.split()[1])
    return {
        "figure": goal.figure,
        "goal": goal.goal,
        "value": value,
        "least": min(samples),
        "most": max(samples),
        "met": value >= limit if goal.goal.startswith(">=") else value <= limit,
    }


def _against_torch(measured: Measured) -> Iterator[Goal]:
    for pathway, goodness, goal in (
        ("standard", "burstiness", ">= 2.0"),
        ("ffcl", "burstiness", ">= 1.8"),
        ("standard", "entmax", ">= 6"),
        ("ffcl", "entmax", ">= 10"),
    ):
        rows = _where(measured["training"], pathway=pathway, goodness=goodness)
        theirs, ours = totals(rows, "torch"), totals(rows, "ffjax")
        figure = f"{pathway} {goodness}: training, PyTorch / ffjax"
        yield Goal(figure, goal, theirs, ours)
    for pathway in cases.PATHWAYS:
        theirs, ours = (
            _evaluation(measured, pathway, "entmax", name)
            for name in ("torch", "ffjax")
        )
        figure = f"{pathway} entmax: evaluation, PyTorch / ffjax"
        yield Goal(figure, ">= 20", theirs, ours)


def _against_sos(measured: Measured) -> Iterator[Goal]:
    for pathway, goodness, goal in (
        ("standard", "entmax", "<= 1.15"),
        ("ffcl", "entmax", "<= 1.25"),
        ("standard", "topk", "<= 1.05"),
        ("ffcl", "topk", "<= 1.05"),
        ("standard", "burstiness", "<= 1.05"),
        ("ffcl", "burstiness", "<= 1.05"),
    ):
        rows = _where(measured["training"], pathway=pathway)
        ours, base = (
            totals(_where(rows, goodness=name), "together")
            for name in (goodness, "sos")
        )
        yield Goal(f"{pathway}: {goodness} / sos, both ffjax", goal, ours, base)


def _against_bounds(measured: Measured) -> Iterator[Goal]:
    for pathway in cases.PATHWAYS:
        for row in _where(
            measured["training"], pathway=pathway, goodness="burstiness", layer=2
        ):
            figure = f"{pathway} burstiness, layer 2: training / its products alone"
            yield Goal(figure, "<= 1.2", row["ffjax"], row["products"])
    for pathway in cases.PATHWAYS:
        second, fourth = (
            totals(_where(measured["depth"], pathway=pathway, layer=layer), "ffjax")
            for layer in (2, 4)
        )
        figure = f"{pathway} burstiness: layer 4 / layer 2"
        yield Goal(figure, "<= 1.1", fourth, second)
    every, forward = (
        _evaluation(measured, "ffcl", "burstiness", name)
        for name in ("ffjax", "forward")
    )
    figure = "ffcl burstiness: evaluation of all labels / a forward pass"
    yield Goal(figure, "<= 1.6", every, forward)


def _evaluation(
    measured: Measured, pathway: str, goodness: str, name: str
) -> list[float]:
    rows = _where(measured["evaluation"], pathway=pathway, goodness=goodness)
    return rows[0][name] if rows else []


def _where(rows: Iterable[Row], **wanted: Any) -> list[Row]:
    return [row for row in rows if all(row[k] == v for k, v in wanted.items())]


def largest_error(measured: Measured) -> float:
    """The largest relative difference of losses and scores between the frameworks."""
    losses = [
        row["loss_error"]
        for part in ("training", "depth", "width")
        for row in measured[part]
    ]
    scores = [row["score_error"] for row in measured["evaluation"]]
    errors = losses + scores
    return float("nan") if any(e != e for e in errors) else max(errors)


# --- Tables ---------------------------------------------------------------------------


def tables(measured: Measured) -> list[Table]:
    """Everything that was measured, in the order in which to read it."""
    return [
        _goal_table(measured),
        _network_table(measured),
        _layer_table(measured),
        _variant_table(measured),
        _evaluation_table(measured),
        _growth_table(measured, "depth"),
        _growth_table(measured, "width"),
        _memory_table(measured),
        _start_table(measured),
    ]


def _goal_table(measured: Measured) -> Table:
    rows = [
        [
            goal["figure"],
            goal["goal"],
            f"{goal['value']:.2f}",
            f"{goal['least']:.2f} to {goal['most']:.2f}",
            "met" if goal["met"] else "MISSED",
        ]
        for goal in goals(measured)
    ]
    return "Goals", ["figure", "goal", "measured", "rounds", ""], rows


def _network_table(measured: Measured) -> Table:
    rows = []
    for pathway, goodness in _networks(measured["training"]):
        layers = _where(measured["training"], pathway=pathway, goodness=goodness)
        theirs, ours = totals(layers, "torch"), totals(layers, "ffjax")
        bound = totals(layers, "products")
        rows.append(
            [
                pathway,
                goodness,
                _spread(theirs),
                _spread(ours),
                _spread(bound),
                _ratio(theirs, ours),
                _ratio(ours, bound),
            ]
        )
    header = [
        "pathway",
        "goodness",
        "PyTorch",
        "ffjax",
        "products",
        "PyTorch/ffjax",
        "ffjax/products",
    ]
    return "Training: seconds an epoch, all layers", header, rows


def _layer_table(measured: Measured) -> Table:
    rows = [
        [
            row["pathway"],
            row["goodness"],
            str(row["layer"]),
            _spread(row["torch"]),
            _spread(row["ffjax"]),
            _spread(row["products"]),
            _spread(row["inputs"]) if "inputs" in row else "",
            _ratio(row["ffjax"], row["products"]),
            f"{row['compile']:.1f}",
        ]
        for row in measured["training"]
    ]
    header = [
        "pathway",
        "goodness",
        "layer",
        "PyTorch",
        "ffjax",
        "products",
        "inputs, once",
        "ffjax/products",
        "compile",
    ]
    return "Training: seconds an epoch, each layer", header, rows


def _variant_table(measured: Measured) -> Table:
    rows = []
    for row in _where(measured["training"], goodness="burstiness"):
        again = row.get("ffjax_recomputed")
        rows.append(
            [
                row["pathway"],
                str(row["layer"]),
                _spread(row["torch"]),
                _spread(row["torch_fused"]),
                _spread(row["ffjax"]),
                _spread(again) if again else "",
            ]
        )
    header = [
        "pathway",
        "layer",
        "PyTorch",
        "PyTorch, fused Adam",
        "ffjax",
        "ffjax, inputs recomputed",
    ]
    return "Variants of burstiness: seconds an epoch", header, rows


def _evaluation_table(measured: Measured) -> Table:
    count = measured["size"]["num_test_images"]
    rows = []
    for row in measured["evaluation"]:
        theirs, ours = ([count / s for s in row[name]] for name in ("torch", "ffjax"))
        forward = row.get("forward")
        rows.append(
            [
                row["pathway"],
                row["goodness"],
                _spread(theirs),
                _spread(ours),
                _ratio(ours, theirs),
                _ratio(row["ffjax"], forward) if forward else "",
                f"{row['compile']:.1f}",
            ]
        )
    header = [
        "pathway",
        "goodness",
        "PyTorch",
        "ffjax",
        "ffjax/PyTorch",
        "time / forward pass",
        "compile",
    ]
    return f"Evaluation: images a second, of {count}", header, rows


def _growth_table(measured: Measured, part: str) -> Table:
    axis = "layer" if part == "depth" else "width"
    rows = [
        [
            row["pathway"],
            str(row[axis]),
            _spread(row["torch"]),
            _spread(row["ffjax"]),
            _spread(row["products"]),
            _ratio(row["ffjax"], row["products"]),
        ]
        for row in measured[part]
    ]
    title = {
        "depth": "Cost against depth: burstiness, seconds an epoch of each layer",
        "width": "Cost against width: burstiness, seconds an epoch of layer 2",
    }[part]
    header = ["pathway", axis, "PyTorch", "ffjax", "products", "ffjax/products"]
    return title, header, rows


def _memory_table(measured: Measured) -> Table:
    rows = [
        [
            row["pathway"],
            {"torch": "PyTorch", "ffjax": "ffjax"}[row["framework"]],
            f"{row['loaded'] / 1e9:.2f}",
            f"{row['peak'] / 1e9:.2f}",
        ]
        for row in measured["memory"]
    ]
    header = ["pathway", "framework", "before training", "peak"]
    return "Memory of a process, burstiness: GB", header, rows


def _start_table(measured: Measured) -> Table:
    rows = [[row["start"], _spread(row["seconds"])] for row in measured["start"]]
    title = "Start to first step, demo network"
    return title, ["compilation cache", "seconds"], rows


def _networks(rows: Iterable[Row]) -> list[tuple[str, str]]:
    return list(dict.fromkeys((row["pathway"], row["goodness"]) for row in rows))


def _spread(samples: list[float]) -> str:
    """The median, and half of what lies between the extremes."""
    middle = statistics.median(samples)
    digits = 0 if middle >= 100 else 1 if middle >= 20 else 2 if middle >= 0.2 else 3
    if len(samples) == 1:
        return f"{middle:.{digits}f}"
    half = (max(samples) - min(samples)) / 2
    return f"{middle:.{digits}f} ± {half:.{digits}f}"


def _ratio(above: list[float], below: list[float]) -> str:
    return f"{statistics.median(ratios(above, below)):.2f}"


# --- Output ---------------------------------------------------------------------------


def notes(measured: Measured) -> list[str]:
    """What a reader must know about the numbers."""
    machine, size = measured["machine"], measured["size"]
    versions = ", ".join(f"{k} {v}" for k, v in machine["versions"].items())
    error = largest_error(measured)
    verdict = "the same work" if error <= TOLERANCE else "NOT THE SAME WORK"
    lines = [
        f"{machine['processor']}, {machine['cores']} cores; threads: "
        f"{machine['threads']}; {versions}.",
        f"Size {size['name']}: {size['num_layers']}x{size['width']}, GELU, batches of "
        f"{size['batch_size']}, {size['num_images']:,} images an epoch, "
        f"{names.count(size['rounds'], 'round')}, {measured['seconds'] / 60:.1f} "
        "minutes. Medians ± half the range.",
        "PyTorch: the paper's recipe, lower layers recomputed at every step. ffjax: "
        f"with a {cases.EPOCHS}th of the time for its inputs, computed once for "
        f"{cases.EPOCHS} epochs. Products: x W and x' g of the layer alone, in XLA.",
        "Both frameworks start each round from the same weights and see the same "
        f"batches; losses and scores differ by at most {error:.1e}: it is {verdict}.",
    ]
    if size["name"] != "full":
        lines.append("The goals are those of --size=full; here they only show the way.")
    if machine["load_before"] > 0.5:
        lines.append(
            f"The machine was busy (load {machine['load_before']:.1f}) before it "
            "started: do not rely on these times."
        )
    return lines


def print_tables(measured: Measured) -> None:
    """The tables on the terminal, but for the longest; the goals come last."""
    screen = console.Console()
    if not screen.is_terminal:
        screen = console.Console(width=120)  # a log file has no edge
    shown = [t for t in tables(measured) if t[2]]
    long = _layer_table(measured)[0]
    for title, header, rows in [*shown[1:], shown[0]]:
        if title == long and len(rows) > 40:
            continue
        drawn = table.Table(
            title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD
        )
        for column, name in enumerate(header):
            numeric = all(re.match(r"[\d.]|$", row[column]) for row in rows)
            drawn.add_column(name, justify="right" if numeric else "left")
        for row in rows:
            drawn.add_row(*row, style="red" if row[-1] == "MISSED" else None)
        screen.print(drawn)
    for line in notes(measured):
        screen.print(line, highlight=False)


def write(measured: Measured, folder: pathlib.Path) -> None:
    """The numbers as JSON, the tables as Markdown and the chart as PNG."""
    content = json.dumps({**measured, "goals": goals(measured)}, indent=1)
    atomic.write_text(folder / "benchmark.json", content + "\n")
    atomic.write_text(folder / "benchmark.md", _markdown(measured))
    atomic.write_bytes(folder / "benchmark.png", _chart(measured))


def _markdown(measured: Measured) -> str:
    parts = ["# How fast ffjax is", "![chart](benchmark.png)", *notes(measured)]
    for title, header, rows in tables(measured):
        if rows:
            lines = [header, ["---"] * len(header), *rows]
            grid = "\n".join(f"| {' | '.join(line)} |" for line in lines)
            parts.append(f"## {title}\n\n{grid}")
    return "\n\n".join(parts) + "\n"


_COLOURS = {"torch": "#c44e52", "ffjax": "#3b75af", "products": "#9a9a9a"}
_NAMES = {"torch": "PyTorch", "ffjax": "ffjax", "products": "matrix products alone"}


def _chart(measured: Measured) -> bytes:
    bars = 1 + 0.7 * len(measured["size"]["goodness"])  # inches
    figure, axes = plt.subplots(
        2, 2, figsize=(11, bars + 4), height_ratios=[bars, 4], layout="constrained"
    )
    for axis, pathway in zip(axes[0], cases.PATHWAYS, strict=True):
        _draw_networks(axis, measured, pathway)
    for axis, pathway in zip(axes[1], cases.PATHWAYS, strict=True):
        _draw_depth(axis, measured, pathway)
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3, frameon=False)
    scratch = io.BytesIO()
    figure.savefig(scratch, format="png", dpi=150)
    plt.close(figure)
    return scratch.getvalue()


def _draw_networks(axis: Axes, measured: Measured, pathway: str) -> None:
    rows = _where(measured["training"], pathway=pathway)
    functions = [goodness for _, goodness in _networks(rows)]
    for place, name in enumerate(_NAMES):
        samples = [totals(_where(rows, goodness=g), name) for g in functions]
        middles = [statistics.median(s) for s in samples]
        errors = [
            [m - min(s) for m, s in zip(middles, samples, strict=True)],
            [max(s) - m for m, s in zip(middles, samples, strict=True)],
        ]
        positions = [i + (place - 1) * 0.27 for i in range(len(functions))]
        bars = axis.barh(
            positions,
            middles,
            0.25,
            xerr=errors,
            color=_COLOURS[name],
            label=_NAMES[name],
            error_kw={"elinewidth": 0.8, "ecolor": "#333333"},
        )
        texts = [f"{m:.2g}" if m < 1 else f"{m:.1f}" for m in middles]
        axis.bar_label(bars, texts, padding=4, fontsize=8)
    axis.set_yticks(range(len(functions)), functions)
    axis.invert_yaxis()
    axis.margins(x=0.12, y=0.01)
    layers, width = measured["size"]["num_layers"], measured["size"]["width"]
    axis.set_title(f"{pathway}, {layers}x{width}: all layers", loc="left")
    axis.set_xlabel("seconds an epoch")
    axis.spines[["top", "right"]].set_visible(False)


def _draw_depth(axis: Axes, measured: Measured, pathway: str) -> None:
    rows = _where(measured["depth"], pathway=pathway)
    layers = [row["layer"] for row in rows]
    for name in _NAMES:
        middles = [statistics.median(row[name]) for row in rows]
        axis.plot(layers, middles, "o-", color=_COLOURS[name], markersize=4)
    axis.set_ylim(bottom=0)
    axis.set_xticks(layers)
    axis.set_title(f"{pathway} burstiness: each layer", loc="left")
    axis.set_xlabel("layer")
    axis.set_ylabel("seconds an epoch")
    axis.spines[["top", "right"]].set_visible(False)
