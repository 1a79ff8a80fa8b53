"""Tallies: a task's counts of its split, by Kafka partition, with examples of failures."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec
import numpy as np
import numpy.typing as npt

from jobs.records.formats.interface.decoder import (
    KEY_PATH,
    OTHER_UNKNOWN_PATHS,
    Failure,
    shortened_path,
)
from jobs.records.formats.interface.decoder_spec import DecoderSpec
from jobs.records.formats.interface.problems import without_value
from jobs.records.formats.known_formats import FORMATS
from jobs.records.formats.registry_wire import VALUE_SCHEMA_ID
from jobs.streaming.pipeline.block import Block
from jobs.streaming.pipeline.pipeline import UNEXPECTED
from jobs.tables.commit.stamp.event_times import NO_EVENTS, EventCounts, greatest_of
from jobs.tables.commit.stamp.stamp_fields import Counts

MOST_CAUSES = 50
"""Most causes of one partition in one split, so that endless different keys do not make an endless tally."""

MOST_UNKNOWN = 100
"""The same for undeclared keys."""

UNTIMED = "_kafka_timestamp"
"""Name in the counts of warnings for rows without a time in Kafka; no rule's name begins like this."""


class Example(msgspec.Struct, frozen=True):
    """A failed record as an example in a tally: its coordinates and failure, never its content.

    Attributes:
        field: Path of the field at fault, if there is one.
        needs: The needed type and the type found, if that shows no value.
        detail: Place in frazil's code, if frazil itself failed.
    """

    topic: str
    partition: int
    offset: int
    stage: str
    error_class: str
    field: str | None = None
    detail: str | None = None
    needs: str | None = None


class UnknownExample(msgspec.Struct, frozen=True):
    """A record in a tally with an undeclared key.

    Attributes:
        within: JSON path of the struct with the key.
        column: Guess of a column that would take it; None if its name cannot be declared.
    """

    offset: int
    within: str
    column: str | None


class Cause(msgspec.Struct):
    """Failed records in a tally with one cause: the same class, field and need."""

    example: Example
    count: int = 0


class Tally(msgspec.Struct):
    """Counts of a task in one (topic, partition), of the records that the coordinator had not yet read.

    Attributes:
        rows: Rows written, by target; a target may have lacked other records than the coordinator.
        after: Offset behind the last record of the split, for any target; None without records.
        leader_epoch: Epoch of the leader that took that record; None if the log does not have it.
        appended_ms: Time when the broker took that record; None if the log has the producer's time.
        reasons: Failed records by class, with an example of each in `examples`.
        causes: Failed records by class, field and need; only the first `MOST_CAUSES`.
        unexpected: A record that made frazil itself fail; the stream passes over it with tolerance `all` only.
        unknown_fields: Records by the path of an undeclared key, with examples in `unknown_examples`.
        events: Event times of the rows; `greatest_event_ms` includes those that were too late to land.
        warned: Landed rows that broke a rule of severity `warn`, by rule, and those without a time in Kafka.
        elsewhere: Landed records of a stream with a route that have no row in the coordinator.
        failures: Failed records for any target, of a stream with a route.
        fetched, fetched_bytes: Number and bytes of the records that were read, for any target.
    """

    topic: str
    partition: int
    read: int = 0
    landed: int = 0
    dead: int = 0
    tombstones: int = 0
    filtered: int = 0
    rows: dict[str, int] = {}
    after: int | None = None
    leader_epoch: int | None = None
    appended_ms: int | None = None
    reasons: dict[str, int] = {}
    examples: dict[str, Example] = {}
    causes: dict[str, Cause] = {}
    unexpected: Example | None = None
    unknown_fields: dict[str, int] = {}
    unknown_examples: dict[str, UnknownExample] = {}
    events: EventCounts = NO_EVENTS
    greatest_event_ms: int | None = None
    warned: dict[str, int] = {}
    elsewhere: int = 0
    failures: int = 0
    fetched: int = 0
    fetched_bytes: int = 0

    @property
    def counts(self) -> Counts:
        """The records by their fate."""
        return Counts(self.read, self.landed, self.dead, self.tombstones, self.filtered)


_INDEX = re.compile(r"\[\d+\]")


_LONGEST_FIELD = 200


def count_block(tally: Tally, block: Block, wanted: npt.NDArray[np.bool_], decoder: DecoderSpec) -> None:
    """Count the fates of a block's records.

    Args:
        wanted: Which records the coordinator has not yet read.
    """
    if not wanted.any():
        return
    tally.read += int(wanted.sum())
    tally.landed += int(wanted[block.positions].sum())
    tally.tombstones += int(wanted[block.dropped].sum())
    tally.filtered += int(wanted[block.filtered].sum())
    for name, records in block.warned.items():
        tally.warned[name] = tally.warned.get(name, 0) + int(wanted[records].sum())
    times = block.records.column("timestamp")
    if times.null_count and (untimed := int((wanted & np.asarray(times.is_null()))[block.positions].sum())):
        tally.warned[UNTIMED] = tally.warned.get(UNTIMED, 0) + untimed
    for failure in block.failures:
        if wanted[failure.row]:
            tally.dead += 1
            tally.reasons[failure.error_class] = tally.reasons.get(failure.error_class, 0) + 1
            _count_cause(tally, block, failure)
            if failure.error_class not in tally.examples:
                tally.examples[failure.error_class] = _example(tally, block, failure)
            if failure.error_class == UNEXPECTED and tally.unexpected is None:
                tally.unexpected = tally.examples[UNEXPECTED]
    if block.unknown_fields:
        _count_unknown(tally, block, decoder)


def count_events(tally: Tally, counts: EventCounts, greatest_ms: int | None) -> None:
    """Count the event times of a block's rows."""
    tally.events += counts
    tally.greatest_event_ms = greatest_of(tally.greatest_event_ms, greatest_ms)


def count_unknown_fields(counts: dict[str, int], met: Mapping[str, int]) -> None:
    """Add records by the path of a field without a column; at most `MOST_UNKNOWN` paths are kept apart."""
    for path, count in met.items():
        name = shortened_path(path)
        if name not in counts and len(counts) >= MOST_UNKNOWN:
            name = OTHER_UNKNOWN_PATHS
        counts[name] = counts.get(name, 0) + count


def _count_unknown(tally: Tally, block: Block, decoder: DecoderSpec) -> None:
    """Count undeclared keys; the first record with each becomes its example."""
    counts = tally.unknown_fields
    count_unknown_fields(counts, block.unknown_fields)
    known = tally.unknown_examples
    # Undeclared fields of keys get no example.
    own = [path for path in block.unknown_fields if not path.startswith(KEY_PATH)]
    new = [path for path in own if (name := shortened_path(path)) in counts and name not in known]
    if not new:
        return
    values, offsets = block.records.column("value"), block.records.column("offset")
    positions = block.positions
    if VALUE_SCHEMA_ID in block.records.schema.names:
        # Records whose header names their schema get no example: their values do not contain it.
        positions = positions[np.asarray(block.records.column(VALUE_SCHEMA_ID).is_null())[positions]]
    found = FORMATS[decoder.kind].unknown_fields(decoder, values, positions, new)
    for path, field in found.items():
        known.setdefault(shortened_path(path), UnknownExample(offsets[field.row].as_py(), field.within, field.column))


def _count_cause(tally: Tally, block: Block, failure: Failure) -> None:
    """Count the cause of a failure. The same mistake at `$.items[0].n` and `$.items[7].n` has one cause."""
    field = _INDEX.sub("[]", failure.field or "")[:_LONGEST_FIELD]
    key = f"{failure.error_class} {field} {without_value(failure.message) or ''}"
    cause = tally.causes.get(key)
    if cause is None:
        if len(tally.causes) >= MOST_CAUSES:
            return
        cause = tally.causes[key] = Cause(_example(tally, block, failure))
    cause.count += 1


def _example(tally: Tally, block: Block, failure: Failure) -> Example:
    return Example(
        tally.topic,
        tally.partition,
        block.records.column("offset")[failure.row].as_py(),
        failure.stage,
        failure.error_class,
        failure.field,
        failure.message if failure.error_class == UNEXPECTED else None,
        without_value(failure.message),
    )
