"""Problems of changes: what of a stream's file does not go with a changelog, each with its place in the file."""

from __future__ import annotations

from jobs.formats.primitive.schema import COLUMN_TYPES
from jobs.spec.base import Location
from jobs.spec.changes import Changes
from jobs.spec.decode import Decode
from jobs.spec.kafka_columns import kafka_columns
from jobs.spec.route import Route
from jobs.spec.table import Table
from jobs.transform.changes.changelog import KEY

_KAFKA = ("topic", "partition", "offset", "timestamp")


def changes_problems(
    changes: Changes | None, decode: Decode, table: Table, route: Route | None, *, own_columns: bool
) -> list[tuple[Location, str]]:
    """Returns what of a stream's file does not go with a changelog, each with its place.

    Args:
        changes: Of a stream of changes; else None.
        decode: How its records are decoded.
        table: Its table.
        route: Where its rows go, if there are several tables.
        own_columns: Whether each of these has columns of its own, so that records go there before they are decoded.
    """
    if changes is None:
        return []
    problems: list[tuple[Location, str]] = []
    declared = {each.name for each in decode.declared.schema.fields} if decode.declared else None
    before = "before-image" if changes.envelope == "dms" else "before"
    if changes.before and declared is not None and before not in declared:
        problems.append((("changes", "before"), f"keeps '{before}', which decode.schema does not declare"))
    if decode.format in COLUMN_TYPES:
        problems.append((("changes",), f"takes records with fields; values of the format {decode.format} have none"))
    if (key := decode.key) is not None:
        names = key.columns.names if key.columns.is_resolved or key.columns.into else ()
        if tuple(names) != (KEY,):
            said = f"must be {KEY} beside changes, so that the changelog has the records' keys"
            problems.append((("decode", "key", "into"), said))
    columns = kafka_columns(table.kafka_columns)
    if lost := [part for part in _KAFKA if getattr(columns, part) is None]:
        said = "is needed beside changes: the changes of a row are told apart and ordered by it"
        problems.append((("table", "kafka_columns", *(lost[:1] if table.kafka_columns is not False else ())), said))
    if changes.keeps_tombstones and route is not None:
        problems.extend(_tombstone_problems(route, own_columns=own_columns))
    return problems


def _tombstone_problems(route: Route, *, own_columns: bool) -> list[tuple[Location, str]]:
    """Where records without a value would be lost on their way to several tables."""
    said = "upsert, of which records without a value are rows"
    if own_columns:
        return [(("route",), f"over columns that no file declares does not go with {said}: give each topic a stream")]
    parks: list[tuple[Location, str]] = [
        (place, f"park does not go with {said}: what waits for a parked table is kept with its value")
        for place, answer in (
            (("route", "on_table_error"), route.on_table_error),
            *((("route", "tables", at, "on_table_error"), each.on_table_error) for at, each in enumerate(route.tables)),
        )
        if answer == "park"
    ]
    return parks[:1]
