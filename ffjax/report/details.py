"""What the page shows of a cell on demand, packed into a few bytes a run.

The page holds it as gzip in base64; the browser unpacks it. Losses are thinned and
rounded to what a chart can show. Nothing here imports jax.
"""

import base64
import json
import zlib
from collections.abc import Mapping
from typing import Any, TypedDict

import msgspec

from ffjax.config import spec as spec_lib
from ffjax.config.spec import RunSpec
from ffjax.paper import names
from ffjax.records import Record
from ffjax.report import charts as charts_lib
from ffjax.report.cells import Cell, Setting

_FIELDS = spec_lib.names("method", "size", "setting")
_MOST_POINTS, _LEAST_POINTS = 60, 16  # of a layer's loss
_MANY_POINTS = 60_000  # of a layer's loss, over all runs


class Loss(TypedDict):
    """The loss of a layer at epochs 1, 1 + step, ... and at the last."""

    epochs: int
    step: int
    values: list[float | None]


class Run(TypedDict):
    """A run as the page shows it."""

    seed: int
    status: str
    accuracy: float
    layers: list[float | None]
    losses: list[Loss]
    confusion: list[list[int]]
    facts: dict[str, str]


class Details(TypedDict):
    """A cell as the page shows it; of its fields those that are not the default."""

    title: str
    setting: str
    id: str
    text: str
    paper: str
    note: str
    names: list[str]
    fields: dict[str, str]
    runs: list[Run]


class Data(TypedDict):
    """All that the page's script draws from."""

    charts: list[charts_lib.Chart]
    cells: list[Details]
    defaults: dict[str, str]


def packed(
    cells: list[Cell],
    groups: Mapping[Setting, list[Cell]],
    charts: list[charts_lib.Chart],
) -> str:
    """The page's data as base64 of gzip of JSON.

    Args:
      cells: in the order of their numbers on the page.
      groups: the same by setting.
      charts: in the order of their numbers on the page.
    """
    num_runs = sum(len(cell.runs) for cell in cells)
    points = max(_LEAST_POINTS, min(_MOST_POINTS, _MANY_POINTS // max(num_runs, 1)))
    settings = {cell: one.text for one, members in groups.items() for cell in members}
    data = Data(
        charts=charts,
        cells=[_details(cell, settings[cell], points) for cell in cells],
        defaults={name: _plain(spec_lib.DEFAULTS[name]) for name in _FIELDS},
    )
    packer = zlib.compressobj(6, wbits=31)  # gzip without the time of day
    content = packer.compress(msgspec.json.encode(data)) + packer.flush()
    return base64.b64encode(content).decode("ascii")


def unpacked(content: str) -> Any:
    """The inverse of ``packed``, as the browser does it."""
    return json.loads(zlib.decompress(base64.b64decode(content), wbits=31))


def _details(cell: Cell, setting: str, points: int) -> Details:
    known = cell.reference
    return Details(
        title=names.method(cell.spec),
        setting=setting,
        id=cell.id,
        text=cell.text,
        paper=known.text if known else "",
        note=known.row.note if known else "",
        names=cell.runs[0].class_names,
        fields=_fields(cell.spec),
        runs=[_run(run, points) for run in cell.runs],
    )


def _fields(spec: RunSpec) -> dict[str, str]:
    return {
        name: _plain(value)
        for name in _FIELDS
        if (value := getattr(spec, name)) != spec_lib.DEFAULTS[name]
    }


def _run(run: Record, points: int) -> Run:
    return Run(
        seed=run.seed,
        status=_status(run),
        accuracy=run.accuracy,
        layers=[None if v is None else round(v, 2) for v in run.accuracy_layers],
        losses=[_loss(layer, points) for layer in run.losses],
        confusion=run.confusion,
        facts=_facts(run),
    )


def _loss(layer: list[float | None], points: int) -> Loss:
    kept = charts_lib.thinned(layer, points)
    return Loss(
        epochs=len(layer),
        step=kept[1][0] - 1 if len(kept) > 1 else 1,
        values=[None if loss is None else float(f"{loss:.3g}") for _, loss in kept],
    )


def _facts(run: Record) -> dict[str, str]:
    time = run.time
    facts = {
        "accuracy of the concatenation alone": run.accuracy_concat,
        "validation accuracy": run.accuracy_valid,
    }
    texts = {
        name: names.accuracy(value)
        for name, value in facts.items()
        if value is not None
    }
    texts["images"] = f"{run.train_size} for training, {run.test_size} for testing"
    texts["compilation, training, evaluation"] = ", ".join(
        f"{seconds:.1f} s" for seconds in (time.compile_s, time.train_s, time.eval_s)
    )
    if run.busy is not None:
        own, others = 100 * run.busy.own, 100 * run.busy.others
        texts["use of the cores"] = f"own {own:.0f} %, others {others:.0f} %"
    if run.group_size > 1:
        texts["runs in the same program"] = str(run.group_size)
    texts["device"] = run.device
    if run.network:
        texts["network"] = run.network
    if run.finished:
        texts["finished"] = run.finished
    if run.commit:
        texts["commit"] = run.commit
    if run.data:
        texts["data"] = _plain(run.data)
    return texts


def _status(run: Record) -> str:
    """The status, with layer and epoch from 1 where it diverged."""
    place = run.diverged_at
    if not run.is_diverged or place is None:
        return run.status
    return f"diverged at layer {place.layer + 1}, epoch {place.epoch + 1}"


def _plain(value: object) -> str:
    """A value as text, however odd."""
    if isinstance(value, str):
        return value
    return "automatic" if value is None else json.dumps(value, ensure_ascii=False)
