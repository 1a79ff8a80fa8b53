"""Records of Debezium's connector as they were captured (`python -m tests.debezium.capture`): keys, values, headers.

`postgresql` has every kind of record, in Connect's JSON with schemas; `schemaless` those of a worker with
`schemas.enable=false` and the default converter of headers; `unwrapped` those of `ExtractNewRecordState`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

Name: TypeAlias = Literal["postgresql", "schemaless", "unwrapped"]
NAMES: tuple[Name, ...] = ("postgresql", "schemaless", "unwrapped")
_ENVELOPE = ('{"schema":', ',"payload":', "}")


@dataclass(frozen=True, slots=True)
class Sample:
    """A record of Kafka.

    Attributes:
        timestamp: In milliseconds.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def samples(name: Name) -> list[Sample]:
    """The records of a capture, in the order of topics and of offsets in each."""
    document = json.loads(_path(name).read_text())
    schemas: list[str] = document["schemas"]

    def read(part: Any) -> bytes | None:
        if part is None:
            return None
        if isinstance(part, str):
            return part.encode()
        begin, middle, end = _ENVELOPE
        return f"{begin}{schemas[part[0]]}{middle}{part[1]}{end}".encode()

    return [
        Sample(
            *(each["topic"], each["partition"], each["offset"], each["timestamp"], read(each["key"])),
            read(each["value"]),
            tuple((header, read(value)) for header, value in each["headers"]),
        )
        for each in document["records"]
    ]


def write_samples(name: Name, records: Iterable[Sample]) -> None:
    """Keep a capture; each schema stands there once."""
    schemas: dict[str, int] = {}

    def kept(data: bytes | None) -> Any:
        if data is None:
            return None
        begin, middle, end = _ENVELOPE
        text = data.decode()
        if not text.startswith(begin):
            return text
        decoder = json.JSONDecoder()
        _, at = decoder.raw_decode(text, len(begin))
        schema, rest = text[len(begin) : at], text[at:]
        assert rest.startswith(middle) and rest.endswith(end), text
        return [schemas.setdefault(schema, len(schemas)), rest[len(middle) : -len(end)]]

    lines = [
        json.dumps(
            {
                "topic": each.topic,
                "partition": each.partition,
                "offset": each.offset,
                "timestamp": each.timestamp,
                "key": kept(each.key),
                "value": kept(each.value),
                "headers": [[header, kept(value)] for header, value in each.headers],
            },
            ensure_ascii=False,
        )
        for each in records
    ]
    listed = ",\n".join(json.dumps(each, ensure_ascii=False) for each in schemas)
    _path(name).write_text(f'{{"schemas": [\n{listed}\n],\n"records": [\n' + ",\n".join(lines) + "\n]}\n")


def _path(name: Name) -> Path:
    return Path(__file__).with_name(f"{name}.json")
