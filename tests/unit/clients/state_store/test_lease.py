"""The lease between real processes: killed, stopped, gone, and racing; on a folder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from jobs.base.errors import FrazilError
from jobs.base.system.processes import start_time
from jobs.clients.state_store.lease import Lease, LeaseHeldError
from jobs.clients.state_store.lease_record import LeaseRecord
from jobs.clients.state_store.local_store import LocalStore
from jobs.streaming.groups.main import SWITCH_SECONDS
from jobs.tables.commit.stamp.errors import FencedError, LeaseLostError
from tests.helpers.waiting import wait_for

DEADLINE_SECONDS = 120.0
TTL_SECONDS = 2.0

HOLDER = """
import sys
from pathlib import Path
from jobs.base.errors import FrazilError
from jobs.clients.state_store.lease import Lease
from jobs.clients.state_store.local_store import LocalStore

lease = Lease(LocalStore(Path(sys.argv[1])), "payments", float(sys.argv[2]))
print("ready", flush=True)
for word in sys.stdin:
    try:
        if word == "acquire\\n":
            print("epoch", lease.acquire(above=0), flush=True)
        elif word == "verify\\n":
            lease.verify()
            print("verified", flush=True)
        elif word == "release\\n":
            lease.release()
            print("released", flush=True)
        elif word == "lost\\n":
            print(type(lease.lost).__name__, flush=True)
    except FrazilError as problem:
        print(type(problem).__name__, problem.message, flush=True)
"""


class Holder:
    """Another process with a lease, which does what it is told."""

    def __init__(self, folder: Path, ttl_seconds: float = TTL_SECONDS) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(folder), str(ttl_seconds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def tell(self, word: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()

    def answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def does(self, word: str) -> str:
        self.tell(word)
        return self.answer()


@pytest.fixture
def hold(tmp_path: Path) -> Iterator[Callable[..., Holder]]:
    holders: list[Holder] = []

    def start(ttl_seconds: float = TTL_SECONDS) -> Holder:
        holder = Holder(tmp_path, ttl_seconds)
        holders.append(holder)
        assert holder.answer() == "ready"
        return holder

    yield start
    for holder in holders:
        holder.process.kill()
        holder.process.communicate()


@pytest.fixture
def lease(tmp_path: Path) -> Iterator[Lease]:
    made = Lease(LocalStore(tmp_path), "payments", 30.0)
    yield made
    made.release()


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def record(folder: Path) -> LeaseRecord:
    found = Lease(LocalStore(folder), "payments", 1.0).read()
    assert found is not None
    return found


def rewrite(folder: Path, **changes: object) -> None:
    changed = msgspec.structs.replace(record(folder), **changes)
    lease_file(folder).write_bytes(msgspec.json.encode(changed))


def lease_file(folder: Path) -> Path:
    return max(folder.glob("lease-*.json"))


def test_a_live_holder_keeps_it(tmp_path: Path, hold: Callable[..., Holder], lease: Lease) -> None:
    holder = hold()
    assert holder.does("acquire") == "epoch 1"
    first = record(tmp_path).renewed
    wait_until(lambda: record(tmp_path).renewed > first + TTL_SECONDS, "it renews by itself, past its time to live")
    with pytest.raises(
        LeaseHeldError, match=rf"stream payments is run by process {holder.process.pid} on .* \(epoch 1\)"
    ):
        lease.acquire(above=0)
    assert holder.does("verify") == "verified"


def test_a_released_lease_is_free_at_once(tmp_path: Path, hold: Callable[..., Holder], lease: Lease) -> None:
    holder = hold(300.0)
    holder.does("acquire")
    assert holder.does("release") == "released"
    assert not record(tmp_path).held()
    assert lease.acquire(above=0) == 2


def test_a_killed_holder_loses_it_at_once_also_as_a_zombie(
    tmp_path: Path, hold: Callable[..., Holder], lease: Lease
) -> None:
    holder = hold(300.0)
    holder.does("acquire")
    holder.process.kill()
    # Not waited for, so it stays a zombie, and its pid cannot be taken by another.
    wait_until(lambda: not record(tmp_path).held(), "a dead process does not hold a lease")
    assert holder.process.returncode is None
    assert lease.acquire(above=0) == 2


def test_a_reused_pid_is_not_the_holder(tmp_path: Path, lease: Lease) -> None:
    former = Lease(LocalStore(tmp_path), "payments", 300.0)
    former.acquire(above=0)
    assert record(tmp_path).held(), "this process holds it"
    rewrite(tmp_path, started="1")
    assert not record(tmp_path).held()
    assert lease.acquire(above=0) == 2
    with pytest.raises(FencedError):
        former.verify()


def test_a_stopped_holder_is_taken_over_and_told_when_it_wakes(
    tmp_path: Path, hold: Callable[..., Holder], lease: Lease
) -> None:
    holder = hold()
    holder.does("acquire")
    os.kill(holder.process.pid, signal.SIGSTOP)
    wait_until(lambda: record(tmp_path).expired(), "it does not renew while it is stopped")
    assert not record(tmp_path).held()
    assert lease.acquire(above=0) == 2
    os.kill(holder.process.pid, signal.SIGCONT)
    answer = holder.does("verify")
    assert answer.startswith("FencedError stream payments: another driver took over (epoch 2 on the lease")
    assert holder.does("release") == "released"
    assert record(tmp_path).held(), "the former holder does not release what is not its own"
    lease.verify()


def test_a_holder_that_was_stopped_for_too_long_refuses_though_nobody_took_it(
    tmp_path: Path, hold: Callable[..., Holder], lease: Lease
) -> None:
    holder = hold()
    holder.does("acquire")
    os.kill(holder.process.pid, signal.SIGSTOP)
    wait_until(lambda: record(tmp_path).expired(), "it does not renew while it is stopped")
    os.kill(holder.process.pid, signal.SIGCONT)
    assert holder.does("verify").startswith("LeaseExpiredError stream payments: the lease ran out: it was not renewed")
    assert holder.does("lost") == "LeaseExpiredError"
    renewed = record(tmp_path).renewed
    assert holder.does("verify").startswith("LeaseExpiredError"), "for good"
    assert record(tmp_path).renewed == renewed, "nothing renews it any more"
    assert lease.acquire(above=0) == 2, "and its process, though alive, does not keep it"


def test_of_two_that_start_at_once_exactly_one_wins(tmp_path: Path, hold: Callable[..., Holder]) -> None:
    holders = [hold(300.0), hold(300.0)]
    for turn in range(1, 11):
        for holder in holders:
            holder.tell("acquire")
        answers = [holder.answer() for holder in holders]
        winners = [number for number, answer in enumerate(answers) if answer == f"epoch {turn}"]
        assert len(winners) == 1, answers
        assert answers[1 - winners[0]].startswith("LeaseHeldError")
        assert holders[winners[0]].does("release") == "released"


def test_the_epoch_is_above_every_stamp_and_every_lease(tmp_path: Path) -> None:
    for above, expected in [(0, 1), (7, 8), (3, 9)]:
        lease = Lease(LocalStore(tmp_path), "payments", 30.0)
        assert lease.acquire(above=above) == expected
        lease.release()


def test_it_is_renewed_also_when_it_is_taken_a_second_time(tmp_path: Path, hold: Callable[..., Holder]) -> None:
    holder = hold()
    for word in ("acquire", "release", "acquire"):
        holder.does(word)
    first = record(tmp_path).renewed
    wait_until(lambda: record(tmp_path).renewed > first, "the second holding renews as the first did")


def test_it_remembers_the_targets_across_holders(tmp_path: Path, lease: Lease) -> None:
    former = Lease(LocalStore(tmp_path), "payments", 30.0)
    former.acquire(above=0)
    former.remember({"orders.payments": "uuid"})
    former.verify()
    former.release()
    lease.acquire(above=0)
    assert record(tmp_path).targets == {"orders.payments": "uuid"}
    former.remember({"orders.payments": "another"})
    assert record(tmp_path).targets == {"orders.payments": "uuid"}, "a former holder changes nothing"


def test_another_hosts_lease_counts_until_it_expires(tmp_path: Path, lease: Lease) -> None:
    former = Lease(LocalStore(tmp_path), "payments", 30.0)
    former.acquire(above=0)
    former.release()
    rewrite(tmp_path, boot="another kernel", released=False, pid=1, started="1", renewed=0.0, renewed_wall=time.time())
    with pytest.raises(LeaseHeldError):
        lease.acquire(above=0)
    rewrite(tmp_path, renewed_wall=time.time() - 31)
    assert lease.acquire(above=0) == 2


def written_ahead(folder: Path, seconds: float = 3_600.0) -> None:
    """The lease of a host whose clock is ahead, or of this one before its clock was corrected and it started anew."""
    former = Lease(LocalStore(folder), "payments", 30.0)
    former.acquire(above=0)
    former.release()
    rewrite(
        folder,
        boot="another kernel",
        released=False,
        renewed=0.0,
        renewed_wall=time.time() + seconds,
        ttl_seconds=TTL_SECONDS,
    )


def test_a_lease_of_a_clock_that_was_ahead_is_watched_and_taken_when_nobody_renews_it(
    tmp_path: Path, lease: Lease, caplog: pytest.LogCaptureFixture
) -> None:
    written_ahead(tmp_path)
    assert record(tmp_path).held(), "at the first sight it may be alive"
    assert lease.acquire(above=0) == 2
    assert "was written under a clock that is ahead of this host's by 3600 s" in caplog.text
    assert not list(tmp_path.glob(".seen-*")), "what was noted of it is gone with it"


def test_a_lease_of_a_clock_that_is_ahead_is_left_to_a_holder_that_renews_it(tmp_path: Path, lease: Lease) -> None:
    written_ahead(tmp_path)
    content = msgspec.structs.replace(record(tmp_path), boot="another kernel", renewed_wall=time.time() + 7_200)
    told = threading.Timer(
        TTL_SECONDS / 3, LocalStore(tmp_path).put, [lease_file(tmp_path).name, msgspec.json.encode(content)]
    )
    told.start()
    with pytest.raises(LeaseHeldError, match="is run by process"):
        lease.acquire(above=0)
    told.join()


def test_its_document_is_as_it_was(tmp_path: Path, lease: Lease) -> None:
    """Drivers of the release before and of this one read each other's leases."""
    lease.acquire(above=0)
    document = msgspec.json.decode(lease_file(tmp_path).read_bytes())
    assert set(document) == {
        *("stream", "epoch", "host", "boot", "pid", "started", "renewed", "renewed_wall", "ttl_seconds"),
        *("released", "targets", "claim"),
    }


def test_a_deleted_state_folder_ends_the_holder(tmp_path: Path, lease: Lease) -> None:
    lease.acquire(above=0)
    lease_file(tmp_path).unlink()
    with pytest.raises(
        LeaseLostError, match=r"stream payments: its lease .*lease-00000001.json does not exist any more"
    ):
        lease.verify()
    assert list(tmp_path.iterdir()) == [], "it is not written anew"


def test_earlier_files_are_tidied_up_and_a_sleepers_late_write_does_not_count(tmp_path: Path, lease: Lease) -> None:
    former = Lease(LocalStore(tmp_path), "payments", 30.0)
    former.acquire(above=0)
    stale = lease_file(tmp_path)
    content = stale.read_bytes()
    former.release()
    assert lease.acquire(above=0) == 2
    assert [file.name for file in tmp_path.iterdir()] == ["lease-00000002.json"]
    stale.write_bytes(content)
    assert record(tmp_path).epoch == 2
    lease.verify()


def test_a_process_of_another_container_on_this_kernel_counts_until_it_expires(tmp_path: Path, lease: Lease) -> None:
    former = Lease(LocalStore(tmp_path), "payments", 30.0)
    former.acquire(above=0)
    former.release()
    rewrite(tmp_path, released=False, host="another-container", pid=2**22 + 1, started="1")
    with pytest.raises(LeaseHeldError):
        lease.acquire(above=0)


def test_a_file_that_is_no_lease_is_told_in_a_sentence(tmp_path: Path, lease: Lease) -> None:
    (tmp_path / "lease-00000004.json").write_text("{}")
    with pytest.raises(FrazilError, match=r"stream payments: .*lease-00000004.json is no lease: ") as refused:
        lease.acquire(above=0)
    assert refused.value.fix is not None and "remove" in refused.value.fix


def test_epochs_are_compared_as_numbers(tmp_path: Path) -> None:
    lease = Lease(LocalStore(tmp_path), "payments", 30.0)
    for above, expected in [(99_999_998, 99_999_999), (0, 100_000_000), (0, 100_000_001)]:
        assert lease.acquire(above=above) == expected
        assert record(tmp_path).epoch == expected
        lease.release()


def test_a_record_names_this_process(tmp_path: Path, lease: Lease) -> None:
    lease.acquire(above=0)
    found = record(tmp_path)
    assert (found.stream, found.pid, found.started) == ("payments", os.getpid(), start_time(os.getpid()))
    assert abs(found.renewed_wall - time.time()) < 60


def test_a_lease_that_was_given_back_is_lost_to_whoever_still_works_under_it(tmp_path: Path) -> None:
    lease = Lease(LocalStore(tmp_path), "payments", 30.0)
    lease.acquire(above=0)
    assert lease.lost is None
    lease.release()
    assert "given" in str(lease.lost)
    lease.acquire(above=0)
    assert lease.lost is None
    lease.release()


def test_many_leases_are_kept_beside_as_many_busy_threads(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """As in the driver of a group, in which every stream has a batch at hand."""
    leases = [Lease(LocalStore(tmp_path / str(number)), f"s{number}", 12.0) for number in range(50)]
    enough = threading.Event()
    before = sys.getswitchinterval()
    request.addfinalizer(lambda: sys.setswitchinterval(before))
    sys.setswitchinterval(SWITCH_SECONDS)

    def busy() -> None:
        while not enough.is_set():
            sum(range(1000))

    threads = [threading.Thread(target=busy, daemon=True) for _ in leases]
    for lease in leases:
        lease.acquire(0)
    taken = [(lease, lease._renewed) for lease in leases]
    try:
        for thread in threads:
            thread.start()

        # As the process knows it: each read of a document is half a second of all these threads.
        wait_for(lambda: all(lease._renewed > at for lease, at in taken), "every lease to be renewed", 60)
        assert [lease.lost for lease in leases if lease.lost] == []
        enough.set()
        written = [(lease.read(), at) for lease, at in taken]
        assert all(record is not None and record.renewed > at for record, at in written)
    finally:
        enough.set()
        for lease in leases:
            lease.release()
