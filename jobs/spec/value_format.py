"""Formats of values and keys in a stream's YAML file: names, options, and where their schemas may be from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from jobs.formats.avro import options as avro_options
from jobs.formats.json_schema import options as json_schema_options
from jobs.formats.own.entry_point import NoSuchDecoderError, loaded, version_of
from jobs.formats.protobuf import options as protobuf_options
from jobs.spec import connect_json
from jobs.spec.base import Flag, SpecModel, with_meaning
from jobs.spec.connect_json import AsSent, ConnectJsonOptions
from jobs.spec.infer import Infer

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
"""Where the schema of a format's rows may be from; of the others, from the stream's file."""
REGISTRY_FORMATS = frozenset({"avro", "protobuf", "json_schema"})
"""Formats whose records name their writer schema by an id of a registry."""


class JsonOptions(SpecModel):
    """Values are JSON objects.

    Args:
        infer: What new columns become, of a schema that is not declared.
    """

    format: Literal["json"]
    infer: Infer = Infer()

    @model_validator(mode="before")
    @classmethod
    def _names_mean_something(cls, options: Any) -> Any:
        return with_meaning(options, connect_json.WITHOUT_MEANING)


class RegistryOptions(SpecModel):
    """Values name their schema by an id of a registry.

    Args:
        use_schema_id: The id of the schema that all have, of values that name none.
    """

    use_schema_id: Annotated[int | None, Field(alias="use.schema.id", ge=0, lt=2**32)] = None


class JsonSchemaOptions(RegistryOptions):
    """Values are JSON behind the id of their JSON Schema in a registry; see `jobs.formats.json_schema.options`."""

    format: Literal["json_schema"]
    use_optional_for_nonrequired: Annotated[Flag, Field(alias="use.optional.for.nonrequired")] = True
    generalized_sum_type_support: Annotated[Flag, Field(alias="generalized.sum.type.support")] = True
    as_sent: AsSent = ()

    @model_validator(mode="before")
    @classmethod
    def _names_mean_something(cls, options: Any) -> Any:
        return with_meaning(options, json_schema_options.WITHOUT_MEANING)


class AvroOptions(RegistryOptions):
    """Values are Avro's binary encoding behind the id of their schema; see `jobs.formats.avro.options`."""

    format: Literal["avro"]
    enhanced_avro_schema_support: Annotated[Flag, Field(alias="enhanced.avro.schema.support")] = False
    flatten_singleton_unions: Annotated[Flag, Field(alias="flatten.singleton.unions")] = True
    scrub_invalid_names: Annotated[Flag, Field(alias="scrub.invalid.names")] = False
    variable_scale_decimal: Annotated[str, Field(alias="variable.scale.decimal")] = "struct"
    as_sent: AsSent = ()

    @model_validator(mode="before")
    @classmethod
    def _names_mean_something(cls, options: Any) -> Any:
        return with_meaning(options, avro_options.WITHOUT_MEANING)

    @field_validator("variable_scale_decimal")
    @classmethod
    def _is_a_type(cls, text: str) -> str:
        if problem := avro_options.variable_scale_problem(text):
            raise ValueError(problem)
        return text


class ProtobufOptions(RegistryOptions):
    """Values are Protobuf messages behind the id of their schema; see `jobs.formats.protobuf.options`."""

    format: Literal["protobuf"]
    int_for_enums: Annotated[Flag, Field(alias="int.for.enums")] = False
    optional_for_nullables: Annotated[Flag, Field(alias="optional.for.nullables")] = False
    optional_for_proto2: Annotated[Flag, Field(alias="optional.for.proto2")] = True
    wrapper_for_nullables: Annotated[Flag, Field(alias="wrapper.for.nullables")] = True
    generate_struct_for_nulls: Annotated[Flag, Field(alias="generate.struct.for.nulls")] = False
    flatten_unions: Annotated[Flag, Field(alias="flatten.unions")] = True
    generate_index_for_unions: Annotated[Flag, Field(alias="generate.index.for.unions")] = True

    @model_validator(mode="before")
    @classmethod
    def _names_mean_something(cls, options: Any) -> Any:
        return with_meaning(options, protobuf_options.WITHOUT_MEANING)


class OwnOptions(SpecModel):
    """Values are read by a function of an installed package; see `jobs.formats.own.decoder`.

    Args:
        decoder: The name under which the package declares it.
        options: What the function is given beside the values, by its own names.
    """

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
"""Of the formats that have options: a model each, whose `format` is its name."""


def _form(value: object) -> str | None:
    if isinstance(value, str):
        return "@name"
    if isinstance(value, SpecModel):
        return f"@{getattr(value, 'format', None)}"
    if isinstance(value, dict) and value.get("format") in SOURCES:
        return f"@{value['format']}"
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
    """As a configuration is hashed: the name alone where no option is set, so `{format: avro}` is `avro`."""
    if isinstance(value, str):
        return value
    options = value.model_dump(mode="json", exclude_defaults=True)
    if isinstance(value, OwnOptions):
        # Another version of its package may give other rows.
        return {**options, "version": version_of(value.decoder)}
    return value.format if options.keys() <= {"format"} else options
