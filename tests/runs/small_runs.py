"""Small runs for the tests of this folder, and what is compared of their records."""

import contextlib
import dataclasses
import signal

import msgspec

from ffjax import config, records
from ffjax.config.spec import cell_id
from ffjax.records import Record, Times
from ffjax.runs.order import Run

SMALL = {
    "dataset": "fashion_mini",
    "num_layers": 2,
    "width": 8,
    "epochs": 2,
    "batch_size": 50,
    "train_limit": 100,
    "test_limit": 50,
}


@contextlib.contextmanager
def hearing_ctrl_c():
    """A test run that was started in the background ignores Ctrl-C, and what it starts
    does so too: nohup asks for that."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def cells(seeds=(42,), **axes):
    """A cell for each combination of the axes' values."""
    made = config.default()
    made.update({**SMALL, "seeds": tuple(seeds)})
    made.grid = {"all": config.product(**axes)}
    return config.expand(made)


def a_run(seed=42, **fields):
    """One run, without a grid."""
    spec = config.make_spec(**{**SMALL, **fields})
    return Run(config.Cell(cell_id(spec), spec, (seed,)), seed)


def record(run, *, right=None, **changes):
    """What a run might have given: ``right`` of 50 images, which the seed decides."""
    right = 25 + run.seed % 10 if right is None else right
    spec = run.spec
    made = Record(
        cell=run.cell.id,
        spec=spec,
        seed=run.seed,
        status="ok",
        accuracy=2.0 * right,
        accuracy_layers=[50.0] * spec.num_layers,
        accuracy_concat=45.0,
        confusion=[[right, 50 - right], [0, 0]],
        losses=[[0.5] * spec.epochs] * spec.num_stages,
        time=Times(train_s=0.1),
        train_size=100,
        test_size=50,
        device="cpu",
        versions={},
        commit=None,
    )
    return msgspec.structs.replace(made, **changes)


def whole(workdir):
    """All records of a folder by cell and seed; none is broken."""
    made, problems = records.read_all(workdir)
    assert not problems
    return {(record.cell, record.seed): record for record in made}


def lasting(record):
    """A record without what differs between two runs of the same."""
    return msgspec.structs.replace(
        record, time=Times(), busy=None, finished="", commit=None
    )


def all_lasting(workdir):
    """``lasting`` of all records of a folder."""
    return {key: lasting(record) for key, record in whole(workdir).items()}


def as_cell(run, **changes):
    """The cell of a run with some fields changed."""
    spec = dataclasses.replace(run.spec, **changes)
    return config.Cell(cell_id(spec), spec, (run.seed,))
