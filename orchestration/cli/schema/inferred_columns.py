"""Inferred columns in words: the comments that say what was seen of each, without a text that records hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from jobs.formats.json.inference import Doubt, Inferred, InferredColumn, most_frequent_kind
from jobs.formats.json.seen_values import SeenValues
from jobs.schema.declared import Primitive, StructType
from orchestration.cli.schema.stream_yaml import ColumnLines

_LONGEST_VALUE = 40
_MOST_DECIMAL = 38

_DOUBTS: Mapping[Doubt, str] = {
    "always_null": "always null, so the type is a guess",
    "empty": "always empty, so the type within is a guess",
    "beyond_decimal": "some have more digits than a decimal holds: their records become dead letters",
    "name": "left out: no column can have this name",
    "case": "left out: the name differs from another one's by case only, so its records become dead letters",
    "kafka_name": "left out: names that start with _kafka are kept for frazil's own columns",
    "too_deep": "nested too deep for a schema: its records become dead letters",
    "more_fields": "more fields than were looked at",
}


def column_lines(found: Inferred, examples: Mapping[str, Sequence[Any]]) -> Iterator[ColumnLines]:
    """Each column that the file is to declare, with comments on it and on what lies within.

    Args:
        examples: Values by path, if they are to be shown.
    """
    fields = {f"$.{field.name}": str(field) for field in found.schema.fields} if found.schema else {}
    comments: list[str] = []
    text: str | None = None
    for column in found.columns:
        if column.path in fields:
            if text is not None:
                yield ColumnLines(text, tuple(comments))
            text, comments = fields[column.path], [_about(column, examples)]
        else:
            comments.append(f"{column.path}: {_about(column, examples)}")
    if text is not None:
        yield ColumnLines(text, tuple(comments))


def time_column(schema: StructType) -> str | None:
    """The first column of times or days, by which partitions are suggested."""
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
    if len(seen.forms) != 1 or seen.forms[next(iter(seen.forms))] != seen.kinds["text"]:
        return
    form = next(iter(seen.forms))
    yield f"{seen.earliest} to {seen.latest}"
    if isinstance(column.type, Primitive) and column.type.name == "string":
        yield f"all look like {form}: write {form} to land them so (--times does)"


def _doubts(column: InferredColumn) -> Iterator[str]:
    for doubt in column.doubts:
        if doubt != "mixed":
            yield _DOUBTS[doubt]
            continue
        chosen = most_frequent_kind(column.seen)
        others = ", ".join(
            f"{count:,} {kind}{'s' if count > 1 else ''} (first at {column.seen.first_of[kind]})"
            for kind, count in sorted(column.seen.kinds.items())
            if kind != chosen
        )
        yield f"of several kinds: records with {others} become dead letters"


def _shown(value: object) -> str:
    text = repr(value) if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 1]}…"
