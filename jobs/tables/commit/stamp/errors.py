"""Errors of commits, and the errors that stop a stream."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from jobs.base.errors import FrazilError, StreamStopped
from jobs.tables.commit.stamp.offsets import Ranges

_BEGUN = "the stream's own table from its `start`, any other with what comes from then on"


class HeadMovedError(Exception):
    """Somebody committed to the table since its head was read; nothing of ours landed.

    Attributes:
        final: No copy of the commit can be under way, so that what was written for it may be deleted.
    """

    def __init__(self, message: str = "", *, final: bool = False) -> None:
        super().__init__(message)
        self.final: bool = final


class CatalogFailedError(HeadMovedError):
    """The catalog failed a commit, though the table is as it was read; nothing of ours has landed so far.

    To be tried again like a moved head: whichever copy of the commit comes first refuses the others.
    """


class FencedError(FrazilError):
    """Another driver has taken the stream over; this one must not commit any more."""

    def __init__(self, stream: str, ours: int, theirs: int, where: str) -> None:
        super().__init__(
            f"stream {stream}: another driver took over (epoch {theirs} on {where}; this one has {ours}). "
            "Nothing more is committed from here."
        )


class LeaseLostError(FencedError):
    """This driver's lease is no longer its own, though no other driver is known to have taken the stream over."""

    def __init__(self, stream: str, epoch: int, why: str) -> None:
        FrazilError.__init__(
            self,
            f"stream {stream}: {why} (epoch {epoch}). Nothing more is committed from here.",
            fix=f"frazil status {stream}",
        )


class LeaseExpiredError(LeaseLostError):
    """This driver did not renew its lease in time; whether or not another took it, it is lost for good."""

    def __init__(self, stream: str, epoch: int, age_seconds: float, ttl_seconds: float) -> None:
        super().__init__(
            stream,
            epoch,
            f"the lease ran out: it was not renewed for {age_seconds:,.1f} s and holds for {ttl_seconds:g} s; "
            "the host was suspended, the process stopped, or its state folder could not be written",
        )


class CommitUnknownError(FrazilError):
    """The catalog did not say whether a commit landed, and could not be asked again in time; files are kept."""


class CommitRefusedError(FrazilError):
    """The catalog refused a commit again and again; nothing of it landed."""


class CommitDeniedError(StreamStopped):
    """The catalog refused a commit for what it is or for whose it is; nothing of it landed, and nothing ever will."""


class GapError(StreamStopped):
    """Records would be passed over."""


class RolledBackError(StreamStopped):
    """Somebody rolled a target back to before the stream's last commit."""


class _TableStop(StreamStopped):
    """A target stops the stream."""

    def __init__(self, message: str, *, fix: str | None = None, table: str = "") -> None:
        super().__init__(message, fix=fix)
        self.table: str = table


class TargetRecreatedError(_TableStop):
    """A target is not the table that the stream wrote before."""


class TableGoneError(TargetRecreatedError):
    """A target was dropped, or renamed."""


class TableForbiddenError(_TableStop):
    """The catalog does not let this user load a target."""


class TableDroppedError(FrazilError):
    """A table that values name was dropped under a driver: whoever opens the stream next begins it anew."""


class TableUnableError(FrazilError):
    """A table that is to be parked takes no commits: whoever opens the stream next parks it."""


class TopicRecreatedError(StreamStopped):
    """A topic was deleted and created again: its offsets begin anew."""


class TopicLostError(StreamStopped):
    """A topic is gone before it was read to its end."""


class OffsetsLostError(StreamStopped):
    """Kafka's retention removed records before they were read."""


@dataclass(frozen=True, slots=True)
class HalfCommitted:
    """A batch that some targets have and others lack, which recovery has to finish.

    Attributes:
        have: Targets that committed it.
        lack: Targets that had to and did not.
    """

    have: tuple[str, ...]
    lack: tuple[str, ...]
    config: str
    ranges: Ranges


class HalfCommittedError(StreamStopped):
    """A batch is on some targets only, its pending record is lost, and the configuration has changed since."""

    def __init__(self, message: str, half: HalfCommitted, *, fix: str | None = None) -> None:
        super().__init__(message, fix=fix)
        self.half: HalfCommitted = half


class ToleranceError(StreamStopped):
    """A record failed, and the stream tolerates none; or too many did.

    Args:
        failed: Records of the batch that failed.
        read: All of its records.
    """

    def __init__(self, message: str, *, fix: str | None = None, failed: int = 0, read: int = 0) -> None:
        super().__init__(message, fix=fix)
        self.failed: int = failed
        self.read: int = read


class UnaccountedRecordsError(StreamStopped):
    """A batch does not add up: records that were read neither landed nor are dead letters, tombstones or filtered."""


class SchemaChangeError(StreamStopped):
    """A record needs a change of its table for which the stream is to stop."""


class DamagedPropertyError(FrazilError):
    """A property of a table that frazil writes does not say any more what it says there."""


class NothingToAcceptError(FrazilError):
    """The stream is not stopped for the reason that was given."""


def unaccounted(stream: str, difference: str) -> UnaccountedRecordsError:
    """The error that stops a stream whose batch does not add up."""
    return UnaccountedRecordsError(
        f"stream {stream}: the batch does not add up: {difference}. Nothing of it was committed, and no record is "
        "lost. This is a fault of frazil.",
        fix=f"frazil preview {stream}, which shows what each step makes of the next records; please report it. The "
        f"stream goes on with `frazil start {stream}` once the step at fault is changed or left out",
    )


def table_gone(stream: str, table: str) -> TableGoneError:
    """The error that stops a stream whose table was there before and is no more."""
    return TableGoneError(
        f"stream {stream}: table {table} is gone, and what the stream had landed in it.",
        fix=f"restore the table, or `frazil accept {stream} --recreated {table}` to begin it anew, {_BEGUN}",
        table=table,
    )


def damaged_property(stream: str, table: str, name: str, problem: Exception, meaning: str) -> DamagedPropertyError:
    """The error of a table property that frazil writes, and that somebody else has written or cut.

    Args:
        table: Its name; empty where that is not known.
        meaning: A sentence, what it means to remove it.
    """
    whose, why = f"table {table}" if table else "its table", f"{type(problem).__name__}: {problem}"
    return DamagedPropertyError(
        f"stream {stream}: the property {name} of {whose} is damaged ({why}).",
        fix="set it again as an older version of the table's metadata has it; or, in Spark: ALTER TABLE "
        f"{table or '…'} UNSET TBLPROPERTIES ('{name}'). {meaning}",
    )


def table_recreated(stream: str, table: str, before: str, now: str, *, empty: bool = False) -> TargetRecreatedError:
    """The error that stops a stream whose table is not the one that it wrote before.

    Args:
        before: The uuid of the table that the stream knows.
        now: The uuid of the one that is there.
        empty: The one that is there was made for the stream, and has no rows.
    """
    made = ", which was made for the stream and is empty" if empty else ""
    return TargetRecreatedError(
        f"stream {stream}: table {table} was dropped and created again (it was {before}, it is {now}{made}); "
        "what the stream had landed in it is gone.",
        fix=f"put the former table in the place of this one; or `frazil accept {stream} --recreated {table}` to begin "
        f"it anew, {_BEGUN}",
        table=table,
    )


def refuse_recreated(
    stream: str, before: Mapping[str, str], now: Mapping[str, str], empty: Collection[str] = ()
) -> None:
    """Check that tables are the ones that the stream wrote before.

    Args:
        before: Uuids by name, of the tables that the stream knows.
        now: The same, of the tables as they are.
        empty: The names of those that were made for the stream and have no rows.
    """
    for name, uuid in now.items():
        if before.get(name, uuid) != uuid:
            raise table_recreated(stream, name, before[name], uuid, empty=name in empty)
