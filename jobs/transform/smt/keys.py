"""Transforms of Kafka Connect for keys, `…$Key`: each is its class for values, on the column that holds the key.

The column is the one that `decode.key` puts keys into. Without one no row holds what such a class changes: its
properties are checked by name, and it does nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from jobs.schema.iceberg_schema import schema_text
from jobs.transform.columns import Columns, TransformProblem
from jobs.transform.smt.cast import CAST, ConnectCast
from jobs.transform.smt.column_steps import FieldInPlace, IntoField, NeedsKey, WholeColumn, WithinStruct, fields_of_key
from jobs.transform.smt.fields import FIELDS, path_of_field
from jobs.transform.smt.known import Known
from jobs.transform.smt.properties import Properties
from jobs.transform.smt.records import HEADER_FROM
from jobs.transform.smt.timestamp_converter import TIMESTAMP_CONVERTER, converter
from jobs.transform.transform import Transform

KEY_COLUMN = "key_column"
"""Property of frazil's own: the column with the key; the one of `decode.key.into` where a file does not say it."""


def of_key(type_: str) -> bool:
    """Whether a class, by whichever name, changes keys."""
    return type_.endswith("$Key")


def _steps(of: Known, properties: Properties, columns: Columns, lenient: bool) -> Sequence[Transform]:
    name = properties.text(KEY_COLUMN)
    if not name:
        return []
    class_ = of.name.removesuffix("$Value")
    if class_ == "SetSchemaMetadata":
        return of.steps(properties, columns, lenient)
    if not columns.names:
        # Asked which columns it adds, whatever there are: it changes one.
        return [WholeColumn(name, ())]
    fields = fields_of_key(columns, name)
    if class_ == "HoistField":
        return [IntoField(name, properties.needed("field"))]
    if fields is None:
        return [WholeColumn(name, _whole(class_, properties, columns, name, lenient=lenient))]
    if class_ == "ExtractField":
        return [FieldInPlace(name, path_of_field(properties))]
    _fields_only(class_, properties, schema_text(columns.field(name).field_type))
    within = WithinStruct(name, tuple(of.steps(properties, fields, lenient)))
    return [NeedsKey(name), within] if class_ == "HeaderFrom" else [within]


def _whole(class_: str, properties: Properties, columns: Columns, name: str, *, lenient: bool) -> tuple[Transform, ...]:
    """The steps on a key that is a single value."""
    if class_ == "Cast" and ":" not in properties.needed("spec"):
        return (ConnectCast.of(((name, properties.text("spec").strip()),), lenient=lenient),)
    if class_ == "TimestampConverter" and not properties.text("field"):
        return (converter(properties, name, lenient=lenient),)
    kind = schema_text(columns.field(name).field_type)
    raise TransformProblem(f"the key in '{name}' is a single value, {kind}, and {class_}$Key changes fields", ())


def _fields_only(class_: str, properties: Properties, kind: str) -> None:
    if class_ == "Cast" and ":" not in properties.needed("spec"):
        raise TransformProblem(f"the key is {kind}: write FIELD:{properties.text('spec')}", ("spec",))
    if class_ == "TimestampConverter" and not properties.text("field"):
        raise TransformProblem(f"the key is {kind}: name its field by field", ())


def _key(of: Known) -> Known:
    type_ = of.type.replace("$Value", "$Key")
    return Known(type_, (*of.properties, KEY_COLUMN), partial(_steps, of), of.asks, (KEY_COLUMN,), leaves=True)


KEYS = tuple(map(_key, (CAST, *FIELDS, HEADER_FROM, TIMESTAMP_CONVERTER)))
