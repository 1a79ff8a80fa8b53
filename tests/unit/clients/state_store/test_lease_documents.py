"""The lease on a store and a clock of the test's own: every way in which it is lost, and that it is lost for good."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from jobs.clients.state_store import lease_record
from jobs.clients.state_store.lease import Lease, LeaseHeldError
from jobs.clients.state_store.lease_record import LeaseDocuments
from jobs.tables.commit.stamp.errors import FencedError, LeaseExpiredError, LeaseLostError
from tests.helpers.memory_store import InMemoryStore

TTL = 30.0
RELEASE_SECONDS = 0.5


class Clock:
    """The boot's clock, moved by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store() -> InMemoryStore:
    return InMemoryStore()


@pytest.fixture
def make(store: InMemoryStore, clock: Clock) -> Iterator[Callable[..., Lease]]:
    leases: list[Lease] = []

    def lease() -> Lease:
        leases.append(Lease(store, "payments", TTL, clock=clock, release_seconds=RELEASE_SECONDS))
        return leases[-1]

    yield lease
    store.before.clear()
    for each in leases:
        each.release()


def unreachable() -> None:
    raise OSError("no space left on device")


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


@pytest.mark.parametrize("later", [TTL + 0.1, 10 * TTL, 1e6])
def test_expired_and_taken_by_nobody_is_lost_for_good(
    make: Callable[..., Lease], store: InMemoryStore, clock: Clock, later: float
) -> None:
    lease = make()
    lease.acquire(above=0)
    clock.now += TTL
    lease.verify()
    clock.now += later
    assert isinstance(lease.lost, LeaseExpiredError)
    document = dict(store.documents)
    for _ in range(2):
        with pytest.raises(LeaseExpiredError, match=r"the lease ran out: .* is valid for 30 s; the host was suspended"):
            lease.verify()
        lease.remember({"orders.payments": "uuid"})
        clock.now -= later - 1
        assert isinstance(lease.lost, LeaseExpiredError), "also for a clock that would go back"
    assert store.documents == document, "nothing is written as if it were held"


def test_the_renewing_thread_reports_the_loss_without_being_asked(
    make: Callable[..., Lease], clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    lease = make()
    lease.acquire(above=0)
    assert lease.lost is None
    clock.now += TTL + 1
    wait_until(lambda: "the lease ran out" in caplog.text, "the loss to be reported")
    assert isinstance(lease.lost, LeaseExpiredError)


def test_the_renewing_thread_reports_a_successor(
    make: Callable[..., Lease], store: InMemoryStore, clock: Clock
) -> None:
    lease = make()
    lease.acquire(above=0)
    store.documents["lease-00000007.json"] = store.documents["lease-00000001.json"]
    clock.now += TTL / 2
    wait_until(lambda: type(lease.lost) is FencedError, "the successor to be seen")
    assert "another driver took over (epoch 7 on the lease; this one has 1)" in str(lease.lost)


def test_it_renews_when_a_third_of_its_time_is_over(
    make: Callable[..., Lease], store: InMemoryStore, clock: Clock
) -> None:
    lease = make()
    lease.acquire(above=0)
    for _ in range(3):
        before = dict(store.documents)
        clock.now += TTL / 3
        wait_until(lambda before=before: store.documents != before, "it renews by itself")
    assert lease.lost is None


def test_a_successor_is_named_also_when_the_lease_had_expired(
    make: Callable[..., Lease], store: InMemoryStore, clock: Clock
) -> None:
    former, successor = make(), make()
    former.acquire(above=0)
    clock.now += TTL + 1
    assert successor.acquire(above=0) == 2
    with pytest.raises(FencedError):
        former.verify()
    successor.verify()
    former.release()
    successor.verify()
    assert successor.lost is None


def test_an_unreachable_store_is_no_loss_until_the_lease_runs_out(
    make: Callable[..., Lease], store: InMemoryStore, clock: Clock
) -> None:
    lease = make()
    lease.acquire(above=0)
    for operation in ("keys", "put"):
        store.before[operation] = unreachable
        clock.now += 1
        with pytest.raises(OSError, match="no space left"):
            lease.verify()
        store.before.clear()
        lease.verify()
    store.before["keys"] = unreachable
    clock.now += TTL + 1
    with pytest.raises(LeaseExpiredError):
        lease.verify()


def test_a_lease_that_ran_out_before_the_store_was_asked_blames_no_store(
    make: Callable[..., Lease], store: InMemoryStore, clock: Clock
) -> None:
    lease = make()
    lease.acquire(above=0)
    clock.now += TTL + 1
    store.before["keys"] = unreachable
    with pytest.raises(LeaseExpiredError):
        lease.verify()
    assert lease.away is None


def test_a_lease_that_ran_out_while_the_store_was_away_says_so(
    make: Callable[..., Lease], store: InMemoryStore, clock: Clock
) -> None:
    lease = make()
    lease.acquire(above=0)
    for operation in ("keys", "put"):
        store.before[operation] = unreachable
        with pytest.raises(OSError, match="no space left"):
            lease.verify()
        assert "no space left" in str(lease.away)
        store.before.clear()
        lease.verify()
        assert lease.away is None
    store.before["put"] = unreachable
    with pytest.raises(OSError, match="no space left"):
        lease.verify()
    clock.now += TTL + 1
    with pytest.raises(LeaseExpiredError):
        lease.verify()
    assert "no space left" in str(lease.away)


def test_a_write_that_is_through_too_late_does_not_count(
    make: Callable[..., Lease], store: InMemoryStore, clock: Clock
) -> None:
    lease = make()
    lease.acquire(above=0)

    def slow() -> None:
        clock.now += TTL + 1

    store.before["put"] = slow
    with pytest.raises(LeaseExpiredError):
        lease.verify()
    assert "did not answer in time" in str(lease.away)
    store.before.clear()
    with pytest.raises(LeaseExpiredError):
        lease.verify()


def test_one_that_was_stopped_in_the_middle_of_renewing_is_told_who_took_over(
    make: Callable[..., Lease], store: InMemoryStore, clock: Clock
) -> None:
    former, successor = make(), make()
    former.acquire(above=0)

    def meanwhile() -> None:
        store.before.clear()
        clock.now += TTL + 1
        successor.acquire(above=0)

    store.before["put"] = meanwhile
    with pytest.raises(FencedError, match=r"another driver took over \(epoch 2"):
        former.verify()
    successor.verify()


def test_a_stuck_store_holds_up_neither_the_answer_nor_the_end(
    make: Callable[..., Lease], store: InMemoryStore, clock: Clock
) -> None:
    lease = make()
    lease.acquire(above=0)
    stuck, go_on = threading.Event(), threading.Event()

    def hang() -> None:
        stuck.set()
        go_on.wait(60)

    store.before["put"] = hang
    clock.now += TTL / 2
    assert stuck.wait(120), "the renewing thread is in its write"
    clock.now += TTL
    assert isinstance(lease.lost, LeaseExpiredError), "known without the store"
    assert "did not answer in time" in str(lease.away)
    with pytest.raises(LeaseExpiredError):
        lease.verify()
    lease.release()
    with pytest.raises(FencedError):
        lease.verify()
    go_on.set()


def test_released_is_not_written_anew(make: Callable[..., Lease], store: InMemoryStore) -> None:
    lease = make()
    lease.acquire(above=0)
    lease.release()
    document = dict(store.documents)
    with pytest.raises(LeaseLostError, match="holds no lease, or has given it back"):
        lease.verify()
    lease.remember({"orders.payments": "uuid"})
    lease.release()
    assert store.documents == document
    assert lease.lost is None, "given back is not lost"
    assert make().acquire(above=0) == 2


def test_never_taken(make: Callable[..., Lease], store: InMemoryStore) -> None:
    lease = make()
    with pytest.raises(LeaseLostError, match=r"\(epoch 0\)"):
        lease.verify()
    lease.release()
    assert (store.documents, lease.lost) == ({}, None)


def test_an_expired_lease_is_given_back_so_that_the_next_driver_need_not_wait(
    make: Callable[..., Lease], store: InMemoryStore, clock: Clock
) -> None:
    lease = make()
    lease.acquire(above=0)
    clock.now += TTL + 1
    lease.release()
    clock.now -= TTL
    record = lease.read()
    assert record is not None and record.released
    assert lease.acquire(above=0) == 2
    lease.verify()


def test_a_store_that_cannot_be_written_does_not_hide_why_a_driver_ended(
    make: Callable[..., Lease], store: InMemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    lease = make()
    lease.acquire(above=0)
    store.before["put"] = unreachable
    lease.release()
    assert "the lease could not be given back: no space left" in caplog.text
    with pytest.raises(LeaseLostError):
        lease.verify()


@pytest.mark.parametrize("operation", ["keys", "put"])
def test_a_holder_that_could_not_give_it_back_takes_it_again_at_once_and_nobody_else_does(
    make: Callable[..., Lease], store: InMemoryStore, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    former = make()
    former.acquire(above=0)
    store.before[operation] = unreachable
    former.release()
    store.before.clear()
    with monkeypatch.context() as elsewhere:
        # Another process has given up other claims.
        elsewhere.setattr(lease_record, "_GIVEN_UP", {"another"})
        with pytest.raises(LeaseHeldError, match=r"\(epoch 1\)"):
            make().acquire(above=0)
    successor = make()
    assert successor.acquire(above=0) == 2
    with pytest.raises(LeaseLostError):
        former.verify()
    with pytest.raises(LeaseHeldError, match=r"\(epoch 2\)"):
        make().acquire(above=0)
    former.release()
    successor.verify()


@pytest.mark.parametrize("operation", ["create_if_absent", "keys", "delete"])
def test_a_claim_without_an_answer_does_not_stand_in_the_way_of_the_next_attempt(
    make: Callable[..., Lease], store: InMemoryStore, operation: str
) -> None:
    former, unanswered = make(), make()
    former.acquire(above=0)
    former.release()

    def fail_from_here_on() -> None:
        store.before[operation] = unreachable
        if operation == "create_if_absent":
            unreachable()

    store.after["create_if_absent"] = fail_from_here_on
    with pytest.raises(OSError, match="no space left"):
        unanswered.acquire(above=0)
    store.after.clear()
    store.before.clear()
    record = unanswered.read()
    assert record is not None and (record.epoch, record.released) == (2, False), "it was written all the same"
    assert make().acquire(above=0) == 3


def test_one_that_slept_before_it_made_its_epoch_does_not_believe_in_it(
    make: Callable[..., Lease], store: InMemoryStore
) -> None:
    sleeper, others = make(), make()

    def meanwhile() -> None:
        store.before.clear()
        for _ in range(3):
            others.acquire(above=0)
            others.release()
        others.acquire(above=0)

    store.before["create_if_absent"] = meanwhile
    with pytest.raises(LeaseHeldError, match=r"\(epoch 4\)"):
        sleeper.acquire(above=0)
    others.verify()


def test_the_greatest_epoch_counts_whatever_else_there_is() -> None:
    store = InMemoryStore()
    documents = LeaseDocuments(store)
    assert documents.newest() is None
    assert documents.create(2, b"one")
    assert not documents.create(2, b"two")
    assert documents.newest() == (2, b"one")
    documents.replace(2, b"three")
    assert documents.create(10, b"ten")
    store.put("lease-new.json", b"of nobody")
    assert documents.newest() == (10, b"ten")
    documents.remove_below(10)
    assert set(store.documents) == {"lease-00000010.json", "lease-new.json"}
    assert documents.place(10) == store.place("lease-00000010.json")
    assert "lease-00000010.json" in store.durable


def test_one_that_was_tidied_up_meanwhile_gives_way_to_the_next() -> None:
    store = InMemoryStore()
    documents = LeaseDocuments(store)
    documents.create(1, b"one")

    def meanwhile() -> None:
        store.before.clear()
        documents.create(2, b"two")
        documents.remove_below(2)

    store.before["get"] = meanwhile
    assert documents.newest() == (2, b"two")
