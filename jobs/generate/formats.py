"""Generators by format: what makes values that a stream's decoder takes, and others that it refuses."""

from __future__ import annotations

import random

import pyarrow as pa

from jobs.errors import FrazilError
from jobs.formats.decoder_spec import ResolvedSchema, declared_of
from jobs.formats.known_formats import FORMATS
from jobs.formats.primitive.schema import COLUMN_TYPES
from jobs.generate.json_records import JsonGenerator
from jobs.generate.primitive_records import PrimitiveGenerator
from jobs.generate.record import FIRST_TIME, RecordGenerator

_TRIALS = 20


def generator_for(resolved: ResolvedSchema) -> RecordGenerator:
    """What makes values of a stream.

    Args:
        resolved: The rows that its values become, and their decoder.

    Raises:
        FrazilError: Values of this format, or of a type among the columns, cannot be generated.
    """
    kind = resolved.decoder.kind
    if kind == "json":
        made = JsonGenerator(declared_of(resolved.decoder))
    elif kind in COLUMN_TYPES:
        made = PrimitiveGenerator(kind, resolved.schema.fields[0].name)
    else:
        raise FrazilError(
            f"values of the format {kind} cannot be generated; those of json, {', '.join(COLUMN_TYPES)} can."
        )
    _require_lands(made, resolved)
    return made


def _require_lands(made: RecordGenerator, resolved: ResolvedSchema) -> None:
    """See that the stream's own decoder takes what is made."""
    values = [made.good(random.Random(number), FIRST_TIME) for number in range(_TRIALS)]
    decoder = FORMATS[resolved.decoder.kind].reference(resolved.decoder)
    if failures := decoder.decode(pa.array(values, pa.binary())).failures:
        where = f" at {failures[0].field}" if failures[0].field else ""
        raise FrazilError(f"values of this schema cannot be generated{where}: it {failures[0].message}")
