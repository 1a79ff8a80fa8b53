"""Placeholders of suspended tables, kept in properties of the dead-letter table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from pyiceberg.table.metadata import TableMetadata

from jobs.config.stream.models import StreamSpec
from jobs.tables.commit.history.stamp_history import history
from jobs.tables.commit.stamp.stamps import PROPERTY_PREFIX, Stamp

PARKED_PART = "~parked~"


def parked_id(stream: str, table: str) -> str:
    """Id under which the dead letters of a suspended table are stamped; no stream can have it."""
    return f"{stream}{PARKED_PART}{table}"


def newest_stamps(spec: StreamSpec, tables: Mapping[str, TableMetadata]) -> dict[str, Stamp | None]:
    """Newest stamp of each target of a stream; for a suspended table, the stamp of its placeholder.

    Args:
        tables: Metadata of the existing tables, by name.
    """
    found = {name: history(metadata, spec.stream).newest for name, metadata in tables.items()}
    anchored, letters = found.get(spec.coordinator), tables.get(spec.dead_letter_table)
    if anchored is not None and letters is not None:
        for name in anchored.parked:
            found[name] = history(letters, parked_id(spec.stream, name)).newest
    return found


def parked_places(letters: TableMetadata, stream: str) -> dict[str, Stamp]:
    """Newest stamp of each placeholder, by the name of the table that is or was suspended."""
    start = f"{PROPERTY_PREFIX}{stream}{PARKED_PART}"
    names = sorted(key.removeprefix(start) for key in letters.properties if key.startswith(start))
    found = {name: history(letters, parked_id(stream, name)).newest for name in names}
    return {name: stamp for name, stamp in found.items() if stamp is not None}


def lost_letters(newest: Stamp | None, places: Mapping[str, Stamp]) -> dict[str, int]:
    """Number of missing dead letters by suspended table; tables without missing ones are left out.

    Args:
        newest: The coordinator's newest stamp, which has the number of dead letters written.
        places: Newest stamps of the placeholders in the current dead-letter table.
    """
    held = newest.held if newest else {}
    there = {name: places[name].totals.read if name in places else 0 for name in held}
    return {name: held[name] - there[name] for name in sorted(held) if held[name] > there[name]}


def told_lost(newest: Stamp, lost: Mapping[str, int]) -> Iterator[str]:
    """Sentences about missing dead letters, one for each table, with the next command.

    Args:
        lost: Number of missing dead letters by table.
    """
    for name, count in lost.items():
        since = datetime.fromtimestamp(newest.parked.get(name, 0) / 1000, UTC)
        yield (
            f"{count:,} of the {newest.held[name]:,} dead letters with rows of suspended table {name} are missing: "
            "their table was dropped, or rolled back. Restore them if you have a copy; or read the records again: "
            f"`frazil reset-offsets {newest.stream} --to …`, to before {since:%Y-%m-%dT%H:%M:%SZ}, when it was "
            "suspended. Without --yes the command only shows what becomes of the other tables' rows"
        )
