"""Which snapshots have to stay, and up to when the others may go: pure decisions on a table's metadata."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import msgspec
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH

from jobs.commit.history import history
from jobs.commit.long_properties import whole
from jobs.commit.stamps import PROPERTY_PREFIX, SUMMARY_KEY, Stamp, property_key
from jobs.errors import FrazilError
from jobs.maintain.branches import ancestors, current_at, down_to, staying, time_of
from jobs.spec.policy import Expire

READER_PREFIX = "frazil.reader."
"""Table property `frazil.reader.<name>`: the snapshot (its id, or an instant) that a reader goes on from."""

CEILING = timedelta(days=7)
"""What says no more than that it is there holds nothing that is older."""

# Of a write that is audited before it is published (Iceberg's write-audit-publish), and of its publication.
_STAGED, _PUBLISHED = "wap.id", "published-wap-id"


class StampsNotKeptError(FrazilError):
    """Snapshots say something of a stream that would be lost with them."""


@dataclass(frozen=True, slots=True)
class Hold:
    """Somebody who still needs snapshots.

    Attributes:
        what: `reader dashboards`, `ledger`.
        since: Snapshots from this instant on stay.
        why: A sentence without its full stop.
        warn: Whether somebody should look after it.
    """

    what: str
    since: datetime
    why: str
    warn: bool = False


@dataclass(frozen=True, slots=True)
class Cut:
    """Up to when snapshots go.

    Attributes:
        older_than: Those that are older go, but for `retain_last`.
        retain_last: So many of main stay in any case.
        going: How many go; never one between two that stay.
        staying: How many are left.
        holds: Those that keep snapshots which the policy would let go, the one that keeps most first.
        oldest_going: When the oldest of those that go was committed; None if none goes.
    """

    older_than: datetime
    retain_last: int
    going: int
    staying: int
    holds: tuple[Hold, ...] = ()
    oldest_going: datetime | None = None


class _Named(msgspec.Struct):
    stream: str


def streams_of(metadata: TableMetadata) -> list[str]:
    """Every stream that has stamped the table, by its properties and by what is left of its snapshots.

    Raises:
        ValueError: A stamp is none.
    """
    found = {key.removeprefix(PROPERTY_PREFIX) for key in metadata.properties if key.startswith(PROPERTY_PREFIX)}
    for snapshot in metadata.snapshots:
        text = snapshot.summary.additional_properties.get(SUMMARY_KEY) if snapshot.summary else None
        if text:
            found.add(msgspec.json.decode(text, type=_Named).stream)
    return sorted(found)


def refuse_unless_stamps_are_kept(metadata: TableMetadata, table: str) -> None:
    """See that all which snapshots say of streams stands in the table's properties as well.

    A stream that finds none of its stamped snapshots goes by the property, so that has to be its newest stamp. One
    whose table was rolled back is told by the difference of the two, which expiry would take away.

    Raises:
        StampsNotKeptError: Some of it does not.
    """
    try:
        for stream in streams_of(metadata):
            past = history(metadata, stream)
            text = whole(metadata.properties, property_key(stream))
            kept = Stamp.from_json(text).sequence if text else -1
            if past.stamped_ancestor and past.stamped_ancestor.sequence > kept:
                raise StampsNotKeptError(
                    f"table {table}: its property {property_key(stream)} is not the newest stamp of stream {stream} "
                    f"(sequence number {kept}, and {past.stamped_ancestor.sequence} in a snapshot), so no snapshot "
                    "expires: somebody has changed the table's properties.",
                    fix=f"let the stream commit once more, which sets it: frazil run {stream.partition('~')[0]}",
                )
            if past.rolled_back:
                raise StampsNotKeptError(
                    f"table {table} was rolled back to before the last commit of stream {stream}, which nobody has "
                    "answered; its snapshots tell what is gone, so none expires.",
                    fix=_answer(stream),
                )
    except (ValueError, KeyError, TypeError) as problem:
        raise StampsNotKeptError(
            f"table {table}: a stamp of a stream cannot be read, so no snapshot expires: {problem}.",
            fix="maintain the table with the version of frazil that writes to it",
        ) from None


def _answer(stream: str) -> str:
    base, _, part = stream.partition("~")
    if part:
        return f"frazil letters {base} --after-rollback WHY"
    return f"frazil accept {base} --rollback keep, or --rollback reland"


def readers(metadata: TableMetadata, now: datetime) -> Iterator[Hold]:
    """What the table's properties say of its readers, none of whom holds anything older than `CEILING`."""
    for key, text in sorted(metadata.properties.items()):
        if not key.startswith(READER_PREFIX):
            continue
        what = f"reader {key.removeprefix(READER_PREFIX)}"
        since = _position(metadata, text.strip())
        floor = now - CEILING
        if isinstance(since, str):
            yield Hold(what, floor, f"{key} = {text!r} {since}; it holds the last {CEILING.days} days", warn=True)
        elif since is None:
            yield Hold(what, now, f"{key} = {text} is no snapshot of the table any more; it holds nothing", warn=True)
        elif since < floor:
            said = f"it stands at {since:%Y-%m-%d %H:%M}, and nobody holds what is older than {CEILING.days} days"
            yield Hold(what, floor, said, warn=True)
        else:
            yield Hold(what, since, f"it goes on from {since:%Y-%m-%d %H:%M:%S} UTC")


def _position(metadata: TableMetadata, text: str) -> datetime | str | None:
    """Where a reader stands; None for a snapshot that is gone, and why where the text says neither."""
    if text.isdigit():
        snapshot = metadata.snapshot_by_id(int(text))
        return time_of(snapshot) if snapshot else None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return "is neither a snapshot's id nor an instant such as 2026-01-31T10:00:00Z"
    return current_at(metadata, at.replace(tzinfo=UTC) if at.tzinfo is None else at)


def cut(metadata: TableMetadata, policy: Expire, holds: Iterable[Hold], now: datetime, table: str) -> Cut:
    """Up to when snapshots go: by age, or by number if that takes more; but never what somebody holds.

    Raises:
        FrazilError: The branch main has an age limit of its own, by which Iceberg would take what somebody holds.
    """
    wanted = now - policy.keep
    if len(metadata.snapshots) > policy.max_snapshots:
        # In the order of commits: by time, a host whose clock is ahead would have the newest ones of others go.
        ordered = sorted(metadata.snapshots, key=lambda each: (each.sequence_number or 0, each.timestamp_ms))
        wanted = max(wanted, min(time_of(snapshot) for snapshot in ordered[-policy.max_snapshots :]))
    everybody = [*holds, *_promised(metadata, policy, now), *_staged(metadata, policy, now)]
    held = sorted(everybody, key=lambda hold: hold.since)
    needed = down_to(metadata, held[0].since) if held else now
    older_than = min(wanted, needed)
    main = metadata.refs.get(MAIN_BRANCH)
    if held and main and main.max_snapshot_age_ms is not None:
        of_main = now - timedelta(milliseconds=main.max_snapshot_age_ms)
        if of_main > needed:
            raise FrazilError(
                f"table {table}: its branch main has an age limit of its own, {main.max_snapshot_age_ms} ms, by which "
                f"Iceberg would take snapshots that are needed by {held[0].what}. Nothing expired.",
                fix=f"in Spark: ALTER TABLE {table} REPLACE BRANCH main, which sets none",
            )
    stay = staying(metadata, older_than, policy.min_snapshots, now)
    gone = [time_of(snapshot) for snapshot in metadata.snapshots if snapshot.snapshot_id not in stay]
    return Cut(
        older_than,
        policy.min_snapshots,
        len(gone),
        len(stay),
        tuple(hold for hold in held if hold.since < wanted or hold.warn or (hold is held[0] and needed < wanted)),
        min(gone, default=None),
    )


def _promised(metadata: TableMetadata, policy: Expire, now: datetime) -> Iterator[Hold]:
    if policy.time_travel is not None:
        since = current_at(metadata, now - policy.time_travel)
        yield Hold("expire.time_travel", since, "readers are promised to see so far back")


def _staged(metadata: TableMetadata, policy: Expire, now: datetime) -> Iterator[Hold]:
    """What was written to be audited and published later, and is on no branch yet: for as long as `expire.keep`."""
    reached = {each.snapshot_id for ref in metadata.refs.values() for each in ancestors(metadata, ref.snapshot_id)}
    summaries = [each.summary.additional_properties if each.summary else {} for each in metadata.snapshots]
    published = {summary.get(_PUBLISHED) for summary in summaries}
    for snapshot, summary in zip(metadata.snapshots, summaries, strict=True):
        staged, since = summary.get(_STAGED), time_of(snapshot)
        if staged and staged not in published and snapshot.snapshot_id not in reached and since >= now - policy.keep:
            yield Hold(f"staged write {staged}", since, f"its snapshot {snapshot.snapshot_id} is not published yet")
