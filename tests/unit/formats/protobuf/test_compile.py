"""Compilation of .proto texts: what a registry's text and references become, and why some are refused."""

from __future__ import annotations

import pytest

from jobs.formats.protobuf.compile import message_of
from jobs.formats.writer_schema import BadWriterSchema, WriterSchema

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
