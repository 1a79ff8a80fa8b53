"""State store: the protocol for small documents kept outside the tables, under keys with slashes."""

from __future__ import annotations

from typing import Protocol


class NotWrittenError(OSError):
    """A document was not written, and nobody can have seen it: the former one is unchanged.

    After any other OSError of a write, the document may exist, and others may have read it.
    """

    @classmethod
    def of(cls, problem: OSError) -> NotWrittenError:
        """Return the error with the number and file of another OSError."""
        made = cls(*problem.args)
        made.filename = problem.filename
        return made


class StateStore(Protocol):
    """Small documents under keys such as `streams/payments/control.json`.

    A reader sees the whole document from before or after a write, never a part. A read that begins after a write has
    ended sees it. No lock is held, because a stopped process would keep it; among writers `create_if_absent` decides,
    and in a shared store `replace_if_unchanged`. A missing document is no error. Every operation raises OSError if the
    store cannot be reached.

    Attributes:
        shared: Whether other machines write to the store. Then times in documents may come from other clocks, and only
            the time for which this machine has seen a document unchanged counts.
    """

    shared: bool

    @property
    def local(self) -> StateStore:
        """Store with the same keys for documents of this machine alone; this store itself if it is not shared."""
        ...

    def get(self, key: str) -> bytes | None:
        """Return the document; None if there is none."""
        ...

    def put(self, key: str, content: bytes, *, durable: bool = True) -> None:
        """Write the document, replacing an existing one.

        Args:
            durable: Whether it survives a power cut after this returns. Documents that are often written, and useless
                after a power cut, need not.

        Raises:
            NotWrittenError: The document was not written, and nobody can have seen it.
            OSError: The document may have been written, and others may have read it, or will.
        """
        ...

    def create_if_absent(self, key: str, content: bytes) -> bool:
        """Write the document durably unless it exists; return whether this call did. Of simultaneous calls one does."""
        ...

    def replace_if_unchanged(self, key: str, former: bytes | None, content: bytes) -> bool:
        """Write the document durably if it is still as it was read; return whether this call did.

        In a shared store, one of several simultaneous calls does. In a folder, the caller has to hold a lock of that
        folder.

        Args:
            former: Document as it was read; None if there was none.
        """
        ...

    def delete(self, key: str) -> None:
        """Remove the document if it exists, so that it stays removed after a power cut."""
        ...

    def keys(self, pattern: str) -> list[str]:
        """Return the keys that match, sorted; `*` stands for any characters except slashes."""
        ...

    def below(self, prefix: str) -> StateStore:
        """Return the part of this store below `prefix` and a slash; its keys omit these."""
        ...

    def written_at(self, key: str) -> float | None:
        """Return when the document was last written, in seconds since 1970 on the store's clock; None if missing."""
        ...

    def unchanged_for(self, key: str, content: bytes) -> float:
        """Return for how many seconds this host has seen the document unchanged, by a clock that does not jump.

        Args:
            content: Content that was just read.
        """
        ...

    def place(self, key: str) -> str:
        """Return the document's address, for people; with an empty key that of this store."""
        ...
