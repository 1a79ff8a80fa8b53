"""What a shared store makes of a service that is late, busy, silent, or answers a write twice."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.clients.state_store import shared_store
from jobs.clients.state_store.local_store import LocalStore
from jobs.clients.state_store.shared_store import BusyStoreError, Expected, SharedStore
from jobs.clients.state_store.store import NotWrittenError, StateStore
from jobs.clients.state_store.store_proof import UnsafeStoreError, prove_store
from jobs.clients.state_store.stream_folder import StreamFolder
from jobs.streaming.driver.batch.retry import is_unavailable
from tests.helpers.late_service import LateService
from tests.helpers.store_contract import StoreContract

KEY = "streams/orders/launch.json"


@pytest.fixture
def store(service: LateService, tmp_path: Path) -> StateStore:
    return SharedStore(service, tmp_path)


@pytest.fixture
def service() -> LateService:
    return LateService()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No write is tried for a second time."""
    monkeypatch.setattr(shared_store, "RETRY_SECONDS", 0.0)


class TestSharedStore(StoreContract):
    pass


@pytest.mark.parametrize("plans", [["twice"], ["lost"], ["dropped"], ["busy", "busy"], ["late"], ["unsent", "lost"]])
@pytest.mark.parametrize(
    "write",
    [
        lambda store: store.create_if_absent(KEY, b"new"),
        lambda store: store.replace_if_unchanged(KEY, None, b"new"),
        lambda store: store.put(KEY, b"new") is None,
    ],
)
def test_a_write_that_is_answered_badly_succeeds_once_all_the_same(
    store: StateStore, service: LateService, plans: list[str], write: Callable[[StateStore], bool]
) -> None:
    service.plans = plans
    assert write(store)
    before = service.documents[KEY]
    service.deliver()
    assert service.documents[KEY] == before, "what comes late changes nothing"


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("plan", ["lost", "dropped", "late"])
def test_a_write_without_an_answer_may_be_there(store: StateStore, service: LateService, plan: str) -> None:
    store.put(KEY, b"old")
    service.plans = [plan]
    with pytest.raises(OSError, match=r"no answer \(it may have been written nevertheless\)") as unclear:
        store.put(KEY, b"new")
    assert not isinstance(unclear.value, NotWrittenError)
    assert store.get(KEY) == (b"new" if plan == "lost" else b"old")


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("plan", ["busy", "unsent", "refused"])
def test_a_write_that_was_not_carried_out_is_told_from_one_that_may_have_been(
    store: StateStore, service: LateService, plan: str
) -> None:
    for write in (
        lambda: store.put(KEY, b"new"),
        lambda: store.create_if_absent(KEY, b"new"),
        lambda: store.put(KEY, b"new", durable=False),
    ):
        service.plans = [plan]
        with pytest.raises(NotWrittenError if plan != "refused" else OSError):
            write()
        assert service.documents == {}


@pytest.mark.parametrize(
    "ask",
    [
        lambda store: store.put(KEY, b"new"),
        lambda store: store.put(KEY, b"new", durable=False),
        lambda store: store.create_if_absent(KEY, b"new"),
        lambda store: store.get(KEY),
        lambda store: store.delete(KEY),
        lambda store: store.keys("streams/*/launch.json"),
        lambda store: store.written_at(KEY),
        prove_store,
    ],
)
@pytest.mark.parametrize("kind", [BusyStoreError, NotWrittenError])
def test_a_service_that_stays_busy_is_one_to_wait_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ask: Callable[[StateStore], object], kind: type[OSError]
) -> None:
    """As the one that does not answer at all: a driver whose store is throttled waits for it, and does not end."""

    def busy(*_: object) -> NoReturn:
        raise kind(errno.EAGAIN, "SlowDown")

    service = LateService()
    for name in ("read", "write", "remove", "keys", "written_at"):
        monkeypatch.setattr(service, name, busy)
    monkeypatch.setattr(shared_store, "RETRY_SECONDS", 0.0)
    monkeypatch.setattr(shared_store, "READ_SECONDS", 0.0)
    with pytest.raises(OSError, match="SlowDown") as left:
        ask(SharedStore(service, tmp_path))
    assert is_unavailable(left.value)
    assert not is_unavailable(OSError(errno.EAGAIN, "fork")), "which is a matter of this machine"


def test_a_refusal_is_not_tried_again_and_a_former_attempt_stays_in_doubt(
    store: StateStore, service: LateService
) -> None:
    service.plans = ["late", "refused"]
    with pytest.raises(OSError, match=r"refused \(it may have been") as unclear:
        store.put(KEY, b"new")
    assert not isinstance(unclear.value, NotWrittenError)


@pytest.mark.usefixtures("impatient")
@given(st.lists(st.tuples(st.sampled_from(["", "lost", "dropped", "late"]), st.booleans()), max_size=6))
def test_what_comes_late_never_overwrites_what_was_written_since(writes: list[tuple[str, bool]]) -> None:
    """Two machines write one after the other; whatever is on its way arrives when all have written, or in between."""
    service, root = LateService(), Path("/nonexistent/state")
    stores = [SharedStore(service, root), SharedStore(service, root)]
    for number, (plan, delivered) in enumerate(writes):
        service.plans = [plan]
        with contextlib.suppress(OSError):
            stores[number % 2].put(KEY, str(number).encode())
        if not plan:
            written = service.documents[KEY]
            assert written.content == str(number).encode()
            if delivered:
                service.deliver()
                assert service.documents[KEY] == written


@pytest.mark.usefixtures("impatient")
@given(
    st.lists(st.tuples(st.integers(0, 1), st.sampled_from(["", "twice", "lost", "dropped", "late", "done", "deliver"])))
)
def test_a_record_of_a_batch_is_overwritten_by_no_other_driver_and_by_no_former_batch(
    acts: list[tuple[int, str]],
) -> None:
    """A driver that was taken over, and its successor on another machine, write and remove records in any order."""
    service, root = LateService(), Path("/nonexistent/state")
    folders = [StreamFolder(root, SharedStore(service, root)) for _ in range(2)]
    keys = [folder.pending(epoch) for folder, epoch in zip(folders, (5, 6), strict=True)]
    written: list[bytes | None] = [None, None]
    for number, (who, act) in enumerate(acts):
        if act == "deliver":
            service.deliver()
        elif act == "done":
            folders[who].store.delete(keys[who])
            written[who] = None
        else:
            service.plans, record = [act], f"batch {number} of driver {who}".encode()
            try:
                folders[who].store.put(keys[who], record)
                written[who] = record
            except OSError:
                # It opens the stream anew then, under another epoch; here it goes on under its own, which is worse.
                written[who] = None
        for each, expected in zip(keys, written, strict=True):
            assert expected is None or folders[0].store.get(each) == expected


def test_a_launch_that_another_machine_has_taken_is_not_made_by_a_late_write(
    store: StateStore, service: LateService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = SharedStore(service, tmp_path / "other")
    service.plans = ["late"]
    monkeypatch.setattr(shared_store, "RETRY_SECONDS", 0.0)
    with pytest.raises(OSError, match="no answer"):
        store.replace_if_unchanged(KEY, None, b"attempt 1 here")
    assert other.replace_if_unchanged(KEY, None, b"attempt 1 there")
    service.deliver()
    assert store.get(KEY) == b"attempt 1 there"


def test_a_document_counts_as_seen_from_when_it_was_read_not_from_when_the_answer_came(tmp_path: Path) -> None:
    service, now = LateService(), [100.0]
    store = SharedStore(service, tmp_path, clock=lambda: now[0])
    store.put("lease.json", b"one")
    assert store.get("lease.json") == b"one"
    assert store.unchanged_for("lease.json", b"one") == 0.0
    now[0] = 110.0
    service.silent = lambda: now.__setitem__(0, now[0] + 4.0)
    assert store.get("lease.json") == b"one"
    assert store.unchanged_for("lease.json", b"one") == 10.0, "asked at 110, answered at 114"


def test_while_the_store_cannot_be_read_nothing_grows_old(tmp_path: Path) -> None:
    """Nobody can have renewed a lease then; whoever holds it gets the time to do so when the store is back."""
    service, now = LateService(), [100.0]
    store = SharedStore(service, tmp_path, clock=lambda: now[0])
    store.put("lease.json", b"one")
    assert store.get("lease.json") == b"one"
    assert store.unchanged_for("lease.json", b"one") == 0.0

    def silent() -> None:
        raise OSError(errno.EIO, "no answer")

    now[0], service.silent = 110.0, silent
    with pytest.raises(OSError, match="no answer"):
        store.get("lease.json")
    now[0], service.silent = 150.0, lambda: None
    assert store.get("lease.json") == b"one"
    assert store.unchanged_for("lease.json", b"one") == 0.0
    now[0] = 165.0
    assert store.get("lease.json") == b"one"
    assert store.unchanged_for("lease.json", b"one") == 15.0


def test_what_one_process_saw_the_next_one_on_this_machine_knows(tmp_path: Path) -> None:
    service, now = LateService(), [100.0]
    store = SharedStore(service, tmp_path, clock=lambda: now[0]).below("streams").below("orders")
    store.put("lease.json", b"one")
    assert store.unchanged_for("lease.json", b"one") == 0.0
    now[0] = 130.0
    again = SharedStore(service, tmp_path, clock=lambda: now[0]).below("streams/orders")
    assert again.unchanged_for("lease.json", b"one") in (0.0, 30.0)
    elsewhere = SharedStore(service, tmp_path / "elsewhere", clock=lambda: now[0]).below("streams/orders")
    assert elsewhere.unchanged_for("lease.json", b"one") == 0.0


def test_who_looks_at_many_documents_does_not_wait_for_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service = LateService()
    store = SharedStore(service, tmp_path)

    def silent() -> None:
        raise OSError(errno.EIO, "no answer")

    service.silent = silent
    monkeypatch.setattr(shared_store, "_SLOW_SECONDS", -1.0)
    for part in (store, store.below("streams"), store):
        with pytest.raises(OSError, match=r"did not answer a moment ago|no answer"):
            part.get("heartbeat.json")
    assert service.reads == 1
    monkeypatch.setattr(shared_store, "_SILENCE_SECONDS", 0.0)
    store._silence.until = 0.0
    service.silent = lambda: None
    assert store.get("heartbeat.json") is None, "and asks again soon"


def test_the_part_of_this_machine_alone_is_a_folder(store: StateStore, tmp_path: Path) -> None:
    assert store.shared
    store.below("streams/orders").local.put("keeper.json", b"{}")
    assert (tmp_path / "streams" / "orders" / "keeper.json").read_bytes() == b"{}"
    assert store.keys("streams/orders/*") == []
    folder = LocalStore(tmp_path)
    assert not folder.shared and folder.local is folder


class Lax(LateService):
    """A service that passes over conditions, as some object stores do."""

    def __init__(self, passed_over: Callable[[Expected], bool]) -> None:
        super().__init__()
        self.passed_over: Callable[[Expected], bool] = passed_over

    def write(self, key: str, content: bytes, nonce: str, expected: Expected) -> bool:
        return super().write(key, content, nonce, True if self.passed_over(expected) else expected)


def test_a_store_that_keeps_conditions_is_proven_and_nothing_is_left(store: StateStore, service: LateService) -> None:
    prove_store(store)
    assert service.documents == {}
    prove_store(LocalStore(Path("/nonexistent")))


@pytest.mark.parametrize(
    ("passed_over", "message"),
    [
        (lambda expected: expected is None, "creates a document that exists already .If-None-Match., so two drivers"),
        (lambda expected: isinstance(expected, str), "replaces a document that has changed meanwhile .If-Match."),
    ],
)
def test_a_store_that_passes_over_conditions_is_refused(
    tmp_path: Path, passed_over: Callable[[Expected], bool], message: str
) -> None:
    service = Lax(passed_over)
    with pytest.raises(UnsafeStoreError, match=message) as unsafe:
        prove_store(SharedStore(service, tmp_path))
    assert "service:" in unsafe.value.message and unsafe.value.fix
    assert service.documents == {}
