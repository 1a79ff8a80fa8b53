"""Record of a lease: the process that runs a stream and its last renewal; and the lease's documents in a store."""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Callable

import msgspec

from jobs.base.errors import FrazilError
from jobs.base.system.boot import boot_clock, boot_id, is_ahead
from jobs.base.system.processes import lives_here, start_time
from jobs.base.system.typed_json import typed_decoder
from jobs.clients.state_store.documents import DAMAGED
from jobs.clients.state_store.store import StateStore

# Claims that this process has given up, even if it could not write that to the store.
_GIVEN_UP: set[str] = set()


def give_up(claim: str) -> None:
    """Count a claim of this process as released from now on."""
    _GIVEN_UP.add(claim)


class LeaseRecord(msgspec.Struct, frozen=True):
    """Content of a lease's document: the process that runs a stream.

    Attributes:
        epoch: Epoch, which grows with every driver.
        boot: Identity of the host's running kernel; clocks and pids of two kernels cannot be compared.
        started: Start time of the process, so that a reused pid is not mistaken for it.
        renewed: Last renewal in seconds of the host's boot clock, which neither stops in suspend nor jumps.
        renewed_wall: Last renewal in seconds since 1970, for readers on other hosts.
        targets: Table UUIDs by name, as last seen, so that a recreated table is noticed.
        claim: Unique id of each acquisition; empty in records of earlier versions.
    """

    stream: str
    epoch: int
    host: str
    boot: str
    pid: int
    started: str
    renewed: float
    renewed_wall: float
    ttl_seconds: float
    released: bool = False
    targets: dict[str, str] = {}
    claim: str = ""

    @classmethod
    def of_this_process(
        cls,
        stream: str,
        epoch: int,
        renewed: float,
        ttl_seconds: float,
        *,
        released: bool,
        targets: dict[str, str],
        claim: str,
    ) -> LeaseRecord:
        """Return the record of this process, renewed at a time of the boot clock."""
        pid = os.getpid()
        return cls(
            stream=stream,
            epoch=epoch,
            host=socket.gethostname(),
            boot=boot_id(),
            pid=pid,
            started=str(start_time(pid)),
            renewed=renewed,
            renewed_wall=time.time(),
            ttl_seconds=ttl_seconds,
            released=released,
            targets=targets,
            claim=claim,
        )

    def observed(self, *, shared: bool) -> bool:
        """Whether its time cannot be compared with this host's clock, so that only observed changes count.

        That is true if it was written under a clock ahead of ours or, in a shared store, by any other machine.
        """
        return is_ahead(self.boot, self.renewed_wall) or (shared and self.boot != boot_id())

    def seen_for(self, seconds: float) -> LeaseRecord:
        """Return the record with its renewal at the time since which this host has seen it unchanged."""
        return msgspec.structs.replace(self, renewed_wall=time.time() - seconds)

    def expired(self, clock: Callable[[], float] = boot_clock) -> bool:
        """True if the holder has not renewed within the lease's time to live.

        Args:
            clock: The boot clock.
        """
        same = self.boot == boot_id()
        age = clock() - self.renewed if same else time.time() - self.renewed_wall
        return age > self.ttl_seconds

    def held(self, clock: Callable[[], float] = boot_clock) -> bool:
        """True unless released, given up by this process, expired, or its process is known to be dead.

        Args:
            clock: The boot clock.
        """
        if self.released or self.claim in _GIVEN_UP or self.expired(clock):
            return False
        return lives_here(self.pid, self.started, self.boot, self.host) is not False


_NAME = re.compile(r"lease-(\d{8,})\.json")


class LeaseDocuments:
    """The leases of one stream in a state store.

    Args:
        store: The stream's part of the store.
    """

    def __init__(self, store: StateStore) -> None:
        self._store: StateStore = store

    def newest(self) -> tuple[int, bytes] | None:
        """Return the greatest epoch and its document; None if there is none."""
        while True:
            epoch = max(self._epochs(), default=None)
            if epoch is None:
                return None
            content = self._store.get(_key(epoch))
            # None: a later holder has just removed the document.
            if content is not None:
                return epoch, content

    def create(self, epoch: int, content: bytes) -> bool:
        """Create the document of an epoch unless it exists; return whether this call created it."""
        return self._store.create_if_absent(_key(epoch), content)

    def replace(self, epoch: int, content: bytes) -> None:
        """Replace the document of an epoch."""
        self._store.put(_key(epoch), content)

    def remove_below(self, epoch: int) -> None:
        """Remove the documents of earlier epochs, which no longer count."""
        for former in self._epochs():
            if former < epoch:
                self._store.delete(_key(former))

    def unchanged_for(self, epoch: int, content: bytes) -> float:
        """Return for how many seconds this host has seen the document of an epoch unchanged."""
        return self._store.unchanged_for(_key(epoch), content)

    def place(self, epoch: int) -> str:
        """Return the address of an epoch's document, for people."""
        return self._store.place(_key(epoch))

    def _epochs(self) -> list[int]:
        names = (_NAME.fullmatch(key) for key in self._store.keys("lease-*.json"))
        return [int(name[1]) for name in names if name]


_DECODER = typed_decoder(LeaseRecord)


def read_lease(store: StateStore, stream: str) -> LeaseRecord | None:
    """Return the present lease; None if nobody ever held it.

    A lease written under a clock ahead of ours, or by another machine in a shared store, counts as renewed when this
    host first saw it unchanged.

    Args:
        store: The stream's part of the state store.
        stream: Id of the stream, for messages.

    Raises:
        FrazilError: This version cannot read the lease.
    """
    documents = LeaseDocuments(store)
    found = documents.newest()
    if found is None:
        return None
    epoch, content = found
    try:
        record = _DECODER.decode(content)
        observed = record.observed(shared=store.shared)
        return record.seen_for(documents.unchanged_for(epoch, content)) if observed else record
    except DAMAGED as problem:
        raise FrazilError(
            f"stream {stream}: {documents.place(epoch)} is no lease: {problem}.",
            fix=f"if no driver of the stream runs, remove {documents.place(epoch)}",
        ) from None


def _key(epoch: int) -> str:
    return f"lease-{epoch:08d}.json"
