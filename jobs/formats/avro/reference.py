"""Reference decoder of Avro: what the bytes of a record mean, one record at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema

from jobs.formats.avro.nodes import Node
from jobs.formats.avro.options import AvroOptions
from jobs.formats.avro.reading import Cursor, Read, reads
from jobs.formats.avro.schema import VALUE, avro_schema, is_struct, top_node
from jobs.formats.decoder import DECODE_VALUE, Decoded, Failure
from jobs.formats.problems import EMPTY_VALUE, MALFORMED_AVRO, TOO_DEEP, ValueProblem
from jobs.formats.writer_schema import WriterSchema
from jobs.schema.arrow_schema import rows_arrow_schema


class AvroReferenceDecoder:
    """Decodes records of one writer schema, one by one.

    Args:
        node: The schema.
    """

    def __init__(self, node: Node) -> None:
        self._schema: Schema = avro_schema(node)
        self._arrow: pa.Schema = rows_arrow_schema(self._schema)
        self._read: Read = reads(node)
        self._struct: bool = is_struct(node)

    @property
    def schema(self) -> Schema:
        """The fields of the records."""
        return self._schema

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decodes a block; a bad record becomes a failure, it never raises."""
        found: list[dict[str, Any]] = []
        positions: list[int] = []
        failures: list[Failure] = []
        for row, value in enumerate(values.to_pylist()):
            try:
                found.append(self._record(value))
            except ValueProblem as problem:
                failures.append(Failure(row, DECODE_VALUE, problem.error_class, problem.message, problem.field))
            else:
                positions.append(row)
        columns = [pa.array([each.get(field.name) for each in found], field.type) for field in self._arrow]
        rows = pa.RecordBatch.from_arrays(columns, schema=self._arrow)
        return Decoded(rows, np.array(positions, np.int64), failures, np.zeros(0, np.int64), {})

    def _record(self, data: bytes) -> dict[str, Any]:
        if not data:
            raise ValueProblem(EMPTY_VALUE, "needs an Avro record, found nothing")
        cursor = Cursor(data)
        try:
            found = self._read(cursor)
        except ValueProblem as problem:
            field = f"$.{VALUE}" if not self._struct else "$"
            raise ValueProblem(problem.error_class, problem.message, f"{field}{problem.field or ''}") from None
        except RecursionError:
            raise ValueProblem(TOO_DEEP, "needs a record that is nested less deep") from None
        if cursor.at < len(data):
            raise ValueProblem(MALFORMED_AVRO, "needs the end of the record, found more")
        return found if self._struct else {VALUE: found}


def make_reference(schema: WriterSchema, options: Mapping[str, Any]) -> AvroReferenceDecoder:
    """The reference decoder of a writer schema.

    Raises:
        BadWriterSchema: It cannot be read, or no column holds its records.
    """
    return AvroReferenceDecoder(top_node(schema, AvroOptions.of(options)))
