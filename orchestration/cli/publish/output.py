"""A publication, or what is held at a stream's gate, as people and programs read it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from jobs.commit.offsets import by_topic, describe_ranges
from jobs.publish.gate import Gate
from jobs.publish.publishing import Published
from jobs.spec.models import StreamSpec
from orchestration.formatting import span


def published_facts(spec: StreamSpec, done: Published, gate: Gate | None = None, became: str = "") -> dict[str, Any]:
    """What was, or would be, published; times in UTC, offsets by topic and partition.

    Args:
        gate: Of a gated stream, as it is now.
        became: What came of the interval there.
    """
    found = done.interval
    return {
        "stream": spec.stream,
        "table": spec.table.name,
        "branch": spec.branch_of(spec.table.name),
        "snapshot_id": done.snapshot_id,
        **({"gate": _gate_facts(gate, became)} if gate else {}),
        "rows": found.rows if found else 0,
        "files": len(found.files) if found else 0,
        "snapshots": list(found.snapshots) if found else [],
        "first_at": found.first_at.isoformat() if found and found.first_at else None,
        "last_at": found.last_at.isoformat() if found and found.last_at else None,
        "from": by_topic({p: range_.start for p, range_ in found.ranges.items()}) if found else {},
        "to": by_topic({p: range_.end for p, range_ in found.ranges.items()}) if found else {},
    }


def published_lines(spec: StreamSpec, done: Published, *, only_shown: bool) -> list[str]:
    """What was, or would be, published, for people."""
    branch, table, found = spec.branch_of(spec.table.name), spec.table.name, done.interval
    if found is None:
        return [f"Branch {branch} of table {table} is not there yet: the stream has landed nothing."]
    if not found.files:
        return [f"Nothing to publish: main of table {table} has all that stream {spec.stream} landed on {branch}."]
    what = f"{found.rows:,} rows in {len(found.files):,} files of {len(found.snapshots):,} snapshots on {branch}"
    lines = [
        f"To be published to main of table {table}: {what}."
        if only_shown
        else f"Published to main of table {table}, as snapshot {done.snapshot_id}: {what}."
    ]
    if found.ranges:
        lines.append(f"  offsets {describe_ranges(found.ranges)}")
    if found.first_at and found.last_at:
        age = span((datetime.now(UTC) - found.first_at).total_seconds())
        first, last = (f"{each:%Y-%m-%d %H:%M:%S}" for each in (found.first_at, found.last_at))
        lines.append(f"  landed from {first} to {last} UTC, {age} ago at most")
    if found.others:
        lines.append(f"  {found.others:,} files on the branch are of other streams, which publish them themselves")
    return [*lines, f"  Next: frazil publish {spec.stream}"] if only_shown else lines


def _gate_facts(gate: Gate, became: str) -> dict[str, Any]:
    held = gate.held
    return {
        "became": became or None,
        "generation": gate.generation,
        "held": held
        and {
            "rows": held.rows,
            "from": by_topic({p: range_.start for p, range_ in held.ranges.items()}),
            "to": by_topic({p: range_.end for p, range_ in held.ranges.items()}),
            "since": held.since.isoformat(),
            "first_at": held.first_at and held.first_at.isoformat(),
            "reasons": list(held.reasons),
        },
    }


def held_lines(spec: StreamSpec, gate: Gate) -> list[str]:
    """What is held at the gate of a stream, why, and how it goes on; none if nothing is."""
    held = gate.held
    if held is None:
        return []
    branch, file = spec.branch_of(spec.table.name), f"streams/{spec.stream}.yaml"
    age = span((datetime.now(UTC) - held.since).total_seconds())
    return [
        f"Held: {held.rows:,} rows on {branch} are not published to main of table {spec.table.name}, for {age}.",
        *([f"  offsets {describe_ranges(held.ranges)}"] if held.ranges else []),
        *(f"  {reason}" for reason in held.reasons),
        f"  Next: frazil release {spec.stream} --reason TEXT, to publish them as they are; frazil discard "
        f"{spec.stream} --reason TEXT, to make dead letters of them; or correct the contract in {file}, then frazil "
        f"publish {spec.stream}",
    ]
