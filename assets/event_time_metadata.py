"""Event times and lateness as metadata of assets, each number under a stable key, so that it plots."""

from __future__ import annotations

from typing import Any

import dagster as dg

from jobs.commit.event_times import as_datetime
from jobs.commit.lateness import LATENESS_NAMES, Lateness
from jobs.supervise.heartbeat import Work


def driver_event_metadata(work: Work) -> dict[str, Any]:
    """What a driver tells of the newest batch's event times, and of the late records since it started."""
    told = event_time_metadata(work.event_ms)
    return told if work.watermark_ms is None else told | lateness_metadata(work.late, work.late_by, work.latest_ms)


def event_time_metadata(span_ms: tuple[int, int] | None) -> dict[str, Any]:
    """When the rows happened that a report is about: the first of them, and the last.

    Args:
        span_ms: The least and the greatest event time, milliseconds since 1970; None where no row has one.
    """
    least, greatest = map(as_datetime, span_ms or (None, None))
    if least is None or greatest is None:
        return {}
    return {
        "event_time_least": dg.MetadataValue.timestamp(least),
        "event_time_greatest": dg.MetadataValue.timestamp(greatest),
    }


def lateness_metadata(late: int, late_by: Lateness, latest_ms: int) -> dict[str, Any]:
    """How many records came behind the watermark, by how much, and by how much the latest did.

    Args:
        late: All of them.
        late_by: By the steps that stamps count them in; none of an earlier release's driver.
        latest_ms: Milliseconds.
    """
    told: dict[str, Any] = {"records_late": late, "latest_late_s": latest_ms / 1000}
    if any(late_by):
        steps = zip(LATENESS_NAMES, late_by, strict=True)
        told["late_by"] = dg.MetadataValue.table([dg.TableRecord({"late_by": name, "records": n}) for name, n in steps])
    return told
