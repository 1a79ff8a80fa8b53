"""Streams whose drivers run on this machine, or are restarted there by a watchdog."""

from __future__ import annotations

from collections.abc import Iterator

from jobs.clients.state_store.stream_folder import state_store, stream_folder, streams_with
from jobs.config.settings.settings import Settings
from jobs.streaming.supervision.documents.control_request import read_control
from jobs.streaming.supervision.documents.heartbeat import KEY as HEARTBEAT
from jobs.streaming.supervision.documents.heartbeat import read_heartbeat
from jobs.streaming.supervision.documents.keeper_record import KEY as KEEPER
from jobs.streaming.supervision.documents.keeper_record import read_keeper
from jobs.streaming.supervision.documents.launches import LAUNCH_KEY, PROCESS_KEY, read_launch
from jobs.streaming.supervision.processes.actual import read_actual
from jobs.streaming.supervision.processes.groups import DriverGroup, known_groups


def streams_with_drivers(settings: Settings) -> list[str]:
    """The streams whose drivers live on this host, those included that have only just been launched."""
    streams = sorted({*streams_with(settings, PROCESS_KEY), *streams_with(settings, HEARTBEAT)})
    drivers = {stream: read_actual(stream_folder(settings, stream).store, stream).driver for stream in streams}
    return [stream for stream, driver in drivers.items() if driver is not None and driver.local]


def attended_streams(settings: Settings) -> list[str]:
    """The streams whose drivers live on this host, and those whose dead driver a watchdog starts again."""
    local = state_store(settings).local
    kept = [key.split("/")[1] for key in local.keys(f"streams/*/{KEEPER}")]
    notes = {stream: read_keeper(stream_folder(settings, stream).store.local) for stream in kept}
    alone = {name for name, note in notes.items() if note and note.lives()}
    return sorted({*streams_with_drivers(settings), *alone, *_of_kept_groups(settings)})


def _of_kept_groups(settings: Settings) -> Iterator[str]:
    """The streams of groups whose driver has a living watchdog, which starts it, and them, again."""
    kept = [name for name in known_groups(settings) if _has_keeper(DriverGroup.of(settings, name))]
    for stream in streams_with(settings, LAUNCH_KEY) if kept else ():
        store = stream_folder(settings, stream).store
        launch, beat, control = read_launch(store), read_heartbeat(store), read_control(store)
        wanted = launch is not None and control.mode != "stopped" and control.end_attempt < launch.attempt
        if launch is not None and wanted and launch.group in kept and not (beat is not None and beat.final):
            yield stream


def _has_keeper(group: DriverGroup) -> bool:
    note = read_keeper(group.folder.store.local)
    return note is not None and note.lives()
