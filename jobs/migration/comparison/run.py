"""Run of a comparison: records of Kafka through a stream's pipeline, beside the rows of a table; nothing is written."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH

from jobs.base.errors import FrazilError
from jobs.clients.catalog.catalog import find_table
from jobs.clients.kafka.metadata import KafkaLog
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.migration.comparison.result import (
    AbsentRecords,
    Comparison,
    DifferenceCounts,
    Example,
    MissingColumn,
    OneSided,
)
from jobs.migration.comparison.sink_rows import (
    CoordinateColumns,
    find_coordinates,
    read_rows,
    refuse_equality_deletes,
)
from jobs.migration.comparison.staged_rows import MatchBy, SharedColumn, StagedRows, shared_columns
from jobs.migration.comparison.stream_rows import StreamRows, stage_stream
from jobs.migration.comparison.table_facts import sink_marks, table_facts
from jobs.migration.comparison.value_difference import Reason, reason_of, shown_value
from jobs.records.schema.kafka_columns import ALL_NAMES
from jobs.records.schema.needs import Coordinates
from jobs.streaming.preview.record import PreviewedLetter
from jobs.streaming.preview.run import TopicLog, newest_ranges, sample_log
from jobs.tables.commit.history.branch import branches
from jobs.tables.commit.stamp.offsets import OffsetRange, Ranges
from jobs.tables.dead_letter_table.masking import MARK

MOST_RECORDS = 5_000_000
"""Records that one comparison looks at; their rows are in temporary files meanwhile."""
_INDEX = re.compile(r"\[\d+\]")
_UNKNOWN: Any = object()


@dataclass(frozen=True, slots=True)
class Request:
    """What is compared.

    Attributes:
        table: Name of the other table.
        branch: Its branch.
        output: The stream's table whose rows are compared; None for its main table.
        last: So many of the newest records, if `since` is None.
        since: Records from this time on.
        coordinates: Columns of the table with topic, partition and offset; empty to find them.
        key: Columns that rows are matched by where there are no coordinates; empty for the identifier fields.
        examples: How many records are shown of each difference.
    """

    table: str
    branch: str = MAIN_BRANCH
    output: str | None = None
    last: int = 10_000
    since: datetime | None = None
    coordinates: Mapping[str, str] = field(default_factory=dict)
    key: tuple[str, ...] = ()
    examples: int = 3


def compare_with_table(
    spec: StreamSpec,
    settings: Settings,
    catalog: Catalog,
    request: Request,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Comparison:
    """Compare the rows that a stream makes of records with the rows of a table.

    Args:
        on_progress: Told how many of the records have been read, and of how many.

    Raises:
        FrazilError: Kafka, the catalog or the registry does not answer, the table cannot be read, or rows cannot be
            matched as asked.
    """
    log = sample_log(settings.kafka, [spec])
    ranges = chosen_ranges(log, request, KafkaLog(settings.kafka))
    table = table_of(catalog, request)
    topics = sorted({each.topic for each in log})
    places = find_coordinates(table.schema(), request.table, spec, len(topics), request.coordinates)
    with tempfile.TemporaryDirectory(prefix="frazil-compare-") as folder, StagedRows(Path(folder)) as staged:
        made = stage_stream(spec, settings, catalog, request.output, ranges, staged, on_progress)
        for rows, place in read_rows(table, ranges, places):
            staged.add("theirs", rows, place)
        theirs = {each.name: each.field_type for each in table.schema().fields}
        left_out = (places.columns if places else frozenset()) | frozenset(spec.kafka_columns.coordinates)
        shared = tuple(each for each in shared_columns(made.types, theirs) if not {each.ours, each.theirs} & left_out)
        by, key = _matching(request, made, table, shared, places)
        staged.match(shared, by, key)
        whole = all(range_ == log[each] and not range_.start for each, range_ in ranges.items())
        return _result(spec, request, table, made, staged, _Matched(shared, by, key, places, ranges, whole), left_out)


def chosen_ranges(log: TopicLog, request: Request, kafka: KafkaLog) -> Ranges:
    """The offsets that are looked at.

    Raises:
        FrazilError: They hold more records than one comparison looks at.
    """
    if request.since is None:
        return newest_ranges(log, min(request.last, MOST_RECORDS))
    starts = kafka.at_time(log, int(request.since.timestamp() * 1_000))
    ranges = {
        each: OffsetRange(max(starts[each], kept.start), kept.end)
        for each, kept in log.items()
        if starts[each] < kept.end
    }
    if (count := sum(each.end - each.start for each in ranges.values())) > MOST_RECORDS:
        raise FrazilError(
            f"{count:,} records came since {request.since.isoformat()}, and a comparison looks at {MOST_RECORDS:,} at "
            "most.",
            fix="name a later time by --since, or --last",
        )
    return ranges


def table_of(catalog: Catalog, request: Request) -> Table:
    """The table that is compared, as its branch has it.

    Raises:
        FrazilError: There is no such table or branch, or it cannot be read.
    """
    table = find_table(catalog, request.table)
    if table is None:
        raise FrazilError(f"table {request.table} does not exist in catalog {catalog.name}.", fix="correct --with")
    if request.branch != MAIN_BRANCH:
        if request.branch not in branches(table.metadata):
            known = ", ".join(branches(table.metadata)) or "none yet"
            raise FrazilError(
                f"table {request.table} has no branch {request.branch}; it has {known}.", fix="correct --branch"
            )
        table = find_table(catalog, request.table, request.branch) or table
    refuse_equality_deletes(table, request.table)
    return table


@dataclass(frozen=True, slots=True)
class _Matched:
    shared: tuple[SharedColumn, ...]
    by: MatchBy
    key: tuple[str, ...]
    places: CoordinateColumns | None
    ranges: Ranges
    whole: bool


def _matching(
    request: Request, made: StreamRows, table: Table, shared: Sequence[SharedColumn], places: CoordinateColumns | None
) -> tuple[MatchBy, tuple[str, ...]]:
    """How rows are matched, and the key's columns."""
    if places is not None and not request.key:
        return "coordinates", ()
    known = {each.ours for each in shared if each.common is not None}
    key = request.key
    if not key:
        names = made.metadata.schema().identifier_field_names() or table.schema().identifier_field_names()
        key = tuple(sorted(names)) if names <= known else ()
    if missing := [each for each in key if each not in known]:
        raise FrazilError(
            f"rows cannot be matched by {', '.join(missing)}: both tables need a column of that name, of types that "
            "can be compared.",
            fix=f"--key with some of {', '.join(sorted(known))}" if known else "the tables have no column in common",
        )
    return ("key", key) if key else ("rows", ())


def _result(
    spec: StreamSpec,
    request: Request,
    table: Table,
    made: StreamRows,
    staged: StagedRows,
    matched: _Matched,
    left_out: frozenset[str],
) -> Comparison:
    counts = DifferenceCounts(matched.shared, request.examples, made.hides)
    for pair in staged.pairs():
        counts.add(pair)
    by_place = matched.by == "coordinates"
    last = staged.last_places("theirs") if matched.places else staged.last_matched()
    only_here, behind = _only_here(staged, made, matched, request.examples, last)
    only_there, not_judged = _only_there(staged, made, matched, request.examples)
    head = table.current_snapshot()
    total = staged.matched()
    notes = [*made.notes]
    if made.left_out:
        paths = ", ".join(f"{path} ({count:,})" for path, count in list(made.left_out.items())[:5])
        notes.append(f"frazil leaves out fields that no column takes: {paths}.")
    return Comparison(
        spec.stream, made.table, request.table,
        snapshot=head.snapshot_id if head else None,
        ranges=matched.ranges, whole=matched.whole, by=matched.by, key=matched.key,
        records=made.records, rows_here=staged.rows("ours"), rows_there=staged.rows("theirs"),
        matched=total, equal=total - counts.rows, differences=counts.result(),
        only_here=only_here, behind=behind, only_there=only_there, not_judged=not_judged,
        doubled=staged.doubled() if matched.places else 0,
        absent=tuple(_absent(made, staged, table, request, there=by_place)),
        missing=tuple(_missing(made, table, staged, matched.shared, left_out)),
        facts=tuple(table_facts(made.metadata, made.schema, table.metadata, head)),
        marks=sink_marks(table.metadata, head),
        notes=tuple(notes),
    )  # fmt: skip


def _only_here(
    staged: StagedRows, made: StreamRows, matched: _Matched, examples: int, last: Mapping[tuple[str, int], int]
) -> tuple[OneSided, int]:
    """Rows that the table lacks, and how many more are newer than all that it has of their partition."""
    rows, behind, kept = 0, 0, list[tuple[Coordinates | None, Mapping[str, Any]]]()
    for place, values in staged.unmatched("ours", 1_000):
        if place[2] > last.get(place[:2], -1):
            behind += 1
            continue
        rows += 1
        if len(kept) < examples:
            shown = {
                each.ours: MARK if made.hides(each.ours) else shown_value(value, each.our_type)
                for each, value in zip(matched.shared, values, strict=False)
            }
            kept.append((Coordinates(*place), shown))
    return OneSided(rows, tuple(kept)), behind


def _only_there(staged: StagedRows, made: StreamRows, matched: _Matched, examples: int) -> tuple[OneSided, int]:
    """Rows of the table that frazil makes of no record, and how many nobody can judge."""
    judged = matched.whole or matched.places is not None
    rows, kept = 0, list[tuple[Coordinates | None, Mapping[str, Any]]]()
    for place, values in staged.unmatched("theirs", examples):
        rows += 1
        if judged and values:
            shown = {
                each.theirs: MARK if made.hides(each.ours) else shown_value(value, each.their_type)
                for each, value in zip(matched.shared, values, strict=True)
            }
            kept.append((Coordinates(*place) if place[2] is not None else None, shown))
    return (OneSided(rows, tuple(kept)), 0) if judged else (OneSided(), rows)


def _absent(
    made: StreamRows, staged: StagedRows, table: Table, request: Request, *, there: bool
) -> Iterator[AbsentRecords]:
    taken = staged.absent_there() if there else {}
    for cause, number in sorted(made.causes.items(), key=lambda each: (-made.counts[each[1]], each[0])):
        examples: list[Example] = []
        reasons: list[Reason | None] = []
        if taken.get(number):
            letters = dict(made.letters[number])
            for place, values in staged.at_places(list(letters)):
                at = Coordinates(*place)
                example, reason = _refused_example(at, letters[at], values, table, made)
                examples.append(example)
                reasons.append(reason)
                if len(examples) >= request.examples:
                    break
        reason = reasons[0] if reasons and len(set(reasons)) == 1 else None
        count = taken.get(number, 0) if there else None
        first = next((letter for _, letter in made.letters[number] if letter is not None), None)
        message = first.message if first is not None else None
        yield AbsentRecords(cause, made.counts[number], count, message, reason, tuple(examples))


def _refused_example(
    at: Coordinates, letter: PreviewedLetter | None, values: Mapping[str, Any], table: Table, made: StreamRows
) -> tuple[Example, Reason | None]:
    """A record that has a row there alone: the field at fault as the record has it, and as the table does."""
    path = _field_path(letter.field) if letter and letter.field else ()
    raw = _raw_value(letter.value, path) if letter and letter.value and path else _UNKNOWN
    in_record = None if raw is _UNKNOWN else raw
    column = next((name for name in values if len(path) == 1 and name.casefold() == path[0].casefold()), None)
    if column is None or made.hides(column):
        return Example(at, in_record, None), None
    of_type = table.schema().find_field(column).field_type
    reason = None if raw is _UNKNOWN else reason_of(raw, values[column], None, of_type)
    return Example(at, in_record, shown_value(values[column], of_type)), reason


def _field_path(field: str) -> tuple[str, ...]:
    """The names of a dead letter's field, such as `$.items[3].qty`, from the top and without places in lists."""
    return tuple(_INDEX.sub("", field).removeprefix("$").removeprefix(".").split("."))


def _raw_value(text: str, path: Sequence[str]) -> Any:
    """The field of a record that is a JSON text, also of one in Kafka Connect's envelope; a marker if it is none."""
    try:
        value: Any = json.loads(text, parse_float=str)
    except ValueError:
        return _UNKNOWN
    if isinstance(value, dict) and {*value} == {"schema", "payload"}:
        value = value["payload"]
    for part in path:
        if not isinstance(value, dict) or part not in value:
            return _UNKNOWN
        value = value[part]
    return value


def _missing(
    made: StreamRows, table: Table, staged: StagedRows, shared: Sequence[SharedColumn], left_out: frozenset[str]
) -> Iterator[MissingColumn]:
    ours, theirs = {each.ours for each in shared}, {each.theirs for each in shared}
    own = left_out | {*ALL_NAMES.values()}
    for here, names, known in ((False, [*made.types], ours), (True, table.schema().column_names, theirs)):
        for name in names:
            if "." in name or name in known or name in own:
                continue
            if count := staged.filled("theirs" if here else "ours", name):
                yield MissingColumn(name, here, count)
