"""Targets of a stream: main table, dead-letter table, tables of its route, and tables of late rows."""

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
    """Assignment of tables of late rows to tables of timely rows.

    Attributes:
        given: Block of the late rows' table in the file.
        own: Name of the main table.
        route: Route of a stream whose tables have their own columns: each has its own table of late rows. None if one
            table has all late rows.
    """

    given: LateTable
    own: str
    route: Route | None = None

    def beside(self, table: str) -> str:
        """Return the table with the late rows of one of the stream's tables."""
        return self.given.name_beside(self.own if self.route is None else table)

    def table_of(self, name: str) -> str | None:
        """Return the table of the timely rows for a table of late rows (the main table, if all share one); else None.

        The returned table need not exist yet: it may be a dynamic table.
        """
        if self.route is None:
            return self.own if name == self.beside(self.own) else None
        found = self.given.table_beside(name)
        return found if found is not None and self._may_be(found) and self.given.name_beside(found) == name else None

    def clash(self, name: str) -> str | None:
        """Return the table whose table of late rows would have this name, ignoring case; None if there is none."""
        found = self.given.table_beside(name) if self.route is not None else None
        return found if found is not None and self._may_be(found) else None

    def _may_be(self, table: str) -> bool:
        """Whether a table is in the route, or may become a dynamic table of it."""
        if self.route is None:
            return False
        if self.route.to is not None and value_of_table(self.route.to, table) is not None:
            return True
        lower = table.lower()
        return table in self.route.table_names or any(each.lower() == lower for each in self.route.table_names)


def late_tables(own: str, event_time: EventTime | None, route: Route | None, *, each: bool) -> LateTables | None:
    """Return the tables of late rows; None if the stream has none.

    Args:
        own: Name of the main table.
        event_time: Block `event_time`.
        route: Block `route`.
        each: Whether each table of the route has its own columns.
    """
    given = event_time.late_table if event_time else None
    return LateTables(given, own, route if each else None) if given else None


def each_late_problems(late: LateTables, letters: str) -> Iterator[Problem]:
    """Yields the problems of tables of late rows if each table has its own, with their places in the file.

    Args:
        late: The tables of late rows.
        letters: Name of the dead-letter table.
    """
    if (route := late.route) is None:
        return
    place: Location = ("event_time", "late", "table")
    if not late.given.names_each:
        said = "has to have {table} in it, such as '{table}_late': each table of the route has columns of its own"
        yield place, f"{said}, and so has the table of its late rows"
        return
    if late.given.location is not None:
        yield ("event_time", "late", "location"), f"is the location of one table, and {late.given.pattern} names many"
    taken = {late.own: "the stream's main table", letters: "the table of the stream's dead letters"}
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
    """Return the tables that a stream commits to: the main table, its coordinator, first; tables of late rows last.

    Args:
        table: Block of the main table.
        dead_letters: Name of the dead-letter table.
        publish: Block `publish`.
        route: Block `route`.
        named: Dynamic tables known so far.
        late: The tables of late rows.
        absent: Tables of the file that do not exist yet, because no record has come for them.
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
    """Return the `table` block of a table of rows: the main table's block with the keys that the table's entry sets.

    A table of late rows has the block of its table of timely rows, with the keys that `event_time.late` sets.
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
    """Return the columns of rows that a table has, beside Kafka's.

    Args:
        table: Block of the main table.
        route: Block `route`.
        late: The tables of late rows.
        name: Name of the table; None for the main table.
        rows: Columns of the rows.
    """
    if route is None or name is None or name == table.name or (late is not None and late.table_of(name)):
        return rows
    chosen = route.columns_of(name)
    return rows if chosen is None else chosen.of(Columns.of(rows)).schema


def lane_columns(route: Route | None, table: Table, name: str) -> LaneColumns | None:
    """Return the chosen columns of one output of a stream whose tables have their own columns; None for all.

    Args:
        route: Block `route`.
        table: Block of the main table.
        name: Name of the table.
    """
    if route is None or name == table.name or (chosen := route.columns_of(name)) is None:
        return None
    at = next((at for at, each in enumerate(route.tables) if each.table == name and each.columns), None)
    return LaneColumns(chosen, ("route", "columns") if at is None else ("route", "tables", at, "columns"))


def branch_in(table: Table, dead_letters: str, route: Route | None, late: LateTables | None, name: str) -> str:
    """Return the branch of a table that the stream writes; main for a table that the file does not name.

    Args:
        table: Block of the main table.
        dead_letters: Name of the dead-letter table.
        route: Block `route`.
        late: The tables of late rows.
        name: Name of the table.
    """
    if name == table.name:
        return table.branch
    if route is None or name == dead_letters or (late is not None and late.table_of(name)):
        return MAIN_BRANCH
    if name in route.table_names or (route.to is not None and value_of_table(route.to, name) is not None):
        return table_settings(table, route, late, name).branch
    return MAIN_BRANCH


def route_table_problems(route: Route | None, every: Schema, table: Table) -> Iterator[Problem]:
    """Yields the problems of a route with the columns of rows, each with its place in the file.

    Args:
        route: The route.
        every: All columns of the rows.
        table: Block of the main table.
    """
    yield from route_column_problems(route, every)
    for number, each in enumerate(route.tables if route else ()):
        # If a table's chosen columns are too few for its settings, the problem is reported at the columns.
        if each.own_settings and each.table != table.name and each.columns is None:
            settings = table_settings(table, route, None, each.table)
            yield from _at(("route", "tables", number), _settings_problems(each, settings, every))


def late_table_problems(late: LateTables | None, every: Schema, table: Table) -> Iterator[Problem]:
    """Yields the problems of a table of late rows with the columns of rows, each with its place in the file.

    Args:
        late: The tables of late rows.
        every: All columns of the rows.
        table: Block of the main table.
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
    """Yields the problems of tables of late rows, given the rest of the file.

    Args:
        late: The tables of late rows.
        table: Block of the main table.
        letters: Name of the dead-letter table.
        route: Block `route`.
        publish: Block `publish`.
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
        yield place, "is the stream's main table; write land"
    if name == letters:
        yield place, "is the table of the stream's dead letters; write dead_letter"
    if route is not None and name in route.table_names:
        yield place, "is a table of the route, which timely rows go to"


_OWN = (
    "cannot be park: {name} is the stream's main table, which is stamped in every batch; if it takes no commit, "
    "nothing is landed"
)
_LOST = (
    "cannot be park beside errors.dead_letters.mask: a dead letter that lacks a part of its record brings no row back"
)
_UNDECODED = (
    "cannot be park where each table has columns and late rows of its own: records of a suspended one are not "
    "decoded, so it is unknown which are late; write event_time.late: land or dead_letter"
)
_UNLOCATED = (
    "cannot be park without the columns of topic, partition, offset and timestamp: rows that come back are looked for "
    "by them; leave table.kafka_columns out"
)


def parks(route: Route, table: str) -> bool:
    """Whether a routed table is suspended (`park`) if it is dropped or refuses a commit."""
    said = (each.on_table_error for each in route.tables if each.table == table and each.on_table_error)
    return next(said, route.on_table_error) == "park"


def without_parking(route: Route | None) -> Route | None:
    """Return the route without suspension of tables."""
    if route is None:
        return None
    tables = tuple(each.model_copy(update={"on_table_error": None}) for each in route.tables)
    return route.model_copy(update={"on_table_error": "stop", "tables": tables})


def late_park_problems(route: Route, event_time: EventTime | None) -> list[Problem]:
    """Returns problems of suspension beside tables of late rows, if tables have their own columns.

    A late record, whose row is in a table of late rows, would also be kept as a dead letter of the suspended table.
    """
    if event_time is None or not isinstance(event_time.late, LateTable):
        return []
    places: list[Location] = [("route",)] if route.on_table_error == "park" else []
    places += [("route", "tables", at) for at, each in enumerate(route.tables) if each.on_table_error == "park"]
    return [((*place, "on_table_error"), _UNDECODED) for place in places]


def park_problems(route: Route | None, table: Table, mask: Mask) -> Iterator[Problem]:
    """Yields the problems of suspension (`on_table_error: park`, a suspended table) in a route.

    Args:
        route: The route.
        table: Block of the main table.
        mask: Parts of a record that dead letters do not keep.
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
            yield place, f"is {each.on_table_error}, and an earlier entry has {other} for {each.table}"
    columns = kafka_columns(table.kafka_columns)
    located = None not in (columns.topic, columns.partition, columns.offset, columns.timestamp)
    for place in places[:1]:
        if not located:
            yield place, _UNLOCATED
        if mask != NO_MASK:
            yield place, _LOST
