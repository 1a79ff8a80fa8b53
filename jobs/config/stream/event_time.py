"""Event time of a stream: its column, late records, closed periods, and freshness and other limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag
from pyiceberg.schema import Schema
from pyiceberg.types import DateType, IcebergType, StructType, TimestampType, TimestamptzType

from jobs.config.documents.base import (
    ChangesRows,
    Problem,
    Problems,
    SpecModel,
)
from jobs.config.documents.units import Duration, format_duration
from jobs.config.documents.validation import suggestion
from jobs.config.values.fields import (
    Partition,
    PositiveInt,
    TableLocation,
    TableProperties,
    table_name,
)
from jobs.config.values.mask import path_parts
from jobs.config.values.partitioning import SortText
from jobs.records.formats.interface.decoder import KEY_PATH
from jobs.records.schema.iceberg_schema import type_at

TABLE = "{table}"
"""Placeholder for the table of the timely rows."""

_NAME = f"{TABLE}_late"
_WORDS = ("land", "dead_letter", "table")


def _named(value: str) -> str:
    if value.count(TABLE) > 1 or value == TABLE:
        raise ValueError(f"must have {TABLE} once at most, and more than that, such as {_NAME}; found '{value}'")
    table_name(value.replace(TABLE, "namespace.table"))
    return value


class LateTable(SpecModel):
    """The table of late rows, with what it has of its own; the rest is as the block ``table`` says.

    Args:
        table: Name of the table; ``{table}`` stands for the table of the timely rows. Without it, ``{table}_late``.
        partition_by: Partition expressions of a new table. Without it, as ``table.partition_by``.
        properties: Iceberg's table properties of a new table, over ``table.properties``.
        sort_by: Sort order of a new table. Without it, as ``table.sort_by``.
        location: Location of a new table. Without it, the catalog chooses.
    """

    example = "{table: orders.payments_late}"

    table: Annotated[str, AfterValidator(_named)] | None = None
    partition_by: tuple[Partition, ...] | None = None
    properties: TableProperties = Field(default_factory=dict)
    sort_by: tuple[SortText, ...] | None = None
    location: TableLocation | None = None

    @property
    def names_each(self) -> bool:
        """Whether the name contains the table of the timely rows."""
        return TABLE in (self.table or _NAME)

    @property
    def pattern(self) -> str:
        """Pattern of the name, which may contain ``{table}``."""
        return self.table or _NAME

    def name_beside(self, table: str) -> str:
        """Return the full name of the table of late rows.

        Args:
            table: Table of the timely rows: the main table, or one with its own columns.
        """
        return self.pattern.replace(TABLE, table)

    def table_beside(self, name: str) -> str | None:
        """Return the table whose late rows a table of this name would have, ignoring case; None if there is none."""
        before, _, after = self.pattern.partition(TABLE)
        if not self.names_each or len(name) <= len(before) + len(after):
            return None
        lower = name.lower()
        if not lower.startswith(before.lower()) or not lower.endswith(after.lower()):
            return None
        return name[len(before) : len(name) - len(after)]


def _late(value: object) -> Any:
    if isinstance(value, Mapping | LateTable) or value in _WORDS:
        return {} if value == "table" else value
    found = f"'{value}'" if isinstance(value, str) else str(value)
    raise ValueError(f"must be 'land', 'dead_letter' or 'table', or {{table: namespace.name}}; found {found}")


def _form(value: object) -> str:
    return "@word" if isinstance(value, str) else "@table"


Late = Annotated[
    Annotated[Literal["land", "dead_letter"], Tag("@word")] | Annotated[LateTable, Tag("@table")],
    Discriminator(_form),
    BeforeValidator(_late),
]


def hashed_late(spec: Any, late: str | LateTable) -> Any:
    """Return what is hashed: for a table its name, even if it is the default, and its partitioning."""
    if not isinstance(late, LateTable):
        return late
    partition_by = None if late.partition_by is None else list(map(str, late.partition_by))
    name = late.pattern if spec.topics_decide else late.name_beside(spec.table.name)
    return {"table": name, "partition_by": partition_by}


Closes = Literal["hour", "day"]

_ZONED = (TimestampType, TimestamptzType)


def _column(value: str) -> str:
    path_parts(value)
    return value.strip()


def _zone(value: str) -> str:
    try:
        ZoneInfo(value)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        near = suggestion(value, available_timezones())
        said = "is no time zone such as UTC or Asia/Tokyo" + (f"; did you mean '{near}'?" if near else "")
        raise ValueError(said) from None
    return value


def _seconds(_: Any, value: timedelta) -> float:
    return value.total_seconds()


class EventTime(SpecModel):
    """When what a record reports happened, by one of its columns.

    Args:
        column: Timestamp or date column of the rows, by name or path.
        grace: How much later than the newest event of its partition a record may come.
        late: What happens to a later record: it lands and is counted, is a dead letter, or goes to a table of late
            rows.
        idle_after: Time without events after which a partition does not hold the watermark up.
        closes: Period that is reported to Dagster once the watermark has passed its end. Without it, none is.
        zone: Time zone of the hours and days.
        since: First day whose periods are reported.
    """

    example = "{column: created_at}"

    column: Annotated[str, AfterValidator(_column), ChangesRows()]
    grace: Annotated[Duration, ChangesRows(written=_seconds)] = timedelta(minutes=10)
    late: Annotated[Late, ChangesRows(written=hashed_late)] = "land"
    idle_after: Duration = timedelta(minutes=5)
    closes: Closes | None = None
    zone: Annotated[str, AfterValidator(_zone)] = "UTC"
    since: date = date(2025, 1, 1)

    @property
    def path(self) -> tuple[str, ...]:
        """Path of the column, from the outermost struct."""
        return path_parts(self.column)

    @property
    def late_table(self) -> LateTable | None:
        """The table of late rows; None if there is none."""
        return self.late if isinstance(self.late, LateTable) else None

    @property
    def grace_ms(self) -> int:
        """The grace in milliseconds."""
        return self.grace // timedelta(milliseconds=1)

    @property
    def idle_ms(self) -> int:
        """Milliseconds after which a partition is idle."""
        return self.idle_after // timedelta(milliseconds=1)

    def type_in(self, columns: Schema) -> IcebergType | None:
        """Return the column's type; None if there is no such column.

        Args:
            columns: Columns of the rows, or of the table.
        """
        return type_at(columns, self.path)

    def is_date(self, columns: Schema) -> bool:
        """Whether the column holds dates without a time."""
        return isinstance(self.type_in(columns), DateType)

    @property
    def since_ms(self) -> int:
        """Begin of the first reported day in milliseconds since 1970."""
        return _instant(datetime(self.since.year, self.since.month, self.since.day, tzinfo=ZoneInfo(self.zone)))

    def start_of(self, at_ms: int) -> int:
        """Returns the begin of the hour, or the day if days close, that contains a time; milliseconds since 1970."""
        local = datetime.fromtimestamp(at_ms / 1000, UTC).astimezone(ZoneInfo(self.zone))
        if self.closes == "day":
            return _instant(local.replace(hour=0, minute=0, second=0, microsecond=0, fold=0))
        return at_ms - at_ms % 60_000 - local.minute * 60_000

    def end_of(self, start_ms: int) -> int:
        """Returns the end of the hour or day that begins at a time; both in milliseconds since 1970."""
        if self.closes != "day":
            return start_ms + 3_600_000
        zone = ZoneInfo(self.zone)
        local = datetime.fromtimestamp(start_ms / 1000, UTC).astimezone(zone)
        return _instant((local.replace(tzinfo=None) + timedelta(days=1)).replace(tzinfo=zone))

    def periods(self, from_ms: int, until_ms: int) -> Iterator[tuple[int, int]]:
        """Yield begin and end of the hour or day that contains `from_ms`, and of later ones that end by `until_ms`."""
        start = self.start_of(from_ms)
        while (end := self.end_of(start)) <= until_ms:
            yield start, end
            start = end


def _instant(at: datetime) -> int:
    return round(at.timestamp() * 1000)


def event_time_problems_of(event_time: EventTime | None, columns: Schema) -> list[Problem]:
    """Returns the problems of the block, given the columns of the table, each with its place in the spec."""
    if event_time is None:
        return []
    place, found = ("event_time", "column"), event_time.type_in(columns)
    if found is None:
        times = _times_in(columns.as_struct())
        near = suggestion(event_time.column, times)
        known = f"; did you mean '{near}'?" if near else f"; its times are {', '.join(times)}" if times else ""
        return [(place, f"'{event_time.column}' is no column of the rows{known}")]
    if not isinstance(found, (*_ZONED, DateType)):
        return [(place, f"'{event_time.column}' is {found}; an event time is a timestamptz, a timestamp or a date")]
    if isinstance(found, DateType) and event_time.closes == "hour":
        return [(("event_time", "closes"), f"must be day: '{event_time.column}' is a date, which has no hours")]
    if isinstance(found, DateType) and event_time.zone != "UTC":
        return [(("event_time", "zone"), f"must be UTC: '{event_time.column}' is a date, whose day is that of no zone")]
    return []


def _times_in(struct: StructType, above: str = "") -> list[str]:
    names: list[str] = []
    for field in struct.fields:
        if isinstance(field.field_type, StructType):
            names += _times_in(field.field_type, f"{above}{field.name}.")
        elif isinstance(field.field_type, (*_ZONED, DateType)):
            names.append(f"{above}{field.name}")
    return names


class Freshness(SpecModel):
    """How long ago the table may last have been complete. At least a minute; ``warn`` is shorter than ``fail``.

    Args:
        warn: Age of completeness that warns, at least ``60s``.
        fail: Age of completeness that fails, longer than ``warn``.
        by: Measure of completeness: arrival in Kafka, or the watermark of ``event_time``.
    """

    example = "{warn: 30m, fail: 1h}"

    warn: Duration
    fail: Duration
    by: Literal["arrival", "event_time"] = "arrival"

    def _problems(self) -> Problems:
        short = [name for name in ("warn", "fail") if getattr(self, name) < timedelta(seconds=60)]
        yield from (((name,), "must be at least 60s") for name in short)
        if self.warn >= self.fail:
            yield ("warn",), "must be shorter than fail"


def _json_path(value: str) -> str:
    if value not in ("$", KEY_PATH) and not value.startswith(("$.", f"{KEY_PATH}.")):
        raise ValueError("must be the path of a key such as $.debug, or $ for all")
    return value


class Slo(SpecModel):
    """Limits of a stream; a check turns red where one is exceeded.

    Args:
        lag_records: Most records that may wait in Kafka.
        lag_time: Longest time that the table may be behind the log. Without it, ``freshness.fail``; without both, 15
            minutes beyond the trigger warn.
        dead_letter_ratio: Largest share of dead letters within five minutes. Without it, ``errors.stop_above.ratio``,
            else 0.05.
        unknown_fields: Paths of undeclared fields that are ignored on purpose, such as ``$.debug``; ``$`` is all of
            them.
    """

    example = "{lag_time: 15m, unknown_fields: [$.debug]}"

    lag_records: PositiveInt | None = None
    lag_time: Duration | None = None
    dead_letter_ratio: Annotated[float, Field(gt=0, le=1)] | None = None
    unknown_fields: tuple[Annotated[str, AfterValidator(_json_path)], ...] = ()

    def leaves_out(self, path: str) -> bool:
        """Whether an undeclared field is ignored on purpose."""
        below = tuple(f"{each}{mark}" for each in self.unknown_fields for mark in ".[{")
        return path in self.unknown_fields or path.startswith(below)


def freshness_problems(freshness: Freshness | None, event_time: EventTime | None) -> list[Problem]:
    """Returns the problems of a freshness that is measured by the watermark."""
    if freshness is None or freshness.by != "event_time":
        return []
    if event_time is None:
        return [(("freshness", "by"), "can be event_time only where the block event_time names the column")]
    if freshness.warn <= event_time.grace:
        grace = format_duration(event_time.grace)
        return [
            (("freshness", "warn"), f"must be longer than event_time.grace, {grace}, which the watermark is behind")
        ]
    return []
