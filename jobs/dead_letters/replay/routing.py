"""Routing of a replay: the tables of rows, and what cannot be landed by a route."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from jobs.base.errors import FrazilError
from jobs.config.documents.base import field_path
from jobs.config.settings.correction import Correction
from jobs.config.stream.models import StreamSpec
from jobs.dead_letters.replay.session import ReplayedPart, ReplaySession
from jobs.records.formats.interface.decoder import Failure
from jobs.records.formats.interface.problems import UNROUTED
from jobs.records.transforms.transform import StepProblem
from jobs.streaming.pipeline.block import Block
from jobs.streaming.pipeline.pipeline import Routed
from jobs.streaming.pipeline.route import STAGE, Destinations
from jobs.streaming.pipeline.route_naming import naming_state
from jobs.streaming.pipeline.stages import Fit
from jobs.tables.commit.history.branch import stream_table
from jobs.tables.commit.protocol.proposals import Seen
from jobs.tables.commit.schema.followers import following
from jobs.tables.dead_letter_table.parked_letters import PARKED_STAGE, TABLE_PARKED
from jobs.tables.write.projection import ProjectionError
from jobs.tables.write.table_fit import TableFit
from jobs.tables.write.target_writer import TargetWriter

T = TypeVar("T")

NO_TABLE = (
    "needs a table of its own, which the stream makes when a record comes: `frazil replay --to-topic` sends it one"
)
PARKED_NOW = "needs a row in {tables}, which is suspended: `frazil accept --unpark` first"
ELSEWHERE = "waits for a row in {table}, and the route names other tables now"


class RowTables(Protocol):
    """Tables for a replay's rows."""

    def table(self, name: str) -> Table:
        """A table for which rows are made: unchanged during a batch."""
        ...

    def held(self, name: str) -> Table:
        """The table for looking up rows: no earlier replay can add to it any more."""
        ...


class ReadTables:
    """Tables of a dry run, or of a batch that another process holds: they are read, and nothing is claimed.

    Args:
        load: Loads a table by its name.
    """

    def __init__(self, load: Callable[[str], Table]) -> None:
        self._load: Callable[[str], Table] = load
        self._known: dict[str, Table] = {}

    @staticmethod
    def of_stream(spec: StreamSpec, catalog: Catalog) -> ReadTables:
        """Tables of a stream, each as it was when a row first needed it."""
        return ReadTables(lambda name: _there(spec, name, lambda: stream_table(catalog, spec, name)))

    def table(self, name: str) -> Table:
        """A table, as it was when a row first needed it."""
        if name not in self._known:
            self._known[name] = self._load(name)
        return self._known[name]

    def held(self, name: str) -> Table:
        """The same table."""
        return self.table(name)


class _Fitted(NamedTuple):
    table: Table
    seen: Seen


class SessionTables:
    """Tables of a replay that may commit."""

    def __init__(self, session: ReplaySession) -> None:
        self._session: ReplaySession = session
        self._fitted: dict[str, _Fitted] = {}

    def begin(self) -> None:
        """Reload all claimed tables, for another batch or another attempt."""
        self._fitted.clear()
        self._session.read_claimed()

    def table(self, name: str) -> Table:
        """A table for which rows are made: unchanged during a batch."""
        if name not in self._fitted:
            session = self._session
            target = _there(session.spec, name, lambda: session.opened(name))
            self._fitted[name] = _Fitted(target.table, target.seen())
        return self._fitted[name].table

    def held(self, name: str) -> Table:
        """The table, claimed by this replay: no earlier one can commit to it any more."""
        return _there(self._session.spec, name, lambda: self._session.claimed(name)).table

    def written(self, made: Mapping[str, pa.RecordBatch]) -> dict[str, ReplayedPart]:
        """Data files with the rows of each table; nothing references them yet."""
        writers: dict[str, TargetWriter] = {}
        prefix = f"replay-{self._session.epoch}"
        try:
            parts: dict[str, ReplayedPart] = {}
            for name, rows in made.items():
                if not rows.num_rows:
                    continue
                table, seen = self.table(name), self._fitted[name].seen
                writers[name] = TargetWriter(table.metadata, table.io, file_prefix=prefix)
                writers[name].add(rows)
                files: list[DataFile] = writers[name].close()
                parts[name] = ReplayedPart(tuple(files), seen, rows.num_rows)
            return parts
        except BaseException:
            for writer in writers.values():
                writer.abort()
            raise


def names_beside(spec: StreamSpec, name: str) -> Iterator[str]:
    """Tables that may have the row of a record for one of the stream's tables: itself, and its late rows.

    A dead letter lands in its table, however late it is. The same record may be among the late rows, if the stream
    landed it after a rollback or a reset.
    """
    yield name
    if (late := spec.late_tables) is not None:
        yield late.beside(name)


def _there(spec: StreamSpec, name: str, load: Callable[[], T]) -> T:
    try:
        return load()
    except NoSuchTableError:
        raise FrazilError(
            f"stream {spec.stream}: table {name}, which a dead letter's row is for, does not exist.",
            fix=f"`frazil run {spec.stream}`, which creates it, or names the answers if it was dropped",
        ) from None


def routed_to(spec: StreamSpec, tables: RowTables, only: str | None = None, parked: Collection[str] = ()) -> Routed:
    """Tables of a routed stream's rows, each loaded for its first row.

    Args:
        only: The only table to which rows are fitted, as its dead letters land nowhere else.
        parked: Tables that take no rows; nothing is fitted to them.
    """
    names = [each.name for each in spec.targets if each.role == "rows"]
    fits = {
        name: _as_they_are if name in parked or only not in (None, name) else _fit(spec, tables, name) for name in names
    }
    return Destinations(spec.table.name, spec.route), fits, naming_state(spec, {}, decided=False)


def _as_they_are(rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows


def restricted_to(block: Block, only: str | None, parked: Collection[str]) -> Block:
    """The landing part of a block after the route.

    Args:
        only: Table that the dead letters wait for: only its rows land, and records that no longer go there have failed.
        parked: Without such a table: a record for one of these lands nowhere, and stays a dead letter.
    """
    if only is None:
        held = {name: rows for name, rows in block.routed.items() if name in parked}
        stays = np.unique(np.concatenate([np.zeros(0, np.int64), *(rows.positions for rows in held.values())]))
        if not len(stays):
            return block
        why = PARKED_NOW.format(tables=", ".join(sorted(held)))
        left = {name: rows.without(stays) for name, rows in block.routed.items() if name not in held}
        failures = [Failure(int(row), PARKED_STAGE, TABLE_PARKED, why, None) for row in stays]
    else:
        left = {name: rows for name, rows in block.routed.items() if name == only}
        known = [np.array([each.row for each in block.failures], np.int64), *(each.positions for each in left.values())]
        known += list(block.unnamed.values())
        others = np.setdiff1d(np.arange(block.records.num_rows, dtype=np.int64), np.concatenate(known))
        why = ELSEWHERE.format(table=only)
        failures = [Failure(int(row), STAGE, UNROUTED, why, None) for row in others]
    return replace(block, routed=left, failures=sorted([*block.failures, *failures], key=lambda each: each.row))


def _fit(spec: StreamSpec, tables: RowTables, name: str) -> Fit:
    def fit(rows: pa.RecordBatch) -> pa.RecordBatch:
        try:
            table = tables.table(name)
            if spec.tables_follow and name != spec.table.name:
                refuse_behind(spec, tables.table(spec.table.name), table)
            else:
                refuse_unfit(spec, table)
        except FrazilError as problem:
            # This is no fault of the record, so the replay ends.
            raise ProjectionError(problem.message, fix=problem.fix) from None
        return TableFit(table.schema(), table.spec()).apply(rows)

    return fit


def without_table(block: Block) -> list[Failure]:
    """Failures of records whose value names a missing table, which only the stream itself creates."""
    return [Failure(int(row), STAGE, UNROUTED, NO_TABLE, None) for rows in block.unnamed.values() for row in rows]


def refuse_unfit(spec: StreamSpec, table: Table, correction: Correction | None = None) -> None:
    """Raise unless a table can hold what a stream declares.

    Args:
        table: A table of the stream's rows.
        correction: Correction of the declaration.

    Raises:
        FrazilError: It cannot; the message names each column.
    """
    name = ".".join(table.name())
    one, schema = spec.for_table(name), table.schema()
    try:
        differences = one.disagreements_with(schema, name, properties=table.properties)
    except StepProblem:
        found = one.problems_with(schema, table.properties)
        differences = [f"{field_path(place)}: {problem}" for place, problem in found]
    if differences:
        what = "the correction declares" if correction else "the file declares"
        raise FrazilError(
            f"stream {spec.stream}: table {name} cannot hold what {what}: {'; '.join(differences)}",
            fix=f"correct the schema, or `frazil schema apply {spec.stream}`",
        )


def refuse_behind(spec: StreamSpec, own: Table, table: Table) -> None:
    """Raise unless a dependent table has the main table's columns, as a replay alters none.

    Args:
        table: The dependent table.

    Raises:
        FrazilError: Columns are missing; the message names each.
    """
    name = ".".join(table.name())
    fit = following(spec, own.metadata, table.metadata, name)
    if lacks := [*map(str, fit.changes), *(each.rstrip(".") for each in fit.refused)]:
        raise FrazilError(
            f"stream {spec.stream}: table {name} does not have the columns of table {spec.table.name}: "
            f"{'; '.join(lacks)}.",
            fix=f"frazil schema apply {spec.stream}",
        )


def refuse_parked(spec: StreamSpec, parked: Collection[str]) -> None:
    """Raise if tables are suspended, as an import from a Kafka Connect queue lands records in all tables at once.

    Raises:
        FrazilError: Tables are suspended.
    """
    if parked:
        name = min(parked)
        raise FrazilError(
            (
                f"stream {spec.stream}: table {name} is suspended, and a record of a queue lands in all its "
                "tables at once."
            ),
            fix=f"frazil accept {spec.stream} --unpark {name}; then run this again",
        )


def refuse_other_tables(spec: StreamSpec, corrected: StreamSpec) -> None:
    """Raise if a correction routes to tables of other owners, which are neither claimed nor audited.

    Raises:
        FrazilError: It names others.
    """
    known = {each.name for each in spec.targets if each.role == "rows"}
    if spec.own_columns and spec.route is not None:
        # A table that does not exist yet keeps its dead letters.
        known |= {*spec.route.table_names}
    others = [name for name in (corrected.route.table_names if corrected.route else ()) if name not in known]
    if others:
        raise FrazilError(
            f"stream {spec.stream}: the correction's route names {others[0]}, which is no table of the stream.",
            fix=f"name it in streams/{spec.stream}.yaml, `frazil run {spec.stream}`, which makes it; run this again",
        )


def refuse_unlocated(spec: StreamSpec, corrected: StreamSpec, sink: Table) -> None:
    """Raise unless a routed stream's rows have coordinates, as a record may lack a single table.

    Raises:
        FrazilError: They lack them.
    """
    if corrected.route is not None and not spec.kafka_columns.locate_rows_of(sink.schema()):
        raise not_located(spec, spec.table.name)


def not_located(spec: StreamSpec, table: str) -> FrazilError:
    """Error for a table of a route without Kafka's columns."""
    return FrazilError(
        f"stream {spec.stream}: it has a route, and table {table} has no Kafka columns to tell which dead letters "
        "have landed in it.",
        fix=f"`frazil replay {spec.stream} --to-topic TOPIC`, with a topic that the stream reads: it routes them",
    )
