"""From samples to what a reader sees: goals, tables, a chart, and files."""

import importlib.metadata
import io
import json
import os
import pathlib
import platform
import re
import statistics
from collections.abc import Iterable
from typing import Any

import matplotlib
import torch
from rich import box, console, table

from experiments.benchmark import cases
from ffjax import atomic

matplotlib.use("Agg")

from matplotlib import pyplot as plt

Row = dict[str, Any]
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
    """One ratio a round: both sides were measured within the same one."""
    return [a / b for a, b in zip(above, below, strict=True)]


def goals(found: dict[str, Any]) -> list[Row]:
    """The goals that this run measured: their value, and whether it is reached."""

    def total(pathway: str, goodness: str, name: str) -> list[float]:
        rows = _where(found["training"], pathway=pathway, goodness=goodness)
        return totals(rows, name)

    def depth(pathway: str, layer: int) -> list[float]:
        return totals(_where(found["depth"], pathway=pathway, layer=layer), "ffjax")

    def evaluation(pathway: str, goodness: str, name: str) -> list[float]:
        rows = _where(found["evaluation"], pathway=pathway, goodness=goodness)
        return rows[0][name] if rows else []

    result = []

    def add(figure: str, goal: str, above: list[float], below: list[float]) -> None:
        if not above or not below:
            return  # of a network that this run does not have
        samples = ratios(above, below)
        value, limit = statistics.median(samples), float(goal.split()[1])
        result.append(
            {
                "figure": figure,
                "goal": goal,
                "value": value,
                "least": min(samples),
                "most": max(samples),
                "met": value >= limit if goal.startswith(">=") else value <= limit,
            }
        )

    for pathway, goodness, goal in (
        ("standard", "burstiness", ">= 2.0"),
        ("ffcl", "burstiness", ">= 1.8"),
        ("standard", "entmax", ">= 6"),
        ("ffcl", "entmax", ">= 10"),
    ):
        theirs, ours = (total(pathway, goodness, name) for name in ("torch", "ffjax"))
        add(f"{pathway} {goodness}: training, PyTorch / ffjax", goal, theirs, ours)
    for pathway in cases.PATHWAYS:
        theirs, ours = (evaluation(pathway, "entmax", n) for n in ("torch", "ffjax"))
        add(f"{pathway} entmax: evaluation, PyTorch / ffjax", ">= 20", theirs, ours)
    for pathway, goodness, goal in (
        ("standard", "entmax", "<= 1.15"),
        ("ffcl", "entmax", "<= 1.25"),
        ("standard", "topk", "<= 1.05"),
        ("ffcl", "topk", "<= 1.05"),
        ("standard", "burstiness", "<= 1.05"),
        ("ffcl", "burstiness", "<= 1.05"),
    ):
        ours, base = (total(pathway, name, "together") for name in (goodness, "sos"))
        add(f"{pathway}: {goodness} / sos, both ffjax", goal, ours, base)
    for pathway in cases.PATHWAYS:
        rows = _where(
            found["training"], pathway=pathway, goodness="burstiness", layer=2
        )
        for row in rows:
            name = f"{pathway} burstiness, layer 2: training / its products alone"
            add(name, "<= 1.2", row["ffjax"], row["products"])
    for pathway in cases.PATHWAYS:
        second, fourth = (depth(pathway, layer) for layer in (2, 4))
        add(f"{pathway} burstiness: layer 4 / layer 2", "<= 1.1", fourth, second)
    every, forward = (
        evaluation("ffcl", "burstiness", name) for name in ("ffjax", "forward")
    )
    name = "ffcl burstiness: evaluation of all labels / a forward pass"
    add(name, "<= 1.6", every, forward)
    return result


def _where(rows: Iterable[Row], **wanted: Any) -> list[Row]:
    return [row for row in rows if all(row[k] == v for k, v in wanted.items())]


def largest_error(found: dict[str, Any]) -> float:
    """The largest relative difference of losses and scores between the frameworks."""
    losses = [
        row["loss_error"]
        for part in ("training", "depth", "width")
        for row in found[part]
    ]
    scores = [row["score_error"] for row in found["evaluation"]]
    errors = losses + scores
    return float("nan") if any(e != e for e in errors) else max(errors)


# --- Tables ---------------------------------------------------------------------------


def tables(found: dict[str, Any]) -> list[Table]:
    """Everything that was measured, in the order in which to read it."""
    return [
        _goal_table(found),
        _network_table(found),
        _layer_table(found),
        _variant_table(found),
        _evaluation_table(found),
        _growth_table(found, "depth"),
        _growth_table(found, "width"),
        _memory_table(found),
        _start_table(found),
    ]


def _goal_table(found) -> Table:
    rows = [
        [
            goal["figure"],
            goal["goal"],
            f"{goal['value']:.2f}",
            f"{goal['least']:.2f} to {goal['most']:.2f}",
            "met" if goal["met"] else "MISSED",
        ]
        for goal in goals(found)
    ]
    return "Goals", ["figure", "goal", "measured", "rounds", ""], rows


def _network_table(found) -> Table:
    rows = []
    for pathway, goodness in _networks(found["training"]):
        layers = _where(found["training"], pathway=pathway, goodness=goodness)
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


def _layer_table(found) -> Table:
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
        for row in found["training"]
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


def _variant_table(found) -> Table:
    rows = []
    for row in _where(found["training"], goodness="burstiness"):
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


def _evaluation_table(found) -> Table:
    count = found["size"]["num_test_images"]
    rows = []
    for row in found["evaluation"]:
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


def _growth_table(found, part: str) -> Table:
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
        for row in found[part]
    ]
    title = {
        "depth": "Cost against depth: burstiness, seconds an epoch of each layer",
        "width": "Cost against width: burstiness, seconds an epoch of layer 2",
    }[part]
    header = ["pathway", axis, "PyTorch", "ffjax", "products", "ffjax/products"]
    return title, header, rows


def _memory_table(found) -> Table:
    rows = [
        [
            row["pathway"],
            {"torch": "PyTorch", "ffjax": "ffjax"}[row["framework"]],
            f"{row['loaded'] / 1e9:.2f}",
            f"{row['peak'] / 1e9:.2f}",
        ]
        for row in found["memory"]
    ]
    header = ["pathway", "framework", "before training", "peak"]
    return "Memory of a process, burstiness: GB", header, rows


def _start_table(found) -> Table:
    rows = [[row["start"], _spread(row["seconds"])] for row in found["start"]]
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


def notes(found: dict[str, Any]) -> list[str]:
    """What a reader must know about the numbers."""
    machine, size = found["machine"], found["size"]
    versions = ", ".join(f"{k} {v}" for k, v in machine["versions"].items())
    error = largest_error(found)
    verdict = "the same work" if error <= TOLERANCE else "NOT THE SAME WORK"
    lines = [
        f"{machine['processor']}, {machine['cores']} cores; threads: "
        f"{machine['threads']}; {versions}.",
        f"Size {size['name']}: {size['num_layers']}x{size['width']}, GELU, batches of "
        f"{size['batch_size']}, {size['num_images']:,} images, {size['rounds']} "
        f"rounds, {found['seconds'] / 60:.1f} minutes. Medians ± half the range.",
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


def print_tables(found: dict[str, Any]) -> None:
    """The tables on the terminal, but for the longest; the goals come last."""
    screen = console.Console()
    if not screen.is_terminal:
        screen = console.Console(width=120)  # a log file has no edge
    shown = [t for t in tables(found) if t[2]]
    long = _layer_table(found)[0]
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
    for line in notes(found):
        screen.print(line, highlight=False)


def write(found: dict[str, Any], folder: pathlib.Path) -> None:
    """The numbers as JSON, the tables as Markdown and the chart as PNG."""
    content = json.dumps({**found, "goals": goals(found)}, indent=1)
    atomic.write_text(folder / "benchmark.json", content + "\n")
    atomic.write_text(folder / "benchmark.md", _markdown(found))
    atomic.write_bytes(folder / "benchmark.png", _chart(found))


def _markdown(found) -> str:
    parts = ["# How fast ffjax is", "![chart](benchmark.png)", *notes(found)]
    for title, header, rows in tables(found):
        if rows:
            lines = [header, ["---"] * len(header), *rows]
            grid = "\n".join(f"| {' | '.join(line)} |" for line in lines)
            parts.append(f"## {title}\n\n{grid}")
    return "\n\n".join(parts) + "\n"


_COLOURS = {"torch": "#c44e52", "ffjax": "#3b75af", "products": "#9a9a9a"}
_NAMES = {"torch": "PyTorch", "ffjax": "ffjax", "products": "matrix products alone"}


def _chart(found) -> bytes:
    bars = 1 + 0.7 * len(found["size"]["goodness"])  # inches
    figure, axes = plt.subplots(
        2, 2, figsize=(11, bars + 4), height_ratios=[bars, 4], layout="constrained"
    )
    for axis, pathway in zip(axes[0], cases.PATHWAYS, strict=True):
        _draw_networks(axis, found, pathway)
    for axis, pathway in zip(axes[1], cases.PATHWAYS, strict=True):
        _draw_depth(axis, found, pathway)
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3, frameon=False)
    scratch = io.BytesIO()
    figure.savefig(scratch, format="png", dpi=150)
    plt.close(figure)
    return scratch.getvalue()


def _draw_networks(axis, found, pathway) -> None:
    rows = _where(found["training"], pathway=pathway)
    names = [goodness for _, goodness in _networks(rows)]
    for place, name in enumerate(_NAMES):
        samples = [totals(_where(rows, goodness=g), name) for g in names]
        middles = [statistics.median(s) for s in samples]
        errors = [
            [m - min(s) for m, s in zip(middles, samples, strict=True)],
            [max(s) - m for m, s in zip(middles, samples, strict=True)],
        ]
        positions = [i + (place - 1) * 0.27 for i in range(len(names))]
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
    axis.set_yticks(range(len(names)), names)
    axis.invert_yaxis()
    axis.margins(x=0.12, y=0.01)
    layers, width = found["size"]["num_layers"], found["size"]["width"]
    axis.set_title(f"{pathway}, {layers}x{width}: all layers", loc="left")
    axis.set_xlabel("seconds an epoch")
    axis.spines[["top", "right"]].set_visible(False)


def _draw_depth(axis, found, pathway) -> None:
    rows = _where(found["depth"], pathway=pathway)
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
