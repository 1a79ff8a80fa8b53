"""Launcher of drivers: the interface by which one is started, looked at and ended, wherever it runs.

What it takes to find a driver again stands in the stream's documents, so any supervisor on any machine can do so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

from jobs.base.errors import FrazilError
from jobs.config.services.launcher_name import LauncherName
from jobs.streaming.supervision.documents.launches import Launch, LaunchedProcess

Life: TypeAlias = Literal["alive", "ended", "unknown"]
_MODULE_OPTION = "-m"
_HOME_OPTION = "--home"


class NotLaunchedError(FrazilError):
    """The launcher refused to start a driver, and none was started.

    Safe: Nothing was changed.
    Next: correct what the message names; then `frazil start S`
    """


@dataclass(frozen=True, slots=True)
class Look:
    """What a launcher says of a driver.

    Attributes:
        life: `alive`: it runs, or waits for a place to run; `ended`: it does not run and will not; `unknown`: who could
            tell does not answer.
        reason: Why, as a part of a sentence; empty where there is nothing to say.
        place: The machine on which it runs; empty where that is not known.
        away: Whether who could tell answers nobody, so that asking about another driver only takes time.
    """

    life: Life
    reason: str = ""
    place: str = ""
    away: bool = False


Looker: TypeAlias = Callable[[LaunchedProcess], Look]
"""Looks at a driver by whatever has launched it."""


def nobody_looks(process: LaunchedProcess) -> Look:
    """A look of who has no settings, so knows no launcher but this machine's own."""
    return Look("unknown")


@dataclass(frozen=True, slots=True)
class DriverOrder:
    """A driver that is to be started.

    Attributes:
        label: The stream's id, or `group:NAME`.
        launch: As it was noted before.
        folder: Of this machine: what the driver prints goes there, where it is this machine's.
        command: What starts a driver on this machine; ends with `-m MODULE`.
        given: What it is told: `--home`, and what is driven; all but the attempt.
    """

    label: str
    launch: Launch
    folder: Path
    command: tuple[str, ...]
    given: tuple[str, ...]

    @property
    def arguments(self) -> tuple[str, ...]:
        """What follows the command on this machine."""
        return (*self.given, "--attempt", str(self.launch.attempt))

    def arguments_at(self, home: str) -> tuple[str, ...]:
        """What follows the command where the deployment's folder is another one."""
        at = self.given.index(_HOME_OPTION)
        return (*self.given[:at], _HOME_OPTION, home, *self.given[at + 2 :], *self.arguments[len(self.given) :])

    @property
    def module(self) -> str:
        """What Python runs.

        Raises:
            FrazilError: The command does not say.
        """
        if _MODULE_OPTION in self.command[:-1]:
            return self.command[len(self.command) - self.command[::-1].index(_MODULE_OPTION)]
        raise FrazilError(
            f"What starts a driver, {' '.join(self.command)}, does not end with `python -m MODULE`, so how to start it "
            "elsewhere is not known.",
            fix="unset FRAZIL_DRIVER_COMMAND, or have it end with `python -m jobs.streaming.driver.main`",
        )


class Launcher(Protocol):
    """Starts drivers, looks at them, and ends them. It keeps nothing: all that it needs is in what it started."""

    @property
    def name(self) -> LauncherName:
        """As the settings have it."""
        ...

    def check(self) -> str:
        """Ask whether drivers can be started, without starting one; returns the answer as a sentence.

        Raises:
            FrazilError: They cannot, or nobody answers.
        """
        ...

    def handle(self, label: str, attempt: int) -> str:
        """By what a driver is found that is yet to be started; empty where only its start tells."""
        ...

    def start(self, order: DriverOrder) -> LaunchedProcess:
        """Start a driver.

        Raises:
            NotLaunchedError: It was refused.
            FrazilError: It could not be started, or nobody knows whether it was.
        """
        ...

    def look(self, process: LaunchedProcess) -> Look:
        """How a driver is. Never raises for what is away."""
        ...

    def end(self, process: LaunchedProcess, label: str, seconds: float) -> bool:
        """Ask a driver to end, and end it hard if it does not within so many seconds; returns once it is gone.

        Returns:
            Whether it ended when it was asked.

        Raises:
            FrazilError: It is not known to be gone.
        """
        ...
