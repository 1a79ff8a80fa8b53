"""New dynamic tables of a stream: created in the batch with the first record whose value names the table.

The tasks of such a batch report missing tables, and write nothing. A table is a target from the first batch whose stamp
names it. If its first batch never landed, a later record that needs it takes it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchPropertyException, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from jobs.base.errors import FrazilError
from jobs.base.failpoints import step
from jobs.config.values.targets import named_table
from jobs.streaming.driver.context.open_stream import OpenStream
from jobs.streaming.driver.context.results import TaskResults, drop_files
from jobs.streaming.driver.context.second_run import table_as_decided
from jobs.streaming.driver.tables.follower_tables import ensure_follower
from jobs.streaming.driver.tables.routed_tables import ensure_routed_table
from jobs.streaming.pipeline.route_naming import is_full
from jobs.streaming.task.needs import UnnamedTable
from jobs.tables.commit.history.branch import existing_table
from jobs.tables.commit.protocol.named_tables import belongs_to
from jobs.tables.commit.protocol.proposals import Seen
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.schema.followers import following
from jobs.tables.commit.stamp.offsets import Ranges
from jobs.tables.commit.stamp.target_positions import TargetNeed, need
from jobs.tables.write.table_remaking import is_as_made

log = logging.getLogger(__name__)

ROUNDS = 20
FOREIGN = (
    "names a table of this stream: {name} exists and is not one, until `frazil schema apply {stream} --adopt {name}`"
)
_DROPPED = "names a table that is dropped again and again: {name}"
_LOOKS = 3
_UNFIT = "names a table that fits the rows: {name} exists, and does not"


class NewTables:
    """Repeats the tasks of a batch until every value that should have a table has one.

    Attributes:
        seen: Tables that the present batch has created, as its tasks see them.
    """

    def __init__(self, stream: OpenStream) -> None:
        self._stream: OpenStream = stream
        self.seen: dict[str, Seen] = {}
        # Values that are refused for one batch only.
        self._passing: set[str] = set()

    def around(
        self, tasks: Callable[[bool], TaskResults], ranges: Ranges, needs: dict[str, TargetNeed]
    ) -> Callable[[bool], TaskResults]:
        """Function that runs the tasks of a batch, and again after missing tables were created.

        Args:
            tasks: Runs them once, by a plan of the existing tables.
            needs: What each target lacks of the batch; new targets are added.
        """
        self.seen = {}
        while self._passing:
            self._stream.refused_values.pop(self._passing.pop(), None)

        def run(survey: bool) -> TaskResults:
            for _ in range(ROUNDS):
                results = tasks(survey)
                if not results.tables:
                    return results
                drop_files(results, self._stream.targets, keep=frozenset())
                self._make(results.tables, ranges, needs, table_as_decided(self._stream, needs))
            raise FrazilError(
                f"stream {self._stream.spec.stream}: the tasks of a batch lack tables after {ROUNDS} rounds of making "
                "them.",
                fix="start the stream again, and report what is in its log",
            )

        return run

    def _make(
        self, lacked: tuple[UnnamedTable, ...], ranges: Ranges, needs: dict[str, TargetNeed], own: TableMetadata
    ) -> None:
        stream = self._stream
        route, catalog = stream.spec.route, stream.anchor.catalog
        if route is None or route.to is None:
            raise TypeError("no table of this stream is named by a value")
        # A later driver's table may have been dropped since: nothing is created in its place.
        stream.refuse_taken_over()
        step("before_new_tables")
        for each in lacked:
            name = named_table(route.to, each.value)
            lower = {known.lower() for known in stream.targets}
            if name.lower() in lower or is_full(stream.spec):
                # The tasks use the tables that exist at that time.
                continue
            target = self._made(catalog, each, name, own)
            if target is None:
                continue
            stream.spec = stream.spec.with_named_tables([name])
            stream.targets[name] = target
            stream.positions[name] = dict(stream.positions[stream.anchor.name])
            needs[name] = need(ranges, stream.positions[name])
            self.seen[name] = target.seen()
        step("after_new_tables")

    def _made(self, catalog: Catalog, lacked: UnnamedTable, name: str, own: TableMetadata) -> Target | None:
        """Table of a value as a target; None if a table of that name exists that is not for its rows.

        A dependent table is created by the state of the main table that the tasks use, whatever became of it since.
        """
        stream = self._stream
        found: Table | None = None
        for _ in range(_LOOKS):
            found = None
            try:
                found = existing_table(catalog, name)
                if why := self._misfit(found, name, own):
                    return self._refused(lacked, why)
                if stream.spec.tables_follow:
                    ensure_follower(stream.spec, catalog, own, name)
                else:
                    ensure_routed_table(stream.spec, catalog, name)
                break
            except (NoSuchPropertyException, NoSuchTableError, TableAlreadyExistsError):
                # It was dropped in between, or is a view, or a table of another format.
                continue
        else:
            if found is not None:
                self._passing.add(lacked.value)
            return self._refused(lacked, (FOREIGN if found is None else _DROPPED).format(name=name, stream=stream.id))
        target = stream.new_target(name)
        verb = "made" if found is None else "taken again"
        log.info("stream %s: table %s is %s for the record at %s", stream.id, name, verb, lacked.at)
        return target

    def _misfit(self, found: Table | None, name: str, own: TableMetadata) -> str | None:
        """Reason why an existing table cannot take the rows; None if it can, or if there is none."""
        stream = self._stream
        if found is None:
            return None
        if not belongs_to(found.metadata, stream.id):
            return FOREIGN.format(name=name, stream=stream.id)
        if is_as_made(found.metadata, stream.id):
            return None
        if stream.spec.tables_follow:
            misfits = following(stream.spec, own, found.metadata, name).refused
        else:
            misfits = stream.spec.disagreements_with(found.schema(), name, properties=found.properties)
        return _UNFIT.format(name=name) if misfits else None

    def _refused(self, lacked: UnnamedTable, why: str) -> None:
        """Record a value as refused: no record may stop the stream, so those of the value follow `unmatched`."""
        log.warning("stream %s: the record at %s %s", self._stream.id, lacked.at, why)
        self._stream.refused_values[lacked.value] = why


def is_foreign(stream: OpenStream, name: str) -> bool:
    """Whether a table of the name exists that was not created for the stream, or that is no Iceberg table."""
    try:
        found = existing_table(stream.anchor.catalog, name)
    except (NoSuchPropertyException, NoSuchTableError, TableAlreadyExistsError):
        return True
    return found is not None and not belongs_to(found.metadata, stream.id)
