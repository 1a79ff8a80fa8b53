"""JSON Schema options: how schemas become columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

WITHOUT_MEANING: Mapping[str, str] = {
    "object.additional.properties": "is about schemas that Connect writes; those that are read say it themselves",
    "decimal.format": "is about what Connect writes; decimals are read as base64 and as numbers",
    "ignore.default.for.nullables": "is always so here: a null that was sent stays null, whatever the default",
    "ignore.modern.dialects": "is ignored: the keywords of all drafts are read, whatever $schema is",
    "json.fail.invalid.schema": "is not there: types and what is required are checked, other rules of a schema are not",
}
"""Options of Connect's JsonSchemaConverter that have no equivalent here, and why."""


@dataclass(frozen=True, slots=True)
class JsonSchemaOptions:
    """Options named as those of Connect's JsonSchemaConverter, with `_` in place of each point.

    Attributes:
        use_optional_for_nonrequired: A property that is not required may be missing, or null.
        generalized_sum_type_support: The alternatives of a choice are `connect_union_field_N`; otherwise
            `io.confluent.connect.json.OneOf.field.N`.
        as_sent: Names of logical types whose values stay texts, numbers or bytes.
    """

    use_optional_for_nonrequired: bool = True
    generalized_sum_type_support: bool = True
    as_sent: tuple[str, ...] = ()

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> JsonSchemaOptions:
        """Return the options that a decoder's spec has; the others are at their defaults."""
        named = {name.replace(".", "_"): value for name, value in options.items()}
        return cls(**{each.name: named[each.name] for each in fields(cls) if each.name in named})

    def alternative(self, number: int) -> str:
        """Return the name of an alternative's column, counted from 0 without null."""
        prefix = (
            "connect_union_field_" if self.generalized_sum_type_support else "io.confluent.connect.json.OneOf.field."
        )
        return f"{prefix}{number}"
