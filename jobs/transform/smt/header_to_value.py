"""HeaderToValue of Debezium: headers of a record as columns of its row, or as fields within them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow.compute as pc
from pyiceberg import types as ice

from jobs.schema.iceberg_schema import schema_text
from jobs.transform.columns import Columns, TransformProblem, column
from jobs.transform.record_parts import DropHeaders
from jobs.transform.set_columns import last_header, text_of
from jobs.transform.smt.keys import IntoField, WithinStruct
from jobs.transform.smt.known import Known, Properties
from jobs.transform.transform import Applied, RowFailure, Rows, Transform, settled

_HEADERS = frozenset({"headers"})


@dataclass(frozen=True, slots=True)
class FromHeader(Transform):
    """A header's text in a column, of several headers with one name the last; a column that is there keeps what it has
    where a record has no such header.

    Attributes:
        header: Its name.
        column: At the top.
    """

    name: ClassVar[str] = "from_header"
    header: str
    column: str

    @property
    def asks(self) -> frozenset[str]:
        return _HEADERS

    def output(self, columns: Columns) -> Columns:
        if self.column not in columns.names:
            return Columns.of((*columns, column(self.column, ice.StringType())))
        kind = columns.field(self.column).field_type
        if not isinstance(kind, ice.StringType):
            raise TransformProblem(
                f"the column '{self.column}' is {schema_text(kind)}, and a header is text: write another name, and "
                "cast it behind",
                ("fields",),
            )
        return columns

    def apply(self, rows: Rows) -> Applied:
        """A header that is no text makes its row fail."""
        into = rows.columns.behind(self)
        found, bad = text_of(last_header(rows.frame, self.header))
        arrays = list(rows.batch.columns)
        if self.column in rows.columns.names:
            at = rows.columns.index(self.column)
            arrays[at] = pc.coalesce(found, arrays[at])
        else:
            arrays.append(found)
        failures = [RowFailure(each.index, each.error_class, each.message, f"$.{self.column}") for each in bad]
        return settled(rows.with_batch(into, arrays), failures)


def _steps(properties: Properties, columns: Columns, lenient: bool) -> Sequence[Transform]:
    headers, fields = properties.needed_names("headers"), properties.needed_names("fields")
    move = properties.choice("operation", ("move", "copy")) == "move"
    if len(headers) != len(fields):
        raise TransformProblem(f"there are {len(headers)} headers and {len(fields)} fields", ("fields",))
    steps: list[Transform] = []
    made: set[str] = set()
    for header, field in zip(headers, fields, strict=True):
        names = field.split(".")
        if names[0] in made:
            raise TransformProblem(
                f"two headers in '{names[0]}', which no column is yet: write names at the top, and hoist them",
                ("fields",),
            )
        if len(names) > 1 and names[0] not in columns.names:
            made.add(names[0])
        more = _placed(header, names, columns)
        for each in more:
            columns = Columns.of(each.output(columns).fields)
        steps += more
    return [*steps, DropHeaders(tuple(dict.fromkeys(headers)))] if move else steps


def _placed(header: str, names: Sequence[str], columns: Columns) -> list[Transform]:
    """The steps that put a header where a path says; structs that are not there are made."""
    top, within = names[0], names[1:]
    if not all(names):
        raise TransformProblem(f"'{'.'.join(names)}' is no path of a field", ("fields",))
    if not within or top not in columns.names:
        return [FromHeader(header, top), *(IntoField(top, each) for each in reversed(within))]
    kind = columns.field(top).field_type
    if not isinstance(kind, ice.StructType):
        raise TransformProblem(f"the column '{top}' is {schema_text(kind)}, which has no fields", ("fields",))
    return [WithinStruct(top, tuple(_placed(header, within, Columns(kind.fields))))]


HEADER_TO_VALUE = Known("io.debezium.transforms.HeaderToValue", ("headers", "fields", "operation"), _steps, _HEADERS)
