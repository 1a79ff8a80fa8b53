"""The contract of a state store, which each of them keeps."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from jobs.state.local_store import LocalStore
from jobs.state.store import StateStore
from tests.helpers.memory_store import InMemoryStore


@pytest.fixture(params=["folder", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> StateStore:
    return LocalStore(tmp_path / "state") if request.param == "folder" else InMemoryStore()


def test_an_empty_store(store: StateStore) -> None:
    assert store.get("streams/orders/control.json") is None
    assert store.written_at("streams/orders/control.json") is None
    assert store.keys("*") == store.keys("streams/*/control.json") == []
    store.delete("streams/orders/control.json")
    assert store.below("streams/orders").keys("*.json") == []


def test_a_document_is_replaced_and_removed(store: StateStore) -> None:
    for durable, content in ((True, b"one"), (False, b"two"), (True, b"")):
        store.put("streams/orders/control.json", content, durable=durable)
        assert store.get("streams/orders/control.json") == content
    written = store.written_at("streams/orders/control.json")
    assert written is not None and abs(written - time.time()) < 60
    store.delete("streams/orders/control.json")
    assert store.get("streams/orders/control.json") is None
    assert store.written_at("streams/orders/control.json") is None


def test_what_is_there_is_not_created(store: StateStore) -> None:
    assert store.create_if_absent("lease-00000002.json", b"one")
    assert not store.create_if_absent("lease-00000002.json", b"two")
    assert store.get("lease-00000002.json") == b"one"
    store.delete("lease-00000002.json")
    assert store.create_if_absent("lease-00000002.json", b"two")


def test_of_many_that_create_at_once_one_does(store: StateStore) -> None:
    at_once = threading.Barrier(8)

    def create(name: str, number: int) -> bool:
        at_once.wait()
        return store.create_if_absent(name, str(number).encode())

    with ThreadPoolExecutor(8) as pool:
        for turn in range(20):
            name = f"lease-{turn:08d}.json"
            made = list(pool.map(create, [name] * 8, range(8)))
            assert sum(made) == 1
            assert store.get(name) == str(made.index(True)).encode()


@pytest.mark.parametrize("durable", [True, False])
def test_nobody_reads_half_a_document(store: StateStore, durable: bool) -> None:
    contents = [bytes([letter]) * 100_000 for letter in b"abc"]
    store.put("note.json", contents[0])
    done = threading.Event()

    def write() -> None:
        try:
            for turn in range(60):
                store.put("note.json", contents[turn % 3], durable=durable)
        finally:
            done.set()

    writing = threading.Thread(target=write)
    writing.start()
    while not done.is_set():
        assert store.get("note.json") in contents
    writing.join()


def test_keys_match_a_pattern_within_their_segment(store: StateStore) -> None:
    for key in (
        "supervisor.json",
        "streams/b/pending-00000002.json",
        "streams/b/replay/pending-00000001.json",
        "streams/a/pending-00000010.json",
        "streams/a/pending-00000009.json",
        "streams/a/lease-00000010.json",
    ):
        store.put(key, b"{}")
    assert store.keys("pending-*.json") == []
    assert store.keys("*.json") == ["supervisor.json"]
    assert store.keys("streams/a/pending-*.json") == [
        "streams/a/pending-00000009.json",
        "streams/a/pending-00000010.json",
    ]
    assert store.keys("streams/*/pending-*.json") == [
        "streams/a/pending-00000009.json",
        "streams/a/pending-00000010.json",
        "streams/b/pending-00000002.json",
    ]
    assert store.keys("streams/*/replay/pending-*.json") == ["streams/b/replay/pending-00000001.json"]


def test_a_part_of_a_store(store: StateStore) -> None:
    part = store.below("streams").below("orders")
    part.put("control.json", b"one")
    assert store.get("streams/orders/control.json") == b"one"
    store.put("streams/orders/launch.json", b"two")
    assert part.get("launch.json") == b"two"
    assert part.keys("*.json") == ["control.json", "launch.json"]
    assert part.place("control.json") == store.place("streams/orders/control.json")
    assert part.place("control.json").endswith("streams/orders/control.json")


def test_how_long_a_document_was_seen_as_it_is(store: StateStore) -> None:
    store.put("heartbeat.json", b"one")
    assert store.unchanged_for("heartbeat.json", b"one") < 1.0
    time.sleep(0.02)
    assert store.unchanged_for("heartbeat.json", b"one") >= 0.02
    store.put("heartbeat.json", b"two")
    assert store.unchanged_for("heartbeat.json", b"two") < 0.02
    assert store.unchanged_for("lease-00000001.json", b"two") == 0.0, "of another document nothing was seen"


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
