"""Places of parked tables, as the dead letters' properties have them."""

from __future__ import annotations

from collections.abc import Mapping

from pyiceberg.table.metadata import TableMetadata

from jobs.commit.stamp_history import history
from jobs.commit.stamps import PROPERTY_PREFIX, Stamp
from jobs.spec.models import StreamSpec

PARKED_PART = "~parked~"


def parked_id(stream: str, table: str) -> str:
    """The id under which the letters of a parked table are stamped; no stream can have it."""
    return f"{stream}{PARKED_PART}{table}"


def newest_stamps(spec: StreamSpec, tables: Mapping[str, TableMetadata]) -> dict[str, Stamp | None]:
    """The newest stamp of each target of a stream; of a parked one, that of its place among the letters.

    Args:
        spec: The stream, with the tables that values have named.
        tables: The metadata of those that are there.
    """
    found = {name: history(metadata, spec.stream).newest for name, metadata in tables.items()}
    anchored, letters = found.get(spec.coordinator), tables.get(spec.dead_letter_table)
    if anchored is not None and letters is not None:
        for name in anchored.parked:
            found[name] = history(letters, parked_id(spec.stream, name)).newest
    return found


def parked_places(letters: TableMetadata, stream: str) -> dict[str, Stamp]:
    """The newest stamp of the place of each table that ever was parked, by the table's name.

    Args:
        letters: Of the dead letters.
        stream: The stream's id.
    """
    start = f"{PROPERTY_PREFIX}{stream}{PARKED_PART}"
    names = sorted(key.removeprefix(start) for key in letters.properties if key.startswith(start))
    found = {name: history(letters, parked_id(stream, name)).newest for name in names}
    return {name: stamp for name, stamp in found.items() if stamp is not None}
