"""What a copy of documents does when it was cut off, and while maintenance and checks go on."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.base.errors import FrazilError
from jobs.clients.state_store.document_copy import copy_documents, documents_of
from jobs.clients.state_store.local_store import LocalStore

RESULTS = (
    "tables/0191/health.json",
    "tables/0191/maintained.json",
    "streams/payments/checks/rows/00000000000001-a.json",
)
PENDING = "streams/payments/pending-00000003.json"


@pytest.fixture
def source(tmp_path: Path) -> LocalStore:
    store = LocalStore(tmp_path / "source")
    for key in (*RESULTS, PENDING):
        store.put(key, b"1")
    return store


@pytest.fixture
def target(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "target")


def test_a_copy_that_was_cut_off_goes_on_over_results_that_were_written_since(
    source: LocalStore, target: LocalStore
) -> None:
    copy_documents(source, target)
    health, maintained, check = RESULTS
    source.put(health, b"2")
    source.put(maintained, b"2")
    source.delete(check)
    target.delete(PENDING)
    assert copy_documents(source, target).documents == 3
    assert [target.get(key) for key in (health, maintained, PENDING)] == [b"2", b"2", b"1"]


def test_results_may_be_written_during_a_copy_and_nothing_else(
    source: LocalStore, target: LocalStore, tmp_path: Path
) -> None:
    class Busy(LocalStore):
        """Writes documents after each is read."""

        keys_written: tuple[str, ...] = RESULTS

        def get(self, key: str) -> bytes | None:
            content = super().get(key)
            for each in self.keys_written:
                self.put(each, (super().get(each) or b"") + b".")
            self.put("tables/0192/health.json", b"new")
            return content

    busy = Busy(tmp_path / "source")
    copy_documents(busy, target)
    assert set(documents_of(target)) == {*RESULTS, PENDING}
    busy.keys_written = (PENDING,)
    with pytest.raises(FrazilError, match="so something runs which is neither maintenance nor a check"):
        copy_documents(busy, LocalStore(tmp_path / "other"))


def test_what_another_deployment_has_there_is_not_overwritten(source: LocalStore, target: LocalStore) -> None:
    target.put(PENDING, b"of another")
    with pytest.raises(FrazilError, match=r"pending-00000003.json exists already") as refused:
        copy_documents(source, target)
    assert "Nothing is overwritten but results of maintenance and checks" in refused.value.message
    assert target.get(PENDING) == b"of another"
