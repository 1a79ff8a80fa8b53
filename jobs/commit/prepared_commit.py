"""Prepared commit: what a catalog is handed, and whether it landed, which is asked of the table."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import TableRequirement, TableUpdate

from jobs.commit.errors import CommitUnknownError
from jobs.commit.refusals import is_denied, is_forbidden

log = logging.getLogger(__name__)

UNKNOWN_DEADLINE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class PreparedCommit:
    """A commit before the catalog is asked.

    Attributes:
        updates: What it changes.
        requirements: What it asserts.
        is_in: Whether metadata of the table has it.
        clean_up: Deletes what was written for it.
        id_in: What it is called in metadata that has it: of a snapshot, or of a schema.
    """

    updates: tuple[TableUpdate, ...]
    requirements: tuple[TableRequirement, ...]
    is_in: Callable[[TableMetadata], bool]
    clean_up: Callable[[], None]
    id_in: Callable[[TableMetadata], int]


def landed(table: Table, is_in: Callable[[TableMetadata], bool], problem: Exception) -> bool:
    """Ask the catalog whether a commit is in the table, however it was answered; the table is loaded anew.

    Also a plain refusal is looked up: a client or a proxy that repeats a request by itself reports the conflict of the
    repetition with the commit of the first.

    Args:
        table: Committed to; its metadata becomes what the catalog has now.
        is_in: Whether metadata of the table has the commit.
        problem: How the commit was answered.

    Raises:
        CommitUnknownError: The catalog could not be asked for a minute.
    """
    deadline = time.monotonic() + UNKNOWN_DEADLINE_SECONDS
    pause = 0.05
    while True:
        try:
            fresh = table.catalog.load_table(table.name())
            break
        except NoSuchTableError:
            return False
        except Exception as again:
            if is_forbidden(again) and is_denied(problem):
                # Nobody may ask whether it landed. The manifests stay, so it does not matter.
                return False
            if time.monotonic() > deadline:
                raise CommitUnknownError(
                    f"table {'.'.join(table.name())}: the catalog did not say whether a commit landed ({problem}), "
                    f"and cannot be asked ({again}). Its files are kept; the next start looks for them.",
                    fix="frazil status, once the catalog answers",
                ) from problem
            time.sleep(pause)
            pause = min(pause * 2, 2.0)
    there = is_in(fresh.metadata)
    if there:
        log.warning("commit on %s was answered with %r but had landed", ".".join(table.name()), problem)
    elif not isinstance(problem, CommitFailedException):
        log.warning("commit on %s failed with %r and had not landed", ".".join(table.name()), problem)
    table.metadata = fresh.metadata
    table.metadata_location = fresh.metadata_location
    return there
