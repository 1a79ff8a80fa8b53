"""A driver that starts elsewhere while the state store is away: it waits, and a refusal is none to wait for."""

from __future__ import annotations

import errno
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from jobs.clients.state_store.local_store import LocalStore
from jobs.clients.state_store.stream_folder import StreamFolder
from jobs.streaming.supervision.documents.launches import SPEC_FILE
from jobs.streaming.supervision.launchers import driver_identity


class Away:
    """A shared store that fails some times before it answers."""

    shared: bool = True

    def __init__(self, folder: Path, errors: list[OSError]) -> None:
        self.local: LocalStore = LocalStore(folder)
        self.errors: list[OSError] = errors

    def get(self, key: str) -> bytes:
        if self.errors:
            raise self.errors.pop()
        return key.encode()


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(driver_identity.LAUNCHER_VARIABLE, "kubernetes")
    monkeypatch.setattr(driver_identity, "_STORE_PAUSE_SECONDS", 0.0)


def taken(store: Away) -> None:
    driver_identity.take_launched_file(cast("StreamFolder", cast("Any", SimpleNamespace(store=store))))


def test_it_waits_for_the_store(tmp_path: Path) -> None:
    taken(Away(tmp_path, [OSError(errno.EIO, "away")] * 3))
    assert LocalStore(tmp_path).get(SPEC_FILE) == SPEC_FILE.encode()


def test_it_does_not_wait_for_a_right(tmp_path: Path) -> None:
    store = Away(tmp_path, [OSError(errno.EIO, "away"), PermissionError(errno.EACCES, "no")])
    with pytest.raises(PermissionError):
        taken(store)
    assert len(store.errors) == 1
