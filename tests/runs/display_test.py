import io
import pathlib

import numpy as np
import pytest
import rich.console
import small_runs
from small_runs import a_run

from ffjax.records import Place
from ffjax.runs import display as display_lib
from ffjax.runs.display import Display, suggest, summarise


def _console(terminal=False, width=100):
    return rich.console.Console(
        file=io.StringIO(),
        force_terminal=terminal,
        highlight=False,
        soft_wrap=not terminal,
        width=width,
    )


def _text(console):
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def _lines(console):
    return console.file.getvalue().splitlines()


def _record(goodness="sos", accuracy=50.0, dataset="mnist", **changes):
    run = a_run(goodness=goodness, dataset=dataset, pathway="ffcl")
    return small_runs.record(run, right=round(accuracy / 2), **changes)


def _do(display, record, work=1.0, epochs=5):
    name = f"{record.spec.goodness} seed 42"
    display.start_run(name, [1.0, 1.0], epochs, work)
    for layer in range(2):
        for epoch in range(epochs):
            display.epochs_done(layer, np.full(epoch + 1, 0.25))
    display.end_run()
    display.finish_run(name, record, work, 0.0)


@pytest.fixture
def clock(monkeypatch):
    """Time that only goes on when a test says so."""
    now = [100.0]
    monkeypatch.setattr(display_lib.time, "monotonic", lambda: now[0])
    return now


def test_a_grid_in_a_file_has_one_line_for_each_short_run(clock):
    console = _console()
    with Display(3, 6.0, console) as display:
        clock[0] += 10
        _do(display, _record("sos", 60.0))
        clock[0] += 10
        _do(display, _record("moment", 80.0))
        _do(display, _record("topk", 70.0, status="diverged"))
    assert _lines(console) == [
        "[1/3] sos seed 42: 60.00 % in 0 s · about 50 s left · "
        "best 60.00 % ffcl sos gelu",
        "[2/3] moment seed 42: 80.00 % in 0 s · about 40 s left · "
        "best 80.00 % ffcl moment p=6 gelu",
        "[3/3] topk seed 42: 70.00 % (diverged) in 0 s · about 20 s left · "
        "best 80.00 % ffcl moment p=6 gelu",
    ]


def test_a_long_run_of_a_grid_gives_a_sign_of_life_each_minute(clock):
    console = _console()
    with Display(2, 2.0, console) as display:
        display.start_run("sos seed 42", [1.0], 100, 1.0)
        for epoch in range(100):
            clock[0] += 3
            display.epochs_done(0, np.full(epoch + 1, 0.25))
    assert len(_lines(console)) == 5
    assert _lines(console)[0] == (
        "  sos seed 42: layer 1/1 · epoch  20/100 · loss 0.2500 · 4 min 0 s left"
    )


def test_a_layer_of_more_work_takes_longer(clock):
    console = _console()
    with Display(1, 1.0, console) as display:
        display.start_run("", [1.0, 4.0], 10, 1.0)
        for epoch in range(5):
            clock[0] += 10
            display.epochs_done(0, np.full(epoch + 1, 0.25))
        # Four epochs of 10 s are timed. Five are left of this layer, ten of the next.
        assert _lines(console)[-1].endswith(
            "epoch  5/10 · loss 0.2500 · 7 min 30 s left"
        )
        clock[0] += 100  # of which nobody knows how long was compilation
        display.epochs_done(1, np.full(1, 0.25))
    assert _lines(console)[-1].endswith("epoch  1/10 · loss 0.2500 · 6 min 0 s left")


def test_a_single_run_in_a_file_shows_first_and_last_epochs(clock):
    console = _console()
    with Display(1, 1.0, console) as display:
        _do(display, _record(), epochs=9)
    epochs = [line.split(" · ")[:2] for line in _lines(console)]
    assert epochs == [
        ["  layer 1/2", "epoch 1/9"],
        ["  layer 1/2", "epoch 9/9"],
        ["  layer 2/2", "epoch 1/9"],
        ["  layer 2/2", "epoch 9/9"],
    ]


def test_work_of_others_counts_and_work_before_does_not(clock):
    console = _console()
    with Display(4, 4.0, console) as display:
        display.found_record(_record(accuracy=90.0), 1.0, before=True)
        clock[0] += 10
        display.found_record(_record(accuracy=92.0), 1.0, before=False)
        _do(display, _record())
    # Two of three units took 10 s; the first record is not of this time.
    (line,) = _lines(console)
    assert "[3/4]" in line
    assert "about 5 s left · best 92.00 %" in line


def test_each_dataset_has_a_best(clock):
    console = _console()
    with Display(2, 2.0, console) as display:
        _do(display, _record(accuracy=98.0, dataset="mnist"))
        _do(display, _record(accuracy=40.0, dataset="cifar10"))
    assert "best on cifar10 40.00 %" in _lines(console)[1]


def test_failures_are_counted(clock):
    console = _console()
    with Display(2, 2.0, console) as display:
        display.start_run("sos seed 42", [1.0], 1, 1.0)
        display.fail_run("sos seed 42", "MemoryError: [bold]no[/bold]", 1.0, 0.0)
        _do(display, _record())
    assert (
        _lines(console)[0]
        == "[1/2] sos seed 42: failed: MemoryError: [bold]no[/bold] in 0 s · "
        "about 0 s left"
    )
    assert _lines(console)[1].startswith("[2/2]")


def test_waiting_is_printed_once(clock):
    console = _console()
    with Display(2, 2.0, console) as display:
        for _ in range(5):
            display.wait_for("waiting for 1 run")
    assert _lines(console) == ["waiting for 1 run"]


def test_a_terminal_has_a_line_for_the_grid_and_one_for_the_run():
    console = _console(terminal=True, width=70)
    display = Display(3, 3.0, console)
    _do(display, _record(accuracy=80.0))
    display.start_run("moment seed 42", [1.0, 1.0], 5, 1.0)
    display.epochs_done(1, np.full(2, 0.25))
    with console.capture() as capture:
        console.print(display._render())
    lines = capture.get().splitlines()
    assert len(lines) == 2
    assert "1/3 done · " in lines[0]
    assert "layer 2/2 · epoch 2/5" in lines[1]


def test_runs_at_the_same_time_have_a_line_each(clock):
    console = _console(terminal=True, width=99)
    display = Display(4, 4.0, console)
    for place, name in enumerate(("sos seed 42", "moment seed 42")):
        display.start_run(name, [1.0], 4, 1.0, place=place)
        display.epochs_done(0, np.full(2, 0.25), place=place)
    clock[0] += 10
    with console.capture() as capture:
        console.print(display._render())
    total, first, second = capture.get().splitlines()
    assert "about 30 s left" in total  # half of both, a quarter of all, is done
    assert first.rstrip().endswith("sos seed 42")
    assert second.rstrip().endswith("moment seed 42")
    display.end_run(place=0)
    display.finish_run("sos seed 42", _record(), 1.0, 10.0)
    with console.capture() as capture:
        console.print(display._render())
    assert len(capture.get().splitlines()) == 2
    assert "about 17 s left" in capture.get()  # 1.5 of 4 in 10 s


# The last lines of a single run.


def _summary(record):
    console = _console()
    summarise(Display(1, console=console), record, "out")
    return _text(console)


def test_a_summary_has_every_layer_and_where_the_record_is():
    record = _record(accuracy=60.0)
    text = _summary(record)
    for part in ("layer 1", "layer 2", "all layers, concatenated", "ensemble"):
        assert part in text
    assert "60.00 %" in text
    assert f"record: {pathlib.Path('out', 'results', record.name)}.json" in text
    assert "diverged" not in text


def test_a_divergence_after_some_training_is_the_learning_rates():
    record = _record(status="diverged", diverged_at=Place(0, 1), losses=[[0.5, None]])
    text = _summary(record)
    assert "diverged in layer 1, epoch 2" in text
    assert "a smaller --config.learning_rate may help" in text


def test_a_loss_that_is_nan_from_the_start_is_not_the_learning_rates():
    record = _record(status="diverged", diverged_at=Place(0, 0), losses=[[None]])
    text = _summary(record)
    assert (
        "diverged in layer 1, epoch 1: the loss was not finite from the start" in text
    )
    assert "goodness 'sos' or the data" in text
    assert "may help" not in text


def test_suggestions_name_another_method_and_quote_the_folder():
    console = _console(width=200)
    suggest(Display(1, console=console), a_run(goodness="moment").spec, "my runs")
    text = _text(console)
    assert "--config.goodness=sos --config.pathway=standard" in text
    assert "--workdir='my runs'" in text
