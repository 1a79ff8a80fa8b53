"""Key of several columns: the text of a JSON object, with a number where a column is one and text for all others."""

# pyarrow.compute makes its functions when it is imported, so a type checker sees none of them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import base64
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import types as ice

from jobs.formats.columns.value_texts import texts
from jobs.schema.iceberg_schema import schema_text
from jobs.transform.cast_values import cast_problem
from jobs.transform.columns import Columns, TransformProblem
from jobs.transform.transform import Applied, Rows, Transform

_PLAIN = (ice.IntegerType, ice.LongType, ice.FloatType, ice.DoubleType, ice.DecimalType, ice.BooleanType)


@dataclass(frozen=True, slots=True)
class ToJsonKey(Transform):
    """The record's key is made of columns, in their order: `{"id":1,"name":"a"}`. Columns stay.

    Attributes:
        columns: Their names, at the top.
    """

    name: ClassVar[str] = "to_json_key"
    columns: tuple[str, ...]

    @property
    def adds(self) -> frozenset[str]:
        """None: the row stays as it is."""
        return frozenset()

    def output(self, columns: Columns) -> Columns:
        """The same columns."""
        for name in self.columns:
            kind = columns.field(name, ("fields",)).field_type
            if not isinstance(kind, ice.BinaryType) and cast_problem(kind, ice.StringType()):
                raise TransformProblem(
                    f"the column '{name}' is {schema_text(kind)}, and no text can be made of it", ("fields",)
                )
        return columns

    def apply(self, rows: Rows) -> Applied:
        """A key for each row; null where a step took the row's value."""
        parts: list[pa.Array | pa.Scalar] = []
        for number, name in enumerate(self.columns):
            parts.append(pa.scalar(("," if number else "{") + json.dumps(name, ensure_ascii=False) + ":"))
            at = rows.columns.index(name)
            parts.append(_values(rows.batch.column(at), rows.columns.fields[at].field_type))
        keys = pc.binary_join_element_wise(*parts, pa.scalar("}"), "").cast(pa.binary())
        if rows.tombstones is not None:
            keys = pc.if_else(rows.tombstones, pa.scalar(None, pa.binary()), keys)
        return Applied(Rows(rows.columns, rows.batch, rows.frame.with_part("key", keys), rows.tombstones))


def _values(array: pa.Array, kind: ice.IcebergType) -> pa.Array:
    """Each value as JSON; what is no finite number or no boolean is a text."""
    if isinstance(kind, ice.BinaryType):
        found: Sequence[str | None] = [
            None if each is None else base64.b64encode(each).decode() for each in array.to_pylist()
        ]
        return _quoted(found)
    said = texts(array, kind)
    if not isinstance(kind, _PLAIN):
        return _quoted(said.to_pylist())
    if isinstance(kind, (ice.FloatType, ice.DoubleType)):
        finite = [each is None or math.isfinite(each) for each in array.to_pylist()]
        if not all(finite):
            said = pc.if_else(pa.array(finite), said, _quoted(said.to_pylist()))
    return pc.fill_null(said, "null")


def _quoted(values: Sequence[str | None]) -> pa.Array:
    known: dict[str | None, str] = {each: json.dumps(each, ensure_ascii=False) for each in dict.fromkeys(values)}
    return pa.array([known[each] for each in values], pa.string())
