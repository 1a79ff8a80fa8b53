"""Partition and sort expressions of a spec, such as ``day(created_at)`` and ``id desc``, and their checks."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal, cast, get_args

from pydantic import PlainSerializer, PlainValidator
from pyiceberg.schema import Schema
from pyiceberg.types import FixedType, IcebergType, StructType, UUIDType

from jobs.base.errors import FrazilError
from jobs.config.documents.validation import suggestion
from jobs.config.values.mask import path_parts
from jobs.records.schema.declared import quoted
from jobs.records.schema.kafka_columns import KafkaColumns

TransformName = Literal["identity", "year", "month", "day", "hour", "bucket", "truncate"]
KNOWN = "a bare column name, year(col), month(col), day(col), hour(col), bucket(N, col), truncate(N, col)"
# Suffixes of field names in Spark's DDL; other transforms use their name.
_SUFFIX = {"identity": "", "truncate": "_trunc"}

_PART = r"(?:[^\W\d]\w*|`(?:[^`]|``)+`)"
_COLUMN = re.compile(rf"{_PART}(?:\s*\.\s*{_PART})*")
_NAMED = re.compile(rf"(.*\S)\s+as\s+({_PART})\s*", re.DOTALL | re.IGNORECASE)
_CALL = re.compile(r"\s*([A-Za-z_]\w*)\s*\((.*)\)\s*", re.DOTALL)
_MAX_ARGUMENT = 2**31 - 1


class PartitionError(FrazilError):
    """A partition expression cannot be parsed.

    Safe: Nothing was changed.
    Next: correct `table.partition_by`; then `frazil validate`
    """


@dataclass(frozen=True, slots=True)
class PartitionExpr:
    """One field of a table's partition spec.

    Args:
        transform: Iceberg's transform.
        column: Source column by its full name in Iceberg, with dots between levels.
        argument: Number of buckets, or width of truncate; None for other transforms.
        name: Name of the partition field; None for the name in Spark's DDL.
    """

    transform: TransformName
    column: str
    argument: int | None = None
    name: str | None = None

    @property
    def field_name(self) -> str:
        """The name of the partition field."""
        return self.name or self.column + _SUFFIX.get(self.transform, f"_{self.transform}")

    def __str__(self) -> str:
        text = ".".join(quoted(part) for part in self.column.split("."))
        if self.transform != "identity":
            arguments = text if self.argument is None else f"{self.argument}, {text}"
            text = f"{self.transform}({arguments})"
        return text if self.name is None else f"{text} as {quoted(self.name)}"


def parse_partition_expr(text: str) -> PartitionExpr:
    """Reads one partition expression. Names of transforms ignore case; names of columns are exact.

    A name for the partition field may follow after `as`.

    Raises:
        PartitionError: The text has none of the known forms. The message names the expression.
    """
    if column := _column(text):
        return PartitionExpr("identity", column)
    call = _CALL.fullmatch(text)
    if call is None and (named := _NAMED.fullmatch(text)):
        return replace(parse_partition_expr(named[1]), name=_column(named[2]))
    if call is None:
        raise PartitionError(f"cannot read the partition expression '{text}'; known: {KNOWN}")
    name, arguments = call[1].lower(), [part.strip() for part in _split(call[2])]
    if name not in get_args(TransformName):
        # Users may know the plurals of Spark's DDL (`days(ts)`).
        near = difflib.get_close_matches(name, get_args(TransformName), n=1)
        hint = f"did you mean '{near[0]}'? " if near else ""
        raise PartitionError(
            f"unknown transform '{call[1]}' in the partition expression '{text}'; {hint}known: {KNOWN}"
        )
    transform = cast(TransformName, name)
    if transform in ("bucket", "truncate"):
        return _with_argument(transform, arguments, text)
    column = _column(arguments[0]) if len(arguments) == 1 else None
    if column is None:
        raise PartitionError(f"the partition expression '{text}' needs one column: {transform}(col)")
    return PartitionExpr(transform, column)


def _with_argument(transform: TransformName, arguments: list[str], text: str) -> PartitionExpr:
    numbers = [a for a in arguments if re.fullmatch(r"[0-9][0-9_]*", a)]
    columns = [column for a in arguments if (column := _column(a))]
    if len(arguments) != 2 or len(numbers) != 1 or len(columns) != 1:
        raise PartitionError(f"the partition expression '{text}' needs a number and a column: {transform}(16, col)")
    number = int(numbers[0])
    if not 1 <= number <= _MAX_ARGUMENT:
        raise PartitionError(f"the number in the partition expression '{text}' must be from 1 to {_MAX_ARGUMENT}")
    return PartitionExpr(transform, columns[0], number)


def _split(arguments: str) -> list[str]:
    """Splits at commas outside of backticks."""
    return re.findall(r"(?:[^,`]|`[^`]*`)+", arguments)


def _column(text: str) -> str | None:
    text = text.strip()
    if not _COLUMN.fullmatch(text):
        return None
    parts = re.findall(_PART, text)
    return ".".join(part[1:-1].replace("``", "`") if part.startswith("`") else part for part in parts)


# Sources: the Iceberg table spec, "Partition Transforms"; pyiceberg.transforms `can_transform`.
_DAYS = {"date", "timestamp", "timestamptz"}
_SOURCES = {
    "year": _DAYS,
    "month": _DAYS,
    "day": _DAYS,
    "hour": _DAYS - {"date"},
    "bucket": {"int", "long", "decimal", "string", "binary", "time", "uuid", "fixed"} | _DAYS,
    "truncate": {"int", "long", "decimal", "string", "binary"},
}
_TIME_TRANSFORMS = ("year", "month", "day", "hour")


def partition_problems(
    expressions: Sequence[PartitionExpr], rows: Schema, kafka: KafkaColumns
) -> Iterator[tuple[int, str]]:
    """Yields the index of each expression that cannot partition a table of these rows, with a sentence."""
    return _problems(expressions, rows, kafka, partitions=True)


def sort_column_problems(columns: Iterable[str], rows: Schema, kafka: KafkaColumns) -> Iterator[tuple[int, str]]:
    """Yields the index of each column that a table of these rows cannot be sorted by, with a sentence."""
    expressions = [PartitionExpr("identity", column) for column in columns]
    return _problems(expressions, rows, kafka, partitions=False)


def _problems(
    expressions: Sequence[PartitionExpr], rows: Schema, kafka: KafkaColumns, *, partitions: bool
) -> Iterator[tuple[int, str]]:
    columns = dict(_leaves(rows.as_struct())) | {each.name: each.type for each in kafka.columns}
    seen: dict[tuple[str, str], PartitionExpr] = {}
    for index, expression in enumerate(expressions):
        problem = _problem(expression, columns, kafka)
        if problem or (partitions and (problem := _unread(expression, columns))):
            yield index, problem
            continue
        # Iceberg refuses two time transforms of one column, because the finer one implies the coarser.
        kind = "time" if expression.transform in _TIME_TRANSFORMS else expression.transform
        earlier = seen.setdefault((kind, expression.column), expression)
        if earlier is not expression:
            yield index, f"'{expression}' repeats '{earlier}'; leave one of them out"


def _problem(expression: PartitionExpr, columns: dict[str, IcebergType], kafka: KafkaColumns) -> str | None:
    kind = columns.get(expression.column)
    if kind is None:
        if expression.column in kafka.left_out:
            return (
                f"'{expression}': the column '{expression.column}' is not written: table.kafka_columns "
                f"{'is false' if not kafka.columns else 'leaves it out, or gives it another name'}"
            )
        near = suggestion(expression.column, columns)
        hint = f"did you mean '{near}'?" if near else f"known: {', '.join(columns)}"
        return f"'{expression}': no column '{expression.column}' in decode.schema; {hint}"
    if not kind.is_primitive:
        return f"'{expression}': the column '{expression.column}' is not a single value"
    sources, name = _SOURCES.get(expression.transform), _name(kind)
    if sources is not None and name not in sources:
        return (
            f"'{expression}': {expression.transform} cannot take the column '{expression.column}' of type "
            f"{name}; it takes {', '.join(sorted(sources))}"
        )
    return None


def _unread(expression: PartitionExpr, columns: dict[str, IcebergType]) -> str | None:
    """Return why Spark does not find rows of such partitions: it cannot read fixed, and does not find uuid."""
    kind = columns[expression.column]
    if expression.transform != "identity" or not isinstance(kind, UUIDType | FixedType):
        return None
    return (
        f"'{expression}': Spark does not read partitions by each value of a {_name(kind)}; "
        f"write bucket(16, {expression.column})"
    )


def _name(kind: IcebergType) -> str:
    """Return a type's name without its parameters."""
    return re.split(r"[(\[]", str(kind))[0]


def _leaves(struct: StructType, prefix: str = "") -> Iterator[tuple[str, IcebergType]]:
    for field in struct.fields:
        yield f"{prefix}{field.name}", field.field_type
        if isinstance(field.field_type, StructType):
            yield from _leaves(field.field_type, f"{prefix}{field.name}.")


_TEXT = re.compile(r"(.+?)(?:\s+(asc|desc))?(?:\s+nulls\s+(first|last))?", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class SortExpr:
    """One column of a sort order.

    Attributes:
        path: Path of the column.
        direction: `asc` or `desc`; None for the default, ascending.
        nulls: `first` or `last`; None for the default: first if ascending, last if descending.
    """

    path: tuple[str, ...]
    direction: str | None = None
    nulls: str | None = None

    @property
    def column(self) -> str:
        """The column's full name in Iceberg."""
        return ".".join(self.path)

    def __str__(self) -> str:
        """Return the text for a spec and for Iceberg's `sort_order`, with backticks if necessary."""
        words = [".".join(quoted(part) for part in self.path), self.direction, self.nulls and f"nulls {self.nulls}"]
        return " ".join(word for word in words if word)


def parse_sort_expr(value: object) -> SortExpr:
    """Reads a column, optionally followed by `asc` or `desc` and by `nulls first` or `nulls last`.

    Raises:
        ValueError: The value is anything else.
    """
    if isinstance(value, SortExpr):
        return value
    match = _TEXT.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise ValueError("must be a column, such as created_at or created_at desc nulls last")
    column, direction, nulls = match.groups()
    try:
        path = path_parts(column)
    except ValueError:
        raise ValueError(
            f"'{value}' is not a column, such as created_at or `created at` desc nulls last; "
            "put a name with other characters in backticks"
        ) from None
    return SortExpr(path, direction and direction.lower(), nulls and nulls.lower())


SortText = Annotated[SortExpr, PlainValidator(parse_sort_expr), PlainSerializer(str, return_type=str)]
