"""Tables of late rows of a stream by its file: one, or one for each of its tables that has columns of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from jobs.spec.base import Location
from jobs.spec.event_time import EventTime
from jobs.spec.late import TABLE, LateTable
from jobs.spec.named_tables import value_of_table
from jobs.spec.route import Route


@dataclass(frozen=True, slots=True)
class LateTables:
    """Which table has the late rows of which.

    Attributes:
        given: What the file says of them.
        own: The stream's own table.
        route: Of a stream each of whose tables has columns of its own: each of its tables has one for itself. None
            where one has the late rows of all.
    """

    given: LateTable
    own: str
    route: Route | None = None

    def beside(self, table: str) -> str:
        """The table that has the late rows of one of the stream's tables of rows."""
        return self.given.name_beside(self.own if self.route is None else table)

    def table_of(self, name: str) -> str | None:
        """The table whose late rows one of a name has, of one for all the stream's own; None if it has none.

        It need not be there: a value may name it.
        """
        if self.route is None:
            return self.own if name == self.beside(self.own) else None
        found = self.given.table_beside(name)
        return found if found is not None and self._may_be(found) and self.given.name_beside(found) == name else None

    def clash(self, name: str) -> str | None:
        """The table whose late rows one would have whose name differs from this one in case at most; None without."""
        found = self.given.table_beside(name) if self.route is not None else None
        return found if found is not None and self._may_be(found) else None

    def _may_be(self, table: str) -> bool:
        """Whether a table is one of the route, or may become one."""
        if self.route is None:
            return False
        if self.route.to is not None and value_of_table(self.route.to, table) is not None:
            return True
        lower = table.lower()
        return table in self.route.table_names or any(each.lower() == lower for each in self.route.table_names)


def late_tables(own: str, event_time: EventTime | None, route: Route | None, *, each: bool) -> LateTables | None:
    """The tables of late rows; None of a stream that has none.

    Args:
        own: The stream's own table.
        event_time: The block of that name.
        route: Likewise.
        each: Whether each table of the route has columns of its own.
    """
    given = event_time.late_table if event_time else None
    return LateTables(given, own, route if each else None) if given else None


def each_late_problems(late: LateTables, letters: str) -> Iterator[tuple[Location, str]]:
    """Gives what is wrong with tables of late rows for each table with columns of its own, with its place in the file.

    Args:
        late: Those tables.
        letters: The table of the stream's dead letters.
    """
    if (route := late.route) is None:
        return
    place: Location = ("event_time", "late", "table")
    if not late.given.names_each:
        said = "has to have {table} in it, such as '{table}_late': each table of the route has columns of its own"
        yield place, f"{said}, and so has the table of its late rows"
        return
    if late.given.location is not None:
        yield ("event_time", "late", "location"), f"says where one table lies, and {late.given.pattern} names many"
    taken = {late.own: "the stream's own table", letters: "the table of the stream's dead letters"}
    taken |= {name: "a table of the route" for name in route.table_names if name not in taken}
    for name, what in taken.items():
        if (table := late.clash(name)) is not None:
            yield place, f"would give the late rows of {table} to {name}, {what}: write another name around {TABLE}"
            return
