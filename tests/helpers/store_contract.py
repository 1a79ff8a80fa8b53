"""The contract of a state store, as tests of a class: whoever tests a store derives from it, with a fixture `store`."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from jobs.clients.state_store.local_store import LocalStore
from jobs.clients.state_store.store import StateStore

# Number of creators at once; SeaweedFS lets those who lose wait for a second.
ROUNDS = {False: 20, True: 2}


class StoreContract:
    """Tests that every state store has to pass."""

    def test_an_empty_store(self, store: StateStore) -> None:
        assert store.get("streams/orders/control.json") is None
        assert store.written_at("streams/orders/control.json") is None
        assert store.keys("*") == store.keys("streams/*/control.json") == []
        store.delete("streams/orders/control.json")
        assert store.below("streams/orders").keys("*.json") == []

    def test_a_document_is_replaced_and_removed(self, store: StateStore) -> None:
        for durable, content in ((True, b"one"), (False, b"two"), (True, b"")):
            store.put("streams/orders/control.json", content, durable=durable)
            assert store.get("streams/orders/control.json") == content
        written = store.written_at("streams/orders/control.json")
        assert written is not None and abs(written - time.time()) < 60
        store.delete("streams/orders/control.json")
        assert store.get("streams/orders/control.json") is None
        assert store.written_at("streams/orders/control.json") is None

    def test_what_is_there_is_not_created(self, store: StateStore) -> None:
        assert store.create_if_absent("lease-00000002.json", b"one")
        assert not store.create_if_absent("lease-00000002.json", b"two")
        assert store.get("lease-00000002.json") == b"one"
        store.delete("lease-00000002.json")
        assert store.create_if_absent("lease-00000002.json", b"two")

    def test_what_has_changed_is_not_replaced(self, store: StateStore) -> None:
        assert not store.replace_if_unchanged("launch.json", b"one", b"two"), "there is none"
        assert store.replace_if_unchanged("launch.json", None, b"one")
        assert not store.replace_if_unchanged("launch.json", None, b"two")
        assert not store.replace_if_unchanged("launch.json", b"", b"two")
        assert store.replace_if_unchanged("launch.json", b"one", b"two")
        assert store.get("launch.json") == b"two"
        store.delete("launch.json")
        assert not store.replace_if_unchanged("launch.json", b"two", b"three")
        assert store.replace_if_unchanged("launch.json", None, b"")
        assert store.replace_if_unchanged("launch.json", b"", b"three")

    def test_of_many_that_replace_at_once_one_does(self, store: StateStore) -> None:
        if isinstance(store, LocalStore):
            pytest.skip("whoever replaces in a folder holds its lock")
        at_once = threading.Barrier(6)
        store.put("launch.json", b"none")

        def replace(former: bytes, number: int) -> bool:
            at_once.wait()
            return store.replace_if_unchanged("launch.json", former, str(number).encode())

        with ThreadPoolExecutor(6) as pool:
            former = b"none"
            for turn in range(ROUNDS[store.shared]):
                numbers = range(10 * turn, 10 * turn + 6)
                made = list(pool.map(replace, [former] * 6, numbers))
                assert sum(made) == 1
                former = str(numbers[made.index(True)]).encode()
                assert store.get("launch.json") == former

    def test_of_many_that_create_at_once_one_does(self, store: StateStore) -> None:
        at_once = threading.Barrier(8)

        def create(name: str, number: int) -> bool:
            at_once.wait()
            return store.create_if_absent(name, str(number).encode())

        with ThreadPoolExecutor(8) as pool:
            for turn in range(ROUNDS[store.shared]):
                name = f"lease-{turn:08d}.json"
                made = list(pool.map(create, [name] * 8, range(8)))
                assert sum(made) == 1
                assert store.get(name) == str(made.index(True)).encode()

    @pytest.mark.parametrize("durable", [True, False])
    def test_nobody_reads_half_a_document(self, store: StateStore, durable: bool) -> None:
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

    def test_keys_match_a_pattern_within_their_segment(self, store: StateStore) -> None:
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

    def test_a_part_of_a_store(self, store: StateStore) -> None:
        part = store.below("streams").below("orders")
        part.put("control.json", b"one")
        assert store.get("streams/orders/control.json") == b"one"
        store.put("streams/orders/launch.json", b"two")
        assert part.get("launch.json") == b"two"
        assert part.keys("*.json") == ["control.json", "launch.json"]
        assert part.place("control.json") == store.place("streams/orders/control.json")
        assert part.place("control.json").endswith("streams/orders/control.json")

    def test_how_long_a_document_was_seen_as_it_is(self, store: StateStore) -> None:
        store.put("heartbeat.json", b"one")
        assert store.unchanged_for("heartbeat.json", b"one") < 1.0
        time.sleep(0.02)
        assert store.unchanged_for("heartbeat.json", b"one") >= 0.02
        store.put("heartbeat.json", b"two")
        assert store.unchanged_for("heartbeat.json", b"two") < 0.02
        assert store.unchanged_for("lease-00000001.json", b"two") == 0.0, "of another document nothing was seen"
