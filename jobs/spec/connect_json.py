"""Connect JSON options of a stream's YAML file, under the names that Kafka Connect's JsonConverter gives them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, model_validator

from jobs.formats.connect_types import LOGICAL_TYPES
from jobs.formats.writer_schema import BadWriterSchema
from jobs.spec.base import Flag, SpecModel, with_meaning

WITHOUT_MEANING: Mapping[str, str] = {
    "schemas.enable": "is said by the format: connect_json reads envelopes, json reads values without one",
    "decimal.format": "is about what Connect writes; decimals are read as base64 and as numbers",
}
"""Options of Connect's JsonConverter that cannot be said here, and why."""


def _connect_schema(value: object, info: ValidationInfo) -> str:
    # What decodes JSON is not needed by who only reads the file of another stream.
    from jobs.formats.connect_json.schema import connect_types

    text = value if isinstance(value, str) else json.dumps(value)
    try:
        connect_types(text, as_sent=info.data.get("as_sent", ()))
    except BadWriterSchema as problem:
        raise ValueError(f"is no schema as Connect's JSON has them: {problem.message}") from None
    return text


def _logical_type(name: str) -> str:
    if name not in LOGICAL_TYPES:
        raise ValueError(f"is none of the logical types {', '.join(LOGICAL_TYPES)}")
    return name


AsSent: TypeAlias = tuple[Annotated[str, AfterValidator(_logical_type)], ...]
"""Names of logical types of Connect and Debezium whose values stay the texts, numbers or bytes that carry them."""


class ConnectJsonOptions(SpecModel):
    """Values are in the envelope of Kafka Connect's JsonConverter, a schema and a payload.

    Args:
        schema_content: A schema in Connect's JSON, text or as YAML, of values that are plain payloads.
        replace_null_with_default: Whether null and missing members take the default of their schema.
        as_sent: Names of logical types whose values stay texts, numbers or bytes.
    """

    format: Literal["connect_json"]
    # The check of the schema needs it.
    as_sent: AsSent = ()
    schema_content: Annotated[
        Annotated[str, BeforeValidator(_connect_schema)] | None, Field(alias="schema.content")
    ] = None
    replace_null_with_default: Annotated[Flag, Field(alias="replace.null.with.default")] = False

    @model_validator(mode="before")
    @classmethod
    def _names_mean_something(cls, options: Any) -> Any:
        return with_meaning(options, WITHOUT_MEANING)
