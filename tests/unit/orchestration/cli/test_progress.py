"""Progress of commands: share and time left, on a terminal and in a log."""

from __future__ import annotations

import io
import threading

import pytest
from rich.console import Console
from rich.progress import Task, TaskID

from orchestration.cli.common.progress import CommandProgress, left_text, progress_line
from tests.helpers.waiting import wait_for

TEXTS = ("{task.completed:,.0f} of {task.total:,.0f} files", "[dim]{task.fields[note]}")


class Written(io.StringIO):
    """What is written, also by another thread."""

    def lines(self) -> list[str]:
        return self.getvalue().splitlines()


def a_task(total: float | None, completed: float, seconds: float, **fields: object) -> Task:
    now = [0.0]
    task = Task(TaskID(0), "fill", total, completed, fields=fields, _get_time=lambda: now[0], _lock=threading.RLock())
    task.start_time = 0.0
    now[0] = seconds
    return task


@pytest.mark.parametrize(
    ("task", "line"),
    [
        (a_task(200, 50, 30, note="a note"), "fill: 50 of 200 files, a note, 25%, 30 s, about 1 min left"),
        (a_task(200, 0, 30, note=""), "fill: 0 of 200 files, 30 s"),
        (a_task(200, 200, 30, note=""), "fill: 200 of 200 files, 100%, 30 s"),
        (a_task(None, 7, 61, note=""), "fill: 1 min"),
    ],
)
def test_a_line(task: Task, line: str) -> None:
    assert progress_line(task, TEXTS) == line


def test_share_and_time_left_of_a_run() -> None:
    assert left_text(100.0, 25, 100, 110.0) == " (25%, about 30 s left)"
    assert left_text(100.0, 100, 100, 110.0) == " (100%)"
    assert left_text(100.0, 130, 100, 110.0) == " (100%)"
    assert left_text(100.0, 0, 100, 110.0) == left_text(100.0, 0, 0, 110.0) == ""


def test_a_log_gets_lines_while_it_lasts() -> None:
    out = Written()
    with CommandProgress(TEXTS, bar=True, console=Console(file=out), line_seconds=0.02) as progress:
        task = progress.add_task("fill", total=4, note="one")
        progress.update(task, completed=1)
        wait_for(lambda: any(line.startswith("fill: 1 of 4 files, one, 25%") for line in out.lines()), "a line")
        progress.update(task, completed=4)
    before = out.getvalue()
    assert not [thread for thread in threading.enumerate() if thread.name == "progress"]
    assert out.getvalue() == before


def test_a_quick_command_writes_none() -> None:
    out = Written()
    with CommandProgress(TEXTS, bar=True, console=Console(file=out)) as progress:
        progress.add_task("fill", total=4, note="")
    assert out.getvalue() == ""


def test_a_terminal_shows_share_and_time_left() -> None:
    out = Written()
    console = Console(file=out, force_terminal=True, width=120)
    with CommandProgress(TEXTS, bar=True, console=console) as progress:
        task = progress.add_task("fill", total=4, note="")
        progress.update(task, completed=1)
        progress.refresh()
    assert "25%" in out.getvalue() and "1 of 4 files" in out.getvalue()
    assert not [thread for thread in threading.enumerate() if thread.name == "progress"]
