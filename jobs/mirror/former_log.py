"""Former log: what a mirror remembers of a topic that was made again, or whose log was cut, beside its new log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class FormerLog:
    """A topic's log of which the offsets were before those of the present one.

    Attributes:
        mixed: Whether the mirror has changes of it.
        partitions: How many it had; 0 if that is not known.
        behind: Partitions of the topic whose new log has not come past the greatest position of the former one.
        ends: By partition, the offset that it was read up to, 0 of one that is missing; None if that is not known.
    """

    mixed: bool = True
    partitions: int = 0
    behind: frozenset[int] = frozenset()
    ends: Mapping[int, int] | None = None

    def may_have(self, partition: int, offset: int) -> bool:
        """Whether a change may be of it that stands at an offset of a partition."""
        return self.ends is None or offset < self.ends.get(partition, 0)

    def with_later(self, later: FormerLog) -> FormerLog:
        """What is remembered where the topic was made again once more.

        Args:
            later: Of the log that came after this one.
        """
        ends: dict[int, int] | None = None
        if self.ends is not None and later.ends is not None:
            ends = {n: max(self.ends.get(n, 0), later.ends.get(n, 0)) for n in {*self.ends, *later.ends}}
        mixed, partitions = self.mixed or later.mixed, later.partitions or self.partitions
        return FormerLog(mixed, partitions, later.behind, ends)

    def to_json(self) -> list[Any]:
        """Compact: the attributes in their order."""
        ends = None if self.ends is None else {str(n): at for n, at in sorted(self.ends.items())}
        return [int(self.mixed), self.partitions, sorted(self.behind), ends]

    @staticmethod
    def from_json(packed: list[Any]) -> FormerLog:
        """The inverse of `to_json`."""
        mixed, partitions, behind, ends = packed
        of = None if ends is None else {int(n): int(at) for n, at in ends.items()}
        return FormerLog(bool(mixed), int(partitions), frozenset(behind), of)


def former_logs(packed: Mapping[str, list[Any]] | Iterable[str]) -> dict[str, FormerLog]:
    """By topic, what a stamp says; names alone, as stamps have had them, say that the mirror has changes of both."""
    if isinstance(packed, Mapping):
        return {topic: FormerLog.from_json(each) for topic, each in packed.items()}
    return {topic: FormerLog() for topic in packed}
