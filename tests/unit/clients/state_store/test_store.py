"""The contract of a state store, in a folder and in memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from jobs.clients.state_store.local_store import LocalStore
from jobs.clients.state_store.store import StateStore
from tests.helpers.memory_store import InMemoryStore
from tests.helpers.store_contract import StoreContract


@pytest.fixture(params=["folder", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> StateStore:
    return LocalStore(tmp_path / "state") if request.param == "folder" else InMemoryStore()


class TestStore(StoreContract):
    pass


@pytest.mark.parametrize(
    "operation",
    [
        lambda store: store.put("note.json", b"new"),
        lambda store: store.put("note.json", b"new", durable=False),
        lambda store: store.create_if_absent("note.json", b"new"),
    ],
)
def test_a_store_that_cannot_be_reached_is_an_error(tmp_path: Path, operation: Callable[[StateStore], object]) -> None:
    (tmp_path / "state").write_text("a file where the folder is to be")
    memory = InMemoryStore()

    def away() -> None:
        raise OSError("away")

    memory.before |= {"put": away, "create_if_absent": away}
    for store in (LocalStore(tmp_path / "state"), memory):
        with pytest.raises(OSError, match=r"away|exists|directory"):
            operation(store)
        assert store.get("note.json") is None
