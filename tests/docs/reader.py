"""A reader who follows a page of the docs: writes its files and types its commands, in a folder of their own."""

from __future__ import annotations

import getpass
import os
import re
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from tests.docs.comparison import difference
from tests.docs.page import Command, File, Page

ROOT = Path(__file__).resolve().parents[2]
COMMAND_SECONDS = 600
_HOST = socket.gethostname()
_BACKGROUND_SECONDS = 240
_END_SECONDS = 30
# Keeps the folder and the exported variables from one command to the next, as a reader's shell does.
_SCRIPT = """\
cd "$(cat {state}/folder)" || exit 97
. {state}/variables
{command}
status=$?
pwd > {state}/folder
export -p > {state}/variables
exit $status
"""


class Reader:
    """Follows a page; at its end all processes that the commands started end, too.

    Args:
        folder: Empty folder, in which the reader begins.
        names: Addresses that stand in the page, and those of the services that a test has started.
    """

    def __init__(self, folder: Path, names: Mapping[str, str] | None = None) -> None:
        self._home: Path = folder / "reader"
        self._state: Path = folder / "state"
        self._names: dict[str, str] = dict(names or {})
        self._mark: str = uuid.uuid4().hex
        self._background: list[subprocess.Popen[bytes]] = []
        for made in (self._home, self._state):
            made.mkdir(parents=True)
        (self._state / "folder").write_text(f"{self._home}\n")
        (self._state / "variables").write_text("")

    def __enter__(self) -> Reader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(signal.SIGTERM)
        deadline = time.monotonic() + _END_SECONDS
        while self._processes() and time.monotonic() < deadline:
            time.sleep(0.2)
        self._end(signal.SIGKILL)
        for process in self._background:
            process.wait(_END_SECONDS)

    def follow(self, page: Page) -> list[str]:
        """Do what the page says; returns how its output differs, command by command. Ends at the first difference."""
        for action in page.actions:
            if isinstance(action, File):
                path = self._folder() / action.path
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(self._here(action.text), encoding="utf-8")
            elif problem := self._problem(action):
                return [f"{page.path}:{action.line}: $ {action.text}\n{problem}"]
        return []

    def run(self, command: Command) -> tuple[int | None, list[str]]:
        """Run a command: its exit status (None while it runs on), and the lines that it printed."""
        if command.background:
            return None, self._start(command)
        log = self._state / "output"
        process = self._popen(command.text, log)
        try:
            status = process.wait(COMMAND_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            return 124, [*self._lines(log), f"(still running after {COMMAND_SECONDS} s)"]
        return status, self._lines(log)

    def _problem(self, command: Command) -> str:
        status, printed = self.run(command)
        if status is not None and status != command.status:
            return f"it ended with {status}:\n" + "\n".join(printed)
        # A command without shown output, such as `cd`, may print what it likes.
        return difference(command.output, printed) if any(line.strip() for line in command.output) else ""

    def _start(self, command: Command) -> list[str]:
        log = self._state / f"background-{len(self._background)}"
        process = self._popen(command.text, log)
        self._background.append(process)
        deadline = time.monotonic() + _BACKGROUND_SECONDS
        while True:
            printed = self._lines(log)
            if process.poll() is not None or time.monotonic() > deadline:
                return printed
            if not difference([*command.output, "..."], printed):
                return [line for line in command.output if line.strip() != "..."]
            time.sleep(0.2)

    def _popen(self, text: str, log: Path) -> subprocess.Popen[bytes]:
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith(("FRAZIL", "DAGSTER", "PYTEST"))
        }
        environment |= {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "FRAZIL_TEST_MARK": self._mark,
            "COLUMNS": "80",
        }
        script = _SCRIPT.format(state=self._state, command=self._here(text))
        with log.open("wb") as output:
            return subprocess.Popen(
                ["bash", "-c", script],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _folder(self) -> Path:
        return Path((self._state / "folder").read_text().strip())

    def _here(self, text: str) -> str:
        for name, address in self._names.items():
            text = text.replace(name, address)
        return text

    def _lines(self, log: Path) -> list[str]:
        text = re.sub(r"[^\n]*\r(?!\n)", "", log.read_text(encoding="utf-8", errors="replace"))
        for name, address in self._names.items():
            text = text.replace(address, name)
        text = text.replace(str(self._home), "~").replace(f"{getpass.getuser()}@{_HOST}", "ada@desk")
        return [line.rstrip() for line in text.replace(f" on {_HOST}", " on desk").splitlines()]

    def _processes(self) -> list[int]:
        found: list[int] = []
        for folder in Path("/proc").iterdir():
            try:
                if folder.name.isdigit() and self._mark.encode() in (folder / "environ").read_bytes():
                    state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
                    found += [int(folder.name)] if state != "Z" else []
            except OSError:
                continue
        return found

    def _end(self, number: signal.Signals) -> None:
        for pid in self._processes():
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue
