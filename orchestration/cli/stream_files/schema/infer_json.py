"""Inference of a stream from records that are JSON objects, with a comment on each column."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, get_args

from jobs.base.errors import FrazilError
from jobs.clients.kafka.topic_sample import SampleRecord
from jobs.records.formats.json.inference import (
    Doubt,
    InferenceRules,
    Inferred,
    InferredColumn,
    form_of_all,
    inferred,
    most_frequent_kind,
)
from jobs.records.formats.json.seen_values import (
    NUMBER,
    WHOLE,
    SeenValues,
    TextForm,
    example_values,
    parsed,
)
from jobs.records.schema.column_names import ColumnNames
from jobs.records.schema.declared import Primitive, StructType
from orchestration.cli.stream_files.schema.stream_yaml import ColumnLines, NewStream, SampleCounts

_LONGEST_VALUE = 40
_MOST_DECIMAL = 38

_DOUBTS: Mapping[Doubt, str] = {
    "always_null": "always null, so the type is a guess",
    "empty": "always empty, so the type within is a guess",
    "name": "left out: no column can have this name",
    "case": "left out: the name differs from another one's by case only, so its records become dead letters",
    "path": "left out: the name is the path of a field within another column",
    "kafka_name": "left out: names that start with _kafka are kept for frazil's own columns",
}
_NO_TYPE: Mapping[Doubt, str] = {
    "beyond_decimal": "json, as some are too large for a column of numbers",
    "name": "json, as no column can have the names within",
    "case": "json, as names within differ by case only",
    "path": "json, as names within are paths of other fields",
    "too_deep": "json, as it is nested too deep for a schema",
    "more_fields": "json, as there are more fields than were looked at",
}


def column_lines(found: Inferred, examples: Mapping[str, Sequence[Any]]) -> Iterator[ColumnLines]:
    """Yield each column for the stream's file, with comments on the column and its nested fields.

    Args:
        found: The inferred columns.
        examples: Example values by path; empty if comments show no values.
    """
    names, fields, refused = ColumnNames(), dict[str, str](), dict[str, str]()
    for field in found.schema.fields if found.schema else ():
        if (why := names.field_refusal((field.name,))) is None:
            names.add((field.name,))
            fields[f"$.{field.name}"] = str(field)
        else:
            refused[f"$.{field.name}"] = f"; left out: {why.partition(';')[0]}"
    comments: list[str] = []
    text: str | None = None
    for column in found.columns:
        if column.path in fields:
            if text is not None:
                yield ColumnLines(text, tuple(comments))
            # Comments on fields that are left out before the first column go above that column.
            before = comments if text is None else []
            text, comments = fields[column.path], [*before, _about(column, examples)]
        else:
            comments.append(f"{column.path}: {_about(column, examples)}{refused.get(column.path, '')}")
    if text is not None:
        yield ColumnLines(text, tuple(comments))


def time_column(schema: StructType) -> str | None:
    """Name of the first column of times or dates, to suggest partitions by; None if it is no plain identifier."""
    for field in schema.fields:
        if isinstance(field.type, Primitive) and field.type.name in ("timestamptz", "timestamp", "date"):
            return field.name if field.name.isidentifier() else None
    return None


def _about(column: InferredColumn, examples: Mapping[str, Sequence[Any]]) -> str:
    parts = [_share(column), *_values(column), *_doubts(column)]
    if column.seen.first is not None and (column.doubts or column.seen.count + column.seen.nulls < column.of):
        parts.append(f"first at {column.seen.first}")
    if shown := examples.get(column.path):
        parts.append("such as " + ", ".join(_shown(value) for value in shown))
    return "; ".join(part for part in parts if part)


def _share(column: InferredColumn) -> str:
    seen, there = column.seen, column.seen.count + column.seen.nulls
    if column.path.endswith(("[]", "{}")):
        share = f"{there:,} {'elements' if column.path.endswith('[]') else 'values'}"
    elif there == column.of:
        share = "in every record" if _is_top(column.path) else "always there"
    else:
        share = f"in {there:,} of {column.of:,}{' records' if _is_top(column.path) else ''}"
    return f"{share}, null in {seen.nulls:,}" if seen.nulls else share


def _is_top(path: str) -> bool:
    return path.count(".") == 1 and "[" not in path and "{" not in path


def _values(column: InferredColumn) -> Iterator[str]:
    seen = column.seen
    match most_frequent_kind(seen):
        case "number":
            yield _numbers(seen, column)
        case "text":
            yield from _texts(seen, column)
        case _:
            return


def _numbers(seen: SeenValues, column: InferredColumn) -> str:
    told = f"{_number(seen.least)} to {_number(seen.most)}"
    if not seen.fractions:
        return told
    exact = seen.whole_digits + seen.fraction_digits <= _MOST_DECIMAL
    told += f", at most {seen.fraction_digits} digits after the point"
    if exact and isinstance(column.type, Primitive) and column.type.name == "double":
        precision = min(_MOST_DECIMAL, max(12, seen.whole_digits + seen.fraction_digits))
        told += f"; for amounts write decimal({precision},{seen.fraction_digits}), which is exact"
    return told


def _number(value: Decimal | int | None) -> str:
    text = f"{value:,}" if isinstance(value, int) else str(value)
    return text if len(text) <= _LONGEST_VALUE else f"{Decimal(value or 0):.6E}"


def _texts(seen: SeenValues, column: InferredColumn) -> Iterator[str]:
    if seen.longest is not None:
        yield (
            f"{seen.shortest:,} to {seen.longest:,} characters"
            if seen.shortest != seen.longest
            else (f"{seen.longest:,} characters")
        )
    if (form := form_of_all(seen)) is None:
        return
    if form in get_args(TextForm):
        yield f"{seen.earliest} to {seen.latest}"
    if not isinstance(column.type, Primitive) or column.type.name != "string":
        return
    if form in (WHOLE, NUMBER):
        exact = "" if form == WHOLE else ", or for amounts decimal(P,S) as text,"
        yield f"all look like numbers: write {form}{exact} to land them so"
    else:
        yield f"all look like {form.partition(' ')[0]}: write {form} to land them so (--times does)"


def _doubts(column: InferredColumn) -> Iterator[str]:
    json = isinstance(column.type, Primitive) and column.type.name == "json"
    for doubt in column.doubts:
        if doubt != "mixed":
            yield _NO_TYPE[doubt] if json else _DOUBTS[doubt]
            continue
        chosen = most_frequent_kind(column.seen)
        others = ", ".join(
            f"{count:,} {kind}{'s' if count > 1 else ''} (first at {column.seen.first_of[kind]})"
            for kind, count in sorted(column.seen.kinds.items())
            if kind != chosen
        )
        if json:
            yield f"of several types, so json takes them: most are {chosen}s, and {others}"
        else:
            yield f"of several types: records with {others} become dead letters"


def _shown(value: object) -> str:
    text = repr(value) if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 1]}…"


class LookedAtJson:
    """Summary of a sample of JSON records.

    Args:
        show_values: Whether comments show values.
    """

    def __init__(self, *, show_values: bool) -> None:
        self.seen: SeenValues = SeenValues()
        self.examples: dict[str, list[Any]] = {}
        self._show_values: bool = show_values
        self._counts: SampleCounts = SampleCounts()
        self._bytes_of_other: int = 0

    def add(self, records: Iterable[SampleRecord]) -> None:
        """Add records to the summary."""
        for place, data in self._counts.values(records):
            if (value := parsed(data)) is not None:
                self.seen.add(value, place)
                if self._show_values:
                    example_values(value, self.examples)
            else:
                if self._counts.first_other is None:
                    self._bytes_of_other = len(data)
                self._counts.add_other(place)

    def others(self) -> Iterator[str]:
        """Sentences on records that are no JSON objects."""
        return self._counts.sentences()

    def stream(self, topic: str, end: str, stream: str, table: str, rules: InferenceRules) -> NewStream:
        """Build the topic's stream.

        Raises:
            FrazilError: No value is a JSON object, or none has a field.
        """
        self._require(topic)
        found = inferred(self.seen, rules)
        if found.schema is None:
            problem = f"topic {topic}: no record that was looked at has a field."
            raise FrazilError(problem, fix="produce some, or --oldest")
        columns = list(column_lines(found, self.examples))
        return NewStream(stream, topic, "json", columns, table, list(self._told(topic, end)), time_column(found.schema))

    def _require(self, topic: str) -> None:
        if self.seen.count:
            return
        first = self._counts.first_other
        if first is None:
            raise FrazilError(f"topic {topic} has no record with a value.", fix=f"frazil schema infer {topic} --oldest")
        raise FrazilError(
            f"topic {topic}: no value is a JSON object; the first one at {first} has {self._bytes_of_other:,} bytes.",
            fix="write the stream with another decode.value, such as string or bytes",
        )

    def _told(self, topic: str, end: str) -> Iterator[str]:
        yield self._counts.opening(topic, end, f"{self.seen.count:,} are JSON objects")
        yield from self.others()
        yield "Records beyond the sample may differ. `not null` behind a column refuses records without it."
