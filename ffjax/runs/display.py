"""What a person sees while runs go on: live bars in a terminal, lines in a file."""

import pathlib
import shlex
import time
from collections.abc import Sequence

import numpy as np
import rich.console
import rich.live
import rich.table
import rich.text
from rich import progress_bar

from ffjax.config.spec import RunSpec
from ffjax.paper import names
from ffjax.paper.names import duration
from ffjax.records import Place, Record, record_path
from ffjax.runs import cost

# Seconds between two lines about the same layer in a file.
_LINE_SECONDS = 10.0
_GRID_LINE_SECONDS = 60.0


_QUICK = "configs/grid.py:quick"


class Display:
    """Shows one line for the grid and one for each running cell.

    Use it as a context manager; in a terminal it redraws these lines, elsewhere it
    prints a line when there is news: in a grid one for each run, and one a minute for
    long ones. Cells that run at the same time have a place each, a number.
    """

    def __init__(
        self,
        num_runs: int,
        work: float = 1.0,
        console: rich.console.Console | None = None,
        *,
        is_grid: bool = False,
    ):
        """A display on standard output, unless told otherwise.

        Args:
          num_runs: how many runs there are in all.
          work: the expected work of all of them, in any unit.
          console: where to print.
          is_grid: whether to take even a single run for a grid.
        """
        self.is_grid = is_grid or num_runs > 1
        self.console = console or rich.console.Console(highlight=False, soft_wrap=True)
        self._num_runs = num_runs
        self._num_done = 0
        self._num_failed = 0
        self._work_left = work
        self._work_done = 0.0  # while the display was open, by any process
        self._started = time.monotonic()
        self._last = ""
        self._best: dict[str, tuple[float, str]] = {}  # by dataset
        self._dataset = ""
        self._waiting = ""
        self._runs: dict[int, _RunClock] = {}  # by place
        self._work_ended = 0.0  # of what is over, but not yet announced
        self._live: rich.live.Live | None = None

    def __enter__(self):
        """Starts to redraw, in a terminal."""
        self._started = time.monotonic()
        if self.console.is_terminal:
            self._live = rich.live.Live(
                get_renderable=self._render, console=self.console, transient=True
            )
            self._live.start()
        return self

    def __exit__(self, *exception):
        """Stops redrawing; what was printed stays."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def print(self, text: str) -> None:
        """A line that stays; file names and numbers are printed as they are."""
        self.console.print(text, markup=False)

    def found_record(self, record: Record, work: float, before: bool) -> None:
        """A run was done by another process, before this one started or since."""
        self._num_done += 1
        self._work_left -= work
        self._work_done += 0.0 if before else work
        self._keep_best(record)

    def start_run(
        self,
        name: str,
        stages: Sequence[float],
        epochs: int,
        work: float,
        *,
        is_whole: bool = False,
        place: int = 0,
    ) -> None:
        """A run begins.

        Args:
          name: of the run, for people.
          stages: the expected work of an epoch of each layer, in any unit, in the order
            in which they are trained.
          epochs: of each.
          work: that the run is expected to be.
          is_whole: whether the network is trained as a whole, not layer by layer.
          place: where it is trained; a place has one run at a time.
        """
        self._waiting = ""
        every = _GRID_LINE_SECONDS if self.is_grid else _LINE_SECONDS
        self._runs[place] = run = _RunClock(name, stages, epochs, work, every)
        run.is_whole = is_whole

    def start_network(
        self, spec: RunSpec, image_shape: Sequence[int], num_classes: int
    ) -> None:
        """A network begins that is no run of a grid."""
        stages = cost.stage_work(spec, image_shape, num_classes)
        self.start_run("", stages, spec.epochs, sum(stages))

    def epochs_done(self, layer: int, losses: np.ndarray, *, place: int = 0) -> None:
        """Some epochs of a layer are done."""
        run = self._runs.get(place)
        if run is None:
            return
        run.advance(layer, losses)
        if self._live is None and run.is_line_due(first_too=not self.is_grid):
            name = f"{run.name}: " if self.is_grid else ""
            self.print(f"  {name}{run.text()}")

    def finish_run(
        self, name: str, record: Record, work: float, seconds: float
    ) -> None:
        """A run, perhaps of several that were started together, has its record."""
        result = names.accuracy(record.accuracy)
        if record.is_diverged:
            result += " (diverged)"
        self._num_done += 1
        self._last = f"last {result} {names.short_method(record.spec)}"
        self._keep_best(record)
        self._announce(name, result, work, seconds)

    def fail_run(self, name: str, reason: str, work: float, seconds: float) -> None:
        """A run ended in an error, or could not be started."""
        self._num_failed += 1
        self._announce(name, f"failed: {reason}", work, seconds)

    def end_run(self, *, place: int = 0) -> None:
        """What was started is over; its results are announced next."""
        if run := self._runs.pop(place, None):
            self._work_ended += run.work

    def skip_failed(self, work: float) -> None:
        """A run failed in another process."""
        self._num_failed += 1
        self._work_left -= work

    def wait_for(self, text: str) -> None:
        """Nothing is left but what others are working on."""
        if text != self._waiting and self._live is None:
            self.print(text)
        self._waiting = text

    def _announce(self, name: str, result: str, work: float, seconds: float) -> None:
        self._work_left -= work
        self._work_done += work
        self._work_ended = max(0.0, self._work_ended - work)
        if self.is_grid:
            position = f"[{self._num_done + self._num_failed}/{self._num_runs}]"
            line = [f"{position} {name}: {result} in {duration(seconds)}"]
            if self._live is None:  # a terminal has these in the line below
                line += [self._time_left(), self._best_text()]
            self.print(" · ".join(filter(None, line)))

    def _keep_best(self, record: Record) -> None:
        self._dataset = record.spec.dataset
        best = self._best.get(self._dataset)
        if best is None or record.accuracy > best[0]:
            name = names.short_method(record.spec)
            self._best[self._dataset] = record.accuracy, name

    def _best_text(self) -> str:
        if self._dataset not in self._best:
            return ""
        accuracy, name = self._best[self._dataset]
        where = f" on {self._dataset}" if len(self._best) > 1 else ""
        return f"best{where} {accuracy:.2f} % {name}"

    def _time_left(self) -> str:
        part = sum(run.work * run.share_done() for run in self._runs.values())
        part += self._work_ended
        done, left = self._work_done + part, self._work_left - part
        if done <= 0 or left <= 1e-9:
            return ""
        elapsed = time.monotonic() - self._started
        return f"about {duration(elapsed * left / done)} left"

    def _grid_line(self) -> str:
        parts = [f"{self._num_done}/{self._num_runs} done"]
        parts += [f"{self._num_failed} failed"] if self._num_failed else []
        parts += [self._time_left(), self._last, self._best_text()]
        return " · ".join(filter(None, parts))

    def _render(self):
        lines = []
        if self.is_grid:
            lines.append(_one_line(self._grid_line()))
        for place in sorted(self._runs):
            lines.append(self._runs[place].render(with_name=self.is_grid))
        if self._waiting and not self._runs:
            lines.append(_one_line(self._waiting))
        return rich.console.Group(*lines)


class _RunClock:
    """Progress of one run, and when its next line is due."""

    def __init__(
        self,
        name: str,
        stages: Sequence[float],
        epochs: int,
        work: float,
        line_seconds: float,
    ):
        self.name = name
        self.stages = stages
        self.epochs = epochs
        self.work = work
        self.is_whole = False  # the network is trained as a whole, not by layers
        self._line_seconds = line_seconds
        self._layer = 0
        self._epoch = 0
        self._loss = float("nan")
        self._first_report = True
        self._timed_work = (
            0.0  # of epochs whose time is known to be free of compilation
        )
        self._timed_seconds = 0.0
        self._last_report = self._last_line = time.monotonic()

    def share_done(self) -> float:
        return 1 - self._work_left() / (self.epochs * sum(self.stages))

    def advance(self, layer: int, losses: np.ndarray) -> None:
        now = time.monotonic()
        if layer != self._layer:
            self._layer, self._epoch, self._first_report = layer, 0, True
        if not self._first_report:
            self._timed_work += self.stages[layer] * (len(losses) - self._epoch)
            self._timed_seconds += now - self._last_report
        self._first_report = False
        self._last_report = now
        self._epoch, self._loss = len(losses), float(losses[-1])

    def is_line_due(self, first_too: bool) -> bool:
        is_end = first_too and self._epoch in (1, self.epochs)
        if not is_end and time.monotonic() - self._last_line < self._line_seconds:
            return False
        self._last_line = time.monotonic()
        return True

    def text(self) -> str:
        place = f"layer {self._layer + 1}/{len(self.stages)} · "
        layer = "" if self.is_whole else place
        text = (
            f"{layer}epoch {self._epoch:>{len(str(self.epochs))}}/{self.epochs} · "
            f"loss {self._loss:.4f}"
        )
        if not self._timed_work:
            return text
        left = self._work_left() * self._timed_seconds / self._timed_work
        return f"{text} · {duration(left)} left"

    def _work_left(self) -> float:
        left = self.epochs * sum(self.stages[self._layer :])
        return left - self._epoch * self.stages[self._layer]

    def render(self, with_name: bool):
        row = rich.table.Table.grid(padding=(0, 1))
        bar = progress_bar.ProgressBar(total=1.0, completed=self.share_done(), width=24)
        text = self.text() if self._epoch else "compiling"
        row.add_row(bar, _one_line(f"{text} · {self.name}" if with_name else text))
        return row


def _one_line(text: str) -> rich.text.Text:
    return rich.text.Text(text, no_wrap=True, overflow="ellipsis")


def summarise(display: Display, record: Record, workdir: str) -> None:
    """The last lines of a single run: what came out and where it is."""
    if record.is_diverged:
        display.print(_divergence(record))
    title = rich.text.Text(f"test accuracy on {record.spec.dataset}")
    rows = rich.table.Table(title=title, min_width=36)
    rows.add_column("measured on")
    rows.add_column("accuracy", justify="right")
    whole = "network"
    if record.accuracy_concat is not None:
        whole = "ensemble"
        for index, accuracy in enumerate(record.accuracy_layers):
            text = "not trained" if accuracy is None else names.accuracy(accuracy)
            rows.add_row(f"layer {index + 1}", text)
        concat = names.accuracy(record.accuracy_concat)
        rows.add_row("all layers, concatenated", concat)
    rows.add_row(whole, names.accuracy(record.accuracy), style="bold")
    if record.accuracy_valid is not None:
        valid = names.accuracy(record.accuracy_valid)
        rows.add_row(f"{whole}, validation part", valid)
    display.console.print(rows)
    times = record.time
    display.print(
        f"{duration(times.train_s)} training, {times.compile_s:.1f} s "
        f"compiling, {times.eval_s:.1f} s evaluating on {record.device}"
    )
    display.print(f"record: {record_path(workdir, record.cell, record.seed)}")


def _divergence(record: Record) -> str:
    """Where a run diverged, and what may help."""
    at = record.diverged_at
    place = f" in layer {at.layer + 1}, epoch {at.epoch + 1}" if at else ""
    if at == Place(layer=0, epoch=0):
        return (
            f"diverged{place}: the loss was not finite from the start; goodness "
            f"{record.spec.goodness!r} or the data give such values, or learning_rate="
            f"{record.spec.learning_rate:g} is far too large"
        )
    return (
        f"diverged{place}: the loss was not finite; a smaller --config.learning_rate "
        "may help"
    )


def suggest(display: Display, spec: RunSpec, workdir: str) -> None:
    """What to try after a single run."""
    goodness = "moment" if spec.goodness != "moment" else "sos"
    pathway = "standard" if spec.pathway != "standard" else "ffcl"
    main = "python -m ffjax.main"
    in_checkout = pathlib.Path(_QUICK.partition(":")[0]).is_file()
    other = f"--config.goodness={goodness} --config.pathway={pathway}"
    lines = {f"{main} {other}": "another method"}
    if in_checkout:
        lines[f"{main} --config={_QUICK}"] = "the paper's story in 3 minutes"
    lines |= {
        f"{main} --config.dataset=mine.npz": "your own images; --help says more",
        f"python -m ffjax.report --workdir={shlex.quote(workdir)}": "this as a page",
    }
    width = max(map(len, lines))
    display.print("what to try next:")
    for command, what in lines.items():
        display.print(f"  {command:{width}}  # {what}")
