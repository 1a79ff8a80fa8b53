"""Disagreements of a mirror and its source: which keys are wrong, and which may only have moved on meanwhile.

Both sides go on while they are compared. So keys that disagree are looked at again and again, each time the mirror
first and then the source, of whose rows it is known before which place of its log they were committed. Of a mirror that
has every change of the row that the source shows, another row can only be from a later change. It is wrong if the
source has all changes that the mirror had by then, and still that same row. Where the source has no row, the mirror's
is wrong if the source has had the change that it is from, and the mirror all that the source had then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from jobs.mirror.mirror_digests import MirrorRow
from jobs.mirror.source_place import MirrorPlace, SourcePlace
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
class _Shown:
    """A row that the source has shown.

    Attributes:
        version: Of the row.
        before: The row was committed before this place.
        greatest: Of the mirror, at its first look with every change of that row.
    """

    version: str
    before: int
    greatest: int | None = None


@dataclass(frozen=True, slots=True)
class _Kept:
    """A row that the mirror has kept, and the source has not shown.

    Attributes:
        row: The mirror's.
        greatest: Of the mirror, when it was seen first.
        before: Of the source, when it had the change that the row is from, and no row.
    """

    row: MirrorRow | None
    greatest: int | None
    before: int | None = None


class Disagreements:
    """The keys that disagree, and what is known of each.

    Args:
        keys: Those that may.

    Attributes:
        wrong: Those of which it is certain.
        pending: Those that have disagreed whenever they were looked at, while changes may be on their way.
        behind: Whether the source showed less than the mirror had at the last look: a standby that lags, or another
            database. Then no key is called wrong.
    """

    def __init__(self, keys: Iterable[Key]) -> None:
        self.wrong: dict[Key, Disagreement] = {}
        self.pending: dict[Key, Disagreement | None] = dict.fromkeys(keys)
        self.behind: bool = False
        self._since: dict[Key, _Shown | _Kept] = {}

    def look(
        self,
        ours: MirrorPlace,
        theirs: SourcePlace,
        mirror: Mapping[Key, MirrorRow],
        source: Mapping[Key, SourceRow],
    ) -> None:
        """Take in one more look at all that are pending.

        Args:
            ours: How far the mirror had come.
            theirs: What the source shows.
            mirror: Its rows of the pending keys.
            source: Its rows of them, looked at after the mirror's.
        """
        self.behind = theirs.is_behind(ours)
        for key in list(self.pending):
            have, there = mirror.get(key), source.get(key)
            if _agree(have, there):
                del self.pending[key]
                self._since.pop(key, None)
                continue
            self.pending[key] = found = _disagreement(key, have, there)
            known = self._since.get(key)
            if there is not None:
                certain, self._since[key] = _shown(known, ours, theirs, there.version)
            else:
                certain, self._since[key] = _kept(known, ours, theirs, have)
            if certain:
                self.wrong[key] = found
                del self.pending[key]


def _shown(known: _Shown | _Kept | None, ours: MirrorPlace, theirs: SourcePlace, version: str) -> tuple[bool, _Shown]:
    """Whether another row in the mirror is certainly wrong; and what is known of the source's."""
    if not isinstance(known, _Shown) or known.version != version:
        known = _Shown(version, theirs.before)
    elif ours.reached is not None and ours.reached >= known.before:
        known = known if known.greatest is not None else replace(known, greatest=ours.greatest)
        return _has_all(theirs, ours, known.greatest), known
    return False, known


def _kept(
    known: _Shown | _Kept | None, ours: MirrorPlace, theirs: SourcePlace, row: MirrorRow | None
) -> tuple[bool, _Kept]:
    """Whether a row in the mirror alone is certainly wrong; and what is known of it."""
    if not isinstance(known, _Kept) or known.row != row or known.greatest is None:
        known = _Kept(row, ours.greatest)
    elif known.before is not None:
        return ours.reached is not None and ours.reached >= known.before, known
    if _has_all(theirs, ours, known.greatest):
        known = replace(known, before=theirs.before)
    return False, known


def _has_all(theirs: SourcePlace, ours: MirrorPlace, greatest: int | None) -> bool:
    """Whether the source shows all changes that the mirror had when its greatest place was this one.

    A transaction ends behind its changes, so a standby may show that place and not the change. It has ended by the
    first part of any position behind it.
    """
    if greatest is None or ours.greatest is None or theirs.is_behind(ours):
        return False
    # What the mirror has was committed before it was read, and so before its source was, if that does not lag.
    return not theirs.standby or (ours.reached is not None and ours.reached > greatest)


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
