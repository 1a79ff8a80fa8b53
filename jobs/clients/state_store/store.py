"""State store: the protocol for small documents kept outside the tables, under keys with slashes."""

from __future__ import annotations

from typing import Protocol


class NotWrittenError(OSError):
    """A document was not written, and nobody can have seen it: what was there under its key is unchanged.

    Any other OSError of a write leaves it open whether the document is there, and who has read it.
    """

    @classmethod
    def of(cls, problem: OSError) -> NotWrittenError:
        """What stood in the way, with its number and its file."""
        made = cls(*problem.args)
        made.filename = problem.filename
        return made


class StateStore(Protocol):
    """Small documents under keys such as `streams/payments/control.json`.

    A document is whole for every reader: the one before or the one after a write, never a part. A read that begins
    after a write has ended sees it. No lock is ever held, which a process that is stopped at the wrong moment would
    keep; among writers `create_if_absent` decides, and in a shared store `replace_if_unchanged`. A document that is
    not there is no error; every operation raises OSError if the store cannot be reached.

    Attributes:
        shared: Whether other machines write here as well. Then a time in a document is of a clock that may be another
            one, and what holds is how long this machine has seen the document unchanged.
    """

    shared: bool

    @property
    def local(self) -> StateStore:
        """The documents under the same keys that are of this machine alone; this store itself, if it is not shared."""
        ...

    def get(self, key: str) -> bytes | None:
        """The document; None if there is none."""
        ...

    def put(self, key: str, content: bytes, *, durable: bool = True) -> None:
        """Write the document, over the one that is there.

        Args:
            durable: Whether it survives a power cut once this returns. What is written often, and is of no use after
                one, does without.

        Raises:
            NotWrittenError: It was not written, and nobody can have seen it.
            OSError: It may have been written, and others may have read it, or will.
        """
        ...

    def create_if_absent(self, key: str, content: bytes) -> bool:
        """Write the document durably unless there is one; returns whether this call did. Of many at once one does."""
        ...

    def replace_if_unchanged(self, key: str, former: bytes | None, content: bytes) -> bool:
        """Write the document durably if it is as it was read; returns whether this call did.

        In a shared store one of many at once does. In a folder whoever calls this holds a lock of that folder.

        Args:
            former: The document as it was read; None: there was none.
        """
        ...

    def delete(self, key: str) -> None:
        """Remove the document, if it is there, so that it stays removed after a power cut."""
        ...

    def keys(self, pattern: str) -> list[str]:
        """The keys that match, in order; `*` stands for any characters but a slash."""
        ...

    def below(self, prefix: str) -> StateStore:
        """The part of this store whose keys begin with `prefix` and a slash, which its own keys leave out."""
        ...

    def written_at(self, key: str) -> float | None:
        """When the document was last written, in seconds since 1970 on the store's clock; None if it is not there."""
        ...

    def unchanged_for(self, key: str, content: bytes) -> float:
        """Seconds for which this host has seen the document as it is now, by a clock that does not jump.

        Args:
            content: What has just been read there.
        """
        ...

    def place(self, key: str) -> str:
        """Where a person finds the document; all of this store with an empty key."""
        ...
