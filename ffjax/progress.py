"""What a person sees while runs go on: live bars in a terminal, plain lines in a file."""

import time

import numpy as np
import rich.console
import rich.live
import rich.table
from rich import progress_bar

from ffjax import results

_LINE_SECONDS = 10.0  # between two lines about the same layer in a file


class Display:
    """Shows one line for the grid and one for the running cell.

    Use it as a context manager; in a terminal it redraws two lines in place, elsewhere it
    prints a line when there is news, at most every ten seconds for the same layer.
    """

    def __init__(self, num_runs: int, console: rich.console.Console | None = None):
        """A display for ``num_runs`` runs, on standard output unless told otherwise."""
        self.console = console or rich.console.Console(highlight=False, soft_wrap=True)
        self._num_runs = num_runs
        self._num_done = 0
        self._num_skipped = 0
        self._started = time.monotonic()
        self._work_left = 1.0  # of the work that was there at the start
        self._last = ""
        self._best = ""
        self._best_accuracy = -1.0
        self._cell: _CellClock | None = None
        self._live: rich.live.Live | None = None

    def __enter__(self):
        """Starts to redraw, in a terminal."""
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

    def print(self, text: str) -> None:
        """A line that stays; file names and numbers are printed as they are."""
        self.console.print(text, markup=False)

    def start_cell(self, name: str, num_layers: int, epochs: int) -> None:
        """A run begins."""
        self._cell = _CellClock(name, num_layers, epochs)
        if self._num_runs > 1 and self._live is None:
            position = self._num_done + self._num_skipped + 1
            self.print(f"[{position}/{self._num_runs}] {name}")

    def epochs_done(self, layer: int, losses: np.ndarray) -> None:
        """Some epochs of a layer are done."""
        if self._cell is None:
            return
        line = self._cell.advance(layer, losses)
        if self._live is None and line is not None:
            self.print(line)

    def finish_cell(self, name: str, result: str, accuracy: float | None) -> None:
        """A run ended, well or not."""
        self._cell = None
        self._num_done += 1
        self._last = f"last {result}"
        if accuracy is not None and accuracy > self._best_accuracy:
            self._best_accuracy = accuracy
            self._best = f"best {accuracy:.2f} % ({name})"
        if self._num_runs > 1:
            self.print(self._grid_line())

    def skip_cell(self) -> None:
        """A run was done before."""
        self._num_skipped += 1

    def set_work_left(self, share: float) -> None:
        """Which share of the work of this process is left, by expected cost."""
        self._work_left = share

    def _grid_line(self) -> str:
        parts = [f"{self._num_done + self._num_skipped}/{self._num_runs} done"]
        elapsed = time.monotonic() - self._started
        if self._num_done and self._work_left > 0:
            left = elapsed * self._work_left / max(1e-9, 1 - self._work_left)
            parts.append(f"about {duration(left)} left")
        return " · ".join([*parts, *filter(None, (self._last, self._best))])

    def _render(self):
        rows = rich.table.Table.grid(padding=(0, 1))
        if self._num_runs > 1:
            rows.add_row(self._grid_line())
        if self._cell is not None:
            rows.add_row(self._cell.render())
        return rows


class _CellClock:
    """Progress of one run, and when its next line is due."""

    def __init__(self, name: str, num_layers: int, epochs: int):
        self.name = name
        self.num_layers = num_layers
        self.epochs = epochs
        self._layer = 0
        self._epoch = 0
        self._loss = float("nan")
        self._first_report = True
        self._timed_epochs = 0  # epochs whose time is known to be free of compilation
        self._timed_seconds = 0.0
        self._last_report = time.monotonic()
        self._last_line = 0.0

    def advance(self, layer: int, losses: np.ndarray) -> str | None:
        now = time.monotonic()
        if layer != self._layer:
            self._layer, self._epoch, self._first_report = layer, 0, True
        if not self._first_report:
            self._timed_epochs += len(losses) - self._epoch
            self._timed_seconds += now - self._last_report
        self._first_report = False
        self._last_report = now
        self._epoch, self._loss = len(losses), float(losses[-1])
        is_last = self._epoch == self.epochs
        if self._epoch > 1 and not is_last and now - self._last_line < _LINE_SECONDS:
            return None
        self._last_line = now
        return self._text()

    def _text(self) -> str:
        text = (
            f"  layer {self._layer + 1}/{self.num_layers} · "
            f"epoch {self._epoch:>{len(str(self.epochs))}}/{self.epochs} · "
            f"loss {self._loss:.4f}"
        )
        left = self._seconds_left()
        return text if left is None else f"{text} · {duration(left)} left"

    def _seconds_left(self) -> float | None:
        if not self._timed_epochs:
            return None
        epochs = (self.num_layers - self._layer) * self.epochs - self._epoch
        return epochs * self._timed_seconds / self._timed_epochs

    def render(self):
        row = rich.table.Table.grid(padding=(0, 1))
        done = self._layer * self.epochs + self._epoch
        bar = progress_bar.ProgressBar(
            total=self.num_layers * self.epochs, completed=done, width=30
        )
        row.add_row(bar, self._text() if self._epoch else "  compiling")
        return row


def duration(seconds: float) -> str:
    """Seconds as a person writes them: 42 s, 3 min 10 s, 2 h 5 min."""
    seconds = round(seconds)
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60} s"
    return f"{seconds // 3600} h {seconds % 3600 // 60} min"


def summarise(display: Display, records: list[dict], workdir: str) -> None:
    """The last lines of a single run: what came out, where it is, what to try next."""
    record = records[-1]
    spec = record["spec"]
    if record["status"] == "diverged":
        where = record["diverged_at"]
        display.print(
            f"diverged in layer {where['layer'] + 1}, epoch {where['epoch'] + 1}: "
            "the loss was not finite; a smaller --config.learning_rate may help"
        )
    rows = rich.table.Table(title=f"test accuracy on {spec['dataset']}", min_width=36)
    rows.add_column("measured on")
    rows.add_column("accuracy", justify="right")
    for index, accuracy in enumerate(record["accuracy_layers"]):
        text = "not trained" if accuracy is None else f"{accuracy:.2f} %"
        rows.add_row(f"layer {index + 1}", text)
    rows.add_row("all layers, concatenated", f"{record['accuracy_concat']:.2f} %")
    rows.add_row("ensemble", f"{record['accuracy']:.2f} %", style="bold")
    if "accuracy_valid" in record:
        rows.add_row("ensemble, validation part", f"{record['accuracy_valid']:.2f} %")
    display.console.print(rows)
    times = record["time"]
    display.print(
        f"{duration(times['train_s'])} training, {times['compile_s']:.1f} s compiling, "
        f"{times['eval_s']:.1f} s evaluating on {record['device']}"
    )
    path = results.record_path(workdir, record["cell"], record["seed"])
    display.print(f"record: {path}")
