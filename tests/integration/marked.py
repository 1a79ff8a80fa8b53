"""Processes that carry a mark in their environment, so that whatever a command leaves behind is found."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

ROOT = Path(__file__).resolve().parents[2]


class Marked:
    """A `frazil` command whose every descendant can be recognised, wherever it went; as a context it ends at its end.

    Args:
        home: The deployment.
        arguments: What follows `frazil --home …`.
    """

    def __init__(self, home: Path, arguments: Sequence[str]) -> None:
        self._mark: str = uuid.uuid4().hex
        self.process: subprocess.Popen[str] = subprocess.Popen(
            [sys.executable, "-m", "orchestration.cli.main", "--home", str(home), *arguments],
            cwd=home,
            env={**os.environ, "PYTHONPATH": str(ROOT), "FRAZIL_TEST_MARK": self._mark},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def __enter__(self) -> Marked:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A test that has failed leaves nothing to those that follow.
        if not self.ended():
            self.process.terminate()
            self.finish(60)

    def living(self, word: str = "") -> list[str]:
        """The commands of its living processes that contain `word`."""
        return list(self.processes(word).values())

    def processes(self, word: str = "") -> dict[int, str]:
        """Its living processes whose commands contain `word`: those commands, by pid."""
        found: dict[int, str] = {}
        for folder in Path("/proc").iterdir():
            if not folder.name.isdigit():
                continue
            try:
                marked = self._mark.encode() in (folder / "environ").read_bytes()
                state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
                command = (folder / "cmdline").read_text().replace("\0", " ")
            except OSError:
                continue
            if marked and state != "Z" and word in command:
                found[int(folder.name)] = command
        return found

    def ended(self) -> bool:
        """Whether it has ended."""
        return self.process.poll() is not None

    def interrupt(self) -> None:
        """Ctrl-C."""
        os.kill(self.process.pid, signal.SIGINT)

    def finish(self, seconds: float = 150.0) -> tuple[int, str, str]:
        """Wait for its end: exit status, standard output, standard error."""
        output, errors = self.process.communicate(timeout=seconds)
        return self.process.returncode, output, errors
