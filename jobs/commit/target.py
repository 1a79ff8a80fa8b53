"""A target of a stream, the sink table or its dead letters: read its stamps, claim it, commit on it."""

from __future__ import annotations

import enum
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from jobs.commit import history
from jobs.commit.decide import Ranges, need
from jobs.commit.errors import CommitRefusedError, FencedError, HeadMovedError, TargetRecreatedError
from jobs.commit.offsets import Positions, pointwise_max
from jobs.commit.producer import append_once
from jobs.commit.refusals import Pauses
from jobs.commit.rollback import rolled_back
from jobs.commit.stamp_parts import Counts
from jobs.commit.stamps import SUMMARY_KEY, Stamp, property_key
from jobs.schema.compatibility import still_fits
from jobs.steps import step
from jobs.write.partition_limits import in_manifests

log = logging.getLogger(__name__)

MAX_REFUSALS = 50
_ACCESS_SECONDS = 600.0


class Outcome(enum.Enum):
    """What became of a commit."""

    LANDED = "landed"
    RUN_AGAIN = "run again"


@dataclass(frozen=True, slots=True)
class Seen:
    """What the tasks saw of a table when they wrote their files."""

    uuid: str
    schema: Schema
    schema_id: int
    spec_id: int


class Target:
    """One table that a stream commits to.

    Args:
        catalog: Where the table is; loaded anew only when somebody else has committed.
        name: Its full name, such as `orders.payments`.
        stream: The stream's id.
    """

    def __init__(self, catalog: Catalog, name: str, stream: str) -> None:
        self.name: str = name
        self.stream: str = stream
        self.refusals: int = 0
        self._catalog: Catalog = catalog
        self.table: Table = catalog.load_table(name)
        # Kept apart from `table`: a refused commit loads the table anew, and may find another one.
        self._first_uuid: str = self.uuid
        self.newest: Stamp | None = None
        self._accessed: float = time.monotonic()

    @property
    def uuid(self) -> str:
        """Iceberg's identity of the table, which a table of the same name created later does not share."""
        return str(self.table.metadata.table_uuid)

    @property
    def snapshot_id(self) -> int | None:
        """The head of main, as last loaded."""
        snapshot = self.table.metadata.current_snapshot()
        return snapshot.snapshot_id if snapshot else None

    def renew_access(self) -> None:
        """Take new credentials for the table's files from the catalog, if the last ones have some age.

        A catalog may hand out credentials that live for an hour or less, and a driver lives for months.
        """
        if time.monotonic() - self._accessed < _ACCESS_SECONDS:
            return
        try:
            fresh = self._catalog.load_table(self.name)
        except NoSuchTableError:
            raise gone(self.stream, self.name) from None
        if str(fresh.metadata.table_uuid) == self.uuid:
            self.table.io = fresh.io
        self._accessed = time.monotonic()

    def seen(self) -> Seen:
        """The table as a task is about to see it."""
        metadata = self.table.metadata
        return Seen(self.uuid, metadata.schema(), metadata.current_schema_id, metadata.default_spec_id)

    def read(self) -> Stamp | None:
        """Load the table and its newest stamp.

        Raises:
            RolledBackError: An operator rolled the table back to before the stream's last commit.
            TargetRecreatedError: The table is gone, or another one has its name.
        """
        before = self._first_uuid
        try:
            self.table = self._catalog.load_table(self.name)
        except NoSuchTableError:
            raise gone(self.stream, self.name) from None
        if self.uuid != before:
            raise recreated(self.stream, self.name, before, self.uuid)
        past = history.history_of(self.table, self.stream)
        if past.rolled_back:
            raise rolled_back(self.stream, self.name, past)
        self.newest = past.newest
        return self.newest

    def restamp(self, stamp: Stamp) -> None:
        """Commit an empty snapshot with an operator's decision on exactly the head that was read.

        Raises:
            HeadMovedError: Somebody committed meanwhile.
        """
        self._append(stamp, ())

    def past(self) -> history.History:
        """What the table says of the stream, also after a rollback, which `read` refuses."""
        self.table = self._catalog.load_table(self.name)
        past = history.history_of(self.table, self.stream)
        self.newest = past.newest
        return past

    def greatest_epoch(self) -> int:
        """The greatest epoch that any stamp of the stream on this table carries."""
        return history.greatest_epoch(self.table.metadata, self.stream)

    def refuse_later_claim(self, epoch: int) -> None:
        """Ask the catalog whether a later driver has been here.

        Raises:
            FencedError: One has.
        """
        try:
            theirs = history.greatest_epoch(self._catalog.load_table(self.name).metadata, self.stream)
        except NoSuchTableError:
            raise gone(self.stream, self.name) from None
        if theirs > epoch:
            raise FencedError(self.stream, epoch, theirs, self.name)

    def claim(self, epoch: int, make: Callable[[Stamp | None], Stamp]) -> Stamp:
        """Commit an empty snapshot under `epoch`, so that no driver of an older epoch can commit after it.

        Args:
            epoch: This driver's epoch.
            make: Makes the claim from the newest stamp; called again when the head moved.

        Raises:
            FencedError: A driver of the same or a later epoch was here.
        """
        return self._claim(epoch, make, below=epoch)

    def claim_again(self, epoch: int, make: Callable[[Stamp], Stamp]) -> Stamp:
        """Commit an empty snapshot on a table that this driver has claimed, in place of what its stamp says.

        Args:
            epoch: This driver's epoch.
            make: Makes the claim from the newest stamp; called again when the head moved.

        Raises:
            FencedError: A driver of a later epoch was here.
        """

        def of_ours(newest: Stamp | None) -> Stamp:
            assert newest is not None, f"{self.name} was claimed before"
            return make(newest)

        return self._claim(epoch, of_ours, below=epoch + 1)

    def _claim(self, epoch: int, make: Callable[[Stamp | None], Stamp], *, below: int) -> Stamp:
        pauses = Pauses()
        while True:
            newest = self.read()
            if newest and newest.epoch >= below:
                raise FencedError(self.stream, epoch, newest.epoch, self.name)
            stamp = make(newest)
            try:
                self._append(stamp, ())
            except HeadMovedError as moved:
                self._again(pauses, moved)
                continue
            return stamp

    def commit(
        self,
        stamp: Stamp,
        files: Sequence[DataFile],
        *,
        seen: Seen,
        batch: Ranges,
        position: Positions,
    ) -> Outcome:
        """Commit a batch's files with its stamp, or find out why not.

        Args:
            stamp: The batch's stamp; its position is raised to what this target already has.
            files: The data files that the tasks wrote for this target.
            seen: The table as the tasks saw it.
            batch: The batch's ranges.
            position: Where the target stood when the tasks were planned.

        Returns:
            LANDED, also when an earlier attempt of the same batch had; RUN_AGAIN if the files no longer fit.

        Raises:
            FencedError: A later epoch has been here.
        """
        wanted = need(batch, position)
        pauses = Pauses()
        while True:
            newest = self.read() if pauses.attempts else self.newest
            if newest and newest.epoch > stamp.epoch:
                raise FencedError(self.stream, stamp.epoch, newest.epoch, self.name)
            again = need(batch, pointwise_max([newest.position if newest else {}, position]))
            if again.nothing:
                return Outcome.LANDED
            if not wanted.same_part(again):
                return Outcome.RUN_AGAIN
            if not self._fits(seen, files):
                return Outcome.RUN_AGAIN
            carried = self.newest.totals if self.newest else Counts()
            reached = pointwise_max([self.newest.position if self.newest else {}, stamp.position])
            full = replace(
                stamp,
                position=_known_to(reached, stamp),
                totals=carried + stamp.counts,
                rows=_still_named(self.newest, stamp),
            )
            try:
                self._append(full, files)
            except HeadMovedError as moved:
                log.info("commit on %s refused, reading it again: %s", self.name, moved)
                self._again(pauses, moved)
                continue
            return Outcome.LANDED

    def _append(self, stamp: Stamp, files: Sequence[DataFile]) -> None:
        # The next number on exactly this metadata: another commit in between, and this one is refused.
        stamp = stamp.committed_at(self.table.metadata.next_sequence_number(), self.newest)
        text = stamp.to_json()
        append_once(
            self.table,
            files,
            summary={SUMMARY_KEY: text},
            properties={property_key(self.stream): text},
            on_written=lambda: _inside(stamp),
        )
        self.newest = stamp

    def _fits(self, seen: Seen, files: Sequence[DataFile]) -> bool:
        metadata = self.table.metadata
        if self.uuid != seen.uuid:
            raise recreated(self.stream, self.name, seen.uuid, self.uuid)
        if not files:
            return True
        if metadata.default_spec_id != seen.spec_id:
            return False
        if not in_manifests((file.partition for file in files), metadata.spec(), metadata.schema()):
            # From a pending record of a version that did not refuse such values where the files are written.
            return False
        return metadata.current_schema_id == seen.schema_id or still_fits(seen.schema, metadata.schema())

    def _again(self, pauses: Pauses, refusal: HeadMovedError) -> None:
        self.refusals += 1
        if pauses.attempts + 1 < MAX_REFUSALS and pauses.again(refusal):
            return
        raise CommitRefusedError(
            f"stream {self.stream}: the catalog refused {pauses.attempts + 1} commits in a row on table {self.name}, "
            f"the last with: {refusal}",
            fix="if others write to the table, let them finish; then start the stream again",
        )


def _inside(stamp: Stamp) -> None:
    if stamp.kind == "claim":
        step("inside_claim")
    elif stamp.kind == "batch":
        # Only the anchor's stamps name the stream's tables.
        step("inside_anchor_commit" if stamp.targets else "inside_dead_letters_commit")


def gone(stream: str, table: str) -> TargetRecreatedError:
    """The stop for a table that the stream wrote before and that is no more."""
    return TargetRecreatedError(
        f"stream {stream}: table {table} is gone, and what the stream had landed in it.",
        fix=f"restore the table, or `frazil accept {stream} --recreated {table}` to begin it anew",
    )


def recreated(stream: str, table: str, before: str, now: str) -> TargetRecreatedError:
    """The stop for a table that is not the one the stream wrote before."""
    return TargetRecreatedError(
        f"stream {stream}: table {table} was dropped and created again (it was {before}, it is {now}); "
        "what the stream had landed in it is gone.",
        fix=f"`frazil accept {stream} --recreated {table}` to begin it anew from the stream's `start`",
    )


def _still_named(newest: Stamp | None, stamp: Stamp) -> Mapping[str, int]:
    """The rows of a batch per target, and of the batch before while that one may still be missing somewhere.

    A target that is ahead of the batch has committed a later range, which others may lack: that is why the batch runs.
    """
    if newest and any(newest.position.get(partition, 0) > end for partition, end in stamp.position.items()):
        return {**newest.rows, **stamp.rows}
    return stamp.rows


def _known_to(position: Positions, stamp: Stamp) -> Positions:
    """Positions of the partitions that the stream still reads: retired topics leave the stamps."""
    return {partition: offset for partition, offset in position.items() if partition in stamp.start}
