"""Avro options: what of a writer schema's types becomes which columns."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyiceberg import types as ice

VARIABLE_SCALE = re.compile(r"struct|text|decimal\(\s*([0-9]{1,2})\s*,\s*([0-9]{1,2})\s*\)")
"""What `variable.scale.decimal` may say."""

WITHOUT_MEANING: Mapping[str, str] = {
    "connect.meta.data": "is about what Connect writes into schemas; what it has written is always read",
    "discard.type.doc.default": "is about docs and defaults of schemas, which change nothing here",
    "allow.optional.map.keys": "is about what Connect writes; lists of keys and values land as lists of structs",
    "generalized.sum.type.support": "is not there: the types of a union are named by their names",
    "ignore.default.for.nullables": "is always so here: a null that was sent stays null, whatever the default",
    "avro.use.logical.type.converters": "is always so here: logical types are read as what they mean",
}
"""Options of Connect's AvroConverter that cannot be said here, and why."""


@dataclass(frozen=True, slots=True)
class AvroOptions:
    """Options under the names that Connect's AvroConverter has for them, with `_` in place of each point.

    Attributes:
        enhanced_avro_schema_support: The types of a union are named by their full names.
        flatten_singleton_unions: A union of one type is that type; otherwise a struct of one field.
        scrub_invalid_names: Characters of names that Avro does not allow become `_`.
        variable_scale_decimal: What Debezium's VariableScaleDecimal becomes: `struct`, `text` or `decimal(P,S)`.
        as_sent: Names in `connect.name` of logical types whose values stay texts, numbers or bytes.
    """

    enhanced_avro_schema_support: bool = False
    flatten_singleton_unions: bool = True
    scrub_invalid_names: bool = False
    variable_scale_decimal: str = "struct"
    as_sent: tuple[str, ...] = ()

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> AvroOptions:
        """The options that a decoder's spec has; those that it does not have are at their defaults."""
        return cls(**{name.replace(".", "_"): value for name, value in options.items()})

    @property
    def scaled(self) -> ice.PrimitiveType | None:
        """Iceberg's type of a VariableScaleDecimal; None where it stays a struct."""
        if self.variable_scale_decimal == "struct":
            return None
        match = VARIABLE_SCALE.fullmatch(self.variable_scale_decimal)
        if match is None or match.group(1) is None:
            return ice.StringType()
        return ice.DecimalType(int(match.group(1)), int(match.group(2)))


def variable_scale_problem(text: str) -> str | None:
    """What is wrong with a setting of `variable.scale.decimal`; None if nothing."""
    match = VARIABLE_SCALE.fullmatch(text)
    if match is None:
        return f"must be struct, text or decimal(P,S), not {text!r}"
    if match.group(1) is None:
        return None
    precision, scale = int(match.group(1)), int(match.group(2))
    if not 1 <= precision <= 38 or scale > precision:
        return f"P is 1 to 38 and S is 0 to P, not {text!r}"
    return None
