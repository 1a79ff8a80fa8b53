"""What is told of a stream that runs by itself, when somebody materializes its table."""

from __future__ import annotations

from typing import Any

import dagster as dg
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

from assets.metadata import counts_table, driver_metadata, instant, table_metadata
from jobs.errors import FrazilError
from jobs.spec.models import StreamSpec
from jobs.spec.settings import Settings
from jobs.state.stream_folder import stream_folder
from jobs.supervise.control_request import read_control
from jobs.supervise.heartbeat import Heartbeat
from resources.catalog import CatalogResource


def refuse_unless_running(stream: str, settings: Settings) -> None:
    """Raise if an operator paused or stopped the stream: then it is not drained either.

    Raises:
        FrazilError: With who did so, why, and the command to resume it.
    """
    control = read_control(stream_folder(settings, stream).store)
    if control.mode != "running":
        raise FrazilError(control.sentence(stream), fix=f"frazil resume {stream}")


def table_or_none(catalog: CatalogResource, name: str) -> Table | None:
    """A table as it is now; None if the driver has not made it yet."""
    try:
        return catalog.table(name)
    except NoSuchTableError:
        return None


def running_metadata(spec: StreamSpec, sentence: str, beat: Heartbeat | None, table: Table | None) -> dict[str, Any]:
    """The table's facts, and where the driver is to be found.

    Args:
        sentence: What seeing to it came to.
        beat: The driver's newest heartbeat.
    """
    metadata: dict[str, Any] = {"done": sentence, **_as_of(beat)}
    if table is not None:
        metadata |= table_metadata(table, spec.table.name)
    if beat is None:
        return metadata
    work = beat.work
    metadata |= driver_metadata(beat) | {"offsets": dg.MetadataValue.json(work.position)}
    if work.unknown_fields:
        metadata["unknown_fields"] = counts_table("field", work.unknown_fields)
    if work.total_lag is not None:
        metadata |= {"consumer_lag_records": work.total_lag, "undecided_records": work.total_undecided}
    if work.valid_through_ms is not None:
        metadata["complete_through"] = instant(work.valid_through_ms / 1000)
    return metadata


def dead_letters_of_running(spec: StreamSpec, beat: Heartbeat | None, table: Table | None) -> dict[str, Any]:
    """The facts of the dead-letter table; nothing before the driver has made it."""
    metadata = table_metadata(table, spec.dead_letter_table) if table is not None else {}
    if beat is None:
        return metadata
    return metadata | driver_metadata(beat) | _as_of(beat) | {"records_dead": beat.work.dead}


def _as_of(beat: Heartbeat | None) -> dict[str, Any]:
    return {} if beat is None else {"as_of": instant(beat.beat_wall)}
