"""Tallies: what a task counted of its split, by Kafka partition, with examples of what failed."""

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
"""Of one partition in one split; records whose keys have no end must not make a tally without end."""

MOST_UNKNOWN = 100
"""Likewise of keys that the schema does not name."""

UNTIMED = "_kafka_timestamp"
"""What counts call rows without a time in Kafka, among the rules that only warn: no rule's name begins so."""


class Example(msgspec.Struct, frozen=True):
    """A failed record as an example in a tally: where it is and why it failed, never what stands in it.

    Attributes:
        field: Path of the field at fault, if it is one.
        needs: What was needed, and what kind of thing was found, if it can be told without the value.
        detail: Where frazil itself failed, if it did.
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
    """A record in a tally with a key that the schema does not name.

    Attributes:
        within: JSON path of the struct that has the key.
        column: What would take it, as a guess; None if its name cannot be declared.
    """

    offset: int
    within: str
    column: str | None


class Cause(msgspec.Struct):
    """A tally's failed records of one kind: the same class, field and need, so the same thing to correct."""

    example: Example
    count: int = 0


class Tally(msgspec.Struct):
    """What a task counted in one (topic, partition), of the records that the coordinator had not yet read.

    Attributes:
        rows: Rows written, by target; one may have lacked other records than the coordinator.
        after: The offset behind the last record of the split, whoever lacked it; None without any.
        leader_epoch: Of that record, the epoch of the leader that took it; None where the log does not say.
        appended_ms: Of that record, when the broker took it; None where the log says the producer's time.
        reasons: Failed records by class, with an example of each in `examples`.
        causes: Failed records by class, field and need; of the first `MOST_CAUSES` that were met.
        unexpected: One that made frazil itself fail; the stream goes on past it with tolerance `all` only.
        unknown_fields: Records by the path of a key that the schema does not name, with examples in `unknown_examples`.
        events: Event times of the rows; `greatest_event_ms` counts those that were too late to land, too.
        warned: Landed rows that broke a rule of severity `warn`, by its name, and those without a time in Kafka.
        elsewhere: Landed records of which the coordinator's table got no row, of a stream with a route.
        failures: Failed records, whoever lacked them, of a stream with a route.
        fetched, fetched_bytes: Records that were read, whoever lacked them, and the bytes of what was read of them.
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
        """The records by what became of them."""
        return Counts(self.read, self.landed, self.dead, self.tombstones, self.filtered)


_INDEX = re.compile(r"\[\d+\]")


_LONGEST_FIELD = 200


def count_block(tally: Tally, block: Block, wanted: npt.NDArray[np.bool_], decoder: DecoderSpec) -> None:
    """Count what became of a block's records.

    Args:
        wanted: Which of its records the coordinator has not yet read.
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
    """Add records by the path of a field that no column takes; `MOST_UNKNOWN` paths are told apart at most."""
    for path, count in met.items():
        name = shortened_path(path)
        if name not in counts and len(counts) >= MOST_UNKNOWN:
            name = OTHER_UNKNOWN_PATHS
        counts[name] = counts.get(name, 0) + count


def _count_unknown(tally: Tally, block: Block, decoder: DecoderSpec) -> None:
    """Keys that are not declared, each with a record that has it: the first time it is met, one is looked for."""
    counts = tally.unknown_fields
    count_unknown_fields(counts, block.unknown_fields)
    known = tally.unknown_examples
    # Of keys no example is looked for.
    own = [path for path in block.unknown_fields if not path.startswith(KEY_PATH)]
    new = [path for path in own if (name := shortened_path(path)) in counts and name not in known]
    if not new:
        return
    values, offsets = block.records.column("value"), block.records.column("offset")
    positions = block.positions
    if VALUE_SCHEMA_ID in block.records.schema.names:
        # Of records whose header names their schema no example is looked for: their values do not say it.
        positions = positions[np.asarray(block.records.column(VALUE_SCHEMA_ID).is_null())[positions]]
    found = FORMATS[decoder.kind].unknown_fields(decoder, values, positions, new)
    for path, field in found.items():
        known.setdefault(shortened_path(path), UnknownExample(offsets[field.row].as_py(), field.within, field.column))


def _count_cause(tally: Tally, block: Block, failure: Failure) -> None:
    """A hundred records with the same mistake at `$.items[0].n` and `$.items[7].n` have one cause."""
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
