"""Layout of files in S3 and HDFS as Kafka Connect's sinks make it, as partitions and trigger of a table."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

KAFKA_TIME = "_kafka_timestamp"
_GRAINS = ("year", "month", "day", "hour")
# Joda's letters, and those of Aiven's templates: the finest one in a path decides.
_LETTERS: Mapping[str, str] = {
    **dict.fromkeys("Yyx", "year"),
    **dict.fromkeys("Mw", "month"),
    **dict.fromkeys("dDeE", "day"),
    **dict.fromkeys("HhKkamsS", "hour"),
}
_AIVEN_TIME = re.compile(r"\{\{\s*timestamp\s*:\s*unit\s*=\s*(\w+)\s*\}\}")
_QUOTED = re.compile(r"'[^']*'")
_DAY_MS, _HOUR_MS = 86_400_000, 3_600_000


@dataclass(frozen=True, slots=True)
class Layout:
    """Partitions that take the place of folders.

    Attributes:
        partition_by: Partition expressions; empty if folders say nothing but the topic and Kafka's partition.
        difference: What differs from the folders, as a phrase.
        time: Column of the time by which rows are partitioned; None if it is no time.
        known: Whether the partitioner is one that frazil knows.
    """

    partition_by: tuple[str, ...]
    difference: str
    time: str | None = None
    known: bool = True


def finest_grain(path_format: str) -> str | None:
    """`year`, `month`, `day` or `hour`: the finest part of a time in a path; None if it has none.

    Args:
        path_format: Pattern of Joda such as `'dt'=YYYY-MM-dd/'hr'=HH`; what is in quotes counts for nothing.
    """
    grains = {_LETTERS[letter] for letter in _QUOTED.sub("", path_format) if letter in _LETTERS}
    return max(grains, key=_GRAINS.index, default=None)


def template_grain(template: str) -> str | None:
    """Finest part of a time in a file name template of Aiven's sink; None if it has none."""
    grains = {grain for unit in _AIVEN_TIME.findall(template) if (grain := finest_grain(unit))}
    return max(grains, key=_GRAINS.index, default=None)


def layout_of(partitioner: str, get: Mapping[str, str]) -> Layout:
    """Partitions for a partitioner of Confluent's storage sinks.

    Args:
        partitioner: Class, in full or its last part; empty is the default one.
        get: Keys of the connector with their values.
    """
    name = partitioner.rpartition(".")[2]
    match name:
        case "" | "DefaultPartitioner":
            return Layout((), "folders by Kafka's partition; _kafka_partition has it in each row")
        case "FieldPartitioner":
            fields = tuple(part.strip() for part in get.get("partition.field.name", "").split(",") if part.strip())
            return Layout(fields, "partitions by value; no folder names to parse")
        case "TimeBasedPartitioner" | "HourlyPartitioner" | "DailyPartitioner":
            grain = _time_grain(name, get)
            column = time_column(get)
            if grain is None or column is None:
                return Layout((), "no partition: the path has no time of a record")
            return Layout((f"{grain}({column})",), "a partition of the table, in UTC, in place of folders", column)
        case _:
            return Layout((), "the partitioner is a class of your own; write table.partition_by", known=False)


def time_column(get: Mapping[str, str]) -> str | None:
    """Column of the time by which `timestamp.extractor` chooses folders; None if it is a class of your own."""
    extractor = (get.get("timestamp.extractor") or "Wallclock").rpartition(".")[2].removesuffix("TimestampExtractor")
    match extractor.casefold():
        case "wallclock" | "record":
            return KAFKA_TIME
        case "recordfield":
            return get.get("timestamp.field") or "timestamp"
        case _:
            return None


def _time_grain(name: str, get: Mapping[str, str]) -> str | None:
    if name == "HourlyPartitioner":
        return "hour"
    if name == "DailyPartitioner":
        return "day"
    if grain := finest_grain(get.get("path.format", "")):
        return grain
    duration = get.get("partition.duration.ms", "")
    if not duration.isdigit():
        return None
    return "day" if int(duration) >= _DAY_MS else "hour"


def rotation_ms(get: Mapping[str, str]) -> tuple[str, int] | None:
    """Key and milliseconds of the shortest rotation by time; None if only a number of records closes files."""
    found = [
        (int(value), key)
        for key in ("rotate.schedule.interval.ms", "rotate.interval.ms")
        if (value := get.get(key, "").strip()).isdigit() and int(value) > 0
    ]
    return (min(found)[1], min(found)[0]) if found else None
