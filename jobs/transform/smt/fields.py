"""Transforms of Kafka Connect that change fields: each in frazil's own steps."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pyiceberg import types as ice

from jobs.schema.iceberg_schema import schema_text
from jobs.transform.columns import Columns, TransformProblem, no_column
from jobs.transform.mask import Mask
from jobs.transform.select import Extract, Flatten, Hoist, Keep, Rename
from jobs.transform.set_columns import Set, SetColumn
from jobs.transform.smt.known import Known, Properties, quoted
from jobs.transform.transform import Transform

_KAFKA = "org.apache.kafka.connect.transforms."
_DEFAULTS = "replace.null.with.default"
_PASSES = "; lenient: true passes over it, as Kafka Connect does"
_V2 = re.compile(r"`((?:[^`\\]|\\.|`(?!\.|$))*)`(?=\.|$)|([^.`][^.]*)")


def _flatten(properties: Properties, columns: Columns, lenient: bool) -> Sequence[Transform]:
    return [Flatten(properties.text("delimiter", "."))]


def _extract(properties: Properties, columns: Columns, lenient: bool) -> Sequence[Transform]:
    parts, text = path_of_field(properties), properties.text("field")
    if parts[0] not in columns.names:
        raise TransformProblem(no_column(parts[0], columns.names), ("field",))
    if len(parts) == 1 and not isinstance(kind := columns.field(parts[0]).field_type, ice.StructType):
        raise TransformProblem(
            f"the column '{text}' is {schema_text(kind)}: a row is not made of a single value; keep: [{text}] leaves "
            "this column alone",
            ("field",),
        )
    step = Extract(".".join(map(quoted, parts)))
    try:
        step.output(columns)
    except TransformProblem as problem:
        raise TransformProblem(problem.message, ("field",)) from None
    return [step]


def path_of_field(properties: Properties) -> tuple[str, ...]:
    """The names of the path that ExtractField takes, in the syntax that it says.

    Raises:
        TransformProblem: There is none, or it is none.
    """
    text = properties.needed("field")
    version = properties.choice("field.syntax.version", ("V1", "V2"), "V1", ignore_case=True)
    return (text,) if version == "V1" else _nested(text)


def _nested(text: str) -> tuple[str, ...]:
    """The names of a path in Connect's second syntax: dots between them, backticks around one with dots."""
    parts: list[str] = []
    at = 0
    while at <= len(text):
        match = _V2.match(text, at)
        if match is None:
            said = f"the path '{text}' has an unbalanced backtick, or no name, at position {at}"
            raise TransformProblem(said, ("field",))
        within = match.group(1)
        parts.append(match.group(2) if within is None else within.replace("\\`", "`"))
        at = match.end() + 1
    return tuple(parts)


def _hoist(properties: Properties, columns: Columns, lenient: bool) -> Sequence[Transform]:
    return [Hoist(properties.needed("field"))]


def _replace(properties: Properties, columns: Columns, lenient: bool) -> Sequence[Transform]:
    exclude, include = properties.names("exclude"), properties.names("include")
    renames = properties.pairs("renames")
    for key, names in (("exclude", exclude), ("include", include), ("renames", [old for old, _ in renames])):
        for name in names:
            if name not in columns.names and not lenient:
                raise TransformProblem(no_column(name, columns.names) + _PASSES, (key,))
    left = [name for name in columns.names if name not in exclude and (not include or name in include)]
    if not left:
        raise TransformProblem("ReplaceField would leave no column", ())
    new = {old: name for old, name in renames if old in left}
    taken = [new.get(name, name) for name in left]
    if doubled := next((name for name in taken if taken.count(name) > 1), None):
        raise TransformProblem(f"there would be two columns '{doubled}'", ("renames",))
    steps: list[Transform] = []
    if len(left) < len(columns.names):
        steps.append(Keep(tuple(map(quoted, left))))
    if new:
        steps.append(Rename(tuple((quoted(old), name) for old, name in new.items())))
    return steps


def _insert(properties: Properties, columns: Columns, lenient: bool) -> Sequence[Transform]:
    values = [
        (key, SetColumn(_name(properties, key), source=key.removesuffix(".field"), replace=lenient))
        for key in _INSERTED[:4]
        if key in properties
    ]
    if "static.field" in properties:
        if "static.value" not in properties:
            raise TransformProblem("InsertField needs 'static.value' for the static field", ("static.field",))
        name, value = _name(properties, "static.field"), properties.text("static.value")
        values.append(("static.field", SetColumn(name, literal=value, type="string", replace=lenient)))
    if not values:
        raise TransformProblem("InsertField needs a field to insert, such as topic.field", ())
    for key, each in values:
        if each.name in columns.names and not lenient:
            hint = "lenient: true puts the inserted one in its place"
            raise TransformProblem(f"there is a column '{each.name}' already; {hint}", (key,))
    return [Set(tuple(each for _, each in values))]


def _name(properties: Properties, key: str) -> str:
    """A name without the mark that says whether it is required or optional."""
    text = properties.needed(key)
    return text[:-1] if text[-1] in "!?" and len(text) > 1 else text


def _mask(properties: Properties, columns: Columns, lenient: bool) -> Sequence[Transform]:
    fields = properties.needed_names("fields")
    if "replacement" in properties:
        properties.needed("replacement")
    step = Mask(tuple(map(quoted, fields)), properties.text("replacement") or None)
    if not columns.names:
        # Asked which columns it adds, whatever there are.
        return [step]
    for name in fields:
        if name not in columns.names:
            raise TransformProblem(no_column(name, columns.names), ("fields",))
    try:
        step.output(columns)
    except TransformProblem as problem:
        place = ("replacement" if "replacement" in properties else "fields",)
        raise TransformProblem(problem.message, place) from None
    return [step]


def _metadata(properties: Properties, columns: Columns, lenient: bool) -> Sequence[Transform]:
    """A name or version of Connect's schema is in no row: nothing is left to do."""
    if "schema.name" not in properties and "schema.version" not in properties:
        raise TransformProblem("SetSchemaMetadata needs 'schema.name' or 'schema.version'", ())
    return []


_INSERTED = ("topic.field", "partition.field", "offset.field", "timestamp.field", "static.field", "static.value")
FIELDS = (
    Known(f"{_KAFKA}Flatten$Value", ("delimiter",), _flatten),
    Known(f"{_KAFKA}ExtractField$Value", ("field", "field.syntax.version", _DEFAULTS), _extract),
    Known(f"{_KAFKA}HoistField$Value", ("field",), _hoist),
    Known(f"{_KAFKA}ReplaceField$Value", ("exclude", "include", "renames", _DEFAULTS), _replace),
    Known(f"{_KAFKA}InsertField$Value", (*_INSERTED, _DEFAULTS), _insert, leaves=True),
    Known(f"{_KAFKA}MaskField$Value", ("fields", "replacement", _DEFAULTS), _mask, leaves=True),
    Known(f"{_KAFKA}SetSchemaMetadata$Value", ("schema.name", "schema.version", _DEFAULTS), _metadata, leaves=True),
)
