"""Metadata of a contract's check: numbers under stable names, which plot, the rows at fault, and how to find them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dagster as dg

if TYPE_CHECKING:
    from jobs.contract.check_result import TableCheck
    from jobs.contract.outcome import ExpectationOutcome

_SHOWN_RANGES = 100


def outcome_metadata(found: TableCheck, outcome: ExpectationOutcome) -> dict[str, Any]:
    """What there is to say of an expectation's outcome.

    Args:
        found: The check that it is of.
        outcome: Its samples are masked already.
    """
    told: dict[str, Any] = {"rows_checked": found.rows}
    if outcome.elements is not None:
        told["elements"] = outcome.elements
    if outcome.unexpected is not None:
        told["unexpected_rows"] = outcome.unexpected
    if outcome.share is not None:
        told["unexpected_share"] = round(outcome.share, 9)
    told |= {
        "check_seconds": round(found.seconds, 3),
        "severity": outcome.severity,
        "expectation": outcome.type,
        "rows_of": found.extent,
        "engine": found.engine or "none",
        "counts_as_checked": found.recorded,
    }
    if outcome.arguments:
        told["arguments"] = ", ".join(f"{name}: {each}" for name, each in outcome.arguments.items())
    if outcome.observed is not None:
        told["observed"] = outcome.observed
    if outcome.problem is not None:
        told["problem"] = outcome.problem
    told |= {f"meta_{name}": str(each) for name, each in outcome.meta.items()}
    told |= _extent(found)
    if outcome.samples:
        told["samples"] = dg.MetadataValue.table(
            [
                dg.TableRecord({**{name: _scalar(each) for name, each in one.coordinates.items()}, "value": one.value})
                for one in outcome.samples
            ]
        )
    if (sql := found.sql.get(outcome.name)) is not None:
        told["rows_sql"] = dg.MetadataValue.md(f"```sql\n{sql}\n```")
    return told


def _extent(found: TableCheck) -> dict[str, Any]:
    increment = found.found
    if increment is None or increment.head is None:
        return {}
    # As text: a snapshot id is greater than what JavaScript can count to.
    told: dict[str, Any] = {"snapshot_id": str(increment.head.snapshot_id)}
    if found.asked.scope != "increment":
        return told
    told["snapshots_checked"] = len(increment.snapshots)
    if increment.begin is not None:
        told["since_snapshot_id"] = str(increment.begin)
    if increment.first_at is not None and increment.last_at is not None:
        told["first_commit"] = dg.MetadataValue.timestamp(increment.first_at)
        told["last_commit"] = dg.MetadataValue.timestamp(increment.last_at)
    ranges = [(str(source), *each) for source, spans in sorted(increment.ranges.items()) for each in spans]
    if ranges:
        shown = [{"partition": name, "start": start, "end": end} for name, start, end in ranges[:_SHOWN_RANGES]]
        told["offsets"] = dg.MetadataValue.json(shown)
    return told


def _scalar(value: object) -> str | int | float | bool | None:
    return value if value is None or isinstance(value, (str, int, bool)) else str(value)
