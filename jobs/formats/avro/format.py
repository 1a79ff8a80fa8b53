"""Avro: the format of records that are Avro's binary encoding, behind the id of their schema.

Its block decoder brings DataFusion along, so both decoders are imported when a stream needs them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jobs.errors import FrazilError
from jobs.formats.registry_decoder import RegistryKind, registry_format
from jobs.formats.writer_schema import WriterDecoder, WriterSchema


def _reference(schema: WriterSchema, options: Mapping[str, Any]) -> WriterDecoder:
    from jobs.formats.avro.reference import make_reference

    return make_reference(schema, options)


def _block(schema: WriterSchema, options: Mapping[str, Any]) -> WriterDecoder:
    try:
        from jobs.formats.avro.block import make_block
    except ModuleNotFoundError as problem:
        if problem.name != "datafusion":
            raise
        raise FrazilError(
            "Blocks of Avro records need a package that is not installed (datafusion).",
            fix="pip install 'frazil[registry]'",
        ) from None
    return make_block(schema, options)


AVRO = registry_format("avro", RegistryKind("AVRO"), reference=_reference, block=_block)
