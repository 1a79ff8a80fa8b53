"""Columns of Protobuf messages: types, presence, options, and the messages that no table has columns for."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg import types as ice

from jobs.formats.protobuf.compile import message_of
from jobs.formats.protobuf.options import rules_of
from jobs.formats.protobuf.schema import columns_of, message_tree
from jobs.formats.writer_schema import BadWriterSchema, WriterSchema
from jobs.schema.iceberg_schema import schema_text

IMPORTS = "".join(
    f'import "{path}";'
    for path in (
        *(f"google/protobuf/{name}.proto" for name in ("timestamp", "duration", "struct", "any", "empty", "wrappers")),
        *("google/type/date.proto", "google/type/timeofday.proto"),
        *("confluent/meta.proto", "confluent/type/decimal.proto"),
    )
)
ALL = f"""
syntax = "proto3"; {IMPORTS}
message All {{
  double d = 1; float f = 2; int32 i32 = 3; int64 i64 = 4; uint32 u32 = 5; uint64 u64 = 6; sint32 s32 = 7;
  sint64 s64 = 8; fixed32 x32 = 9; fixed64 x64 = 10; sfixed32 sx32 = 11; sfixed64 sx64 = 12; bool b = 13;
  string s = 14; bytes y = 15; Kind kind = 16; repeated string many = 17; map<int32, Inner> by = 18;
  optional int32 maybe = 19; Inner inner = 20;
  oneof either {{ string left = 21; google.protobuf.Empty right = 22; }}
  google.protobuf.Timestamp at = 23; google.protobuf.Duration took = 24; google.protobuf.Struct json = 25;
  google.protobuf.Any any = 26; google.protobuf.Int64Value wrapped = 27; google.type.Date day = 28;
  google.type.TimeOfDay time = 29;
  confluent.type.Decimal price = 30 [
    (confluent.field_meta).params = {{ key: "precision", value: "12" }},
    (confluent.field_meta).params = {{ key: "scale", value: "2" }}];
  confluent.type.Decimal bare = 31;
  message Inner {{ uint32 n = 1; }}
  enum Kind {{ NONE = 0; SOME = 1; }}
}}"""


def columns(text: str, **options: Any) -> dict[str, str]:
    tree = message_tree(message_of(WriterSchema(text)), rules_of(options))
    return {each.name: _text(each) for each in columns_of(tree).fields}


def _text(field: ice.NestedField) -> str:
    return schema_text(field.field_type) + (" not null" if field.required else "")


def test_every_type_has_a_column() -> None:
    assert columns(ALL) == {
        "d": "double",
        "f": "float",
        "i32": "int",
        "i64": "long",
        "u32": "long",
        "u64": "decimal(20,0)",
        "s32": "int",
        "s64": "long",
        "x32": "long",
        "x64": "decimal(20,0)",
        "sx32": "int",
        "sx64": "long",
        "b": "boolean",
        "s": "string",
        "y": "binary",
        "kind": "string",
        "many": "list<string>",
        "by": "map<int, struct<n long>>",
        "maybe": "int",
        "inner": "struct<n long>",
        "left": "string",
        "right": "boolean",
        "at": "timestamptz",
        "took": "struct<seconds long, nanos int>",
        "json": "string",
        "any": "struct<type_url string, value binary>",
        "wrapped": "long",
        "day": "date",
        "time": "time",
        "price": "decimal(12,2)",
        "bare": "decimal(38,0)",
    }


def test_options_change_what_they_name() -> None:
    plain = columns(ALL)

    def changed(**options: Any) -> dict[str, str]:
        found = columns(ALL, **options)
        return {name: text for name, text in found.items() if plain.get(name) != text}

    assert changed(**{"int.for.enums": True}) == {"kind": "int"}
    assert changed(**{"wrapper.for.nullables": False}) == {"wrapped": "struct<value long>"}
    either = "struct<left string, right boolean>"
    assert changed(**{"flatten.unions": False}) == {"either_0": either}
    assert changed(**{"flatten.unions": False, "generate.index.for.unions": False}) == {"either": either}
    required = changed(**{"optional.for.nullables": True})
    assert required["d"] == "double not null"
    assert required["kind"] == "string not null"
    assert required["inner"] == "struct<n long not null>"
    assert not required.keys() & {"maybe", "left", "right", "at", "wrapped", "day", "json"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("message A {}", "the message A has no fields"),
        (
            'syntax = "proto3"; import "confluent/meta.proto"; import "confluent/type/decimal.proto"; message A { '
            'confluent.type.Decimal a = 1 [(confluent.field_meta).params = {key: "precision", value: "0"}]; }',
            "the field $.a needs a precision from 1 on",
        ),
    ],
)  # fmt: skip
def test_messages_without_columns_are_refused(text: str, problem: str) -> None:
    with pytest.raises(BadWriterSchema) as refused:
        message_tree(message_of(WriterSchema(text)), rules_of({}))
    assert problem in refused.value.message


def test_messages_within_themselves_or_too_deep_are_their_bytes_and_groups_are_messages() -> None:
    assert columns("message A { optional A a = 1; optional int32 n = 2; }") == {"a": "binary", "n": "int"}
    assert columns("message A { map<string, B> b = 1; } message B { repeated A a = 1; }") == {
        "b": "map<string, struct<a list<binary>>>"
    }
    assert columns("message A { repeated group G = 1 { optional int32 a = 1; } }") == {"g": "list<struct<a int>>"}
    deep = "".join(f"message M{n} {{ optional M{n + 1} a = 1; }}" for n in range(40)) + "message M40 {}"
    assert columns(deep) == {"a": "struct<a " * 31 + "binary" + ">" * 31}


def test_a_message_with_too_many_columns_is_refused() -> None:
    text = "message M0 { optional int32 a = 1; optional int32 b = 2; }" + "".join(
        f"message M{n} {{ optional M{n - 1} a = 1; optional M{n - 1} b = 2; }}" for n in range(1, 20)
    )
    with pytest.raises(BadWriterSchema, match="more than 10000 columns"):
        message_tree(message_of(WriterSchema(text, (), (19,))), rules_of({}))


def test_a_oneof_and_a_field_of_one_name_are_refused() -> None:
    text = 'syntax = "proto3"; message A { oneof k { int32 a = 1; } int32 k_0 = 2; }'
    assert columns(text) == {"a": "int", "k_0": "int"}
    with pytest.raises(BadWriterSchema, match=r"the oneof and the field \$.k_0 would be one column"):
        columns(text, **{"flatten.unions": False})
