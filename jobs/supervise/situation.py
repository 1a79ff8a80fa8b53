"""How a stream stands when an action begins: what its operator wants, what its file wants, and what drives it."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from pathlib import Path

from jobs.errors import FrazilError
from jobs.spec.settings import Settings
from jobs.state.lease import LeaseRecord
from jobs.state.paths import stream_folder
from jobs.supervise.control import Control, read_control
from jobs.supervise.driver_process import (
    SILENT_SECONDS,
    Driver,
    ProcessNote,
    find_driver,
    holds_lease,
    other_holder,
    read_note,
)
from jobs.supervise.heartbeat import Heartbeat, read_heartbeat
from jobs.supervise.launches import Launch, read_launch
from jobs.supervise.wanted import Wanted, find_wanted


@dataclass(frozen=True, slots=True)
class Situation:
    """One look at a stream.

    Attributes:
        folder: Its state folder.
        beat: The newest heartbeat, of whatever attempt.
        note: The process of the newest launch.
        driver: The driver that lives.
        holder: Who holds the lease without being a driver.
        frozen: Whether the driver's process is there, but neither beats nor holds the lease any more.
    """

    stream: str
    folder: Path
    settings: Settings
    wanted: Wanted
    control: Control
    launch: Launch | None
    beat: Heartbeat | None
    note: ProcessNote | None
    driver: Driver | None
    holder: LeaseRecord | None
    frozen: bool = False

    @property
    def ending(self) -> bool:
        """Whether the driver that lives has been asked to end, ends by itself, or is good for nothing else."""
        driver = self.driver
        if driver is None:
            return False
        if self.frozen:
            return True
        if self.control.wish == "stopped" or self.control.end_attempt >= driver.attempt:
            return True
        beat = driver.beat
        return beat is not None and (beat.final or (beat.state == "stopping" and self.control.wish == "running"))

    @property
    def last_attempt(self) -> int:
        """The greatest attempt that was ever made or told to end, as far as any of the files knows."""
        attempts = [each.attempt for each in (self.launch, self.beat, self.note, self.driver) if each is not None]
        return max([self.control.end_attempt, *attempts])

    @property
    def continuous(self) -> bool:
        """Whether the stream is to have a driver, as far as its file can be read."""
        return self.wanted.spec is None or self.wanted.spec.continuous

    def whose_wish(self) -> str:
        """What is wished of the stream, by whom, and why."""
        control = self.control
        who = f" by {control.by}" if control.by else ""
        return f"stream {self.stream} is {control.wish}{who}{f': {control.reason}' if control.reason else ''}."

    def refuse_stopped(self) -> None:
        """Raise if the stream is stopped at an operator's wish.

        Raises:
            FrazilError: Says who stopped it, and why.
        """
        if self.control.wish == "stopped":
            raise FrazilError(self.whose_wish(), fix=f"frazil start {self.stream}")

    def refuse_other_holder(self) -> None:
        """Raise if something that is no driver lands the stream's records.

        Raises:
            FrazilError: Names the process.
        """
        if self.holder is not None:
            raise FrazilError(
                f"stream {self.stream} is drained by process {self.holder.pid} on {self.holder.host}, which is no "
                "driver: a `frazil run`, or a run of Dagster.",
                fix=f"wait for it to end, or stop process {self.holder.pid}; then run this again",
            )


def look(home: Path, settings: Settings, stream: str) -> Situation:
    """Look at a stream now. Reads files only.

    Raises:
        FrazilError: There is no such stream: neither a file nor anything that it left; or its control file is damaged.
    """
    known_name = re.fullmatch(r"[a-z][a-z0-9_-]{0,62}", stream) is not None
    folder = stream_folder(settings, stream if known_name else "-").root
    wanted = find_wanted(home / "streams", folder, stream)
    if wanted.file is None and not (known_name and folder.is_dir()):
        close = difflib.get_close_matches(stream, wanted.known, n=1)
        raise FrazilError(
            f"There is no stream '{stream}' in {home / 'streams'}"
            + (f"; it has {', '.join(sorted(wanted.known))}." if wanted.known else "."),
            fix=f"did you mean {close[0]}?" if close else "frazil status",
        )
    return look_in(folder, settings, stream, wanted)


def look_in(folder: Path, settings: Settings, stream: str, wanted: Wanted) -> Situation:
    """Look at a stream whose file has been read already.

    Raises:
        FrazilError: Its control file is damaged.
    """
    ttl = settings.lease_ttl.total_seconds()
    driver = find_driver(folder, stream, ttl)
    return Situation(
        stream=stream,
        folder=folder,
        settings=settings,
        wanted=wanted,
        control=read_control(folder),
        launch=read_launch(folder),
        beat=read_heartbeat(folder),
        note=read_note(folder),
        driver=driver,
        holder=other_holder(folder, stream, ttl, driver),
        frozen=is_frozen(driver, folder, stream, ttl),
    )


def is_frozen(driver: Driver | None, folder: Path, stream: str, ttl_seconds: float) -> bool:
    """Whether a driver's process is there, but neither beats nor holds the lease any more."""
    beat = driver.beat if driver is not None and driver.local else None
    return beat is not None and beat.age() > SILENT_SECONDS and not holds_lease(folder, stream, ttl_seconds, beat)
