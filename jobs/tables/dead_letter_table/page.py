"""Page of dead letters by cause: those with the same class, stage, field and need have one cause."""

# PyIceberg's expressions are pydantic models, of which a type checker sees the keywords only.
# pyright: reportCallIssue=false

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa
from pyiceberg.expressions import And, EqualTo
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from jobs.config.stream.models import StreamSpec
from jobs.config.values.mask import NO_MASK
from jobs.records.formats.interface.decoder import Failure
from jobs.records.formats.interface.decoder_spec import ResolvedSchema
from jobs.records.formats.interface.problems import without_value
from jobs.records.formats.known_formats import FORMATS
from jobs.records.schema.name_matching import EXACT_NAMES
from jobs.tables.dead_letter_table.masking import masked
from jobs.tables.dead_letter_table.reader import (
    UnreadableDeadLettersError,
    read_dead_letters,
    whole_dead_letters,
)
from jobs.tables.dead_letter_table.selection import Selection, any_of
from jobs.tables.dead_letter_table.table import STATES

MOST_CAUSES = 20
LONGEST_VALUE = 4_000
_INDEX = re.compile(r"\[\d+\]")
_WHY = ("stage", "error_class", "field", "message")
ColumnsOf: TypeAlias = Callable[[str], ResolvedSchema | None]
"""Returns the schema of a topic's rows; None if nothing declares it."""

_WHERE = ("topic", "partition", "offset", "first_seen")


class Cause(NamedTuple):
    """Common cause of the dead letters of a group on a page.

    Attributes:
        field: Path of the field at fault, without list indices; empty for the whole record.
        needs: The needed type and the type found; empty if only the value would show it.
    """

    error_class: str
    stage: str
    field: str
    needs: str


class _Hidden(NamedTuple):
    """Parts of a dead letter's record that may be shown, or are kept, under masks."""

    value: bytes | None
    message: str | None
    parts: str | None


@dataclass(frozen=True, slots=True)
class ShownDeadLetter:
    """One dead letter as a person may see it.

    Attributes:
        value: The record's value as text, masked by the stream's present file, cut after `LONGEST_VALUE` characters;
            None if there is none, or if it is withheld.
        value_bytes: Length of the value in bytes.
        masked: Parts of the record that are not kept or not shown: see
            `jobs.tables.dead_letter_table.masking.Masked.parts`.
        replay_reason, replay_message: Failure of the last replay.
        row_before: Row that a step refused, as JSON; None if anything is masked.
    """

    topic: str
    partition: int
    offset: int
    timestamp: datetime | None
    first_seen: datetime
    state: str
    field: str | None
    message: str | None
    value: str | None
    value_bytes: int | None
    masked: str | None
    replay_reason: str | None
    replay_message: str | None
    row_before: str | None = None


@dataclass(slots=True)
class DeadLetterPage:
    """Dead letters by cause, the most frequent cause first.

    Attributes:
        counts: Selected dead letters by cause, for the `MOST_CAUSES` most frequent ones.
        others: Dead letters of all other causes.
        letters: Dead letters of this page, by cause.
        pages: Number of pages.
        unreadable: Message about data files that cannot be read.
    """

    page: int
    counts: dict[Cause, int] = field(default_factory=dict)
    others: int = 0
    letters: dict[Cause, list[ShownDeadLetter]] = field(default_factory=dict)
    pages: int = 0
    unreadable: list[UnreadableDeadLettersError] = field(default_factory=list)


def dead_letter_page(
    table: Table,
    spec: StreamSpec,
    selection: Selection,
    *,
    page: int = 1,
    of_each: int = 3,
    columns_of: ColumnsOf | None = None,
) -> DeadLetterPage:
    """One page of a selection: `of_each` dead letters for each cause, in the order of their coordinates.

    Reads the whole selection twice, without the records, and then the records of the page. Commits in the meantime
    change nothing.

    Args:
        table: The dead-letter table, as it was loaded.
        spec: The stream, whose masks also apply to older dead letters.
        selection: The selection; its limit is ignored.
        page: Number of the page, from 1.
        columns_of: Returns the columns of a topic's rows, which may have further names in records. Without it, or
            without columns for a topic, the columns that the stream's file declares.
    """
    found = DeadLetterPage(page)
    counts: dict[Cause, int] = {}
    for batch in _read(table, spec, selection, _WHY, found):
        grouped = pa.Table.from_batches([batch]).group_by(list(_WHY)).aggregate([([], "count_all")])
        for row in grouped.to_pylist():
            cause = _cause(row)
            counts[cause] = counts.get(cause, 0) + row["count_all"]
    ordered = sorted(counts.items(), key=lambda each: (-each[1], each[0]))
    found.counts = dict(ordered[:MOST_CAUSES])
    found.others = sum(count for _, count in ordered[MOST_CAUSES:])
    found.pages = -(-max(found.counts.values(), default=0) // of_each)
    places = _places(table, spec, selection, found, page * of_each)
    for cause in found.counts:
        on_page = places[cause][(page - 1) * of_each :]
        if on_page:
            found.letters[cause] = _shown(table, spec, on_page, columns_of or (lambda _: None))
    return found


def _cause(letter: dict[str, Any]) -> Cause:
    field_ = _INDEX.sub("[]", letter["field"] or "")
    needs = without_value(letter["message"] or "") or ""
    return Cause(letter["error_class"] or "", letter["stage"] or "", field_, needs)


def _read(
    table: Table, spec: StreamSpec, selection: Selection, columns: tuple[str, ...], found: DeadLetterPage
) -> Iterator[pa.RecordBatch]:
    def unreadable(problem: UnreadableDeadLettersError) -> None:
        if problem.message not in {known.message for known in found.unreadable}:
            found.unreadable.append(problem)

    return read_dead_letters(table, selection.filter(spec.stream, table.schema()), columns, unreadable)


def _places(
    table: Table, spec: StreamSpec, selection: Selection, found: DeadLetterPage, most: int
) -> dict[Cause, list[tuple[Any, ...]]]:
    """First places of each cause on the page, in order."""
    places: dict[Cause, list[tuple[Any, ...]]] = {cause: [] for cause in found.counts}
    causes: dict[tuple[Any, ...], Cause] = {}
    for batch in _read(table, spec, selection, (*_WHERE, *_WHY), found):
        columns = {name: batch.column(name).to_pylist() for name in (*_WHERE, *_WHY)}
        for row, why in enumerate(zip(*(columns[name] for name in _WHY), strict=True)):
            if (cause := causes.get(why)) is None:
                cause = _cause(dict(zip(_WHY, why, strict=True)))
                if len(causes) < 100_000:
                    causes[why] = cause
            if cause in places:
                places[cause].append(tuple(columns[name][row] for name in _WHERE))
        for cause, known in places.items():
            if len(known) > most:
                places[cause] = sorted(known)[:most]
    return {cause: sorted(known)[:most] for cause, known in places.items()}


def _shown(
    table: Table, spec: StreamSpec, places: list[tuple[Any, ...]], columns_of: ColumnsOf
) -> list[ShownDeadLetter]:
    """Dead letters at these places, with the visible parts of their records."""
    wanted = And(
        EqualTo("stream", spec.stream),
        any_of(
            And(EqualTo("topic", topic), EqualTo("partition", partition), EqualTo("offset", offset))
            for topic, partition, offset, _ in set(places)
        ),
    )
    at = {place: index for index, place in enumerate(places)}
    rows: dict[int, ShownDeadLetter] = {}
    for batch in whole_dead_letters(table, wanted):
        hidden = _masked(batch, spec, columns_of)
        for row, letter in enumerate(batch.to_pylist()):
            index = at.get(tuple(letter[name] for name in _WHERE))
            if index is not None:
                rows[index] = _letter(letter, spec, hidden[row])
    return [rows[index] for index in sorted(rows)]


def _masked(batch: pa.RecordBatch, spec: StreamSpec, columns_of: ColumnsOf) -> list[_Hidden]:
    """Value, message and missing parts of each dead letter, under the stream's present masks."""
    values, messages, parts = (batch.column(name).to_pylist() for name in ("value", "message", "masked"))
    shown = [_Hidden(*each) for each in zip(values, messages, parts, strict=True)]
    if spec.errors.mask == NO_MASK:
        return shown
    by_topic: dict[str, list[int]] = {}
    for row, topic in enumerate(batch.column("topic").to_pylist()):
        by_topic.setdefault(topic, []).append(row)
    for topic, rows in by_topic.items():
        hidden = _masked_alike(batch.take(pa.array(rows)), spec, columns_of(topic) or spec.decode.declared)
        for row, each in zip(rows, hidden, strict=True):
            shown[row] = each
    return shown


def _masked_alike(batch: pa.RecordBatch, spec: StreamSpec, resolved: ResolvedSchema | None) -> Iterator[_Hidden]:
    """The same for dead letters whose records are matched with the same columns."""
    messages, fields, parts, epochs = (
        batch.column(name).to_pylist() for name in ("message", "field", "masked", "epoch")
    )
    failures = [Failure(row, "", "", messages[row] or "", fields[row]) for row in range(batch.num_rows)]
    again = masked(
        batch.select(["key", "value", "headers"]),
        failures,
        spec.errors.mask,
        resolved.schema if resolved else Schema(),
        json_fields=FORMATS[spec.decode.format].json_fields,
        names=resolved.names if resolved else EXACT_NAMES,
    )
    for row, value in enumerate(again.records.column("value").to_pylist()):
        message: str | None = again.failures[row].message
        if epochs[row] is None:
            # The letter comes from a Connect queue, and Connect's own message may quote the value.
            message = without_value(message or "")
        missing = dict.fromkeys(part for part in (parts[row], again.parts[row]) if part)
        yield _Hidden(value, message or None, ",".join(missing) or None)


def _letter(letter: dict[str, Any], spec: StreamSpec, hidden: _Hidden) -> ShownDeadLetter:
    value, message, parts = hidden
    stored: bytes | None = letter["value"]
    state, again = letter["state"], letter["replay_message"]
    if spec.errors.mask != NO_MASK:
        again = without_value(again or "")
    return ShownDeadLetter(
        letter["topic"],
        letter["partition"],
        letter["offset"],
        letter["timestamp"],
        letter["first_seen"],
        state if state in STATES else "new",
        letter["field"],
        message,
        None if value is None else value.decode(errors="backslashreplace")[:LONGEST_VALUE],
        None if stored is None else len(stored),
        parts,
        letter["replay_error_class"],
        again,
        None if spec.errors.mask != NO_MASK else letter["row_before"],
    )
