"""Tables of a stream as they are looked at: loaded once, one of them on a branch, with what is recorded of them."""

from __future__ import annotations

from dataclasses import dataclass

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH

from jobs.catalog import find_table
from jobs.commit.branch import branches, seen_on
from jobs.commit.offsets import Positions
from jobs.commit.stamp_history import history
from jobs.errors import FrazilError
from jobs.spec.models import StreamSpec
from jobs.spec.settings import Settings
from jobs.spec.targets import Role, TargetSpec
from jobs.state.store import StateStore
from jobs.state.stream_folder import stream_folder
from jobs.time_travel.published import Published, published
from jobs.time_travel.reading import Condition
from jobs.time_travel.recorded_rows import RecordedRows, recorded_rows


@dataclass(frozen=True, slots=True)
class LookedAt:
    """One table.

    Attributes:
        table: As it is, whatever the branch.
        metadata: With the branch that is looked at in the place of main.
        branch: That one.
    """

    target: TargetSpec
    table: Table
    metadata: TableMetadata
    branch: str

    @property
    def written(self) -> bool:
        """Whether the stream writes the branch that is looked at."""
        return self.branch == self.target.branch

    @property
    def uuid(self) -> str:
        """Iceberg's identity of it."""
        return str(self.metadata.table_uuid)

    def conditions(self, stream: str, topic: str, partition: int, offset: int) -> list[Condition]:
        """What the row of a record fulfils; nothing if rows do not say which records they are of."""
        names = self.target.coordinates
        if not set(names) <= set(self.table.schema().column_names):
            return []
        stream_too: list[Condition] = [("stream", stream)] if self.target.role == "dead_letters" else []
        return [*stream_too, *zip(names, (topic, partition, offset), strict=True)]


@dataclass(frozen=True, slots=True)
class StreamTables:
    """A stream's tables, and what is recorded of them.

    Attributes:
        sink: The table of its rows.
        dead: Its dead letters; None if the table is not there.
        positions: Where the stream stands, by the newest stamp.
        asked: The role of the table that is asked about.
    """

    spec: StreamSpec
    settings: Settings
    sink: LookedAt
    dead: LookedAt | None
    recorded: RecordedRows
    positions: Positions
    asked: Role = "rows"

    @property
    def table(self) -> LookedAt:
        """The table that is asked about."""
        if self.asked == "rows":
            return self.sink
        if self.dead is None:
            name = self.spec.dead_letter_table
            raise FrazilError(f"table {name} is not there yet.", fix=f"frazil run {self.spec.stream}")
        return self.dead

    def published(self, sequence: int) -> Published | None:
        """Whether main has what the stream committed to its branch; None if it is main that is looked at."""
        if self.sink.branch == MAIN_BRANCH:
            return None
        return published(self.sink.table.metadata, self.spec.stream, self.sink.branch, sequence)

    @property
    def store(self) -> StateStore:
        """The stream's part of the state store."""
        return stream_folder(self.settings, self.spec.stream).store


def load_stream_tables(
    spec: StreamSpec,
    settings: Settings,
    catalog: Catalog,
    *,
    asked: Role = "rows",
    branch: str | None = None,
) -> StreamTables:
    """Load the tables of a stream.

    Args:
        asked: The table that is asked about.
        branch: Of that table; None, and for the other one: that which the stream writes.

    Raises:
        FrazilError: The stream's table, or the branch, is not there, or the catalog does not answer.
    """
    loaded: dict[Role, LookedAt] = {}
    for target in spec.targets:
        table = find_table(catalog, target.name)
        if table is None:
            continue
        on = branch if branch is not None and target.role == asked else target.branch
        has = sorted(branches(table.metadata))
        if has and on not in has:
            raise FrazilError(
                f"table {target.name} has no branch {on}" + (" yet." if on == target.branch else "."),
                fix=f"frazil run {spec.stream}" if on == target.branch else f"--branch {' or '.join(has)}",
            )
        loaded[target.role] = LookedAt(target, table, seen_on(table.metadata, on), on)
    if "rows" not in loaded:
        raise FrazilError(
            f"table {spec.table.name} of stream {spec.stream} is not there yet.", fix=f"frazil run {spec.stream}"
        )
    recorded = recorded_rows(
        spec.stream,
        settings,
        catalog,
        {each.target: each.metadata for each in loaded.values()},
        # The ledger knows the branches that streams write.
        known=all(each.written for each in loaded.values()),
    )
    past = history(loaded["rows"].metadata, spec.stream)
    newest = past.newest if loaded["rows"].written else past.stamped_ancestor
    return StreamTables(
        spec,
        settings,
        loaded["rows"],
        loaded.get("dead_letters"),
        recorded,
        newest.position if newest else {},
        asked,
    )
