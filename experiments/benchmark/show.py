"""From samples to what a reader sees: goals, tables, a chart, and files."""

import importlib.metadata
import io
import json
import os
import pathlib
import platform
import re
import statistics
import time
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import matplotlib
import torch
from rich import box, console, table

from experiments.benchmark import cases
from experiments.benchmark.rivals import OURS, PLAIN, Variant
from ffjax import atomic
from ffjax.paper import names
from ffjax.runs import clock

matplotlib.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes

Row = dict[str, Any]  # names, and samples in seconds
Measured = dict[str, Any]  # the content of benchmark.json: rows by part, and settings
Table = tuple[str, list[str], list[list[str]]]  # title, header, rows

_IDLE_SHARE = 0.03  # of the cores, for everything but the benchmark
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


class BusyClock:
    """How busy other processes, and other guests of the host, keep the cores."""

    def __init__(self):
        """Starts now."""
        self._own = clock.BusyClock()
        self._started = time.monotonic()
        self._stolen = _stolen_seconds()

    def read(self) -> dict[str, float | None]:
        """Shares of all cores since the start; None where the system does not tell."""
        busy, stolen = self._own.read(), _stolen_seconds()
        seconds = (time.monotonic() - self._started) * (os.cpu_count() or 1)
        share = None
        if stolen is not None and self._stolen is not None:
            share = (stolen - self._stolen) / seconds
        return {"others": busy.others if busy else None, "stolen": share}


def _stolen_seconds() -> float | None:
    """Seconds in which the host gave the cores of this machine to another one."""
    try:
        line = pathlib.Path("/proc/stat").read_text().partition("\n")[0]
        return int(line.split()[8]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None


# --- Numbers --------------------------------------------------------------------------


def totals(rows: Iterable[Row], name: str) -> list[float]:
    """Seconds an epoch through all layers, one number a round.

    ffjax computes a layer's inputs once for its 60 epochs: a 60th of that is counted.
    """
    columns = [amortised(row, name) for row in rows]
    return [sum(samples) for samples in zip(*columns, strict=True)]


def amortised(row: Row, name: str) -> list[float]:
    """Seconds an epoch of a layer, with a 60th of what is done once for 60 epochs."""
    if name != "ffjax" or "inputs" not in row:
        return row[name]
    pairs = zip(row[name], row["inputs"], strict=True)
    return [sample + once / cases.EPOCHS for sample, once in pairs]


def rival_totals(
    measured: Measured, variant: Variant, layer: int = 0, **wanted: Any
) -> list[float]:
    """Seconds an epoch of a variant, of a layer or of all (0): a number a round."""
    wanted |= variant._asdict() | ({"layer": layer} if layer else {})
    totals: dict[int, float] = {}
    for row in _where(measured["rivals"], **wanted):
        number = row["round"]
        totals[number] = totals.get(number, 0.0) + row["amortised_seconds"]
    return list(totals.values())


def best_rival(measured: Measured, layer: int, **wanted: Any) -> list[float]:
    """The samples of the fastest PyTorch with kept inputs, in float32."""
    found = [
        rival_totals(
            measured, Variant("torch", "kept", compiled, "float32"), layer, **wanted
        )
        for compiled in (False, True)
    ]
    return min(filter(None, found), key=statistics.median, default=[])


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
        *_against_rivals(measured),
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
        ("standard", "burstiness", ">= 2.2"),
        ("ffcl", "burstiness", ">= 1.9"),
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


def _against_rivals(measured: Measured) -> Iterator[Goal]:
    layer: dict[str, Any] = {"pathway": "ffcl", "goodness": "burstiness"}
    ours = {v.precision: rival_totals(measured, v, 2, **layer) for v in OURS}
    fastest = Variant("torch", "kept", True, "bfloat16")
    figure = "ffcl burstiness, layer 2, inputs kept by both: "
    yield Goal(
        f"{figure}best float32 PyTorch / ffjax",
        ">= 1.1",
        best_rival(measured, 2, **layer),
        ours["float32"],
    )
    yield Goal(
        f"{figure}PyTorch bfloat16 and compiled / ffjax bfloat16",
        ">= 1.1",
        rival_totals(measured, fastest, 2, **layer),
        ours["bfloat16"],
    )
    for pathway, goal in (("standard", ">= 1.5"), ("ffcl", ">= 1.35")):
        wanted: dict[str, Any] = {"pathway": pathway, "goodness": "burstiness"}
        whole, half = (rival_totals(measured, v, **wanted) for v in OURS)
        figure = f"{pathway} burstiness: ffjax float32 / bfloat16"
        yield Goal(figure, goal, whole, half)


def _against_sos(measured: Measured) -> Iterator[Goal]:
    for pathway, goodness, goal in (
        ("standard", "entmax", "<= 1.15"),
        ("ffcl", "entmax", "<= 1.15"),
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
    errors = losses + scores + _rival_errors(measured, "float32")
    return float("nan") if any(e != e for e in errors) else max(errors)


def _rival_errors(measured: Measured, precision: str) -> list[float]:
    """Relative differences of the rivals' losses from those of ffjax in float32."""
    place = ("pathway", "goodness", "layer", "round")
    ours = {
        tuple(row[name] for name in place): row["loss"]
        for row in _where(measured["rivals"], **OURS[0]._asdict())
    }
    return [
        abs(row["loss"] / ours[tuple(row[name] for name in place)] - 1)
        for row in _where(measured["rivals"], precision=precision)
    ]


# --- Tables ---------------------------------------------------------------------------


def tables(measured: Measured) -> list[Table]:
    """Everything that was measured, in the order in which to read it."""
    return [
        _goal_table(measured),
        _network_table(measured),
        _layer_table(measured),
        _rival_table(measured),
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
    return f"Training: {_epoch(measured)}, all layers", header, rows


def _layer_table(measured: Measured) -> Table:
    rows = [
        [
            row["pathway"],
            row["goodness"],
            str(row["layer"]),
            _spread(row["torch"]),
            _spread(amortised(row, "ffjax")),
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
    return f"Training: {_epoch(measured)}, each layer", header, rows


def _rival_table(measured: Measured) -> Table:
    """Every way to train a network, beside ffjax in both precisions."""
    rows = []
    keys = ("pathway", "goodness", *Variant._fields)
    for key in dict.fromkeys(tuple(r[k] for k in keys) for r in measured["rivals"]):
        wanted: dict[str, Any] = {"pathway": key[0], "goodness": key[1]}
        variant = Variant(*key[2:])
        theirs = rival_totals(measured, variant, **wanted)
        ours = [rival_totals(measured, v, **wanted) for v in OURS]
        compiling = _where(measured["rivals"], **wanted, **variant._asdict(), round=1)
        rows.append(
            [
                *key[:2],
                _NAMES[variant.framework] + (" (plain)" if variant == PLAIN else ""),
                variant.lower,
                "compiled" if variant.compiled else "eager",
                variant.precision,
                _spread(theirs),
                *(_ratio(theirs, samples) for samples in ours),
                f"{sum(row['compile_seconds'] for row in compiling):.0f}",
            ]
        )
    header = ["pathway", "goodness", "framework", "lower layers", "", "precision"]
    header += ["seconds", "/ ffjax float32", "/ ffjax bfloat16", "compile"]
    return f"Rivals: {_epoch(measured)}, all layers", header, rows


def _epoch(measured: Measured) -> str:
    return f"seconds an epoch of {measured['size']['num_images']:,} images"


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
    return f"Variants of burstiness: {_epoch(measured)}", header, rows


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
            _spread(amortised(row, "ffjax")),
            _spread(row["products"]),
            _ratio(row["ffjax"], row["products"]),
        ]
        for row in measured[part]
    ]
    title = {
        "depth": f"Cost against depth: burstiness, {_epoch(measured)}, each layer",
        "width": f"Cost against width: burstiness, {_epoch(measured)}, layer 2",
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
    lines += _rival_notes(measured)
    lines.append(_idle_note(machine))
    return lines


def _rival_notes(measured: Measured) -> list[str]:
    if not measured["rivals"]:
        return []
    error = max(_rival_errors(measured, "bfloat16"))
    lines = [
        "Rivals: a layer's inputs are recomputed from the images at every step, or "
        f"kept and counted as a {cases.EPOCHS}th of the time for them; compile time is "
        "apart. All but the plain recipe have the fused Adam. The losses in bfloat16 "
        f"differ by at most {error:.1e}.",
    ]
    return lines + [measured["skipped"]] * bool(measured["skipped"])


def _idle_note(machine: dict[str, Any]) -> str:
    """Whether the times can be relied on."""
    others, stolen = machine.get("others"), machine.get("stolen")
    if others is None:
        return "Whether the machine was idle is not known."
    used = others + (stolen or 0.0)
    verdict = "idle" if used <= _IDLE_SHARE else "BUSY: do not rely on these times"
    return (
        f"The machine was {verdict}: during the measurements other processes used "
        f"{100 * others:.1f} % of the cores and other machines of the host "
        f"{100 * (stolen or 0.0):.1f} %; the load before was "
        f"{machine['load_before']:.1f}."
    )


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
    plain = {k: v for k, v in measured.items() if k not in (*_PARTS, "rivals")}
    content = {**plain, "goals": goals(measured), "measurements": flat(measured)}
    text = json.dumps(content, indent=1)
    atomic.write_text(folder / "benchmark.json", text + "\n")
    atomic.write_text(folder / "benchmark.md", _markdown(measured))
    atomic.write_bytes(folder / "benchmark.png", _chart(measured))


_PARTS = ("training", "depth", "width", "evaluation")


def flat(measured: Measured) -> list[Row]:
    """A row for each measurement; ``what`` names it, and seconds are as measured."""
    rows = []
    for part in _PARTS:
        for row in measured[part]:
            names = {k: v for k, v in row.items() if not isinstance(v, list)}
            for what, samples in row.items():
                if isinstance(samples, list):
                    rows += [
                        {"part": part, **names, "what": what, "round": turn + 1}
                        | {"seconds": seconds}
                        for turn, seconds in enumerate(samples)
                    ]
    rivals = measured["rivals"]
    return rows + [{"part": "rivals", "what": "epoch", **row} for row in rivals]


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
