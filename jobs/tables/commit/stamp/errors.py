"""Errors of commits, and the errors that stop a stream."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from jobs.base.errors import FrazilError, StreamStopped
from jobs.base.spark_names import spark_name
from jobs.tables.commit.stamp.offsets import Ranges

_BEGUN = "the main table from its `start`, any other with records from then on"


class HeadMovedError(Exception):
    """Somebody committed to the table since its head was read; nothing of ours landed.

    Attributes:
        final: Whether no copy of the commit can be under way, so that its files may be deleted.
    """

    def __init__(self, message: str = "", *, final: bool = False) -> None:
        super().__init__(message)
        self.final: bool = final


class CatalogFailedError(HeadMovedError):
    """The catalog failed a commit, though the table is as it was read; nothing of ours has landed so far.

    Retried like a moved head: whichever copy of the commit lands first makes the others fail.
    """


class FencedError(FrazilError):
    """Another driver has claimed the stream with a newer epoch, so this one is a zombie.

    Safe: This driver commits nothing more.
    Next: `frazil status S` shows the driver that runs the stream
    """

    def __init__(self, stream: str, ours: int, theirs: int, where: str) -> None:
        super().__init__(
            f"stream {stream}: another driver took over (epoch {theirs} on {where}; this one has {ours}). "
            "Nothing more is committed from here."
        )


class LeaseLostError(FencedError):
    """The driver's lease has another owner, although no other driver is known.

    Safe: This driver commits nothing more.
    Next: `frazil status S`
    """

    def __init__(self, stream: str, epoch: int, why: str) -> None:
        FrazilError.__init__(
            self,
            f"stream {stream}: {why} (epoch {epoch}). Nothing more is committed from here.",
            fix=f"frazil status {stream}",
        )


class LeaseExpiredError(LeaseLostError):
    """The driver did not renew its lease in time.

    Safe: This driver commits nothing more.
    Next: `frazil status S`; the supervisor starts another driver
    """

    def __init__(self, stream: str, epoch: int, age_seconds: float, ttl_seconds: float) -> None:
        super().__init__(
            stream,
            epoch,
            f"the lease ran out: it was not renewed for {age_seconds:,.1f} s and is valid for {ttl_seconds:g} s; the "
            "host was suspended, the process stopped, or its state folder could not be written",
        )


class CommitUnknownError(FrazilError):
    """The catalog did not report whether a commit landed, and does not answer now.

    Safe: The files are kept. The next start looks for the commit.
    Next: `frazil status S` once the catalog answers
    """


class CommitRefusedError(FrazilError):
    """The catalog refused a commit repeatedly.

    Safe: Nothing of the commit landed.
    Next: repeat the command in some minutes
    """


class CommitDeniedError(StreamStopped):
    """The catalog refuses a commit for its content or for its user.

    Safe: Nothing of the commit landed. The pending record keeps the batch.
    Next: correct the user's rights in the catalog, or what it names; then `frazil start S`
    """


class GapError(StreamStopped):
    """Going on would skip records that were never read.

    Safe: Nothing of the batch was committed, and no record is lost.
    Next: name the former tables again in the stream's file, or begin at the offsets that the message names; then
        `frazil start S`
    """


class RolledBackError(StreamStopped):
    """A table, or its branch, was rolled back to before the stream's last commit.

    Safe: The message names the removed records. Nothing was committed since.
    Next: `frazil accept S --rollback keep` leaves the removed records out; `frazil accept S --rollback reland` lands
        them again

    A branch that was dropped or moved back counts as rolled back. So does a table that was restored from older
    metadata: put its newest metadata back, or give one of the answers. If it is only unknown whether a table still has
    the stream's last commit, run `frazil audit S --full` first; `keep` then goes on at the stream's position.

    If `main` of a published branch was rolled back, nothing is published. `frazil publish S --after-rollback again`
    publishes the removed rows again, and `frazil publish S --after-rollback leave-out` goes on without them.
    """


class _TableStop(StreamStopped):
    """A table of the stream stops it.

    Safe: Other tables keep what they have.
    Next: the command that the message names
    """

    def __init__(self, message: str, *, fix: str | None = None, table: str = "") -> None:
        super().__init__(message, fix=fix)
        self.table: str = table


class TargetRecreatedError(_TableStop):
    """A table was dropped and created again, or is not the one that the stream wrote.

    Safe: The other tables keep their rows. The former table's rows are lost unless it is restored.
    Next: restore the former table, or `frazil accept S --recreated TABLE` to start again with the new one

    An empty table of that name may come from a driver that paused while it created the table. Drop it, then restore the
    former table.
    """


class TableGoneError(TargetRecreatedError):
    """A table was dropped or renamed.

    Safe: The other tables keep their rows.
    Next: restore the table, or `frazil accept S --recreated TABLE` to start it again

    With `--recreated`, the stream's main table begins again at `source.start`. Any other table, and the dead
    letters, go on with later records; they lack their rows of an unfinished batch.
    """


class TableForbiddenError(_TableStop):
    """The catalog does not let the user read a table of the stream.

    Safe: Nothing of the batch was committed, and no record is lost.
    Next: let the user read and write the table; then `frazil start S`
    """


class MirrorTableError(_TableStop):
    """A stream's file names a table that is the mirror of a changelog.

    Safe: Nothing was landed. The mirror keeps its rows.
    Next: name another table in the stream's file; then `frazil start S`
    """


class TableDroppedError(FrazilError):
    """A dynamic table was dropped while the driver ran.

    Safe: Nothing of the batch was committed, and no record is lost.
    Next: none: the driver recreates the table when it reopens the stream; or `frazil run S`
    """


class TableUnableError(FrazilError):
    """A table with `on_table_error: park` takes no commits.

    Safe: The other tables have the batch, and dead letters keep the records of this one.
    Next: none for the stream, which suspends the table at its next opening; later `frazil accept S --unpark TABLE`,
        then `frazil replay S`
    """


class SinkRestartedError(_TableStop):
    """A connector commits to a table of the stream, although the stream has taken over from it.

    Safe: No record is lost. The stream commits nothing more to the table; records that both landed exist twice.
    Next: stop the connector. Roll each table back to before its first commit, then `frazil start S`; or keep its rows
        with `frazil takeover S --from-connect NAME --connect URL`, which names the offsets of the records that exist
        twice

    The message names the rollback of every table. If the connector's rows have to stay in one table, keep all of them.
    After the rollback, `frazil accept S --rollback reland` lands the stream's removed rows again. The second takeover
    goes on behind both the stream and the connector. If the connector also lands topics that the stream does not read,
    keep its rows: they cannot be landed again. If it shall go on with such topics, give it another
    `iceberg.control.topic` first.
    """


class TopicRecreatedError(StreamStopped):
    """A topic was deleted and created again, or its log was cut, so its offsets start again.

    Safe: Rows that have landed stay.
    Next: `frazil accept S --recreated-topic TOPIC` reads the topic from its beginning

    If the log was cut, as by an unclean leader election, the answer goes on at the first offset that differs from the
    read log. Landed rows stay, and the present records at those offsets land as well.
    """


class TopicLostError(StreamStopped):
    """A topic was deleted before it was read to its end.

    Safe: Rows that have landed stay. The message names the unread records.
    Next: `frazil accept S --lost-topic TOPIC` goes on without them
    """


class OffsetsLostError(StreamStopped):
    """Kafka's retention removed records before they were read.

    Safe: Rows that have landed stay. The message names the lost offsets.
    Next: `frazil accept S --lost-offsets` goes on behind them
    """


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
    """A batch is in some tables only, its pending record is lost, and the configuration has changed since.

    Safe: The message names the tables and the offsets. No further batch is read.
    Next: put the stream's file back, `frazil run S` once, then change it again
    """

    def __init__(self, message: str, half: HalfCommitted, *, fix: str | None = None) -> None:
        super().__init__(message, fix=fix)
        self.half: HalfCommitted = half


class ToleranceError(StreamStopped):
    """A record failed although the stream tolerates none, or more records failed than `errors.stop_above` allows.

    Safe: Nothing of the batch was committed, and no record is lost.
    Next: correct the producer, `decode.schema` or the limit; then `frazil start S`

    Args:
        failed: Records of the batch that failed.
        read: All of its records.
    """

    def __init__(self, message: str, *, fix: str | None = None, failed: int = 0, read: int = 0) -> None:
        super().__init__(message, fix=fix)
        self.failed: int = failed
        self.read: int = read


class UnaccountedRecordsError(StreamStopped):
    """A batch does not add up: some records neither landed nor are dead letters, tombstones or filtered.

    Safe: Nothing of the batch was committed, and no record is lost.
    Next: `frazil preview S` shows each step; change the step at fault, then `frazil start S`
    """


class SchemaChangeError(StreamStopped):
    """A record needs a schema change for which `evolve` stops the stream, or which its table cannot take.

    Safe: Nothing of the batch was committed, and no record is lost.
    Next: alter the table, or change `evolve` in the stream's file; then `frazil start S`
    """


class DamagedPropertyError(FrazilError):
    """A table property that frazil writes was changed or cut by somebody else.

    Safe: Nothing was changed.
    Next: restore the property from an older version of the table's metadata, or unset it as the message shows
    """


class NothingToAcceptError(FrazilError):
    """The stream is not stopped for the reason that an answer names.

    Safe: Nothing was changed.
    Next: `frazil status S`, whose message names the answer
    """


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
        f"stream {stream}: table {table} was dropped, with the rows that the stream had landed in it.",
        fix=f"restore the table, or `frazil accept {stream} --recreated {table}` to start it again, {_BEGUN}",
        table=table,
    )


def damaged_property(stream: str, table: str, name: str, problem: Exception, meaning: str) -> DamagedPropertyError:
    """The error of a table property that frazil writes, and that somebody else has written or cut.

    Args:
        table: Name of the table; empty if it is not known.
        meaning: A sentence on the effect of removing the property.
    """
    whose, why = f"table {table}" if table else "its table", f"{type(problem).__name__}: {problem}"
    return DamagedPropertyError(
        f"stream {stream}: the property {name} of {whose} is damaged ({why}).",
        fix="set it again as an older version of the table's metadata has it; or, in Spark: ALTER TABLE "
        f"{spark_name(table) if table else '…'} UNSET TBLPROPERTIES ('{name}'). {meaning}",
    )


def table_recreated(stream: str, table: str, before: str, now: str, *, empty: bool = False) -> TargetRecreatedError:
    """The error that stops a stream whose table is not the one that it wrote before.

    Args:
        before: Uuid of the table that the stream knows.
        now: Uuid of the existing table.
        empty: Whether the existing table was created for the stream and has no rows.
    """
    made = ", which was made for the stream and is empty" if empty else ""
    return TargetRecreatedError(
        f"stream {stream}: table {table} was dropped and created again (it was {before}, it is {now}{made}); the rows "
        "that the stream had landed in it are lost.",
        fix=f"restore the former table in place of this one; or `frazil accept {stream} --recreated {table}` to start "
        f"it again, {_BEGUN}",
        table=table,
    )


def refuse_recreated(
    stream: str, before: Mapping[str, str], now: Mapping[str, str], empty: Collection[str] = ()
) -> None:
    """Check that tables are the ones that the stream wrote before.

    Args:
        before: Uuids of the tables that the stream knows, by name.
        now: Uuids of the existing tables, by name.
        empty: The names of those that were made for the stream and have no rows.
    """
    for name, uuid in now.items():
        if before.get(name, uuid) != uuid:
            raise table_recreated(stream, name, before[name], uuid, empty=name in empty)
