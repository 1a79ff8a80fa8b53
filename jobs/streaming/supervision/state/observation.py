"""Observation of a stream: its desired and actual state, with each document read once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from jobs.base.errors import FrazilError
from jobs.clients.state_store.stream_folder import StreamFolder, stream_folder
from jobs.config.settings.settings import Settings
from jobs.streaming.supervision.documents.control_request import ControlRequest, read_control
from jobs.streaming.supervision.documents.heartbeat import Heartbeat
from jobs.streaming.supervision.documents.launches import launched_file
from jobs.streaming.supervision.launchers.choice import looker
from jobs.streaming.supervision.processes.actual import (
    ActualState,
    Driver,
    UnreadableStateError,
    read_actual,
)
from jobs.streaming.supervision.processes.groups import DriverGroup
from jobs.streaming.supervision.state.desired import DesiredState, StreamFiles, desired_state


@dataclass(frozen=True, slots=True)
class Observation:
    """State of a stream, observed by an action, by the supervisor, or by `frazil status`.

    Attributes:
        folder: Its folder outside its tables.
        settings: Settings of the observation.
    """

    stream: str
    folder: StreamFolder
    settings: Settings
    desired: DesiredState
    actual: ActualState

    @property
    def control(self) -> ControlRequest:
        """The operator's newest request."""
        return self.desired.control

    @property
    def heartbeat(self) -> Heartbeat | None:
        """The newest heartbeat, of any attempt."""
        return self.actual.heartbeat

    @property
    def driver(self) -> Driver | None:
        """The living driver."""
        return self.actual.driver

    @property
    def ending(self) -> bool:
        """True if the running driver is stopping or cannot be reused."""
        driver, control = self.driver, self.control
        if driver is None:
            return False
        if driver.frozen or control.mode == "stopped" or control.end_attempt >= driver.attempt:
            return True
        beat = driver.heartbeat
        return beat is not None and (beat.final or (beat.state == "stopping" and control.mode == "running"))

    @property
    def last_attempt(self) -> int:
        """Greatest attempt that was ever launched or asked to end, by any of the documents."""
        actual = self.actual
        known = (actual.launch, actual.heartbeat, actual.launched_process)
        return max(self.control.end_attempt, *(each.attempt for each in known if each is not None), 0)

    def refuse_stopped(self) -> None:
        """Raise if the stream is stopped by an operator's request.

        Raises:
            FrazilError: Names the author and the reason of the stop.
        """
        if self.control.mode == "stopped":
            raise FrazilError(self.control.sentence(self.stream), fix=f"frazil start {self.stream}")

    def refuse_other_holder(self) -> None:
        """Raise if something other than a driver lands the stream's records.

        Raises:
            FrazilError: Names the process.
        """
        holder = self.actual.other_holder
        if holder is not None:
            raise FrazilError(
                f"stream {self.stream} is landed by {holder.name}, which is no driver: a `frazil run`, or a run of "
                "Dagster.",
                fix=f"wait for it to end, or stop process {holder.pid}; then run this again",
            )


def observe(stream: str, files: StreamFiles, settings: Settings) -> Observation:
    """Observe a stream now. Never raises for the content of its files or its state folder: see `actual.problem`.

    Args:
        files: Content of `streams/`.
        settings: Settings with the place of its state.
    """
    folder = stream_folder(settings, stream)
    actual, control = read_actual(folder.store, stream, looker(settings)), ControlRequest()
    try:
        control = read_control(folder.store)
    except (FrazilError, OSError) as error:
        if not actual.problem:
            known = isinstance(error, FrazilError)
            sentence = error.message if known else f"{folder.store.place('')} cannot be read ({error.strerror})"
            actual = replace(actual, problem=sentence, fix=error.fix if known else None)
    if actual.launch is not None and actual.launch.group is not None and actual.driver is None and not actual.problem:
        actual = _with_group(actual, DriverGroup.of(settings, actual.launch.group))
    desired = desired_state(stream, files, settings, partial(launched_file, folder), control, actual.launch)
    return Observation(stream, folder, settings, desired, actual)


def _with_group(actual: ActualState, group: DriverGroup) -> ActualState:
    """State of a stream without a driver, with the prospects of its group's driver."""
    try:
        starts = group.next_start()
    except (UnreadableStateError, OSError):
        # The stream's own documents count nevertheless.
        return actual
    return replace(actual, keeper=starts.keeper, group_starts_in=starts.seconds)
