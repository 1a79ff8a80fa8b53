"""Reset request: the offsets that an operator asks for, parsed from text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, Protocol

from jobs.tables.commit.recovery.reset import ResetRefusedError
from jobs.tables.commit.stamp.log_state import LogState
from jobs.tables.commit.stamp.offsets import Positions, TopicPartition

_OFFSET = re.compile(r"([A-Za-z0-9._-]+):(\d{1,10})=(\d{1,18})")
_SCOPE = re.compile(r"([A-Za-z0-9._-]+)(?::(\d{1,10}))?")
_FORMS = "earliest, latest, a time such as 2026-01-31T08:00:00Z, or topic:partition=offset, several with commas"


class OffsetsByTime(Protocol):
    """Lookup of the offset at a time."""

    def at_time(self, partitions: list[TopicPartition], millis: int) -> Positions:
        """First offset that is not older, or the end if there is none."""
        ...


@dataclass(frozen=True, slots=True)
class ResetRequest:
    """A checked request.

    Attributes:
        to: Text as given.
        only: Topics, or partitions as `topic:partition`, as given; empty for the whole stream.
        target: Parsed `to`.
    """

    to: str
    only: tuple[str, ...]
    target: Literal["earliest", "latest"] | datetime | Mapping[TopicPartition, int]

    def offsets(self, stream: str, log: LogState, log_times: OffsetsByTime) -> dict[TopicPartition, int]:
        """New offset of every partition in the request.

        Raises:
            ResetRefusedError: The stream has no such topic or partition.
        """
        if isinstance(self.target, Mapping):
            return dict(self.target)
        concerned = self._concerned(stream, log)
        if isinstance(self.target, datetime):
            return dict(log_times.at_time(concerned, int(self.target.timestamp() * 1000)))
        at = log.earliest if self.target == "earliest" else log.latest
        return {partition: at[partition] for partition in concerned}

    def _concerned(self, stream: str, log: LogState) -> list[TopicPartition]:
        every = sorted(log.earliest)
        if not self.only:
            return every
        concerned: set[TopicPartition] = set()
        for scope in self.only:
            topic, _, number = scope.partition(":")
            found = [each for each in every if each.topic == topic and number in ("", str(each.partition))]
            if not found:
                raise ResetRefusedError(
                    f"stream {stream} reads no {'partition' if number else 'topic'} {scope}.",
                    fix=f"name one of {', '.join(sorted(log.topics)) or 'the topics, once they exist'}",
                )
            concerned.update(found)
        return sorted(concerned)

    @property
    def arguments(self) -> str:
        """The request as options of `frazil reset-offsets`."""
        return " ".join([f"--to {self.to}", *(f"--topic {each}" for each in self.only)])


def reset_request(to: str, only: tuple[str, ...] = ()) -> ResetRequest:
    """Parse a request.

    Args:
        to: `earliest`, `latest`, a time with its zone, or `topic:partition=offset`, several separated by commas.
        only: Topics or `topic:partition`; empty for the whole stream.

    Raises:
        ResetRefusedError: The text is not valid.
    """
    to = to.strip()
    for scope in only:
        if not _SCOPE.fullmatch(scope):
            raise ResetRefusedError(f"'{scope}' is no topic and no partition.", fix="write --topic NAME, or NAME:3")
    if to == "earliest" or to == "latest":
        return ResetRequest(to, only, to)
    if "=" in to:
        if only:
            raise ResetRefusedError("Offsets name their topics themselves.", fix="leave --topic out")
        return ResetRequest(to, (), _offsets(to))
    return ResetRequest(to, only, _time(to))


def explicit_offsets(positions: Positions) -> str:
    """Positions as text for `--to`."""
    return ",".join(f"{at.topic}:{at.partition}={offset}" for at, offset in sorted(positions.items()))


def _offsets(to: str) -> dict[TopicPartition, int]:
    offsets: dict[TopicPartition, int] = {}
    for part in to.split(","):
        match = _OFFSET.fullmatch(part.strip())
        if match is None:
            raise ResetRefusedError(f"'{part.strip()}' names no offset.", fix="write topic:partition=offset")
        partition = TopicPartition(match[1], int(match[2]))
        if partition in offsets:
            raise ResetRefusedError(f"{match[1]}:{match[2]} is there twice.", fix="name each partition once")
        offsets[partition] = int(match[3])
    return offsets


def _time(to: str) -> datetime:
    try:
        time = datetime.fromisoformat(to)
    except ValueError:
        raise ResetRefusedError(f"'{to}' names no position.", fix=f"write {_FORMS}") from None
    if time.tzinfo is None:
        raise ResetRefusedError(f"The time {to} does not say its zone.", fix=f"write {to}Z, or {to}+01:00")
    return time.astimezone(UTC)
