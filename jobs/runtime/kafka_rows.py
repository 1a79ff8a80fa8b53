"""The columns in which a batch's records travel from Spark to the Python tasks.

Headers travel as JSON text. Spark asks after every row how many bytes its Arrow batch holds, so as not to build a
batch of a gigabyte from large records, and for a list of structs the answer alone costs more than all the rest of the
row.
"""

from __future__ import annotations

import base64

import msgspec
import pyarrow as pa

HEADERS = "to_json(headers, map('ignoreNullFields', 'false')) AS headers"
COLUMNS = ("key", "value", HEADERS, "partition", "offset", "timestamp", "timestampType")

_HEADERS_ARROW = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


class _Header(msgspec.Struct):
    key: str
    value: str | None = None


_DECODER = msgspec.json.Decoder(list[_Header])


def with_headers(records: pa.RecordBatch) -> pa.RecordBatch:
    """The records with their headers as `list<struct<key: string, value: binary>>` again."""
    index = records.schema.get_field_index("headers")
    headers = pa.array([_decoded(text) for text in records.column(index).to_pylist()], _HEADERS_ARROW)
    return records.set_column(index, pa.field("headers", _HEADERS_ARROW), headers)


def _decoded(text: str | None) -> list[dict[str, str | bytes | None]] | None:
    if text is None:
        return None
    return [
        {"key": header.key, "value": None if header.value is None else base64.b64decode(header.value)}
        for header in _DECODER.decode(text)
    ]
