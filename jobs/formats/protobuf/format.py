"""Protobuf: the format of records that are messages, behind the id of their schema and the indexes of the message.

Its decoders bring Google's parser, ptars and protoc along, so they are imported when a stream needs them.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from jobs.errors import FrazilError
from jobs.formats.registry_decoder import RegistryKind, registry_format
from jobs.formats.writer_schema import WriterDecoder, WriterSchema

_PACKAGES = ("google.protobuf", "grpc_tools", "ptars")


def _check_packages() -> None:
    if any(find_spec(name) is None for name in _PACKAGES):
        raise FrazilError("Protobuf needs packages that are not installed.", fix="pip install 'frazil[registry]'")


def _reference(schema: WriterSchema, options: Mapping[str, Any]) -> WriterDecoder:
    _check_packages()
    from jobs.formats.protobuf.reference import protobuf_reference

    return protobuf_reference(schema, options)


def _block(schema: WriterSchema, options: Mapping[str, Any]) -> WriterDecoder:
    _check_packages()
    from jobs.formats.protobuf.block import protobuf_block

    return protobuf_block(schema, options)


PROTOBUF = registry_format(
    "protobuf", RegistryKind("PROTOBUF", messages=True, more_fields=True), reference=_reference, block=_block
)
