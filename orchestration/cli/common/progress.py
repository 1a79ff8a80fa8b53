"""Progress of a command: a bar with share and time left on a terminal, a line every ten seconds elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from orchestration.formatting import span

LINE_SECONDS = 10.0
"""Seconds between two lines where there is no terminal."""


class CommandProgress(Progress):
    """Progress on standard error; a terminal shows it while it lasts, a log gets lines.

    As a context manager it ends with the block. The first line comes after ten seconds, so quick commands write none.

    Args:
        texts: Texts beside a task's description, as rich formats them.
        bar: Whether tasks have totals, and so a share and a time left.
        console: Standard error.
        line_seconds: Seconds between two lines.
    """

    def __init__(
        self, texts: Sequence[str], *, bar: bool, console: Console, line_seconds: float = LINE_SECONDS
    ) -> None:
        columns: list[ProgressColumn] = [SpinnerColumn(), TextColumn("[bold]{task.description}")]
        columns += [BarColumn(), TaskProgressColumn()] if bar else []
        columns += [*map(TextColumn, texts), TimeElapsedColumn()]
        columns += [TimeRemainingColumn()] if bar else []
        super().__init__(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._texts: Sequence[str] = texts
        self._seconds: float = line_seconds
        self._ended: threading.Event = threading.Event()
        self._lines: threading.Thread | None = None

    def start(self) -> None:
        """Begin to show it."""
        super().start()
        if self.disable and self._lines is None:
            self._lines = threading.Thread(target=self._write_lines, name="progress", daemon=True)
            self._lines.start()

    def stop(self) -> None:
        """Show it no more."""
        super().stop()
        self._ended.set()
        if self._lines is not None:
            self._lines.join()

    def _write_lines(self) -> None:
        while not self._ended.wait(self._seconds):
            for task in self.tasks:
                if not task.finished:
                    self.console.print(progress_line(task, self._texts), markup=False, highlight=False)


def progress_line(task: Task, texts: Sequence[str]) -> str:
    """A task in a line: what is done, its share, for how long, and how long it will take from here."""
    said = [Text.from_markup(text.format(task=task)).plain.strip() for text in texts] if _countable(task, texts) else []
    elapsed = task.elapsed or 0.0
    if task.total and task.completed:
        said.append(f"{min(task.completed / task.total, 1.0):.0%}")
    said.append(span(elapsed))
    left = elapsed * (task.total - task.completed) / task.completed if task.total and task.completed else 0.0
    if left >= 1:
        said.append(f"about {span(left)} left")
    return f"{task.description}: {', '.join(filter(None, said))}"


def _countable(task: Task, texts: Sequence[str]) -> bool:
    """Whether the texts can be formatted: an unknown total is no number."""
    return task.total is not None or not any("{task.total" in text for text in texts)


def left_text(began: float, done: float, total: float, now: float | None = None) -> str:
    """Share and time left, as ` (30 %, about 12 s left)`; empty before anything is done.

    Args:
        began: Seconds of the monotonic clock.
        now: Time on the same clock; None for now.
    """
    if not done or not total:
        return ""
    elapsed = (time.monotonic() if now is None else now) - began
    left = elapsed * max(total - done, 0) / done
    return f" ({min(done / total, 1.0):.0%}" + (f", about {span(left)} left)" if left >= 1 else ")")
