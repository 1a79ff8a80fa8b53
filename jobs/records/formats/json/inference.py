"""Inference of a schema from JSON records, by fixed rules that do not guess.

A whole number is a `long`, one with a fraction a `double` unless a decimal is requested, a text a `string` unless times
are requested. No column is `not null`: records that were not looked at may lack it. Columns that a file declares take
every record that was seen, except a few values of other kinds; `json` is the type of values that no other type takes.
Columns of a new table that nobody declares are `first_columns`: without those that no value needs yet.
"""

from __future__ import annotations

import sys
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Literal, TypeAlias, get_args

from jobs.base.errors import FrazilError
from jobs.records.formats.json.seen_values import (
    DEEPEST,
    NUMBER,
    WHOLE,
    Kind,
    SeenValues,
    TextForm,
)
from jobs.records.schema.declared import (
    DeclaredType,
    Field,
    ListType,
    MapType,
    Primitive,
    StructType,
    column_paths,
    quoted,
)
from jobs.records.schema.parser import KAFKA_COLUMN_PREFIX, parse_schema
from jobs.records.schema.tokens import ENCODINGS

_INT64 = 2**63
_MOST_DIGITS = 38
# An object is read as a map if its keys look like data: many, and each in few of the objects.
_MAP_KEYS = 50
_MAP_SHARE = 0.1
# Up to this share, values of other kinds are bad records, and no reason for another type.
FEW = 0.05
_JSON = Primitive("json", encoding=ENCODINGS["json"][0])
_LARGEST = Decimal(sys.float_info.max)

Doubt: TypeAlias = Literal[
    "always_null",
    "empty",
    "mixed",
    "beyond_decimal",
    "name",
    "case",
    "path",
    "kafka_name",
    "too_deep",
    "more_fields",
]
"""Finding for a person to check: only nulls; only empty lists or objects; values of several kinds; more digits than a
decimal has, or beyond a double; a name that no column can have, that differs from another only by case, that is the
path of another field, or that is frazil's own; nested too deep; more fields than were looked at.
"""

_MORE: tuple[Doubt, ...] = ("more_fields",)
_SAY_NOTHING = frozenset({"always_null", "empty"})


@dataclass(frozen=True, slots=True)
class InferenceRules:
    """Types for numbers and texts.

    Attributes:
        decimal: The type of numbers with a fraction, if one is requested; otherwise they are doubles.
        times: Whether texts that all look like times, or days, become timestamps, or dates.
        declared: Whether a file declares the columns, so that they may be of types that no table has: `json`, and times
            of a pattern.
    """

    decimal: Primitive | None = None
    times: bool = False
    declared: bool = False


@dataclass(frozen=True, slots=True)
class InferredColumn:
    """A column that takes the values seen of a field.

    Attributes:
        path: JSON path of the field, such as `$.payer.id`; `[]` stands for elements, `{}` for values of a map.
        type: Its type; None if it cannot be a column.
        seen: The values that the field held.
        of: How often it could have occurred: the number of the objects, or elements, that it is looked for in.
        doubts: Findings for a person to check.
    """

    path: str
    type: DeclaredType | None
    seen: SeenValues
    of: int
    doubts: tuple[Doubt, ...] = ()


@dataclass(frozen=True, slots=True)
class Inferred:
    """A schema that takes the records that were seen, except those that `columns` has doubts about.

    Attributes:
        schema: The columns; None if no record had a field.
        columns: Every field, also within others, each behind the field that contains it.
    """

    schema: StructType | None
    columns: tuple[InferredColumn, ...]


def inferred(records: SeenValues, rules: InferenceRules) -> Inferred:
    """Infer the schema of records.

    Args:
        records: Values seen of whole records, each an object.
        rules: Types for numbers and texts.
    """
    columns: list[InferredColumn] = []
    fields = _fields(records, rules, "$", 0, columns)
    if rules.declared and len(kept := tuple(apart(fields))) < len(fields):
        left = {f"$.{each.name}" for each in fields if each not in kept}
        columns = [replace(each, type=None, doubts=("path",)) if each.path in left else each for each in columns]
        fields = kept
    return Inferred(StructType(fields) if fields else None, tuple(columns))


def apart(fields: Iterable[Field]) -> Iterator[Field]:
    """Yield the fields whose dotted names no other has: `a.b` is a name, and also the path of the field b in a."""
    taken: set[str] = set()
    for each in fields:
        names = list(column_paths(StructType((each,))))
        if len(set(names)) == len(names) and taken.isdisjoint(names):
            taken.update(names)
            yield each


def _fields(
    seen: SeenValues, rules: InferenceRules, path: str, depth: int, columns: list[InferredColumn]
) -> tuple[Field, ...]:
    fields: list[Field] = []
    objects = seen.kinds.get("object", 0)
    for name, inner, doubt in _named(seen, top=path == "$"):
        below: list[InferredColumn] = []
        kind: DeclaredType | None = None
        doubts: tuple[Doubt, ...] = () if doubt is None else (doubt,)
        if doubt is None:
            kind, doubts = _type(inner, rules, f"{path}.{name}", depth + 1, below)
            fields.append(Field(name, kind))
        columns.append(InferredColumn(f"{path}.{name}", kind, inner, objects, doubts))
        columns.extend(below)
    return tuple(fields)


def _named(seen: SeenValues, *, top: bool) -> Iterator[tuple[str, SeenValues, Doubt | None]]:
    """Yield an object's fields, with why one cannot be a column; of names that differ by case the most frequent can."""
    chosen: dict[str, str] = {}
    for name, inner in seen.fields.items():
        known = chosen.setdefault(name.casefold(), name)
        if _times(seen.fields[known]) < _times(inner):
            chosen[name.casefold()] = name
    for name, inner in seen.fields.items():
        if top and name.lower().startswith(KAFKA_COLUMN_PREFIX):
            yield name, inner, "kafka_name"
        elif not _can_be_column(name):
            yield name, inner, "name"
        else:
            yield name, inner, None if chosen[name.casefold()] == name else "case"


def _times(seen: SeenValues) -> int:
    return seen.count + seen.nulls


def _can_be_column(name: str) -> bool:
    if not name:
        return False
    try:
        parse_schema(f"c struct<{quoted(name)} string>")
    except FrazilError:
        return False
    return True


def _type(
    seen: SeenValues, rules: InferenceRules, path: str, depth: int, columns: list[InferredColumn]
) -> tuple[DeclaredType, tuple[Doubt, ...]]:
    kind = most_frequent_kind(seen)
    mixed: tuple[Doubt, ...] = ("mixed",) if len(seen.kinds) > 1 else ()
    if rules.declared and (doubt := _taken_by_none(seen, kind, rules, path, depth)) is not None:
        return _JSON, (doubt,)
    match kind:
        case None:
            return Primitive("string"), ("always_null",)
        case "boolean":
            return Primitive("boolean"), mixed
        case "number":
            number, beyond = _number(seen, rules)
            return number, (*mixed, *beyond)
        case "text":
            return _text(seen, rules), mixed
        case _ if depth >= DEEPEST:
            return Primitive("string"), (*mixed, "too_deep")
        case "list":
            found, doubts = _list(seen, rules, path, depth, columns)
        case "object":
            found, doubts = _object(seen, rules, path, depth, columns)
    return found, (*mixed, *doubts)


def _taken_by_none(seen: SeenValues, kind: Kind | None, rules: InferenceRules, path: str, depth: int) -> Doubt | None:
    """Return why no type but `json` takes the values; None if one does."""
    others = seen.count - seen.kinds.get(kind, 0) if kind is not None else 0
    # A record has several elements of a list and values of a map.
    if others and (others > seen.count * FEW or "[]" in path or "{}" in path):
        return "mixed"
    if kind in ("list", "object") and depth >= DEEPEST:
        return "too_deep"
    if kind == "number" and seen.least is not None and seen.most is not None:
        if seen.fractions and rules.decimal is None and max(abs(seen.least), abs(seen.most)) > _LARGEST:
            return "beyond_decimal"
        if not seen.fractions and seen.whole_digits > _MOST_DIGITS:
            return "beyond_decimal"
    return None


def most_frequent_kind(seen: SeenValues) -> Kind | None:
    """Return the kind of most of a field's values, the first by name in a tie; None if it was always null."""
    return min(seen.kinds, key=lambda kind: (-seen.kinds[kind], kind), default=None)


def _number(seen: SeenValues, rules: InferenceRules) -> tuple[Primitive, tuple[Doubt, ...]]:
    if seen.fractions:
        return rules.decimal or Primitive("double"), ()
    if seen.least is not None and seen.most is not None and seen.least >= -_INT64 and seen.most < _INT64:
        return Primitive("long"), ()
    digits = _encoded("decimal", _MOST_DIGITS, 0)
    return digits, () if seen.whole_digits <= _MOST_DIGITS else ("beyond_decimal",)


def _text(seen: SeenValues, rules: InferenceRules) -> Primitive:
    form = form_of_all(seen)
    usable = form in get_args(TextForm) or (rules.declared and form not in (WHOLE, NUMBER))
    if rules.times and form is not None and usable:
        kind = parse_schema(f"c {form}").fields[0].type
        assert isinstance(kind, Primitive)
        return kind
    return Primitive("string")


def form_of_all(seen: SeenValues) -> str | None:
    """Return the type that takes all texts of a field that look like times or numbers; None if some look otherwise."""
    forms = {NUMBER} if seen.forms.keys() == {WHOLE, NUMBER} else set(seen.forms)
    return forms.pop() if len(forms) == 1 and sum(seen.forms.values()) == seen.kinds.get("text") else None


def _encoded(name: str, precision: int | None = None, scale: int | None = None) -> Primitive:
    return Primitive(name, precision, scale, ENCODINGS[name][0])


def _list(
    seen: SeenValues, rules: InferenceRules, path: str, depth: int, columns: list[InferredColumn]
) -> tuple[ListType, tuple[Doubt, ...]]:
    element = seen.element
    if element is None or not _times(element):
        return ListType(Primitive("string")), ("empty",)
    below: list[InferredColumn] = []
    kind, doubts = _type(element, rules, f"{path}[]", depth + 1, below)
    columns.append(InferredColumn(f"{path}[]", kind, element, _times(element), doubts))
    columns.extend(below)
    return ListType(kind), ()


def _object(
    seen: SeenValues, rules: InferenceRules, path: str, depth: int, columns: list[InferredColumn]
) -> tuple[DeclaredType, tuple[Doubt, ...]]:
    if not seen.fields:
        return MapType(Primitive("string"), Primitive("string")), ("empty",)
    if looks_like_map(seen):
        values = SeenValues()
        for inner in seen.fields.values():
            values.merge(inner)
        below: list[InferredColumn] = []
        kind, doubts = _type(values, rules, f"{path}{{}}", depth + 1, below)
        if rules.declared and seen.more_fields:
            kind, doubts, below = _JSON, _MORE, []
        columns.append(InferredColumn(f"{path}{{}}", kind, values, _times(values), doubts))
        columns.extend(below)
        return MapType(Primitive("string"), kind), ()
    if rules.declared and any(doubt == "case" for _, _, doubt in _named(seen, top=False)):
        return _JSON, ("case",)
    below = []
    fields = _fields(seen, rules, path, depth, below)
    if rules.declared and (not fields or len(tuple(apart(fields))) < len(fields)):
        return _JSON, ("path" if fields else "name",)
    columns.extend(below)
    if not fields:
        return MapType(Primitive("string"), Primitive("string")), ("name",)
    return StructType(fields), ("more_fields",) if seen.more_fields else ()


def looks_like_map(seen: SeenValues) -> bool:
    """Return whether the keys of an object look like data, so that each new one would be another column."""
    keys = len(seen.fields)
    if seen.more_fields:
        return True
    uses = sum(_times(inner) for inner in seen.fields.values())
    return keys > _MAP_KEYS and uses < keys * seen.kinds.get("object", 0) * _MAP_SHARE


def first_columns(seen: SeenValues, infer: Mapping[str, Any] | None = None) -> StructType | None:
    """Return the columns of a new table; None if no record has a value that needs one.

    A field that was always null, or an empty array or object, gets its column when a value comes.

    Args:
        seen: Values that records held.
        infer: The format's option of this name.
    """
    given = infer or {}
    fractions = parse_schema(f"n {given.get('fractions', 'double')}").fields[0].type
    decimal = fractions if isinstance(fractions, Primitive) and fractions.name == "decimal" else None
    found = inferred(seen, InferenceRules(decimal, given.get("times", False)))
    nothing = {column.path for column in found.columns if _SAY_NOTHING & set(column.doubts)}
    kept = _without_columns(found.schema, "$", nothing) if found.schema else None
    if not isinstance(kept, StructType) or not (fields := tuple(apart(kept.fields))):
        return None
    kept = StructType(fields)
    return _maps_for_structs(kept) if given.get("objects") == "map" else kept


def _without_columns(column_type: DeclaredType, path: str, nothing: Container[str]) -> DeclaredType | None:
    if path in nothing:
        return None
    match column_type:
        case StructType(fields):
            made = [(each, _without_columns(each.type, f"{path}.{each.name}", nothing)) for each in fields]
            kept = tuple(Field(each.name, inner, each.required) for each, inner in made if inner is not None)
            return StructType(kept) if kept else None
        case ListType(element, required):
            inner = _without_columns(element, f"{path}[]", nothing)
            return ListType(inner, required) if inner is not None else None
        case MapType(key, value, required):
            inner = _without_columns(value, f"{path}{{}}", nothing)
            return MapType(key, inner, required) if inner is not None else None
        case _:
            return column_type


def _maps_for_structs(record: StructType) -> StructType:
    return StructType(tuple(Field(each.name, _as_map(each.type), each.required) for each in record.fields))


def _as_map(kind: DeclaredType) -> DeclaredType:
    """Return maps in place of structs whose fields are all of one type."""
    match kind:
        case StructType(fields):
            types = [_as_map(each.type) for each in fields]
            if all(each == types[0] for each in types):
                return MapType(Primitive("string"), types[0])
            return StructType(tuple(Field(each.name, type_) for each, type_ in zip(fields, types, strict=True)))
        case ListType(element, required):
            return ListType(_as_map(element), required)
        case MapType(key, value, required):
            return MapType(key, _as_map(value), required)
        case _:
            return kind
