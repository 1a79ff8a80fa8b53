"""Dead letter expiry: deletes a stream's dead letters by age, for the nightly run and `frazil letters --expire`."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from jobs.base.errors import FrazilError
from jobs.clients.state_store.stream_folder import stream_folder
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.streaming.dead_letter_publisher.position import OutboxPosition, count_unpublished
from jobs.streaming.driver.process.outbox_thread import position_store
from jobs.streaming.supervision.documents.heartbeat import read_heartbeat
from jobs.tables.dead_letter_table.retention import ExpiredLetters, expire_dead_letters
from jobs.tables.dead_letter_table.table import check_dead_letter_table

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DeadLetterExpiry:
    """Result of an expiry of a stream's dead letters, or its forecast.

    Attributes:
        table: The present dead-letter table.
        unpublished: Dead letters that the stream's topic did not have before.
    """

    table: Table
    expired: ExpiredLetters
    unpublished: int

    def sentences(self, spec: StreamSpec, *, dry_run: bool) -> list[str]:
        """Sentences about the result, and warnings."""
        sentences = [self.expired.sentence(spec.dead_letter_table, dry_run=dry_run)]
        if self.expired.letters and self.unpublished:
            sentences.append(
                f"stream {spec.stream}: {self.unpublished:,} dead letters have not been published to its topic; "
                "deleted ones never will be"
            )
        return sentences


def no_retention_error(spec: StreamSpec) -> FrazilError:
    """Error for a stream whose file does not set how long dead letters are kept."""
    return FrazilError(
        f"stream {spec.stream} keeps its dead letters for ever.",
        fix=f"set errors.dead_letters.keep, such as 90d, in streams/{spec.stream}.yaml",
    )


def expire_stream(spec: StreamSpec, settings: Settings, catalog: Catalog, *, dry_run: bool) -> DeadLetterExpiry | None:
    """Delete a stream's dead letters that are older than its file allows; None if their table does not exist.

    Raises:
        FrazilError: The file sets no limit, or the table was altered, or changes during every attempt.
    """
    keep = spec.errors.keep
    if keep is None:
        raise no_retention_error(spec)
    if not catalog.table_exists(spec.dead_letter_table):
        return None
    table = catalog.load_table(spec.dead_letter_table)
    check_dead_letter_table(table)
    waiting = _unpublished(spec, settings, table)
    return DeadLetterExpiry(table, expire_dead_letters(table, keep, dry_run=dry_run), waiting)


def _unpublished(spec: StreamSpec, settings: Settings, table: Table) -> int:
    """Number of dead letters that the stream's topic lacks, by the stream's own copy of the position."""
    topic = spec.errors.topic
    if topic is None:
        return 0
    try:
        position = position_store(spec, settings, topic).read()
        if position is None:
            # No driver has published yet: for the first one, older ones count as published, unless it publishes all.
            if topic.publish == "new":
                return 0
            position = OutboxPosition.before_epoch(1)
        return count_unpublished(table, spec.stream, position.in_table(str(table.metadata.table_uuid)))
    except Exception as problem:
        # An unreadable file does not prevent deletion by age.
        log.debug("the waiting dead letters of stream %s cannot be counted", spec.stream, exc_info=problem)
        beat = read_heartbeat(stream_folder(settings, spec.stream).store)
        return (beat.unpublished_letters or 0) if beat is not None else 0
