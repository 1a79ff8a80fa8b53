"""Connect JSON format: each value an envelope of a schema and a payload, as Connect's JsonConverter writes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
from pyiceberg.schema import Schema

from jobs.formats.connect_json.block import ConnectJsonBlockDecoder
from jobs.formats.connect_json.payloads import REPLACE_NULL, Payloads
from jobs.formats.connect_json.reference import ConnectJsonReferenceDecoder
from jobs.formats.connect_json.schema import connect_types
from jobs.formats.connect_types import AS_SENT
from jobs.formats.decoder import Format, UnknownField
from jobs.formats.decoder_spec import DecoderSpec
from jobs.formats.json.format import unknown_json_fields
from jobs.formats.problems import ValueProblem
from jobs.formats.writer_groups import Writer
from jobs.formats.writer_schema import WriterSchema
from jobs.schema.iceberg_schema import iceberg_schema


def _unknown_fields(
    spec: DecoderSpec, values: pa.BinaryArray, rows: Iterable[int], paths: Iterable[str]
) -> dict[str, UnknownField]:
    decoder, payloads = ConnectJsonReferenceDecoder(spec), Payloads(spec, block=False)
    wanted, found = set(paths), {}
    for row in rows:
        if not wanted:
            break
        value: bytes | None = values[row].as_py()
        try:
            schema, payload = decoder.envelope(value or b"")
        except ValueProblem:
            continue
        one = pa.array([payload], pa.binary())
        writer = payloads.writer(schema)
        if isinstance(writer, Writer):
            met = dict(writer.unknown_fields(one, wanted))
        else:
            met = unknown_json_fields(spec, one, [0], wanted) if writer is None else {}
        for path, field in met.items():
            if path in wanted:
                found[path] = field._replace(row=int(row))
                wanted.discard(path)
    return found


def _writer_rows(schema: WriterSchema, options: Mapping[str, Any]) -> Schema:
    defaults, as_sent = bool(options.get(REPLACE_NULL)), options.get(AS_SENT, ())
    return iceberg_schema(connect_types(schema.text, defaults=defaults, as_sent=as_sent).declared)


CONNECT_JSON = Format(
    "connect_json",
    ConnectJsonReferenceDecoder,
    ConnectJsonBlockDecoder,
    probe=b"",
    unknown_fields=_unknown_fields,
    # What is masked would have to be found within the payload, and the defaults of the schema are values, too.
    json_fields=False,
    writer_rows=_writer_rows,
)
