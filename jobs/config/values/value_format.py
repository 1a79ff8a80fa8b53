"""Formats of values and keys in a stream's YAML file: names, options, and possible origins of their schemas."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    Tag,
    ValidationInfo,
    field_validator,
    model_validator,
)

from jobs.config.documents.base import Flag, SpecModel, problems_at
from jobs.records.formats.avro import options as avro_options
from jobs.records.formats.connect_types import LOGICAL_TYPES
from jobs.records.formats.interface.writer_schema import BadWriterSchema
from jobs.records.formats.json_schema import options as json_schema_options
from jobs.records.formats.own.format import NoSuchDecoderError, loaded, version_of
from jobs.records.formats.protobuf import options as protobuf_options
from jobs.records.schema.declared import Primitive
from jobs.records.schema.parser import parse_schema
from jobs.records.schema.tokens import SchemaTextError

CONNECT_WITHOUT_MEANING: Mapping[str, str] = {
    "schemas.enable": "is determined by the format: connect_json reads envelopes, json reads values without one",
    "decimal.format": "is about what Connect writes; decimals are read as base64 and as numbers",
}
"""Options of Connect's JsonConverter that have no meaning here, with the reason."""


def _connect_schema(value: object, info: ValidationInfo) -> str:
    # Imported here: files without this option do not need the JSON decoder.
    from jobs.records.formats.connect_json.schema import connect_types

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


class ConverterOptions(SpecModel):
    """Options under the names that a converter of Kafka Connect gives them; those without a meaning here say why."""

    _without_meaning: ClassVar[Mapping[str, str]] = {}

    @model_validator(mode="before")
    @classmethod
    def _names_mean_something(cls, options: Any) -> Any:
        without = cls._without_meaning
        if isinstance(options, dict) and (named := [name for name in without if name in options]):
            raise problems_at([((name,), without[name]) for name in named])
        return options


class ConnectJsonOptions(ConverterOptions):
    """Values are in the envelope of Kafka Connect's JsonConverter, a schema and a payload.

    Args:
        format: Name of the format.
        as_sent: Logical types, by name, whose values stay the texts, numbers or bytes that carry them.
        schema_content: Schema in Connect's JSON, as text or YAML, for values that are plain payloads (KIP-1054).
        replace_null_with_default: Replaces null and missing members by the default of their schema.
    """

    example = (
        '{format: connect_json, as_sent: [io.debezium.time.Date], schema.content: \'{"type": "struct", "fields": []}\'}'
    )

    _without_meaning: ClassVar[Mapping[str, str]] = CONNECT_WITHOUT_MEANING
    format: Literal["connect_json"]
    # The check of the schema needs it.
    as_sent: AsSent = ()
    schema_content: Annotated[
        Annotated[str, BeforeValidator(_connect_schema)] | None, Field(alias="schema.content")
    ] = None
    replace_null_with_default: Annotated[Flag, Field(alias="replace.null.with.default")] = False


def _fractions(value: object) -> str:
    try:
        kind = parse_schema(f"n {value}").fields[0].type
    except SchemaTextError:
        kind = None
    if not isinstance(kind, Primitive) or kind.name not in ("double", "decimal") or str(kind).endswith("text"):
        raise ValueError("must be double, or decimal(P,S) such as decimal(18,4)")
    return str(kind)


class Infer(SpecModel):
    """Types of new columns where JSON leaves a choice.

    Args:
        fractions: Type of numbers with a fraction or an exponent: ``double`` or ``decimal(P,S)``.
        times: Infers timestamps and dates from texts that look like them.
        objects: Type of JSON objects.
    """

    fractions: Annotated[str, BeforeValidator(_fractions)] = "double"
    times: Flag = False
    objects: Literal["struct", "map"] = "struct"


FormatName = Literal[
    "json",
    "connect_json",
    "json_schema",
    "avro",
    "protobuf",
    "string",
    "bytes",
    "boolean",
    "short",
    "int",
    "long",
    "float",
    "double",
]
SchemaSource: TypeAlias = Literal["declared", "registry", "table", "infer"]

SOURCES: Mapping[str, tuple[SchemaSource, ...]] = {
    "json": ("declared", "table", "infer"),
    "connect_json": ("declared", "table", "infer"),
    "json_schema": ("declared", "registry", "table"),
    "avro": ("declared", "registry", "table"),
    "protobuf": ("declared", "registry", "table"),
    "own": ("declared",),
}
"""Possible origins of the schema by format; for other formats it is in the stream's file."""
REGISTRY_FORMATS = frozenset({"avro", "protobuf", "json_schema"})
"""Formats whose records name their writer schema by an id of a registry."""


class JsonOptions(ConverterOptions):
    """Values are JSON objects.

    Args:
        format: Name of the format.
        infer: Types of inferred columns. For ``decode.schema: infer``, and for new fields.
    """

    _without_meaning: ClassVar[Mapping[str, str]] = CONNECT_WITHOUT_MEANING
    format: Literal["json"]
    infer: Infer = Infer()


class RegistryOptions(ConverterOptions):
    """Values name their schema by an id of a registry.

    Args:
        use_schema_id: Id of the registry's schema for values that name none.
    """

    use_schema_id: Annotated[int | None, Field(alias="use.schema.id", ge=0, lt=2**32)] = None


class JsonSchemaOptions(RegistryOptions):
    """JSON values behind the id of their JSON Schema in a registry; see `jobs.records.formats.json_schema.options`.

    Args:
        format: Name of the format.
        use_optional_for_nonrequired: Makes properties that are not ``required`` optional columns.
        generalized_sum_type_support: Names the alternatives of a choice ``connect_union_field_N``, and otherwise
            ``io.confluent.connect.json.OneOf.field.N``.
        as_sent: Logical types, by name, whose values stay the texts, numbers or bytes that carry them.
    """

    example = "{format: json_schema, as_sent: [io.debezium.time.Date]}"

    _without_meaning: ClassVar[Mapping[str, str]] = json_schema_options.WITHOUT_MEANING
    format: Literal["json_schema"]
    use_optional_for_nonrequired: Annotated[Flag, Field(alias="use.optional.for.nonrequired")] = True
    generalized_sum_type_support: Annotated[Flag, Field(alias="generalized.sum.type.support")] = True
    as_sent: AsSent = ()


class AvroOptions(RegistryOptions):
    """Values are Avro's binary encoding behind the id of their schema; see `jobs.records.formats.avro.options`.

    Args:
        format: Name of the format.
        enhanced_avro_schema_support: Names the types of a union with their namespaces.
        flatten_singleton_unions: Decodes a union of one type as that type. Otherwise it is a struct with one column.
        scrub_invalid_names: Replaces characters that Avro does not allow in names by ``_``.
        variable_scale_decimal: Type of Debezium's VariableScaleDecimal: ``struct``, ``text`` or ``decimal(P,S)``.
        as_sent: Logical types, by name, whose values stay the texts, numbers or bytes that carry them.
    """

    example = "{format: avro, as_sent: [io.debezium.time.Date]}"

    _without_meaning: ClassVar[Mapping[str, str]] = avro_options.WITHOUT_MEANING
    format: Literal["avro"]
    enhanced_avro_schema_support: Annotated[Flag, Field(alias="enhanced.avro.schema.support")] = False
    flatten_singleton_unions: Annotated[Flag, Field(alias="flatten.singleton.unions")] = True
    scrub_invalid_names: Annotated[Flag, Field(alias="scrub.invalid.names")] = False
    variable_scale_decimal: Annotated[str, Field(alias="variable.scale.decimal")] = "struct"
    as_sent: AsSent = ()

    @field_validator("variable_scale_decimal")
    @classmethod
    def _is_a_type(cls, text: str) -> str:
        if problem := avro_options.variable_scale_problem(text):
            raise ValueError(problem)
        return text


class ProtobufOptions(RegistryOptions):
    """Values are Protobuf messages behind the id of their schema; see `jobs.records.formats.protobuf.options`.

    Args:
        format: Name of the format.
        int_for_enums: Decodes an enum as its number, in an ``int`` column.
        optional_for_nullables: Makes a scalar or enum that is never null a required column. Otherwise, all columns are
            optional.
        optional_for_proto2: Gives an absent ``optional`` field of proto2 null. Otherwise it has its default.
        wrapper_for_nullables: Decodes a wrapper type as its value. Otherwise it is ``struct<value …>``.
        generate_struct_for_nulls: Decodes an absent message as a struct of its fields' defaults. Otherwise it is null.
        flatten_unions: Decodes the fields of a oneof as columns of the message. Otherwise they are in a struct.
        generate_index_for_unions: Adds an index to the name of a oneof's struct, such as ``kind_0``.
    """

    _without_meaning: ClassVar[Mapping[str, str]] = protobuf_options.WITHOUT_MEANING
    format: Literal["protobuf"]
    int_for_enums: Annotated[Flag, Field(alias="int.for.enums")] = False
    optional_for_nullables: Annotated[Flag, Field(alias="optional.for.nullables")] = False
    optional_for_proto2: Annotated[Flag, Field(alias="optional.for.proto2")] = True
    wrapper_for_nullables: Annotated[Flag, Field(alias="wrapper.for.nullables")] = True
    generate_struct_for_nulls: Annotated[Flag, Field(alias="generate.struct.for.nulls")] = False
    flatten_unions: Annotated[Flag, Field(alias="flatten.unions")] = True
    generate_index_for_unions: Annotated[Flag, Field(alias="generate.index.for.unions")] = True


class OwnOptions(SpecModel):
    """Values are read by a function of an installed package; see `jobs.records.formats.own.format`.

    Args:
        format: Name of the format.
        decoder: Entry point name under which the package declares its decoder.
        options: Options that the function gets beside the values, by its own names.
    """

    example = "{format: own, decoder: shop}"

    format: Literal["own"]
    decoder: str
    options: dict[str, Any] = Field(default_factory=dict)

    @field_validator("decoder")
    @classmethod
    def _is_there(cls, name: str) -> str:
        try:
            loaded(name)
        except NoSuchDecoderError as problem:
            raise ValueError(str(problem)) from None
        return name


FormatOptions: TypeAlias = (
    JsonOptions | ConnectJsonOptions | JsonSchemaOptions | AvroOptions | ProtobufOptions | OwnOptions
)
"""Models of the formats with options; `format` is the name of each."""


def _form(value: object) -> str | None:
    if isinstance(value, str):
        return "@name"
    if isinstance(value, SpecModel):
        return f"@{getattr(value, 'format', None)}"
    if isinstance(value, dict) and isinstance(name := value.get("format"), str) and name in SOURCES:
        return f"@{name}"
    return None


ValueFormat = Annotated[
    Annotated[FormatName, Tag("@name")]
    | Annotated[JsonOptions, Tag("@json")]
    | Annotated[ConnectJsonOptions, Tag("@connect_json")]
    | Annotated[JsonSchemaOptions, Tag("@json_schema")]
    | Annotated[AvroOptions, Tag("@avro")]
    | Annotated[ProtobufOptions, Tag("@protobuf")]
    | Annotated[OwnOptions, Tag("@own")],
    Discriminator(
        _form,
        custom_error_type="frazil_format",
        custom_error_message="must be the name of a format, or {format: NAME} with options, which these have: "
        + ", ".join(SOURCES),
    ),
]


def hashed_format(_: Any, value: str | FormatOptions) -> Any:
    """Return the hashed form: the name alone if no option is set, so that `{format: avro}` equals `avro`."""
    if isinstance(value, str):
        return value
    options = value.model_dump(mode="json", exclude_defaults=True)
    if isinstance(value, OwnOptions):
        # Another version of the decoder's package may produce other rows.
        return {**options, "version": version_of(value.decoder)}
    return value.format if options.keys() <= {"format"} else options
