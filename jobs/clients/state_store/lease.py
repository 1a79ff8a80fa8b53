"""Lease of a stream: a driver takes it by creating the next epoch's document in the store, so that only one runs.

The lease keeps two live drivers apart and makes a take-over quick. Commits do not depend on it: the claims in the
tables refuse a zombie, whatever its clock says.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from jobs.base.errors import FrazilError
from jobs.base.system.boot import boot_clock
from jobs.base.system.threads import background_thread
from jobs.base.system.typed_json import decode_json
from jobs.clients.state_store.documents import DAMAGED
from jobs.clients.state_store.lease_record import (
    LeaseDocuments,
    LeaseRecord,
    give_up,
    read_lease,
)
from jobs.clients.state_store.store import StateStore
from jobs.clients.state_store.stream_folder import stream_folder
from jobs.tables.commit.stamp.errors import FencedError, LeaseExpiredError, LeaseLostError

if TYPE_CHECKING:
    from jobs.config.settings.settings import Settings

log = logging.getLogger(__name__)

_POLL_SECONDS = 1.0


class LeaseHeldError(FrazilError):
    """Another process holds the stream's lease.

    Safe: Nothing was changed.
    Next: wait for it to end, or stop the process that the message names
    """


class Lease:
    """The lease of one stream.

    A thread of the holder renews it. A holder that could not renew it within its time to live has lost it for good,
    even if
    nobody took it meanwhile: another driver may be about to.

    Args:
        store: The stream's part of the state store.
        stream: Id of the stream.
        ttl_seconds: Time to live without renewal, on the boot clock, which suspend does not stop.
        clock: The boot clock.
        release_seconds: How long `release` waits for a store that does not answer.
    """

    def __init__(
        self,
        store: StateStore,
        stream: str,
        ttl_seconds: float,
        *,
        clock: Callable[[], float] = boot_clock,
        release_seconds: float = 10.0,
    ) -> None:
        self.epoch: int = 0
        self._claim: str = ""
        self._store: StateStore = store
        self._documents: LeaseDocuments = LeaseDocuments(store)
        self._stream: str = stream
        self._ttl: float = ttl_seconds
        self._clock: Callable[[], float] = clock
        self._release_seconds: float = release_seconds
        self._targets: dict[str, str] = {}
        self._renewed: float = 0.0
        self._held: bool = False
        self._given_back: bool = False
        self._loss: FencedError | None = None
        self._away: OSError | None = None
        self._writing: threading.Lock = threading.Lock()
        self._losing: threading.Lock = threading.Lock()
        self._stop: threading.Event = threading.Event()
        self._thread: threading.Thread | None = None

    def read(self) -> LeaseRecord | None:
        """Return the present lease, see `read_lease`."""
        return read_lease(self._store, self._stream)

    @property
    def lost(self) -> FencedError | None:
        """Why this driver has lost or released its lease; None while it holds the lease, and before.

        It reads the clock and not the store, so it answers even if the disk hangs.
        """
        if self._given_back:
            return LeaseLostError(self._stream, self.epoch, "this driver has given its lease back")
        if self._loss is None and self._held and self._age() > self._ttl:
            return LeaseExpiredError(self._stream, self.epoch, self._age(), self._ttl)
        return self._loss

    @property
    def away(self) -> OSError | None:
        """Why the store has not accepted the newest renewal that was begun in time; None if it has."""
        return self._away

    def acquire(self, above: int) -> int:
        """Take the lease with an epoch greater than `above` and than every earlier one, and keep renewing it.

        Returns:
            The epoch.

        Raises:
            LeaseHeldError: A live driver holds it.
        """
        while True:
            current = self.refuse_if_held()
            self.epoch = 1 + max(above, current.epoch if current else 0)
            self._targets = dict(current.targets) if current else {}
            self._claim = os.urandom(8).hex()
            renewed = self._clock()
            try:
                # After a pause just before this line, others may have taken this epoch and removed its document.
                if self._documents.create(self.epoch, self._encoded(renewed)) and self._is_newest():
                    self._documents.remove_below(self.epoch)
                    break
            except OSError:
                # The document may have been written although nobody uses this claim.
                give_up(self._claim)
                raise
        self._renewed, self._loss, self._held, self._given_back = renewed, None, True, False
        self._away = None
        self._stop.clear()
        self._thread = background_thread(self._renew_for_ever, "lease")
        self._thread.start()
        return self.epoch

    def refuse_if_held(self) -> LeaseRecord | None:
        """Raise if a live driver holds the lease; otherwise return the present lease.

        A lease whose time cannot be compared is first observed for its time to live: one written under a clock ahead of
        ours, or by another machine in a shared store.

        Raises:
            LeaseHeldError: A live driver holds it.
        """
        current = self._watched() or self.read()
        if current and current.held(self._clock):
            raise LeaseHeldError(
                f"stream {self._stream} is run by process {current.pid} on {current.host} (epoch {current.epoch}).",
                fix=f"wait for it to end, or stop process {current.pid} and run this again",
            )
        return current

    def _watched(self) -> LeaseRecord | None:
        """Observe a lease whose time cannot be compared, until it is renewed or its time to live has passed."""
        first = self._documents.newest()
        with contextlib.suppress(*DAMAGED):
            record = decode_json(first[1], LeaseRecord) if first else None
            if first is None or record is None or record.released:
                return None
            if not record.observed(shared=self._store.shared):
                return None
            seen = self._documents.unchanged_for(*first)
            if (left := record.ttl_seconds - seen) > 0:
                clock = (
                    "by another machine"
                    if self._store.shared
                    else f"under a clock that is ahead of this host's by {record.renewed_wall - time.time():.0f} s"
                )
                log.warning(
                    "stream %s: the lease of process %d on %s was written %s; whether it is renewed is seen within "
                    "%.0f s",
                    *(self._stream, record.pid, record.host, clock, left),
                )
            while self._documents.newest() == first and self._documents.unchanged_for(*first) <= record.ttl_seconds:
                time.sleep(min(_POLL_SECONDS, record.ttl_seconds / 10))
            return self.read()
        return None

    def verify(self) -> None:
        """Renew the lease; raise unless it is still this driver's.

        Raises:
            FencedError: Another driver took it, it expired, it was released, or its document was removed.
            OSError: The store cannot be reached, and the lease has not expired yet.
        """
        # Another thread may hang in a write. Then the lease is lost when it expires, not when the write returns.
        if not self._writing.acquire(timeout=max(_POLL_SECONDS, self._ttl - self._age() if self._held else 0.0)):
            raise self._lose(LeaseExpiredError(self._stream, self.epoch, self._age(), self._ttl))
        try:
            problem = self._renew()
        finally:
            self._writing.release()
        if problem:
            raise self._lose(problem)

    def remember(self, targets: Mapping[str, str]) -> None:
        """Record the table UUIDs of the stream's targets, if the lease is still this driver's."""
        with self._writing:
            problem = self._renew(targets)
        if problem:
            self._lose(problem)

    def release(self) -> None:
        """Release the lease if it is still this driver's; it is free at once, even if it had expired.

        If the store cannot be written, no error is raised: this process remembers that it has given the claim up, and
        may take the lease again at once. For others the lease expires, or stops counting when its process is dead.
        """
        self._stop.set()
        if self._thread:
            self._thread.join(self._release_seconds)
        written = False
        if self._writing.acquire(timeout=self._release_seconds):
            try:
                if self._held and self._is_newest():
                    self._documents.replace(self.epoch, self._encoded(self._clock(), released=True))
                written = True
            except OSError as problem:
                log.warning("stream %s: the lease could not be given back: %s", self._stream, problem)
            finally:
                self._writing.release()
        self._given_back = self._held
        self._held = False
        if self._given_back and not written:
            give_up(self._claim)

    def _renew(self, targets: Mapping[str, str] | None = None) -> FencedError | None:
        """Renew the lease, or return why it is no longer this driver's; called by one thread at a time."""
        if not self._held:
            return LeaseLostError(self._stream, self.epoch, "this driver holds no lease, or has given it back")
        now = self._clock()
        in_time = self.lost is None
        if in_time:
            # The store counts as unavailable until it answers. If the lease expires meanwhile, this is the reason.
            self._away = TimeoutError(errno.ETIMEDOUT, f"{self._store.place('')} did not answer in time")
        try:
            if problem := self._taken() or self.lost:
                return problem
            self._targets = dict(targets) if targets is not None else self._targets
            self._documents.replace(self.epoch, self._encoded(now))
            # The lease may have expired before the write ended, and others may have seen that.
            if problem := self.lost and (self._taken() or self.lost):
                return problem
        except OSError as problem:
            self._away = problem if in_time else self._away
            if lost := self.lost:
                return lost
            raise
        self._renewed, self._away = now, None
        return None

    def _taken(self) -> FencedError | None:
        newest = self._documents.newest()
        if newest and newest[0] > self.epoch:
            return FencedError(self._stream, self.epoch, newest[0], "the lease")
        if newest is None or newest[0] < self.epoch:
            return LeaseLostError(
                self._stream, self.epoch, f"its lease {self._documents.place(self.epoch)} does not exist any more"
            )
        return None

    def _lose(self, problem: FencedError) -> FencedError:
        with self._losing:
            if self._held and self._loss is None:
                self._loss = problem
        return self._loss or problem

    def _age(self) -> float:
        return self._clock() - self._renewed

    def _is_newest(self) -> bool:
        newest = self._documents.newest()
        return newest is not None and newest[0] == self.epoch

    def _encoded(self, renewed: float, *, released: bool = False) -> bytes:
        record = LeaseRecord.of_this_process(
            self._stream, self.epoch, renewed, self._ttl, released=released, targets=self._targets, claim=self._claim
        )
        return msgspec.json.encode(record)

    def _renew_for_ever(self) -> None:
        failing = False
        # A wait stops while the host is suspended, but the lease's clock goes on. So wake often, and renew when due.
        while not self._stop.wait(min(self._ttl / 3, _POLL_SECONDS)):
            if self._age() < self._ttl / 3 and self.lost is None:
                continue
            try:
                self.verify()
                failing = False
            except FencedError as problem:
                log.warning("%s", problem.message)
                return
            except OSError as problem:
                # A full or unreachable disk: try again until the lease expires; commits verify the lease themselves.
                if not failing:
                    log.warning("stream %s: the lease could not be renewed: %s", self._stream, problem)
                failing = True


def stream_lease(settings: Settings, stream: str) -> Lease:
    """Return the lease of a stream, or of a job beside it with its own id; see `stream_folder`."""
    return Lease(stream_folder(settings, stream).store, stream, settings.lease_ttl.total_seconds())
