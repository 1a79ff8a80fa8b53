"""Options of Protobuf: how a message's fields become columns, under the names of Kafka Connect's converter.

Two defaults differ: Connect leaves wrappers as structs, and a oneof as a struct of its fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

WITHOUT_MEANING: Mapping[str, str] = {
    "wrapper.for.raw.primitives": "changes nothing here: a record that is a wrapper is the column `value` either way",
}
"""Options of Connect's ProtobufConverter that have no equivalent here, and why."""


@dataclass(frozen=True, slots=True)
class ProtobufRules:
    """Rules for reading messages.

    Attributes:
        int_for_enums: An enum becomes its number; otherwise its name.
        optional_for_nullables: A field that is never null has a required column; otherwise all columns are optional.
        optional_for_proto2: A missing `optional` field of proto2 is null; otherwise it has its default.
        wrapper_for_nullables: A wrapper (`google.protobuf.Int64Value` and its like) is a value or null; otherwise a
            struct with the field `value`.
        generate_struct_for_nulls: A missing message is a struct of its fields' defaults; otherwise null.
        flatten_unions: The fields of a oneof are columns beside the others; otherwise they are fields of a struct.
        generate_index_for_unions: That struct is named after the oneof and its index among those of the message,
            `kind_0`; otherwise after the oneof.
        unknown_fields: The action for records with fields that the message does not declare.
    """

    int_for_enums: bool = False
    optional_for_nullables: bool = False
    optional_for_proto2: bool = True
    wrapper_for_nullables: bool = True
    generate_struct_for_nulls: bool = False
    flatten_unions: bool = True
    generate_index_for_unions: bool = True
    unknown_fields: Literal["ignore", "fail"] = "ignore"


def rules_of(options: Mapping[str, Any]) -> ProtobufRules:
    """Return the rules of a stream's options, by Connect's names (`int.for.enums`), with defaults for the others."""
    known = {each.name for each in fields(ProtobufRules)}
    said = {name.replace(".", "_"): value for name, value in options.items()}
    return ProtobufRules(**{name: value for name, value in said.items() if name in known})
