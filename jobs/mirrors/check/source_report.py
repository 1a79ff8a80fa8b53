"""Report of a comparison of a mirror with its source, in numbers and in words."""

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
        key: Values of the key, in readable form.
        columns: Columns that differ, if both sides have the row.
        certain: True if no change that is still to be merged can be the reason.
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
        source: The connection and its table.
        looked_at: Number of compared buckets, of `BUCKETS`.
        source_rows, mirror_rows: Number of rows in these buckets.
        position: Log position of the source. All compared rows were committed before it.
        reached: Log position through which the mirror had all commits in the last comparison; None if unknown.
        wrong: Number of wrong keys by kind: `missing`, `extra`, `different`.
        unsettled: Number of keys by kind that differed both times, but may have a change that is still to be merged.
        again: Number of keys that were compared again.
        unread: Number of rows, in leaves that differ, that were not compared one by one.
        examples: Some of these keys, the wrong ones first.
        compared: Compared columns.
        left_out: Columns that were not compared, each with the reason.
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
    """Describe the comparison and its result."""
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
    """Describe a key that differs, and the columns that differ."""
    named = ", ".join(f"{name} = {value}" for name, value in found.key.items())
    where = f" in {', '.join(found.columns)}" if found.columns else ""
    return f"{named} is {_WORDS[found.what]}{where}"


def source_fix(spec: StreamSpec, found: SourceConsistency, *, changelog_agrees: bool, letters: int) -> str | None:
    """The next command; None if nothing is to be done.

    Args:
        changelog_agrees: Whether the mirror agrees with its changelog, as far as that is known.
        letters: Number of dead letters that have not been replayed.
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
    """Format a log position as PostgreSQL writes an LSN."""
    return f"{position >> 32:X}/{position & 0xFFFFFFFF:X}"
