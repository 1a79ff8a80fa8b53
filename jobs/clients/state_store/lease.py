"""Lease of a stream: one driver at a time, by a lease that is taken by making the next epoch's document in a store.

The lease keeps two live drivers apart and makes a take-over quick. It is not what makes commits safe: a driver that
slept through a take-over is refused by the claims in the tables, whatever its clock says.
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

    A holder renews it from a thread of its own. One that has not managed to for longer than its time to live has lost
    it for good, even if nobody took it meanwhile: others could have, and may be about to.

    Args:
        store: The stream's part of the state store.
        stream: The stream's id.
        ttl_seconds: How long a holder that does not renew keeps it, on the clock that suspend does not stop.
        clock: The boot clock.
        release_seconds: How long giving it back waits for a store that does not answer.
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
        """The lease as it stands, see `read_lease`."""
        return read_lease(self._store, self._stream)

    @property
    def lost(self) -> FencedError | None:
        """Why the lease that this driver took is its own no more, given back included; None while held, and before.

        It asks the clock and not the store, so it answers also while the disk is stuck.
        """
        if self._given_back:
            return LeaseLostError(self._stream, self.epoch, "this driver has given its lease back")
        if self._loss is None and self._held and self._age() > self._ttl:
            return LeaseExpiredError(self._stream, self.epoch, self._age(), self._ttl)
        return self._loss

    @property
    def away(self) -> OSError | None:
        """Why the store did not take the newest renewal that was begun in time, or has not yet; None if it did."""
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
                # One that slept before this step may make an epoch that others have taken and tidied up since.
                if self._documents.create(self.epoch, self._encoded(renewed)) and self._is_newest():
                    self._documents.remove_below(self.epoch)
                    break
            except OSError:
                # It may have been written all the same, and nobody works under it.
                give_up(self._claim)
                raise
        self._renewed, self._loss, self._held, self._given_back = renewed, None, True, False
        self._away = None
        self._stop.clear()
        self._thread = background_thread(self._renew_for_ever, "lease")
        self._thread.start()
        return self.epoch

    def refuse_if_held(self) -> LeaseRecord | None:
        """Say who runs the stream, if anybody does; returns the lease as it stands.

        A lease whose time says nothing here is watched first, for as long as it may go unrenewed: one that was written
        under a clock ahead of ours, or by another machine in a store that machines share.

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
        """A lease whose time says nothing here, once it has been renewed, or has not been for its time to live."""
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
        """Raise unless the lease is still this driver's; renews it.

        Raises:
            FencedError: Another driver took it, it ran out, it was given back, or it is gone.
            OSError: The store cannot be reached, and the lease has not run out yet.
        """
        # Another thread may be stuck in a write: what it holds up is lost when the lease runs out, not when it returns.
        if not self._writing.acquire(timeout=max(_POLL_SECONDS, self._ttl - self._age() if self._held else 0.0)):
            raise self._lose(LeaseExpiredError(self._stream, self.epoch, self._age(), self._ttl))
        try:
            problem = self._renew()
        finally:
            self._writing.release()
        if problem:
            raise self._lose(problem)

    def remember(self, targets: Mapping[str, str]) -> None:
        """Record the table uuids of the stream's targets, if the lease is still this driver's."""
        with self._writing:
            problem = self._renew(targets)
        if problem:
            self._lose(problem)

    def release(self) -> None:
        """Give the lease back, if it is still this driver's; it is free at once, also if it had run out.

        A store that cannot be written now is no error: this process knows that it has given the claim up, and may take
        the lease again at once. For all others the lease runs out, or counts no more with its process.
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
        """Write the lease anew, or say why it is no longer this driver's; called by one thread at a time."""
        if not self._held:
            return LeaseLostError(self._stream, self.epoch, "this driver holds no lease, or has given it back")
        now = self._clock()
        in_time = self.lost is None
        if in_time:
            # It counts as away until it has answered: who finds the lease run out meanwhile knows why.
            self._away = TimeoutError(errno.ETIMEDOUT, f"{self._store.place('')} did not answer in time")
        try:
            if problem := self._taken() or self.lost:
                return problem
            self._targets = dict(targets) if targets is not None else self._targets
            self._documents.replace(self.epoch, self._encoded(now))
            # It may have run out before the write was through, and others may have seen that.
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
            return LeaseLostError(self._stream, self.epoch, f"its lease {self._documents.place(self.epoch)} is gone")
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
        # Waiting stops while the host sleeps, the lease's clock does not: so look often, and renew when it is time.
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
                # A full or unreachable disk: try again until the lease runs out; the commit verifies for itself.
                if not failing:
                    log.warning("stream %s: the lease could not be renewed: %s", self._stream, problem)
                failing = True


def stream_lease(settings: Settings, stream: str) -> Lease:
    """The lease of a stream, or of what works beside it under an id of its own; see `stream_folder`."""
    return Lease(stream_folder(settings, stream).store, stream, settings.lease_ttl.total_seconds())
