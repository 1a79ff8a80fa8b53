"""Dead letters of Kafka Connect as the records that they were: where their headers say they come from."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from jobs.deadletter.connect_headers import CONNECT

_EXCEPTION = "exception.class.name"
_NUMBER = re.compile(r"\d{1,18}")

Headers = Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class Origin:
    """What the headers of one of Connect's dead letters say.

    Attributes:
        place: Topic, partition and offset of the record; None if the headers do not say.
        reason: What Connect said of it, in a sentence; None if it said nothing.
        kind: Of that the stage and the class of the exception alone, whose message may quote the record.
        headers: The record's own.
    """

    place: tuple[str, int, int] | None
    reason: str | None
    kind: str | None
    headers: list[tuple[str, bytes | None]]


def origin(headers: Headers) -> Origin:
    """Read the headers of one of Connect's dead letters.

    A letter that went through two queues has each of Connect's headers twice: the last one counts.
    """
    own: list[tuple[str, bytes | None]] = []
    said: dict[str, str | None] = {}
    for name, value in headers:
        if name.startswith(CONNECT):
            said[name.removeprefix(CONNECT)] = None if value is None else value.decode("utf-8", "replace")
        else:
            own.append((name, value))
    topic, partition, offset = said.get("topic"), said.get("partition") or "", said.get("offset") or ""
    place = None
    if topic and _NUMBER.fullmatch(partition) and int(partition) < 2**31 and _NUMBER.fullmatch(offset):
        place = topic, int(partition), int(offset)
    return Origin(place, _reason(said), _joined(said.get("stage"), said.get(_EXCEPTION)), own)


def _reason(said: dict[str, str | None]) -> str | None:
    told = ": ".join(part for part in (said.get(_EXCEPTION), said.get("exception.message")) if part)
    return _joined(said.get("stage"), told, said.get("connector.name") and f"connector {said['connector.name']}")


def _joined(*parts: str | None) -> str | None:
    return ", ".join(part for part in parts if part) or None
