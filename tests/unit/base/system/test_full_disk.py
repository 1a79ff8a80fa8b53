from __future__ import annotations

import errno
import sqlite3
from pathlib import Path

import pytest

from jobs.base.system.full_disk import (
    DiskFullError,
    full_disk_named,
    is_full,
    refuse_if_full,
)
from jobs.clients.state_store.lease import Lease
from jobs.streaming.driver.batch.retry import is_unavailable
from jobs.tables.commit.stamp.errors import ToleranceError
from tests.helpers.memory_store import InMemoryStore


@pytest.mark.parametrize(
    ("problem", "full"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), True),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), True),
        (OSError(errno.EACCES, "No space left on device, says a folder's name"), False),
        (OSError("Error writing bytes to file. Detail: [errno 28] No space left on device"), True),
        (RuntimeError("Job aborted: java.io.IOException: No space left on device"), True),
        (sqlite3.OperationalError("database or disk is full"), True),
        (ToleranceError("a record failed: No space left on device"), False),
        (ValueError("a record with an empty space left in it"), False),
    ],
    ids=repr,
)
def test_whoever_says_so(problem: Exception, full: bool) -> None:
    assert is_full(problem) is full


def test_the_fullest_folder_is_named_and_the_driver_waits(tmp_path: Path) -> None:
    with (
        pytest.raises(DiskFullError, match=f"stream payments: disk full: {tmp_path / 'state'} ") as told,
        full_disk_named("payments", lambda: [tmp_path / "state"]),
    ):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert "`frazil run payments`" in str(told.value)
    assert is_unavailable(told.value)
    place = tmp_path / "elsewhere" / "pending.json"
    with (
        pytest.raises(DiskFullError, match=f"disk full: {place.parent} "),
        full_disk_named("payments", lambda: [tmp_path]),
    ):
        raise OSError(errno.ENOSPC, "No space left on device", str(place))


def test_what_is_nothing_of_the_kind_stays_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a bug"), full_disk_named("payments", lambda: [tmp_path]):
        raise ValueError("a bug")


def test_a_folder_is_tried_with_a_file_that_does_not_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_if_full("payments", tmp_path)
    assert list(tmp_path.iterdir()) == []

    def full(self: Path, content: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(DiskFullError, match=f"disk full: {tmp_path} "):
        refuse_if_full("payments", tmp_path)


def test_a_lease_that_could_not_be_given_back_is_taken_again_at_once() -> None:
    def full() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    store = InMemoryStore()
    lease = Lease(store, "payments", 30.0)
    epoch = lease.acquire(above=0)
    store.before["put"] = full
    lease.release()
    store.before.clear()
    again = Lease(store, "payments", 30.0)
    assert again.acquire(above=0) == epoch + 1
    again.release()
