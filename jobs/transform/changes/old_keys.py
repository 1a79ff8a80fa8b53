"""Old keys: what a record's header says of the key that its row had before.

Debezium writes an update of a primary key as a deletion under the old key and a creation under the new one, whose
header `__debezium.oldkey` is the old key. How it is written is for Connect's converter of headers to say: as JSON,
as JSON with its schema, or as keys are.
"""

# pyarrow.compute makes its functions when it is imported, so a type checker sees none of them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import types as ice
from pyiceberg.schema import Schema

from jobs.formats.decoder_spec import DecoderSpec, TableSchema
from jobs.formats.known_formats import FORMATS
from jobs.formats.problems import BAD_ENVELOPE
from jobs.schema.arrow_schema import rows_arrow_type
from jobs.schema.field_ids import fresh_schema
from jobs.transform.masks import mask_of
from jobs.transform.set_columns import last_header
from jobs.transform.transform import RowFailure, Rows

HEADER = "__debezium.oldkey"
_WITH_SCHEMA = rb'^\s*\{\s*"(schema|payload)"\s*:'


def old_keys(rows: Rows, key: ice.StructType, keys: DecoderSpec | None) -> tuple[pa.Array | None, list[RowFailure]]:
    """The old keys of records, as structs; None where no record has one.

    Args:
        rows: With the headers.
        key: The type of keys.
        keys: What decodes keys; None where a key is a single value.
    """
    raw = last_header(rows.frame, HEADER)
    at = np.flatnonzero(mask_of(raw.is_valid()))
    if not len(at):
        return None, []
    values = raw.take(pa.array(at))
    json = mask_of(pc.match_substring_regex(values, r"^\s*\{"))
    wrapped = mask_of(pc.match_substring_regex(values, _WITH_SCHEMA.decode()))
    kind = rows_arrow_type(key)
    parts, order, failures = list[pa.Array](), list[np.ndarray](), list[RowFailure]()
    for which, decoder in (
        (wrapped, _of(key, "connect_json")),
        (json & ~wrapped, _of(key, "json")),
        (~json & ~wrapped, keys),
    ):
        mine = np.flatnonzero(which)
        if not len(mine):
            continue
        if decoder is None:
            failures += [_unread(int(row), "another form") for row in at[mine]]
            continue
        decoded = FORMATS[decoder.kind].reference(decoder).decode(values.take(pa.array(mine)))
        failures += [_unread(int(at[mine[each.row]]), each.message) for each in decoded.failures]
        arrays = [
            each if each.type.equals(field.type) else each.cast(field.type)
            for each, field in zip(decoded.rows.columns, kind, strict=True)
        ]
        parts.append(pa.StructArray.from_arrays(arrays, fields=list(kind)))
        order.append(at[mine[decoded.positions]])
    if not parts:
        return None, failures
    indices = np.full(rows.count, -1, np.int64)
    indices[np.concatenate(order)] = np.arange(sum(map(len, parts)))
    return pa.concat_arrays(parts).take(pa.array(indices, mask=indices < 0)), failures


def _of(key: ice.StructType, kind: str) -> DecoderSpec:
    rows: Schema = fresh_schema(key.fields)
    return DecoderSpec(kind, TableSchema(rows.model_dump_json()), {"unknown_fields": "ignore"})


def _unread(row: int, said: str) -> RowFailure:
    message = f"needs a key in the header {HEADER}, as JSON or as keys are written, found none: {said}"
    return RowFailure(row, BAD_ENVELOPE, message, "$._change_old_key")
