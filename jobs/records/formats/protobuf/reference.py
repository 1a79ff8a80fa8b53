"""Reference decoder of Protobuf, which defines what a record means: one record at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.unknown_fields import UnknownFieldSet
from pyiceberg.schema import Schema

from jobs.records.formats.interface.decoder import (
    DECODE_VALUE,
    MOST_UNKNOWN_PATHS,
    OTHER_UNKNOWN_PATHS,
    Decoded,
    Failure,
)
from jobs.records.formats.interface.problems import (
    MALFORMED_PROTOBUF,
    MISSING_FIELD,
    UNKNOWN_FIELD,
    WRONG_TYPE,
    ValueProblem,
)
from jobs.records.formats.interface.writer_schema import WriterSchema
from jobs.records.formats.protobuf.compile import message_of
from jobs.records.formats.protobuf.message_tree import (
    DEFAULTS,
    Enum,
    Field,
    Json,
    Logical,
    Marker,
    Message,
    Scalar,
    Type,
    Union,
    Wrapper,
)
from jobs.records.formats.protobuf.options import rules_of
from jobs.records.formats.protobuf.schema import columns_of, message_tree
from jobs.records.formats.protobuf.values import (
    enum,
    json_text,
    logical,
    scalar,
)
from jobs.records.formats.protobuf.wire_walk import name_of, wire_message
from jobs.records.schema.arrow_schema import rows_arrow_schema

Read: TypeAlias = Callable[[Any], Any]

_WIRE_TYPES = {0: "a varint", 1: "8 bytes", 2: "bytes with a length", 3: "a group", 5: "4 bytes"}


def protobuf_reference(schema: WriterSchema, options: Mapping[str, Any]) -> ProtobufReferenceDecoder:
    """Return the reference decoder of a writer schema.

    Raises:
        BadWriterSchema: The schema is invalid, or its records have no columns.
    """
    rules = rules_of(options)
    return ProtobufReferenceDecoder(
        message_tree(message_of(schema), rules), refuse_unknown=rules.unknown_fields == "fail"
    )


class ProtobufReferenceDecoder:
    """Decode the records of one message, one by one, by Google's own parser.

    Args:
        tree: The message.
        refuse_unknown: Whether a record with a field that the message does not declare is refused.
    """

    def __init__(self, tree: Message, *, refuse_unknown: bool = False) -> None:
        self._schema: Schema = columns_of(tree)
        self._arrow: pa.Schema = rows_arrow_schema(self._schema)
        self._name: str = tree.name
        self._refuse_unknown: bool = refuse_unknown
        self._parse: Callable[[bytes], Any] = GetMessageClass(wire_message(tree, nested=True)).FromString
        self._unknown: list[str] = []
        self._read: Read = _Readers(self._unknown).message(tree, "$")

    @property
    def schema(self) -> Schema:
        """Return the columns of the message."""
        return self._schema

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decodes a block; a bad record becomes a failure, it never raises.

        Args:
            values: The message of each record, without the id of its schema.
        """
        rows: list[Any] = []
        positions: list[int] = []
        failures: list[Failure] = []
        counts: dict[str, int] = {}
        for row, value in enumerate(values.to_pylist()):
            self._unknown.clear()
            try:
                read = self._record(value)
            except ValueProblem as problem:
                failures.append(Failure(row, DECODE_VALUE, problem.error_class, problem.message, problem.field))
                continue
            rows.append(read)
            positions.append(row)
            for path in dict.fromkeys(self._unknown):
                path = path if path in counts or len(counts) < MOST_UNKNOWN_PATHS else OTHER_UNKNOWN_PATHS
                counts[path] = counts.get(path, 0) + 1
        batch = pa.RecordBatch.from_pylist(rows, schema=self._arrow)
        return Decoded(batch, np.array(positions, np.int64), failures, np.zeros(0, np.int64), counts)

    def parses(self, value: bytes) -> bool:
        """Return whether a value is a message at all, with whatever content."""
        try:
            self._parse(value)
        except DecodeError:
            return False
        return True

    def _record(self, value: bytes) -> dict[str, Any]:
        try:
            message = self._parse(value)
        except DecodeError:
            found = f"{len(value)} bytes that are none"
            raise ValueProblem(MALFORMED_PROTOBUF, f"needs a message of type {self._name}, found {found}") from None
        try:
            read = self._read(message)
        except ValueProblem as problem:
            raise ValueProblem(problem.error_class, problem.message, f"${problem.field or ''}") from None
        if self._unknown and self._refuse_unknown:
            message = "is not declared, and this stream refuses fields that are not declared"
            raise ValueProblem(UNKNOWN_FIELD, message, self._unknown[0])
        return read


class _Readers:
    """Make the functions that read parsed messages, and list the paths of fields that are not declared."""

    def __init__(self, unknown: list[str]) -> None:
        self._unknown: list[str] = unknown

    def message(self, tree: Message, paths: str) -> Read:
        parts = self._parts(tree.parts, paths)
        unions = {each.name: [one.name for one in each.fields] for each in tree.members if isinstance(each, Union)}
        if not unions:
            return parts

        def read(message: Any) -> dict[str, Any]:
            found = parts(message)
            for union, names in unions.items():
                inner = {name: found.pop(name) for name in names}
                found[union] = inner if any(each is not None for each in inner.values()) else None
            return found

        return read

    def _parts(self, fields: tuple[Field, ...], paths: str, *, by_number: bool = False) -> Read:
        """Return a function that reads all fields of a message into a dictionary, by their names or numbers."""
        readers = [
            (field.number if by_number else field.name, self._field(field, f"{paths}.{field.name}")) for field in fields
        ]
        unknown = self._unknown_fields(fields, paths)

        def read(message: Any) -> dict[Any, Any]:
            found: dict[Any, Any] = {}
            for name, one in readers:
                try:
                    found[name] = one(message)
                except ValueProblem as problem:
                    field = problem.field if by_number else f".{name}{problem.field or ''}"
                    raise ValueProblem(problem.error_class, problem.message, field) from None
            others = UnknownFieldSet(message)
            if len(others):
                unknown(others)
            return found

        return read

    def _unknown_fields(self, fields: tuple[Field, ...], paths: str) -> Callable[[Any], None]:
        declared = {field.number: field for field in fields}

        def note(others: Any) -> None:
            for other in others:
                number = other.field_number
                if number in declared:
                    raise _wrong_type(declared[number], other.wire_type)
                self._unknown.append(f"{paths}.{number}")

        return note

    def _field(self, field: Field, paths: str) -> Read:
        """Return a function that reads a field from its message."""
        name = name_of(field)
        get = attrgetter(name)
        match field.shape:
            case "list":
                element = self._type(field.type, f"{paths}[]")
                return lambda message: _elements(element, get(message))
            case "map":
                entries = self._map(field, f"{paths}{{}}")
                return lambda message: entries(get(message))
            case "one":
                pass
        one = self._type(field.type, paths)
        absent = _absent(field, one)
        if not isinstance(field.type, Scalar | Enum):
            return lambda message: one(get(message)) if message.HasField(name) else absent(message)

        def read(message: Any) -> Any:
            value = get(message)
            return one(value) if value or message.HasField(name) else absent(message)

        return read

    def _map(self, field: Field, paths: str) -> Read:
        assert field.key is not None
        value = Field(2, "value", field.type, absent="default", default=field.default)
        key = Field(1, "key", field.key, absent="default", default=DEFAULTS[field.key.kind])
        entry = self._parts((key, value), paths)

        def read(entries: Any) -> list[tuple[Any, Any]]:
            found: dict[Any, Any] = {}
            for each in entries:
                try:
                    pair = entry(each)
                except ValueProblem as problem:
                    inside = (problem.field or "").removeprefix(".key").removeprefix(".value")
                    raise ValueProblem(problem.error_class, problem.message, f"[...]{inside}") from None
                found[pair["key"]] = pair["value"]
            return list(found.items())

        return read

    def _type(self, kind: Type, paths: str) -> Read:
        match kind:
            case Scalar():
                return scalar(kind) or (lambda value: value)
            case Enum():
                return enum(kind)
            case Logical():
                parts, value = self._parts(kind.parts, paths, by_number=True), logical(kind)
                return lambda message: value(parts(message))
            case Wrapper():
                parts = self._parts(kind.parts, paths, by_number=True)
                return lambda message: parts(message)[1]
            case Json():
                return json_text
            case Marker():
                parts = self._parts((), paths)
                return lambda message: parts(message) == {}
            case Message():
                return self.message(kind, paths)


def _absent(field: Field, one: Read) -> Read:
    """Return the value of a field that its message does not have."""
    match field.absent:
        case "null":
            return lambda _: None
        case "default" if isinstance(field.type, Scalar | Enum):
            default = field.default.encode() if isinstance(field.default, str) else field.default
            return lambda _: one(default)
        case "default":
            name = name_of(field)
            return lambda message: one(getattr(message, name))
        case "refused":

            def refuse(_: Any) -> Any:
                raise ValueProblem(MISSING_FIELD, f"needs {_called(field.type)}, found no such field", "")

            return refuse


def _elements(one: Read, values: Iterable[Any]) -> list[Any]:
    found: list[Any] = []
    for value in values:
        try:
            found.append(one(value))
        except ValueProblem as problem:
            field = f"[{len(found)}]{problem.field or ''}"
            raise ValueProblem(problem.error_class, problem.message, field) from None
    return found


def _wrong_type(field: Field, wire_type: int) -> ValueProblem:
    """Return the problem of a field with a declared number but another wire type, which Protobuf would call unknown."""
    needed = {"one": "", "list": "repeated ", "map": "a map of "}[field.shape]
    message = f"needs {needed}{_called(field.type)}, found {_WIRE_TYPES.get(wire_type, 'another type')}"
    return ValueProblem(WRONG_TYPE, message, f".{field.name}")


def _called(kind: Type) -> str:
    match kind:
        case Scalar():
            return kind.kind
        case Logical():
            return kind.kind
        case Wrapper():
            return _called(kind.value.type)
        case Marker():
            return "a message"
        case Enum() | Json() | Message():
            return kind.name
