"""Selection of dead letters: by reason, stage, field, time, offsets, state, or a SQL predicate."""

# PyIceberg's expressions are pydantic models, of which a type checker sees the keywords only.
# pyright: reportCallIssue=false

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThanOrEqual,
    In,
    IsNull,
    LessThan,
    NotIn,
    Or,
)
from pyiceberg.expressions.parser import parse
from pyiceberg.expressions.visitors import bind
from pyiceberg.schema import Schema

from jobs.base.errors import FrazilError, first_line
from jobs.records.formats.interface.problems import DISCARDED, LATE
from jobs.records.schema.row_filters import filter_advice, filter_problem
from jobs.tables.commit.stamp.offsets import OffsetRange, TopicPartition
from jobs.tables.dead_letter_table.parked_letters import TARGET, not_of_parked
from jobs.tables.dead_letter_table.table import STATES

REPLAYABLE = ("new", "failed_again")
NO_COORDINATES = "no_coordinates"
ONLY_NAMED = (NO_COORDINATES, LATE, DISCARDED)
"""Reasons whose dead letters are replayed only by request.

Their rows may exist elsewhere already, would land late again, or were taken out by an operator.
"""
_OFFSETS = re.compile(r"(?P<topic>[^:\s]+)(:(?P<partition>\d+)(:(?P<first>\d*)-(?P<last>\d*))?)?")


class SelectionError(FrazilError):
    """A selection of dead letters has no meaning.

    Safe: Nothing was changed.
    Next: write it as the message shows
    """


@dataclass(frozen=True, slots=True)
class OffsetSelection:
    """Dead letters of a topic, of one of its partitions, or of an offset range.

    Attributes:
        partition: None for all.
        range: The offsets, its end exclusive; None for all.
    """

    topic: str
    partition: int | None = None
    range: OffsetRange | None = None


@dataclass(frozen=True, slots=True)
class Selection:
    """Dead letters that match every given criterion; several values of one criterion match any.

    Attributes:
        reasons: Values of `error_class`.
        stages: Values of `stage`.
        fields: Values of `field`, such as `$.amount`.
        since: Letters first seen (`first_seen`, when frazil met the record) at this instant or later.
        until: Letters first seen before this instant.
        offsets: Coordinates of the records.
        states: States; null in the table is `new`.
        where: A predicate over the table's columns, in SQL.
        limit: Most dead letters; data files with the oldest come first.
        left_out: Values of `error_class` to leave out, unless `reasons` is given.
        parked: Suspended tables, whose dead letters are left out as the tables take no rows yet.
    """

    reasons: tuple[str, ...] = ()
    stages: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    offsets: tuple[OffsetSelection, ...] = ()
    states: tuple[str, ...] = REPLAYABLE
    where: str | None = None
    limit: int | None = None
    left_out: tuple[str, ...] = ()
    parked: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        unknown = sorted(set(self.states) - set(STATES))
        if unknown:
            raise SelectionError(f"{unknown[0]} is no state of a dead letter.", fix=f"one of {', '.join(STATES)}")
        if any(at is not None and at.tzinfo is None for at in (self.since, self.until)):
            raise SelectionError("a time does not say its zone.", fix="write it such as 2026-01-31T08:00:00Z")

    def filter(self, stream: str, schema: Schema) -> BooleanExpression:
        """The selection as PyIceberg's row filter.

        Args:
            schema: Schema of the dead-letter table; a table without `state` has new dead letters only.

        Raises:
            SelectionError: `where` does not parse, or names a column that the table lacks.
        """
        parts: list[BooleanExpression] = []
        parts.append(EqualTo("stream", stream))
        parts += [
            In(column, set(values))
            for column, values in (("error_class", self.reasons), ("stage", self.stages), ("field", self.fields))
            if values
        ]
        if self.left_out and not self.reasons:
            parts.append(NotIn("error_class", set(self.left_out)))
        if self.parked and TARGET in schema.column_names:
            parts.append(Or(not_of_parked(schema), NotIn(TARGET, set(self.parked))))
        if self.since is not None:
            parts.append(GreaterThanOrEqual("first_seen", self.since.astimezone(UTC).isoformat()))
        if self.until is not None:
            parts.append(LessThan("first_seen", self.until.astimezone(UTC).isoformat()))
        if self.offsets:
            parts.append(any_of(_of_offsets(each) for each in self.offsets))
        if set(self.states) != set(STATES):
            parts.append(_of_states(self.states, schema))
        if self.where is not None:
            parts.append(_parsed(self.where, schema))
        return functools.reduce(And, parts)


def parse_selection(
    *,
    reasons: Sequence[str],
    stages: Sequence[str],
    fields: Sequence[str],
    since: str | datetime | None,
    until: str | datetime | None,
    offsets: Sequence[str],
    states: Sequence[str],
    where: str | None,
    limit: int | None,
    default_states: tuple[str, ...] = REPLAYABLE,
) -> Selection:
    """Parse a selection that a person wrote.

    Args:
        since, until: An instant, as a datetime or in ISO 8601.
        offsets: See `parse_offsets`.
        states: All states if `all` is among them; `default_states` if empty.

    Raises:
        SelectionError: A part of it is not valid.
    """
    return Selection(
        tuple(reasons),
        tuple(stages),
        tuple(fields),
        _instant(since),
        _instant(until),
        tuple(parse_offsets(each) for each in offsets),
        STATES if "all" in states else tuple(states) or default_states,
        where,
        limit,
    )


def _instant(text: str | datetime | None) -> datetime | None:
    try:
        return text if text is None or isinstance(text, datetime) else datetime.fromisoformat(text)
    except ValueError:
        raise SelectionError(f"'{text}' is no time.", fix="write it such as 2026-01-31T08:00:00Z") from None


def parse_offsets(text: str) -> OffsetSelection:
    """Parse `topic`, `topic:3` or `topic:3:17-42`, the last offset included; `17-` has no end.

    Raises:
        SelectionError: The text has none of these forms.
    """
    found = _OFFSETS.fullmatch(text.strip())
    if not found:
        raise SelectionError(f"'{text}' is no place in Kafka.", fix="write it as TOPIC, TOPIC:3 or TOPIC:3:17-42")
    topic, partition, first, last = found["topic"], found["partition"], found["first"], found["last"]
    if first is None:
        return OffsetSelection(topic, None if partition is None else int(partition))
    range_ = OffsetRange(int(first or 0), int(last) + 1 if last else 2**63 - 1)
    if range_.start >= range_.end:
        raise SelectionError(f"'{text}' ends before it begins.", fix=f"write it as {topic}:{partition}:{last}-{first}")
    return OffsetSelection(topic, int(partition), range_)


def letters_within(ranges: dict[TopicPartition, OffsetRange]) -> BooleanExpression:
    """Filter for dead letters whose coordinates are in these ranges."""
    return any_of(_of_offsets(OffsetSelection(p.topic, p.partition, range_)) for p, range_ in sorted(ranges.items()))


def _of_offsets(each: OffsetSelection) -> BooleanExpression:
    wanted: BooleanExpression = EqualTo("topic", each.topic)
    if each.partition is not None:
        wanted = And(wanted, EqualTo("partition", each.partition))
    if each.range is not None:
        wanted = And(wanted, GreaterThanOrEqual("offset", each.range.start), LessThan("offset", each.range.end))
    return wanted


def _of_states(states: tuple[str, ...], schema: Schema) -> BooleanExpression:
    if "state" not in {field.name for field in schema.fields}:
        return AlwaysTrue() if "new" in states else AlwaysFalse()
    wanted: BooleanExpression = In("state", set(states))
    return Or(wanted, IsNull("state")) if "new" in states else wanted


def _parsed(text: str, schema: Schema) -> BooleanExpression:
    try:
        wanted = parse(text)
        bind(schema, wanted, case_sensitive=True)
    except Exception as problem:
        why = filter_problem(text, schema) or first_line(problem)
        columns = [field.name for field in schema.fields]
        raise SelectionError(
            f"--where: '{text}' cannot be asked of dead letters: {why}.",
            fix=filter_advice("error_class = 'wrong_type' and offset >= 100", columns),
        ) from None
    return wanted


def any_of(parts: Iterable[BooleanExpression]) -> BooleanExpression:
    """Filter that matches if any part matches; never if there is none."""
    found = list(parts)
    # PyIceberg makes a balanced tree of all parts at once. A tree made pair by pair is too deep for it from some
    # hundred.
    return Or(*found) if len(found) > 1 else next(iter(found), AlwaysFalse())
