"""Targets of a stream by its file: its own table, its dead letters, the tables of its route, and that of late rows."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyiceberg.schema import Schema

from jobs.config.documents.base import Location, Problem
from jobs.config.stream.column_problems import partition_problems_of, table_sort_problems_of
from jobs.config.stream.event_time import TABLE, EventTime, LateTable
from jobs.config.stream.evolve import Publish
from jobs.config.stream.route import Route, RoutedTable, route_column_problems
from jobs.config.stream.table import Table, kafka_columns
from jobs.config.values.mask import NO_MASK, Mask
from jobs.config.values.table_columns import LaneColumns
from jobs.config.values.targets import MAIN_BRANCH, TargetSpec, value_of_table
from jobs.records.transforms.columns import Columns


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


def each_late_problems(late: LateTables, letters: str) -> Iterator[Problem]:
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


def stream_targets(
    table: Table,
    dead_letters: str,
    publish: Publish | None,
    route: Route | None,
    named: Sequence[str] = (),
    late: LateTables | None = None,
    absent: Collection[str] = (),
) -> tuple[TargetSpec, ...]:
    """The tables that a stream commits to, the coordinator first: the stream's own table, routed or not.

    Those of late rows are the last of them.

    Args:
        table: The stream's own.
        dead_letters: The table of the records that failed.
        publish: The block of that name.
        route: Likewise.
        named: The tables that values have named so far.
        late: The tables of late rows.
        absent: Tables that the file names and that are not made yet, as no record has come for them.
    """
    coordinates = kafka_columns(table.kafka_columns).coordinates
    own = TargetSpec(
        *(table.name, "rows", True, table.partition_by, table.properties),
        coordinates=coordinates,
        branch=publish.branch if publish else table.branch,
    )
    timely = dict.fromkeys(name for name in (*(route.table_names if route else ()), *named) if name not in absent)
    names = dict.fromkeys(name for name in timely if name != table.name)
    behind = dict.fromkeys(late.beside(name) for name in (timely if late.route else (table.name,))) if late else {}
    others = (table_settings(table, route, late, name) for name in names | behind)
    further = (
        TargetSpec(
            *(each.name, "rows", False, each.partition_by, each.properties),
            coordinates=coordinates,
            branch=MAIN_BRANCH if each.name in behind else each.branch,
        )
        for each in others
    )
    return own, TargetSpec(dead_letters, "dead_letters"), *further


def table_settings(table: Table, route: Route | None, late: LateTables | None, name: str) -> Table:
    """What a file says of a table of rows: as of the stream's own table, but for what it is given of its own.

    That of late rows is as the one whose late rows it has, but for what it is given.
    """
    if name == table.name:
        return table
    given: RoutedTable | LateTable | None = route.settings.get(name) if route else None
    if late is not None and (timely := late.table_of(name)) is not None:
        given = late.given
        table = table_settings(table, route, None, timely).model_copy(update={"branch": MAIN_BRANCH})
    own: dict[str, Any] = {"name": name, "location": given.location if given else None}
    if given is not None:
        own["properties"] = {**table.properties, **given.properties}
        chosen = ("partition_by", "sort_by", "branch")
        own |= {key: value for key in chosen if (value := getattr(given, key, None)) is not None}
    return table.model_copy(update=own)


def columns_in(table: Table, route: Route | None, late: LateTables | None, name: str | None, rows: Schema) -> Schema:
    """Which columns of the rows one of their tables has, beside those of Kafka's own.

    Args:
        table: The stream's own.
        route: The block of that name.
        late: The tables of late rows.
        name: Of the table; None of the stream's own.
        rows: The rows' columns.
    """
    if route is None or name is None or name == table.name or (late is not None and late.table_of(name)):
        return rows
    chosen = route.columns_of(name)
    return rows if chosen is None else chosen.of(Columns.of(rows)).schema


def lane_columns(route: Route | None, table: Table, name: str) -> LaneColumns | None:
    """Which columns one of a stream's tables has that have columns of their own; None of all.

    Args:
        route: The block of that name.
        table: The stream's own.
        name: Of the table.
    """
    if route is None or name == table.name or (chosen := route.columns_of(name)) is None:
        return None
    at = next((at for at, each in enumerate(route.tables) if each.table == name and each.columns), None)
    return LaneColumns(chosen, ("route", "columns") if at is None else ("route", "tables", at, "columns"))


def branch_in(table: Table, dead_letters: str, route: Route | None, late: LateTables | None, name: str) -> str:
    """The branch of one of a stream's tables that the stream writes; main of one that its file does not speak of.

    Args:
        table: The stream's own.
        dead_letters: The table of the records that failed.
        route: The block of that name.
        late: The tables of late rows.
        name: Of the table.
    """
    if name == table.name:
        return table.branch
    if route is None or name == dead_letters or (late is not None and late.table_of(name)):
        return MAIN_BRANCH
    if name in route.table_names or (route.to is not None and value_of_table(route.to, name) is not None):
        return table_settings(table, route, late, name).branch
    return MAIN_BRANCH


def route_table_problems(route: Route | None, every: Schema, table: Table) -> Iterator[Problem]:
    """Gives what columns a route asks for that rows do not have so, each with its place in the file.

    Args:
        route: The route.
        every: The rows' columns, all of them.
        table: The stream's own.
    """
    yield from route_column_problems(route, every)
    for number, each in enumerate(route.tables if route else ()):
        # Those that are too few for what is asked of the table are told where they stand.
        if each.own_settings and each.table != table.name and each.columns is None:
            settings = table_settings(table, route, None, each.table)
            yield from _at(("route", "tables", number), _settings_problems(each, settings, every))


def late_table_problems(late: LateTables | None, every: Schema, table: Table) -> Iterator[Problem]:
    """Gives what columns a table of late rows asks for that rows do not have so, each with its place in the file.

    Args:
        late: The tables of late rows.
        every: The rows' columns, all of them.
        table: The stream's own.
    """
    if late is not None and late.route is None:
        settings = table_settings(table, None, late, late.beside(table.name))
        yield from _at(("event_time", "late"), _settings_problems(late.given, settings, every))


def _settings_problems(given: RoutedTable | LateTable, settings: Table, every: Schema) -> list[Problem]:
    problems = partition_problems_of(every, settings) if given.partition_by is not None else []
    return [*problems, *(table_sort_problems_of(every, settings) if given.sort_by is not None else [])]


def _at(place: Location, problems: Sequence[Problem]) -> Iterator[Problem]:
    return (((*place, *within[1:]), said) for within, said in problems)


def late_problems(
    late: LateTables | None, table: Table, letters: str, route: Route | None, publish: Publish | None
) -> Iterator[Problem]:
    """Returns what is wrong with tables of late rows, given the rest of the file.

    Args:
        late: Those tables.
        table: The stream's own.
        letters: The table of its dead letters.
        route: The block of that name.
        publish: Likewise.
    """
    if late is None:
        return
    place: Location = ("event_time", "late")
    each = each_late_problems(late, letters)
    yield from each if late.route else _one_late_problems(late, table, letters, route)
    if publish is not None:
        yield place, "cannot be a table beside publish: late rows would show before anything judged them"
    elif table.branch != MAIN_BRANCH:
        yield place, "cannot be a table beside table.branch: it would be written to its main"


def _one_late_problems(late: LateTables, table: Table, letters: str, route: Route | None) -> Iterator[Problem]:
    name, place = late.beside(table.name), ("event_time", "late", "table")
    if name == table.name:
        yield place, "is the stream's own table; write land"
    if name == letters:
        yield place, "is the table of the stream's dead letters; write dead_letter"
    if route is not None and name in route.table_names:
        yield place, "is a table of the route, which timely rows go to"


_OWN = (
    "cannot be park: {name} is the stream's own table, which is stamped in every batch; where it takes no commit "
    "nothing is landed"
)
_LOST = "cannot be park beside errors.dead_letters.mask: a letter that lacks a part of its record brings no row back"
_UNDECODED = (
    "cannot be park where each table has columns and late rows of its own: records of a parked one are not decoded, so "
    "nobody knows which are late; write event_time.late: land or dead_letter"
)
_UNLOCATED = (
    "cannot be park without the columns of topic, partition, offset and timestamp: rows that come back are looked for "
    "by them; leave table.kafka_columns out"
)


def parks(route: Route, table: str) -> bool:
    """Whether a table that rows are routed to is parked where it is gone or refuses its commit."""
    said = (each.on_table_error for each in route.tables if each.table == table and each.on_table_error)
    return next(said, route.on_table_error) == "park"


def without_parking(route: Route | None) -> Route | None:
    """The route as one by which no table is parked."""
    if route is None:
        return None
    tables = tuple(each.model_copy(update={"on_table_error": None}) for each in route.tables)
    return route.model_copy(update={"on_table_error": "stop", "tables": tables})


def late_park_problems(route: Route, event_time: EventTime | None) -> list[Problem]:
    """Returns where a route over columns of tables' own asks for parking that does not go with tables of late rows.

    A record that is late, and has its row in such a table, would be kept as a letter of the other one as well.
    """
    if event_time is None or not isinstance(event_time.late, LateTable):
        return []
    places: list[Location] = [("route",)] if route.on_table_error == "park" else []
    places += [("route", "tables", at) for at, each in enumerate(route.tables) if each.on_table_error == "park"]
    return [((*place, "on_table_error"), _UNDECODED) for place in places]


def park_problems(route: Route | None, table: Table, mask: Mask) -> Iterator[Problem]:
    """Returns what goes against the parking that a route asks for.

    Args:
        route: The route.
        table: The stream's own table.
        mask: What of a record the letters do not keep.
    """
    if route is None:
        return
    said: dict[str, str] = {}
    places: list[Location] = [("route", "on_table_error")] if route.on_table_error == "park" else []
    for number, each in enumerate(route.tables):
        if each.on_table_error is None:
            continue
        place: Location = ("route", "tables", number, "on_table_error")
        if each.on_table_error == "park":
            places.append(place)
            if each.table == table.name:
                yield place, _OWN.format(name=table.name)
        if (other := said.setdefault(each.table, each.on_table_error)) != each.on_table_error:
            yield place, f"is {each.on_table_error}, and an entry before says {other} of {each.table}"
    columns = kafka_columns(table.kafka_columns)
    located = None not in (columns.topic, columns.partition, columns.offset, columns.timestamp)
    for place in places[:1]:
        if not located:
            yield place, _UNLOCATED
        if mask != NO_MASK:
            yield place, _LOST
