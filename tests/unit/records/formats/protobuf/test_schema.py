"""Columns of Protobuf messages: types, presence, options, and the messages that no table has columns for."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg import types as ice

from jobs.records.formats.interface.writer_schema import BadWriterSchema, WriterSchema
from jobs.records.formats.protobuf.compile import message_of
from jobs.records.formats.protobuf.options import rules_of
from jobs.records.formats.protobuf.schema import columns_of, message_tree
from jobs.records.schema.iceberg_schema import schema_text

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


ITEM = 'syntax = "proto3"; package shop; import "shop/unit.proto"; message Item { Unit unit = 1; }'
UNIT = 'syntax = "proto3"; package shop; enum Unit { PIECE = 0; KILO = 1; }'
NESTED = """
syntax = "proto3";
message First {
  map<string, int32> counts = 1;
  message Inner { int32 a = 1; message Deep { int32 b = 1; } }
  message Other { int32 c = 1; }
}
message Second { int32 d = 1; }
"""


def test_references_are_imported_by_their_paths() -> None:
    schema = WriterSchema(
        'syntax = "proto3"; import "shop/item.proto"; message Order { repeated shop.Item items = 1; }',
        (("shop/unit.proto", UNIT), ("shop/item.proto", ITEM)),
    )
    message = message_of(schema)
    assert message.full_name == "Order"
    assert message.fields_by_name["items"].message_type.fields_by_name["unit"].enum_type.full_name == "shop.Unit"  # pyright: ignore[reportOptionalMemberAccess]


def test_what_registries_have_without_references_is_imported() -> None:
    imports = (
        *("google/protobuf/timestamp.proto", "google/type/date.proto", "google/type/money.proto"),
        *("confluent/meta.proto", "confluent/type/decimal.proto"),
    )
    text = 'syntax = "proto3"; ' + "".join(f'import "{each}"; ' for each in imports)
    text += 'message A { confluent.type.Decimal d = 1 [(confluent.field_meta).doc = "x"]; google.type.Money m = 2; }'
    assert [each.name for each in message_of(WriterSchema(text)).fields] == ["d", "m"]


@pytest.mark.parametrize(
    ("indexes", "name"),
    [
        *(((), "First"), ((0,), "First"), ((1,), "Second"), ((0, 0), "First.Inner"), ((0, 1), "First.Other")),
        ((0, 0, 0), "First.Inner.Deep"),
    ],
)
def test_message_indexes_walk_declared_messages(indexes: tuple[int, ...], name: str) -> None:
    assert message_of(WriterSchema(NESTED, (), indexes)).full_name == name


@pytest.mark.parametrize(
    ("indexes", "problem"),
    [
        ((2,), r"the schema has no message number 2 \(message indexes \[2\]\)"),
        ((0, 2), r"the message First has no message number 2"),
        ((1, 0), r"the message Second has no message number 0"),
    ],
)
def test_an_index_without_a_message_is_refused(indexes: tuple[int, ...], problem: str) -> None:
    with pytest.raises(BadWriterSchema, match=problem):
        message_of(WriterSchema(NESTED, (), indexes))


@pytest.mark.parametrize(
    ("text", "references", "problem"),
    [
        ("", (), "the schema has no message number 0"),
        ("nonsense", (), "protoc refuses the schema at line 1: "),
        ("\0", (), "protoc refuses the schema at line 1: Invalid control characters"),
        ('syntax = "proto3";\nmessage A { int32 a = 1 }', (), 'at line 2: Expected ";"'),
        ('syntax = "proto3"; message A { B b = 1; }', (), '"B" is not defined'),
        ('syntax = "proto3"; import "x.proto"; message A {}', (), "in x.proto: File not found"),
        ('import "x.proto"; message A {}', (("x.proto", "message B {"),), "in x.proto at line 1: Reached end of input"),
        ('import "x.proto"; message A {}', (("x.proto", 'import "x.proto";'),), "recursively imports itself"),
        ('syntax = "proto9"; message A {}', (), "proto9"),
        ("message A { required int32 a = 1; required int32 b = 1; }", (), "Field number 1 has already been used"),
        ("message A {" * 2000, (), "recursion limit"),
        ("message A {}", (("../../x.proto", ""),), "import paths such as 'shop/item.proto', found '../../x.proto'"),
        ("message A {}", (("/etc/x.proto", ""),), "needs import paths"),
        ("message A {}", (("", ""),), "needs import paths"),
    ],
)  # fmt: skip
def test_what_protoc_refuses_is_told_in_its_words(
    text: str, references: tuple[tuple[str, str], ...], problem: str
) -> None:
    with pytest.raises(BadWriterSchema) as refused:
        message_of(WriterSchema(text, references))
    assert problem in refused.value.message
    assert "/tmp" not in refused.value.message


def test_a_schema_is_compiled_once() -> None:
    schema = WriterSchema(NESTED)
    assert message_of(schema).file is message_of(WriterSchema(NESTED, (), (0, 1))).file
