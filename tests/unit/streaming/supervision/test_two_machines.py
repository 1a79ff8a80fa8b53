"""Two machines that supervise one stream, and share its documents in a state store."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from jobs.base.errors import FrazilError
from jobs.clients.state_store import stream_folder
from jobs.clients.state_store.shared_store import SharedStore
from jobs.config.settings.settings import Settings
from jobs.streaming.supervision.documents.control_request import (
    ControlRequest,
    read_control,
    write_control,
)
from jobs.streaming.supervision.documents.launches import (
    Launch,
    LaunchedElsewhereError,
    read_launch,
    read_launched_process,
    write_launch,
)
from jobs.streaming.supervision.processes import actual as actual_state
from jobs.streaming.supervision.processes.actual import read_actual
from tests.helpers.late_service import LateService
from tests.unit.streaming.supervision.worlds import WHY, World

STREAM = "streams/payments"


@pytest.fixture
def service() -> LateService:
    return LateService()


@pytest.fixture
def there(service: LateService, tmp_path: Path) -> SharedStore:
    return SharedStore(service, tmp_path / "there").below(STREAM)


@pytest.fixture
def here(service: LateService, tmp_path: Path) -> SharedStore:
    return SharedStore(service, tmp_path / "here").below(STREAM)


def launch() -> Launch:
    return Launch(1, "g", "payments.yaml", 0, time.time())


def test_the_second_machine_to_launch_is_told_and_launches_nothing(
    here: SharedStore,
    there: SharedStore,
    service: LateService,
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(actual_state, "UNSTARTED_SECONDS", 600.0)
    write_launch(there, launch(), "# there\n")
    with pytest.raises(LaunchedElsewhereError, match="another machine has just launched"):
        write_launch(here, launch(), "# here\n")
    actual = read_actual(here, "payments")
    assert actual.starting and actual.launched_elsewhere

    def shared(settings: Settings) -> SharedStore:
        return SharedStore(service, settings.state)

    monkeypatch.setattr(stream_folder, "state_store", shared)
    said = world.control().ensure_running(*WHY).sentence
    assert said == "payments is started elsewhere: another machine launched attempt 1."
    newest = read_launch(here)
    assert newest is not None and newest.attempt == 1
    assert read_launched_process(here) is None


def test_a_launch_whose_process_nobody_has_started_counts_as_failed(
    here: SharedStore, there: SharedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_launch(there, launch(), "# there\n")
    monkeypatch.setattr(actual_state, "UNSTARTED_SECONDS", 600.0)
    assert read_actual(here, "payments").starting
    monkeypatch.setattr(actual_state, "UNSTARTED_SECONDS", -1.0)
    actual = read_actual(here, "payments")
    assert not actual.starting and not actual.launched_elsewhere


def test_a_request_is_not_overwritten_by_one_that_has_not_seen_it(here: SharedStore, there: SharedStore) -> None:
    seen = read_control(here)
    write_control(there, ControlRequest("stopped", action="stop", by="ann", reason="audit"), seen)
    with pytest.raises(FrazilError, match="something else was asked of the stream at the same time: stop by ann"):
        write_control(here, ControlRequest("running", action="roll"), seen)
    assert read_control(here).mode == "stopped"
