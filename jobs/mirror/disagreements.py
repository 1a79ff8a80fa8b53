"""Disagreements of a mirror and its source: which keys are wrong, and which may only have moved on meanwhile.

Both sides go on while they are compared. So keys that disagree are looked at again and again, each time the mirror
first and then the source, of whose rows it is known before which place of its log they were committed. A key is wrong
if the mirror has every change of an earlier look, the source has the same row as it had then, and the mirror another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from jobs.mirror.mirror_digests import MirrorRow
from jobs.mirror.source_rows import Key, SourceRow


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A key of which the two sides say different things.

    Attributes:
        key: The texts of its columns.
        what: `missing` in the mirror, `extra` there, or `different`.
        columns: The places of the columns that differ, of rows that both have.
    """

    key: Key
    what: str
    columns: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class _Since:
    source: str | None
    mirror: str | None
    position: int


class Disagreements:
    """The keys that disagree, and what is known of each.

    Args:
        keys: Those that may.

    Attributes:
        wrong: Those of which it is certain.
        pending: Those that have disagreed whenever they were looked at, while changes may be on their way.
    """

    def __init__(self, keys: Iterable[Key]) -> None:
        self.wrong: dict[Key, Disagreement] = {}
        self.pending: dict[Key, Disagreement | None] = dict.fromkeys(keys)
        self._since: dict[Key, _Since] = {}

    def look(
        self,
        reached: int | None,
        position: int,
        mirror: Mapping[Key, MirrorRow],
        source: Mapping[Key, SourceRow],
    ) -> None:
        """Take in one more look at all that are pending.

        Args:
            reached: Through which place of the source's log the mirror had all that was committed; None: nobody knows.
            position: What the source shows was committed before this place.
            mirror: Its rows of the pending keys.
            source: Its rows of them, looked at after the mirror's.
        """
        for key in list(self.pending):
            have, there = mirror.get(key), source.get(key)
            if _agree(have, there):
                del self.pending[key]
                self._since.pop(key, None)
                continue
            found = _disagreement(key, have, there)
            self.pending[key] = found
            known = self._since.get(key)
            version = there.version if there is not None else None
            # A row that is not at the source has no version: it may have come and gone. Then it is the mirror's that
            # has to be the same, as an earlier change has made it.
            mine = None if there is not None else have.order if have is not None else None
            if known is None or (known.source, known.mirror) != (version, mine):
                self._since[key] = _Since(version, mine, position)
            elif reached is not None and reached >= known.position:
                self.wrong[key] = found
                del self.pending[key]


def _agree(have: MirrorRow | None, there: SourceRow | None) -> bool:
    if have is None or there is None:
        return have is None and there is None
    return have.count == 1 and have.columns == there.columns


def _disagreement(key: Key, have: MirrorRow | None, there: SourceRow | None) -> Disagreement:
    if have is None:
        return Disagreement(key, "missing")
    if there is None or have.count > 1:
        return Disagreement(key, "extra")
    pairs = zip(have.columns.split(","), there.columns.split(","), strict=True)
    return Disagreement(key, "different", tuple(at for at, (mine, its) in enumerate(pairs) if mine != its))
