"""Known formats of values, by the name that a stream's file gives them; a new format is entered here."""

from __future__ import annotations

from collections.abc import Mapping

from jobs.formats.avro.format import AVRO
from jobs.formats.connect_json.format import CONNECT_JSON
from jobs.formats.decoder import Format
from jobs.formats.json.format import JSON
from jobs.formats.json_schema.format import JSON_SCHEMA
from jobs.formats.own.format import OWN
from jobs.formats.primitive.format import PRIMITIVES
from jobs.formats.protobuf.format import PROTOBUF

FORMATS: Mapping[str, Format] = {
    each.name: each for each in (JSON, CONNECT_JSON, JSON_SCHEMA, AVRO, PROTOBUF, OWN, *PRIMITIVES)
}
