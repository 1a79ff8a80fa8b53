"""Report of a comparison of a mirror with its source: what was found, in numbers and in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from jobs.config.stream.models import StreamSpec
from jobs.mirrors.check.consistency import BUCKETS, counts_sentence

_WORDS = {"missing": "missing", "extra": "there too much", "different": "different"}


@dataclass(frozen=True, slots=True)
class WrongKey:
    """Key with different rows in mirror and source.

    Attributes:
        what: `missing` in the mirror, `extra` there, or `different`.
        key: Its values, as people read them.
        columns: Columns that differ, if both sides have the row.
        certain: Whether no change that is on its way can be the reason.
    """

    what: str
    key: Mapping[str, str]
    columns: tuple[str, ...]
    certain: bool


@dataclass(frozen=True, slots=True)
class SourceConsistency:
    """Result of a comparison of a mirror with its source.

    Attributes:
        table: The mirror.
        source: The connection, and the table there.
        looked_at: How many buckets of `BUCKETS` were compared.
        source_rows, mirror_rows: Rows in them.
        position: What was compared was committed at the source before this place of its log.
        reached: Through which place the mirror has everything, at the last look; None: unknown.
        wrong: Keys that are wrong, by what they are: `missing`, `extra`, `different`.
        unsettled: Keys that disagreed to the end, while changes may be on their way; likewise.
        again: Keys that were looked at again.
        unread: Rows of leaves that disagree and were not looked at one by one.
        examples: The first of those, wrong ones before others.
        compared: Columns that were compared.
        left_out: Columns that were not, each with the reason.
    """

    table: str
    source: str
    looked_at: int
    source_rows: int
    mirror_rows: int
    position: int
    reached: int | None
    wrong: Mapping[str, int]
    unsettled: Mapping[str, int]
    again: int
    unread: int
    examples: tuple[WrongKey, ...]
    compared: tuple[str, ...]
    left_out: tuple[tuple[str, str], ...]

    @property
    def agrees(self) -> bool:
        """Whether every key agrees."""
        return not self.wrong and not self.unsettled and not self.unread


def source_sentence(found: SourceConsistency) -> str:
    """What was compared, and the result."""
    part = "All keys" if found.looked_at == BUCKETS else f"{found.looked_at} of {BUCKETS} buckets of keys"
    compared = (
        f"{part} of {found.table} were compared with source {found.source}, as of {lsn(found.position)} "
        f"({found.source_rows:,} rows there, {found.mirror_rows:,} in the mirror)"
    )
    left = [name for name, _ in found.left_out]
    without = f" Not compared: {', '.join(left)}." if left else ""
    if found.agrees:
        moved = f" {found.again:,} keys had changed meanwhile, and agreed later." if found.again else ""
        return f"{compared}: they are the same.{moved}{without}"
    said = [f"of its rows {counts_sentence(found.wrong)}"] if found.wrong else []
    if found.unsettled:
        reached = f"has come to {lsn(found.reached)}" if found.reached is not None else "names no position"
        said.append(f"{counts_sentence(found.unsettled)}, perhaps by changes on their way, as the mirror {reached}")
    if found.unread:
        said.append(f"{found.unread:,} rows of parts that disagree were not looked at one by one")
    first = f"; for instance {key_sentence(found.examples[0])}" if found.examples else ""
    return f"{compared}: {'; '.join(said)}{first}.{without}"


def key_sentence(found: WrongKey) -> str:
    """One key that disagrees, and in which columns."""
    named = ", ".join(f"{name} = {value}" for name, value in found.key.items())
    where = f" in {', '.join(found.columns)}" if found.columns else ""
    return f"{named} is {_WORDS[found.what]}{where}"


def source_fix(spec: StreamSpec, found: SourceConsistency, *, changelog_agrees: bool, letters: int) -> str | None:
    """The next command; None if nothing is to be done.

    Args:
        changelog_agrees: Whether the mirror is what its changelog says, as far as that is known.
        letters: Dead letters that have not come back.
    """
    if found.agrees:
        return None
    if not changelog_agrees:
        return f"frazil mirror rebuild {spec.stream} --table {found.table}"
    if found.wrong and letters:
        return f"frazil letters {spec.stream}"
    if found.wrong:
        return (
            "let the connector take a snapshot of the table (an incremental one, by a signal), then "
            f"frazil mirror run {spec.stream} --table {found.table}"
        )
    return f"frazil mirror status {spec.stream}, then frazil mirror check {spec.stream} --wait 10m"


def lsn(position: int) -> str:
    """A place in PostgreSQL's log, as PostgreSQL writes it."""
    return f"{position >> 32:X}/{position & 0xFFFFFFFF:X}"
