"""Parking in a stream's file: which tables of its route wait where they take no commits, and what goes against it."""

from __future__ import annotations

from jobs.spec.base import Location
from jobs.spec.event_time import EventTime
from jobs.spec.kafka_columns import kafka_columns
from jobs.spec.late import LateTable
from jobs.spec.mask import NO_MASK, Mask
from jobs.spec.route import Route
from jobs.spec.table import Table

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


def late_park_problems(route: Route, event_time: EventTime | None) -> list[tuple[Location, str]]:
    """Returns where a route over columns of tables' own asks for parking that does not go with tables of late rows.

    A record that is late, and has its row in such a table, would be kept as a letter of the other one as well.
    """
    if event_time is None or not isinstance(event_time.late, LateTable):
        return []
    places: list[Location] = [("route",)] if route.on_table_error == "park" else []
    places += [("route", "tables", at) for at, each in enumerate(route.tables) if each.on_table_error == "park"]
    return [((*place, "on_table_error"), _UNDECODED) for place in places]


def park_problems(route: Route | None, table: Table, mask: Mask) -> list[tuple[Location, str]]:
    """Returns what goes against the parking that a route asks for.

    Args:
        route: The route.
        table: The stream's own table.
        mask: What of a record the letters do not keep.
    """
    if route is None:
        return []
    problems: list[tuple[Location, str]] = []
    said: dict[str, str] = {}
    places: list[Location] = [("route", "on_table_error")] if route.on_table_error == "park" else []
    for number, each in enumerate(route.tables):
        if each.on_table_error is None:
            continue
        place: Location = ("route", "tables", number, "on_table_error")
        if each.on_table_error == "park":
            places.append(place)
            if each.table == table.name:
                problems.append((place, _OWN.format(name=table.name)))
        if (other := said.setdefault(each.table, each.on_table_error)) != each.on_table_error:
            problems.append((place, f"is {each.on_table_error}, and an entry before says {other} of {each.table}"))
    columns = kafka_columns(table.kafka_columns)
    located = None not in (columns.topic, columns.partition, columns.offset, columns.timestamp)
    for place in places[:1]:
        if not located:
            problems.append((place, _UNLOCATED))
        if mask != NO_MASK:
            problems.append((place, _LOST))
    return problems
