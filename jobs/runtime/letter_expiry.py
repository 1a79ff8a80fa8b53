"""Deleting a stream's letters by age, as its file says: what the nightly run and `frazil letters --expire` share."""

from __future__ import annotations

from dataclasses import dataclass

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from jobs.deadletter.retention import Expired, expire_letters
from jobs.deadletter.table_upkeep import check_letters_table
from jobs.errors import FrazilError
from jobs.runtime.open_stream import stream_folder
from jobs.spec.models import StreamSpec
from jobs.spec.settings import Settings
from jobs.supervise.heartbeat import read_heartbeat


@dataclass(frozen=True, slots=True)
class LetterExpiry:
    """What went of a stream's letters, or would.

    Attributes:
        table: The dead-letter table, as it is now.
        unpublished: Letters that the stream's topic does not have yet.
    """

    table: Table
    expired: Expired
    unpublished: int

    def sentences(self, spec: StreamSpec, *, dry_run: bool) -> list[str]:
        """What happened, and what somebody should know of it."""
        told = [self.expired.sentence(spec.dead_letter_table, dry_run=dry_run)]
        if self.expired.letters and self.unpublished:
            told.append(
                f"stream {spec.stream}: {self.unpublished:,} letters have not been published to its topic; those of "
                "them that are deleted never will be"
            )
        return told


def keeps_for_ever(spec: StreamSpec) -> FrazilError:
    """What somebody is told who wants to delete letters that nothing says an age for."""
    return FrazilError(
        f"stream {spec.stream} keeps its letters for ever.",
        fix=f"set errors.dead_letters.keep, such as 90d, in streams/{spec.stream}.yaml",
    )


def expire_letters_of(spec: StreamSpec, settings: Settings, catalog: Catalog, *, dry_run: bool) -> LetterExpiry | None:
    """Delete the letters of a stream that are older than its file says; None if it has no table of them yet.

    Raises:
        FrazilError: The file does not say how long they are kept, or the table was altered, or changes all the time.
    """
    keep = spec.errors.keep
    if keep is None:
        raise keeps_for_ever(spec)
    if not catalog.table_exists(spec.dead_letter_table):
        return None
    table = catalog.load_table(spec.dead_letter_table)
    check_letters_table(table)
    expired = expire_letters(table, keep, dry_run=dry_run)
    beat = read_heartbeat(stream_folder(settings, spec.stream).root) if spec.errors.topic else None
    return LetterExpiry(table, expired, (beat.unpublished_letters or 0) if beat is not None else 0)
