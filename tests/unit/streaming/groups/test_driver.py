"""Driver of a group: what it does for its other streams while one starts alone."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec

from jobs.base.system.boot import boot_clock, boot_id
from jobs.clients.state_store.stream_folder import stream_folder
from jobs.config.settings.settings import Settings
from jobs.streaming.groups.driver import GroupDriver
from jobs.streaming.supervision.documents.control_request import (
    ControlReader,
    ControlRequest,
    write_control,
)
from jobs.streaming.supervision.documents.heartbeat import Heartbeat, read_heartbeat
from jobs.streaming.supervision.documents.launches import (
    Launch,
    LaunchedProcess,
    write_launch,
    write_launched_process,
)
from jobs.streaming.supervision.processes.groups import DriverGroup


def test_a_stream_that_is_not_to_begin_is_answered_while_another_starts_alone(tmp_path: Path) -> None:
    """Otherwise an action that stops the stream would give up before the driver answers."""
    settings = Settings.embedded(tmp_path)
    group = DriverGroup.of(settings, "small")
    process = LaunchedProcess(1, "a", 0, "", boot_id(), "here", 0.0, "small")
    no_spark: Any = None
    driver = GroupDriver(group, process, ControlReader(group.folder.store, 1), no_spark, "")
    now = time.time()
    starting: Any = SimpleNamespace(
        attempt=1,
        lives=True,
        beat=lambda: Heartbeat("first", "a", 1, 1, "1", "boot", "here", now, "starting", now, boot_clock(), now),
    )
    driver._streams["first"], driver._alone = starting, ("first", now)
    store = stream_folder(settings, "second").store
    write_launch(store, Launch(4, "a", "s.yaml", 0, now, group="small"), "")
    write_launched_process(store, msgspec.structs.replace(process, attempt=4))
    write_control(store, ControlRequest("stopped"), ControlRequest())
    driver._take_up()
    beat = read_heartbeat(store)
    assert beat is not None
    assert (beat.state, beat.attempt) == ("stopped", 4)
    assert list(driver._streams) == ["first"]
