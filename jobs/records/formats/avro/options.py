"""Avro options: how types of a writer schema become columns."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyiceberg import types as ice

VARIABLE_SCALE = re.compile(r"struct|text|decimal\(\s*([0-9]{1,2})\s*,\s*([0-9]{1,2})\s*\)")
"""Allowed values of `variable.scale.decimal`."""

WITHOUT_MEANING: Mapping[str, str] = {
    "connect.meta.data": "is about what Connect writes into schemas; what it has written is always read",
    "discard.type.doc.default": "is about docs and defaults of schemas, which change nothing here",
    "allow.optional.map.keys": "is about what Connect writes; lists of keys and values land as lists of structs",
    "generalized.sum.type.support": "is not there: the types of a union are named by their names",
    "ignore.default.for.nullables": "is always so here: a null that was sent stays null, whatever the default",
    "avro.use.logical.type.converters": "is always so here: logical types are read as what they mean",
}
"""Options of Connect's AvroConverter that have no meaning here, with the reason."""


@dataclass(frozen=True, slots=True)
class AvroOptions:
    """Options with the names of Connect's AvroConverter, with `_` in place of each point.

    Attributes:
        enhanced_avro_schema_support: The types of a union are named by their full names.
        flatten_singleton_unions: A union of one type is that type; otherwise a struct of one field.
        scrub_invalid_names: Characters of names that Avro does not allow become `_`.
        variable_scale_decimal: Type for Debezium's VariableScaleDecimal: `struct`, `text` or `decimal(P,S)`.
        as_sent: Names in `connect.name` of logical types whose values stay texts, numbers or bytes.
    """

    enhanced_avro_schema_support: bool = False
    flatten_singleton_unions: bool = True
    scrub_invalid_names: bool = False
    variable_scale_decimal: str = "struct"
    as_sent: tuple[str, ...] = ()

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> AvroOptions:
        """Return the options in a decoder's spec, with defaults for the others."""
        return cls(**{name.replace(".", "_"): value for name, value in options.items()})

    @property
    def scaled(self) -> ice.PrimitiveType | None:
        """Iceberg's type of a VariableScaleDecimal; None if it stays a struct."""
        if self.variable_scale_decimal == "struct":
            return None
        match = VARIABLE_SCALE.fullmatch(self.variable_scale_decimal)
        if match is None or match.group(1) is None:
            return ice.StringType()
        return ice.DecimalType(int(match.group(1)), int(match.group(2)))


def variable_scale_problem(text: str) -> str | None:
    """Return the problem of a value of `variable.scale.decimal`; None if there is none."""
    match = VARIABLE_SCALE.fullmatch(text)
    if match is None:
        return f"must be struct, text or decimal(P,S), not {text!r}"
    if match.group(1) is None:
        return None
    precision, scale = int(match.group(1)), int(match.group(2))
    if not 1 <= precision <= 38 or scale > precision:
        return f"P is 1 to 38 and S is 0 to P, not {text!r}"
    return None
