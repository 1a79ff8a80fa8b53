"""Parse JSON: a text of JSON becomes columns of a declared schema, by the decoder of JSON values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
import pyarrow as pa
from pyiceberg import types as ice

from jobs.records.formats.interface.decoder import ValueDecoder
from jobs.records.formats.interface.decoder_spec import DeclaredSchema, DecoderSpec, rows_of
from jobs.records.formats.json.format import JSON
from jobs.records.schema.arrow_schema import rows_arrow_type
from jobs.records.schema.iceberg_schema import schema_text
from jobs.records.schema.parser import parse_schema
from jobs.records.schema.tokens import SchemaTextError
from jobs.records.transforms.columns import Columns, TransformProblem, column
from jobs.records.transforms.nested import value_at
from jobs.records.transforms.path import shown, value_field
from jobs.records.transforms.transform import (
    Applied,
    RowFailure,
    Rows,
    Transform,
    settled,
)


@dataclass(frozen=True, slots=True)
class ParseJson(Transform):
    """Convert a text of a JSON object to a column of structs, or to columns behind the others.

    Attributes:
        column: The path of the text.
        schema: The object's fields, in the words of schema text.
        into: The struct column, which replaces the text if it has its name; None for a column for each field.
        keep: Whether the text stays.
        unknown_fields: Whether an object may have fields that the schema does not name: ignore, or fail.
    """

    name: ClassVar[str] = "parse_json"
    column: str
    schema: str
    into: str | None = None
    keep: bool = False
    unknown_fields: str = "ignore"

    def output(self, columns: Columns) -> Columns:
        path, field = value_field(columns, self.column, ("column",))
        top = path[0]
        if len(path) > 1 and not self.keep:
            raise TransformProblem(
                f"'{self.column}' is within a struct: say keep: true, and drop it in a further step", ("column",)
            )
        if not isinstance(field.field_type, ice.StringType):
            raise TransformProblem(
                f"the column '{self.column}' is {schema_text(field.field_type)}, and text is parsed", ("column",)
            )
        stay = [each for each in columns if self.keep or each.name != top]
        return Columns.of((*stay, *self._made(field)))

    def _made(self, text: ice.NestedField) -> list[ice.NestedField]:
        fields = self.fields
        if self.into is not None:
            return [column(self.into, ice.StructType(*fields), required=text.required)]
        return [column(each.name, each.field_type, required=each.required and text.required) for each in fields]

    def apply(self, rows: Rows) -> Applied:
        """Parse the texts; a null text gives nulls, a text that is no such object makes its row fail."""
        into = rows.columns.behind(self)
        path, _ = value_field(rows.columns, self.column)
        text = value_at(rows.batch.column(rows.columns.index(path[0])), path[1:])
        arrays, indices, failures = parsed_columns(self.schema, self.unknown_fields, text, self.fields, shown(path))
        if self.into is not None:
            kind = into.arrow.field(into.index(self.into)).type
            mask = indices.is_null() if indices.null_count else None
            arrays = [pa.StructArray.from_arrays(arrays, fields=list(kind), mask=mask)]
        stay = [rows.batch.column(name) for name in rows.columns.names if self.keep or name != path[0]]
        return settled(rows.with_batch(into, [*stay, *arrays]), failures)

    @property
    def fields(self) -> tuple[ice.NestedField, ...]:
        """Return the object's fields.

        Raises:
            TransformProblem: The schema is wrong.
        """
        try:
            parse_schema(self.schema)
        except SchemaTextError as problem:
            raise TransformProblem(problem.message, ("schema",)) from None
        return rows_of(json_spec(self.schema, self.unknown_fields)).fields


def json_spec(schema: str, unknown_fields: str = "ignore") -> DecoderSpec:
    """Return the spec of a decoder for objects of JSON with these fields.

    Args:
        schema: The fields, in the words of schema text.
        unknown_fields: Whether an object may have others: ignore, or fail.
    """
    return DecoderSpec("json", DeclaredSchema(schema), {"unknown_fields": unknown_fields})


def parsed_columns(
    schema: str, unknown_fields: str, texts: pa.Array, fields: Sequence[ice.NestedField], place: str
) -> tuple[list[pa.Array], pa.Array, list[RowFailure]]:
    """Return the fields of JSON objects as columns, null where there is no object.

    Args:
        schema, unknown_fields: As for `json_spec`.
        texts: The objects; null without one.
        fields: The columns.
        place: JSON path of the texts, for failures.

    Returns:
        The columns, for each text the index of its object, and failures of the texts that are no such object.
    """
    decoded = _decoder(schema, unknown_fields).decode(texts.cast(pa.binary()))
    failures = [
        RowFailure(each.row, each.error_class, each.message, place + (each.field or "$").removeprefix("$"))
        for each in decoded.failures
    ]
    at = np.full(len(texts), -1, np.int64)
    at[decoded.positions] = np.arange(len(decoded.positions))
    indices = pa.array(at, mask=at < 0)
    kinds = [rows_arrow_type(each.field_type) for each in fields]
    arrays = [
        (each if each.type == kind else each.cast(kind)).take(indices)
        for each, kind in zip(decoded.rows.columns, kinds, strict=True)
    ]
    return arrays, indices, failures


@lru_cache(maxsize=16)
def _decoder(schema: str, unknown_fields: str) -> ValueDecoder:
    return JSON.block(json_spec(schema, unknown_fields))
