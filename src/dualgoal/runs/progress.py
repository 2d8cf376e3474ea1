"""What a person sees while a run goes: a live table in a terminal, plain lines elsewhere, nothing with --quiet."""

import sys
import time
from collections.abc import Mapping
from typing import Any, Protocol

from dualgoal.runs.rows import EvalRow, success_by_seed


class Display(Protocol):
    """Takes what happens in a run."""

    def say(self, text: str) -> None: ...

    def advance(self, step: int, busy: str = "") -> None: ...

    def losses(self, step: int, values: Mapping[str, Any]) -> None: ...

    def evaluation(self, step: int, rows: list[EvalRow]) -> None: ...

    def close(self) -> None: ...


def clock(seconds: float) -> str:
    """12:05, or 3:07:40."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


class Pace:
    """Steps per second over the last moments, and the time that is left."""

    def __init__(self, step: int, total: int):
        self.total, self.step, self.rate = total, step, 0.0
        self._then: float | None = None

    def advance(self, step: int) -> None:
        now = time.monotonic()
        if self._then is not None and step > self.step and now > self._then:  # the first time is spent on compiling
            rate = (step - self.step) / (now - self._then)
            self.rate = rate if not self.rate else 0.7 * self.rate + 0.3 * rate
        self.step, self._then = step, now

    def __str__(self) -> str:
        left = clock((self.total - self.step) / self.rate) if self.rate else "?"
        return f"step {self.step:,} of {self.total:,}  {self.rate:,.0f} steps/s  {left} left"


class Quiet:
    """Nothing but what must be said."""

    def say(self, text: str) -> None:
        print(text, file=sys.stderr)

    def advance(self, step: int, busy: str = "") -> None: ...

    def losses(self, step: int, values: Mapping[str, Any]) -> None: ...

    def evaluation(self, step: int, rows: list[EvalRow]) -> None: ...

    def close(self) -> None: ...


class Lines:
    """A line now and then, for logs and pipes."""

    def __init__(self, step: int, total: int, every: float = 10.0):
        self._pace, self._every, self._next = Pace(step, total), every, 0.0

    def say(self, text: str) -> None:
        print(text, flush=True)

    def advance(self, step: int, busy: str = "") -> None:
        last = step == self._pace.total and self._pace.step < step
        self._pace.advance(step)
        if time.monotonic() >= self._next or last:
            self._next = time.monotonic() + self._every
            self.say(f"{self._pace}  {busy}".rstrip())

    def losses(self, step: int, values: Mapping[str, Any]) -> None: ...

    def evaluation(self, step: int, rows: list[EvalRow]) -> None:
        scores = "  ".join(f"seed {seed}: {score:.0f} %" for seed, score in success_by_seed(rows).items())
        self.say(f"step {step:,} success  {scores}")

    def close(self) -> None: ...


class Live:
    """A bar, the losses of the first seed and the last success of each, redrawn in place."""

    def __init__(self, title: str, step: int, total: int):
        from rich.live import Live as RichLive

        self._title, self._pace = title, Pace(step, total)
        self._busy, self._losses, self._scores = "compiling", {}, {}  # type: str, dict[str, float], dict[int, str]
        self._live = RichLive(self._picture(), refresh_per_second=4, transient=False)
        self._live.start()

    def _picture(self) -> Any:
        from rich.console import Group
        from rich.panel import Panel
        from rich.progress_bar import ProgressBar
        from rich.text import Text

        losses = "  ".join(f"{name.removesuffix('/loss')} {value:.4g}" for name, value in self._losses.items())
        scores = "  ".join(f"seed {seed}: {text}" for seed, text in self._scores.items())
        lines: list[Any] = [ProgressBar(total=self._pace.total, completed=self._pace.step), Text(str(self._pace))]
        lines += [Text(f"{name:<8} {text}") for name, text in (("losses", losses), ("success", scores)) if text]
        if self._busy:
            lines.append(Text(self._busy, style="dim"))
        return Panel(Group(*lines), title=self._title, title_align="left")

    def _redraw(self) -> None:
        self._live.update(self._picture())

    def say(self, text: str) -> None:
        self._live.console.print(text, highlight=False, markup=False)

    def advance(self, step: int, busy: str = "") -> None:
        self._pace.advance(step)
        self._busy = busy
        self._redraw()

    def losses(self, step: int, values: Mapping[str, Any]) -> None:
        self._losses = {k: float(v[0]) for k, v in values.items() if k.endswith("/loss")}
        self._redraw()

    def evaluation(self, step: int, rows: list[EvalRow]) -> None:
        self._scores = {seed: f"{score:.0f} % at {step:,}" for seed, score in success_by_seed(rows).items()}
        self._redraw()

    def close(self) -> None:
        self._live.stop()


def display(title: str, step: int, total: int, quiet: bool = False) -> Display:
    """The display that fits where the output goes."""
    if quiet:
        return Quiet()
    return Live(title, step, total) if sys.stdout.isatty() else Lines(step, total)
