"""What a person sees while something long runs: a live display in a terminal or a notebook, plain lines elsewhere, or
nothing.

`bar` is for work that is only counted (episodes, bytes); a training run also has losses and scores to show, and a
`Display` takes those.
"""

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from html import escape
from typing import Any

from rich.console import Group
from rich.live import Live
from rich.panel import Panel
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.text import Text

Update = Callable[[int, int | None], None]


class Rate(ProgressColumn):
    """Units per second, where each count stands for `each` of them."""

    def __init__(self, unit: str, each: float = 1):
        super().__init__()
        self._unit, self._each = unit, each

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text(f"{speed * self._each:,.0f} {self._unit}/s" if speed else "")


@contextmanager
def bar(
    title: str, *columns: ProgressColumn, total: int | None, done: int = 0, quiet: bool = False
) -> Iterator[Update]:
    """A progress bar with rate and time left; yields a function to call with (how much is done, out of how much)."""
    if quiet:
        yield lambda done, total: None
        return
    with Progress(TextColumn("{task.description}"), BarColumn(), *columns, TimeRemainingColumn()) as shown:
        task = shown.add_task(title, total=total, completed=done)
        yield lambda done, total: shown.update(task, completed=done, total=total)


def counted(unit: str, rate: Rate) -> tuple[ProgressColumn, ...]:
    """Columns of a `bar` that counts things."""
    return MofNCompleteColumn(), TextColumn(unit), rate


def downloaded() -> tuple[ProgressColumn, ...]:
    """Columns of a `bar` that counts bytes."""
    return DownloadColumn(), TransferSpeedColumn()


class Display:
    """Shows a training run. This one shows nothing but warnings; the others add what suits where the output goes."""

    def say(self, text: str) -> None:
        print(text, file=sys.stderr)

    def advance(self, step: int, busy: str = "") -> None: ...

    def losses(self, values: Mapping[str, Any]) -> None: ...

    def success(self, step: int, percent: Mapping[int, float]) -> None:
        """Success by seed of the evaluation at `step`."""

    def close(self) -> None: ...


def display(title: str, step: int, total: int, quiet: bool = False) -> Display:
    """The display that suits where the output goes."""
    if quiet:
        return Display()
    if in_notebook():
        return Notebook(title, step, total)
    return Terminal(title, step, total) if sys.stdout.isatty() else Lines(step, total)


def in_notebook() -> bool:
    """Whether a Jupyter kernel runs this process, and draws HTML for it."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


class Lines(Display):
    """A line every few seconds, for logs and pipes."""

    def __init__(self, step: int, total: int, every: float = 10.0):
        self._progress, self._every, self._next = _steps(step, total), every, 0.0

    def say(self, text: str) -> None:
        print(text, flush=True)

    def advance(self, step: int, busy: str = "") -> None:
        (task,) = self._progress.tasks
        at_the_end = step == task.total and task.completed < step
        self._progress.update(task.id, completed=step)
        if time.monotonic() >= self._next or at_the_end:
            self._next = time.monotonic() + self._every
            self.say(f"{_in_words(task)}  {busy}".rstrip())

    def success(self, step: int, percent: Mapping[int, float]) -> None:
        self.say(_success(step, percent))


class Redrawn(Display):
    """Remembers what is shown, for displays that draw all of it again."""

    def __init__(self, title: str, step: int, total: int):
        self._title, self._progress = title, _steps(step, total)
        self._busy, self._losses = "compiling", ""

    def advance(self, step: int, busy: str = "") -> None:
        self._progress.update(self._progress.tasks[0].id, completed=step)
        self._busy = busy

    def losses(self, values: Mapping[str, Any]) -> None:
        """Those of the first seed."""
        shown = {name.removesuffix("/loss"): float(v[0]) for name, v in values.items() if name.endswith("/loss")}
        self._losses = "  ".join(f"{name} {value:.4g}" for name, value in shown.items())


class Terminal(Redrawn):
    """A bar, the losses and the last success of each seed, redrawn in place."""

    def __init__(self, title: str, step: int, total: int):
        super().__init__(title, step, total)
        self._scores = ""
        self._live = Live(get_renderable=self.picture, refresh_per_second=4)
        self._live.start()

    def picture(self) -> Panel:
        """What is on the screen."""
        (task,) = self._progress.tasks
        lines = [("", _in_words(task)), ("losses", self._losses), ("success", self._scores), ("", self._busy)]
        texts = [Text(f"{name:<8} {text}" if name else text) for name, text in lines if text]
        return Panel(Group(self._progress, *texts), title=self._title, title_align="left")

    def say(self, text: str) -> None:
        self._live.console.print(text, highlight=False, markup=False)

    def success(self, step: int, percent: Mapping[int, float]) -> None:
        self._scores = "  ".join(f"seed {seed}: {score:.0f} % at {step:,}" for seed, score in percent.items())

    def close(self) -> None:
        self._live.stop()


class Notebook(Redrawn):
    """A bar, the losses and the success of each evaluation, in one output that is drawn again in place."""

    def __init__(self, title: str, step: int, total: int):
        from IPython.display import HTML, display  # it is there: a kernel runs this

        super().__init__(title, step, total)
        self._next = 0.0
        self._scores: list[str] = []
        self._said: list[str] = []
        self._html, self._output = HTML, display(HTML(self.picture()), display_id=True)

    def picture(self) -> str:
        """What is shown, as HTML."""
        (task,) = self._progress.tasks
        bar = f'<progress style="width:100%" max="{task.total:.0f}" value="{task.completed:.0f}"></progress>'
        lines = [_in_words(task), self._losses, *self._scores[-5:], self._busy, *self._said]
        return f"<b>{escape(self._title)}</b>{bar}<pre>{escape(chr(10).join(filter(None, lines)))}</pre>"

    def _draw(self) -> None:
        self._next = time.monotonic() + 0.5
        self._output.update(self._html(self.picture()))

    def say(self, text: str) -> None:
        self._said.append(text)
        self._draw()

    def advance(self, step: int, busy: str = "") -> None:
        super().advance(step, busy)
        if time.monotonic() >= self._next:
            self._draw()

    def success(self, step: int, percent: Mapping[int, float]) -> None:
        self._scores.append(_success(step, percent))
        self._draw()

    def close(self) -> None:
        self._busy = ""
        self._draw()


def _success(step: int, percent: Mapping[int, float]) -> str:
    return f"step {step:,} success  " + "  ".join(f"seed {seed}: {score:.0f} %" for seed, score in percent.items())


def _steps(step: int, total: int) -> Progress:
    """The book-keeping of a run's steps. Rich measures from the first update on, so compilation does not count."""
    progress = Progress(BarColumn(bar_width=None), auto_refresh=False, get_time=lambda: time.monotonic())
    progress.add_task("", total=total, completed=step)
    return progress


def _in_words(task: Task) -> str:
    speed = task.finished_speed or task.speed
    steps = f"step {task.completed:,.0f} of {task.total:,.0f}  {speed or 0:,.0f} steps/s"
    if task.finished:
        return f"{steps}  all steps taken"
    left = task.time_remaining
    return f"{steps}  {'?' if left is None else timedelta(seconds=int(left))} left"
