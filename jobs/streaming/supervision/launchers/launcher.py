"""Launcher of drivers: the interface to start, look at and end a driver, wherever it runs.

The stream's documents have everything needed to find a driver, so any supervisor on any machine can.
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
    """State of a driver, from its launcher.

    Attributes:
        life: `alive`: it runs, or waits for a place to run; `ended`: it does not run and will not; `unknown`: the
            launcher's service does not answer.
        reason: Reason, as a part of a sentence; empty if there is none.
        place: Machine on which it runs; empty if unknown.
        away: Whether the launcher's service is unavailable, so that further requests would only take time.
    """

    life: Life
    reason: str = ""
    place: str = ""
    away: bool = False


Looker: TypeAlias = Callable[[LaunchedProcess], Look]
"""Looks at a driver of any launcher."""


def nobody_looks(process: LaunchedProcess) -> Look:
    """Looker without settings, which knows only this machine's own processes."""
    return Look("unknown")


@dataclass(frozen=True, slots=True)
class DriverOrder:
    """Order to start a driver.

    Attributes:
        label: The stream's id, or `group:NAME`.
        launch: Launch record, written before.
        folder: Folder on this machine for the driver's output, if the driver runs on this machine.
        command: Command that starts a driver on this machine; ends with `-m MODULE`.
        given: Its arguments: `--home` and the stream or group, without the attempt.
    """

    label: str
    launch: Launch
    folder: Path
    command: tuple[str, ...]
    given: tuple[str, ...]

    @property
    def arguments(self) -> tuple[str, ...]:
        """Arguments after the command on this machine."""
        return (*self.given, "--attempt", str(self.launch.attempt))

    def arguments_at(self, home: str) -> tuple[str, ...]:
        """Arguments after the command if the deployment's folder is another one."""
        at = self.given.index(_HOME_OPTION)
        return (*self.given[:at], _HOME_OPTION, home, *self.given[at + 2 :], *self.arguments[len(self.given) :])

    @property
    def module(self) -> str:
        """Python module to run.

        Raises:
            FrazilError: The command names none.
        """
        if _MODULE_OPTION in self.command[:-1]:
            return self.command[len(self.command) - self.command[::-1].index(_MODULE_OPTION)]
        raise FrazilError(
            f"What starts a driver, {' '.join(self.command)}, does not end with `python -m MODULE`, so how to start it "
            "elsewhere is not known.",
            fix="unset FRAZIL_DRIVER_COMMAND, or have it end with `python -m jobs.streaming.driver.main`",
        )


class Launcher(Protocol):
    """Starts, looks at and ends drivers. It is stateless: what it started has all that it needs."""

    @property
    def name(self) -> LauncherName:
        """Name in the settings."""
        ...

    def check(self) -> str:
        """Check whether drivers can be started, without starting one; returns the result as a sentence.

        Raises:
            FrazilError: They cannot, or no service answers.
        """
        ...

    def handle(self, label: str, attempt: int) -> str:
        """Handle of a driver that is yet to be started; empty if only the start determines it."""
        ...

    def start(self, order: DriverOrder) -> LaunchedProcess:
        """Start a driver.

        Raises:
            NotLaunchedError: The driver was refused.
            FrazilError: The driver could not be started, or the outcome is unknown.
        """
        ...

    def look(self, process: LaunchedProcess) -> Look:
        """State of a driver. Unavailable services do not raise."""
        ...

    def end(self, process: LaunchedProcess, label: str, seconds: float) -> bool:
        """Ask a driver to end, and kill it if it does not within some seconds; returns after its end.

        Returns:
            Whether it ended by request.

        Raises:
            FrazilError: Its end is not certain.
        """
        ...
