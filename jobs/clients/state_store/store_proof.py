"""Proof that a shared state store refuses a second create, and a write over a changed document.

Some object stores, and proxies before them, ignore `If-None-Match` and `If-Match` and report success.
"""

from __future__ import annotations

import contextlib
import errno
import os

from jobs.base.errors import FrazilError
from jobs.clients.state_store.shared_store import Documents, SharedStore
from jobs.clients.state_store.store import StateStore


class UnsafeStoreError(FrazilError):
    """The state store does not keep conditional writes apart, so two drivers could hold one lease.

    Safe: Nothing was changed.
    Next: use another store; then `frazil validate`
    """


class StoreRefusedError(FrazilError):
    """The state store refuses reads or writes, or does not exist.

    Safe: Nothing was changed.
    Next: check `state.store`, its properties and rights; then `frazil validate`
    """


class StoreAwayError(FrazilError):
    """The state store did not answer before a lease expired.

    Safe: Nothing is committed until the lease is taken again.
    Next: `frazil validate`; a driver waits
    """


def prove_store(store: StateStore) -> None:
    """Raise unless a shared store keeps conditional writes apart; a folder does.

    Raises:
        UnsafeStoreError: The store accepts a write that it has to refuse.
        StoreRefusedError: The store refuses these credentials, or does not exist.
        OSError: The store cannot be reached.
    """
    if isinstance(store, SharedStore):
        try:
            store.prove(prove_documents)
        except OSError as problem:
            if problem.errno != errno.EACCES:
                raise
            raise _refused(problem) from None


def unrenewed(stream: str, problem: OSError, seconds: float) -> FrazilError:
    """Return the error for a lease that expired because a shared store did not accept its renewal.

    Args:
        stream: Stream of the lease.
        problem: Why it was not renewed.
        seconds: Time to live of the lease.
    """
    if problem.errno == errno.EACCES:
        return _refused(problem)
    return StoreAwayError(
        f"stream {stream}: the state store did not take the lease's renewal for {seconds:g} s "
        f"({problem.strerror or problem}). Nothing is committed until it answers and the lease is taken again.",
        fix="frazil validate",
    )


def prove_documents(documents: Documents, prefix: str) -> None:
    """Do the proof of `prove_store` with a temporary document below a prefix."""
    key = f"{prefix}probes/{os.urandom(8).hex()}"
    try:
        if not documents.write(key, b"first", "1", None):
            raise _unsafe(documents, prefix, "refuses a document that does not exist yet")
        first = documents.read(key)
        if documents.write(key, b"second", "2", None):
            raise _unsafe(documents, prefix, "creates a document that exists already (If-None-Match)")
        if first is None or documents.read(key) != first or (first.content, first.nonce) != (b"first", "1"):
            raise _unsafe(documents, prefix, "does not give back what was written")
        if not documents.write(key, b"third", "3", first.tag):
            raise _unsafe(documents, prefix, "refuses to replace a document that is unchanged (If-Match)")
        third = documents.read(key)
        if documents.write(key, b"fourth", "4", first.tag):
            raise _unsafe(documents, prefix, "replaces a document that has changed meanwhile (If-Match)")
        if third is None or documents.read(key) != third or (third.content, third.nonce) != (b"third", "3"):
            raise _unsafe(documents, prefix, "does not give back what was written")
    finally:
        with contextlib.suppress(OSError):
            documents.remove(key)


def _refused(problem: OSError) -> StoreRefusedError:
    return StoreRefusedError(
        f"The state store refuses what is asked of it: {problem.strerror}.",
        fix="check state.store, its properties and its rights in frazil.yaml, then run `frazil validate`",
    )


def _unsafe(documents: Documents, prefix: str, what: str) -> UnsafeStoreError:
    return UnsafeStoreError(
        f"The state store {documents.place(prefix.rstrip('/'))} {what}, so two drivers could run one stream.",
        fix="use a store with conditional writes, such as AWS S3, MinIO, SeaweedFS or PostgreSQL",
    )
