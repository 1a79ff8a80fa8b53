"""Row tables of a replay: those that the rows of letters go to, each opened when the first row is for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, Protocol, TypeVar

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from jobs.commit.branch import stream_table
from jobs.commit.proposals import Seen
from jobs.errors import FrazilError
from jobs.replay.session import ReplayedPart, ReplaySession
from jobs.spec.models import StreamSpec
from jobs.write.target_writer import TargetWriter

T = TypeVar("T")


class RowTables(Protocol):
    """The tables that a replay's rows go to."""

    def table(self, name: str) -> Table:
        """A table as rows are made for it: the same for the length of a batch."""
        ...

    def held(self, name: str) -> Table:
        """The table as its rows are looked at: no earlier replay can add to them any more."""
        ...


class ReadTables:
    """The row tables of a dry run: they are read, and nothing is claimed.

    Args:
        spec: The stream.
        catalog: Where they are.
    """

    def __init__(self, spec: StreamSpec, catalog: Catalog) -> None:
        self._load: Callable[[str], Table] = lambda name: _there(spec, name, lambda: stream_table(catalog, spec, name))
        self._known: dict[str, Table] = {}

    def table(self, name: str) -> Table:
        """A table, as it was when a row first was for it."""
        if name not in self._known:
            self._known[name] = self._load(name)
        return self._known[name]

    def held(self, name: str) -> Table:
        """The same."""
        return self.table(name)


class GivenTables:
    """The row tables of a batch that somebody else holds.

    Args:
        tables: As they are for the length of the batch, by name.
    """

    def __init__(self, tables: Mapping[str, Table]) -> None:
        self._tables: Mapping[str, Table] = tables

    def table(self, name: str) -> Table:
        """A table as rows are made for it."""
        return self._tables[name]

    def held(self, name: str) -> Table:
        """The same."""
        return self._tables[name]


class _Fitted(NamedTuple):
    table: Table
    seen: Seen


class SessionTables:
    """The row tables of a replay that may commit.

    Args:
        session: The replay.
    """

    def __init__(self, session: ReplaySession) -> None:
        self._session: ReplaySession = session
        self._fitted: dict[str, _Fitted] = {}

    def begin(self) -> None:
        """Read all that are claimed anew, for another batch or another try of one."""
        self._fitted.clear()
        self._session.read_claimed()

    def table(self, name: str) -> Table:
        """A table as rows are made for it: the same for the length of a batch."""
        if name not in self._fitted:
            session = self._session
            target = _there(session.spec, name, lambda: session.opened(name))
            self._fitted[name] = _Fitted(target.table, target.seen())
        return self._fitted[name].table

    def held(self, name: str) -> Table:
        """The table, which this replay has claimed: no earlier one can commit to it any more."""
        return _there(self._session.spec, name, lambda: self._session.claimed(name)).table

    def written(self, made: Mapping[str, pa.RecordBatch]) -> dict[str, ReplayedPart]:
        """Data files of the rows of each table; nothing refers to them yet."""
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
    """The tables that may have the row of a record that is for one of the stream's: it, and that of its late rows.

    A letter lands in the table that it is for, however late it is; the same record may stand among the late rows, as
    after a rollback, or a reset, that had the stream land it.
    """
    yield name
    if (late := spec.late_tables) is not None:
        yield late.beside(name)


def _there(spec: StreamSpec, name: str, load: Callable[[], T]) -> T:
    try:
        return load()
    except NoSuchTableError:
        raise FrazilError(
            f"stream {spec.stream}: table {name}, which a letter's row is for, does not exist.",
            fix=f"`frazil run {spec.stream}`, which makes it, or says what to answer where it was dropped",
        ) from None
