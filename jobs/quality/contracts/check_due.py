"""Due check of a contract: whether snapshots are unchecked, from tables' metadata only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyiceberg.table.metadata import TableMetadata

from jobs.config.contract.contract import Expectation
from jobs.config.contract.expectation_catalogue import OF_NO_ROWS
from jobs.config.stream.models import StreamSpec
from jobs.quality.contracts.check import contract_of
from jobs.quality.incremental_scan.increment import snapshots_since
from jobs.quality.incremental_scan.validated_position import validated_position


@dataclass(frozen=True, slots=True)
class DueCheck:
    """Unchecked rows of a stream.

    Attributes:
        due: Whether to check now.
        sentence: Reason, or why not.
        silent: Whether nothing is new, and the contract may fail because of that.
        position: Value that changes when anything is recorded as checked.
    """

    due: bool
    sentence: str
    position: tuple[int, ...] = ()
    silent: bool = False


def due_check(spec: StreamSpec, tables: Mapping[str, TableMetadata], now: float) -> DueCheck:
    """Whether a stream's contract requires a check now.

    Args:
        tables: Metadata of the stream's existing tables, by name.
        now: Present time, seconds since 1970.
    """
    asked = spec.contract.check if spec.contract is not None else None
    if asked is None or asked.schedule is not None:
        return DueCheck(due=False, sentence="it is not to be checked by how much is new")
    positions: list[int] = []
    new, first_ms = 0, None
    for target in spec.targets:
        if target.name not in tables or not contract_of(spec, target):
            continue
        metadata = tables[target.name]
        position = validated_position(metadata.properties, spec.stream, target.branch)
        positions.append(position.sequence if position else -1)
        since = snapshots_since(metadata, spec.stream, positions[-1], target.branch)
        new = max(new, len(since))
        times = [each.timestamp_ms for each in since] + ([first_ms] if first_ms is not None else [])
        first_ms = min(times, default=None)
    at = tuple(positions)
    if first_ms is None:
        silent = any(
            _misses_rows(each) for target in spec.targets if target.name in tables for each in contract_of(spec, target)
        )
        return DueCheck(due=False, sentence="nothing is new", position=at, silent=silent)
    age = now - first_ms / 1000
    said = f"{new:,} {'snapshot was' if new == 1 else 'snapshots were'} not checked, the first for {age:,.0f} s"
    many = asked.after_snapshots is not None and new >= asked.after_snapshots
    old = asked.every is not None and age >= asked.every.total_seconds()
    return DueCheck(many or old, said, at)


def _misses_rows(expectation: Expectation) -> bool:
    """Whether an expectation may fail only because no rows arrive."""
    given = expectation.arguments
    least = (given.get("min_value"), given.get("value"), given.get("min_ratio"))
    return expectation.type in OF_NO_ROWS and any(least)
