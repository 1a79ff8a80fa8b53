"""Deletion of old history from Dagster's storage in PostgreSQL: events that belong to no run, checks and control runs.

Dagster deletes runs and ticks by an interface of its own, and never an event of a sensor. Those are deleted in its
tables, of which only the columns named here are relied on, for the line of Dagster that they were read from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import dagster as dg
import sqlalchemy as sa

from jobs.errors import FrazilError

LINE = "1.13"
"""The line of Dagster whose tables these are."""
_PAGE = 5000
_RUNS = 100
# What the pages have in common: `:after` and `:page` bound a page by its ids, which grow with time; each statement is a
# transaction of its own, short enough that nobody waits for it.
_CHECKS = sa.text("""
WITH page AS (
  SELECT id, create_timestamp AS made FROM asset_check_executions
  WHERE run_id = '' AND id > :after ORDER BY id LIMIT :page
), gone AS (
  DELETE FROM asset_check_executions WHERE id IN (SELECT id FROM page WHERE made < :before AND NOT id = ANY(:kept))
  RETURNING id
)
SELECT (SELECT count(*) FROM gone), max(id), bool_or(made < :before) FROM page
""")
# An event goes if its asset has a newer one of its kind, so that a stream that stands still keeps its last word; the
# evaluation of a check, which names no asset there, if it is not the check's newest. Partitions are told once, so they
# stay.
_EVENTS = sa.text("""
WITH page AS (
  SELECT id, timestamp AS made, dagster_event_type AS kind, asset_key, partition FROM event_logs
  WHERE run_id = '' AND id > :after ORDER BY id LIMIT :page
), gone AS (
  DELETE FROM event_logs WHERE id IN (
    SELECT id FROM page WHERE made < :before AND partition IS NULL AND CASE kind
      WHEN 'ASSET_CHECK_EVALUATION' THEN NOT id = ANY(:kept)
      ELSE EXISTS (
        SELECT FROM event_logs AS newer WHERE newer.asset_key = page.asset_key
        AND newer.dagster_event_type = page.kind AND newer.partition IS NULL AND newer.id > page.id
      ) END
  ) RETURNING id
), tags AS (
  DELETE FROM asset_event_tags WHERE event_id IN (SELECT id FROM gone)
)
SELECT (SELECT count(*) FROM gone), max(id), bool_or(made < :before) FROM page
""")
_NEWEST_CHECKS = sa.text("""
SELECT DISTINCT ON (asset_key, check_name, partition) id, evaluation_event_storage_id FROM asset_check_executions
WHERE execution_status IN ('SUCCEEDED', 'FAILED') ORDER BY asset_key, check_name, partition, id DESC
""")


@dataclass(frozen=True, slots=True)
class Deleted:
    """How much was deleted.

    Attributes:
        events: Of no run.
        checks: Entries in the history of checks, told by no run.
        runs: Finished runs, with all that they logged.
    """

    events: int
    checks: int
    runs: int


def why_not(instance: dg.DagsterInstance) -> str | None:
    """Why nothing can be deleted in the storage of this instance, as a sentence; None if it can."""
    dialect = _connected(instance, lambda connection: connection.dialect.name)
    if dialect != "postgresql":
        return f"Dagster's storage is not in PostgreSQL but in {dialect or 'memory'}, so nothing is deleted."
    return None


def delete_history(
    instance: dg.DagsterInstance, before: datetime, jobs: Sequence[str], *, page: int = _PAGE
) -> Deleted:
    """Delete what is older than a time.

    What an asset or a check said last stays, however old it is, and so does each partition. It may be interrupted and
    repeated at any time, and Dagster may run meanwhile.

    Args:
        before: What was told sooner goes; with a time zone.
        jobs: Whose finished runs go. They must have told of no asset: a run's events go with it.
        page: How many rows a transaction looks at.

    Raises:
        FrazilError: The tables are not those of the line of Dagster that this knows.
    """
    _refuse_others(instance)
    naive = before.astimezone(UTC).replace(tzinfo=None)
    newest = _connected(instance, lambda connection: connection.execute(_NEWEST_CHECKS).fetchall()) or ()
    kept = [row[0] for row in newest]
    told = [row[1] for row in newest if row[1] is not None]
    # The checks first: their events are found by the entries that stay.
    checks = _pages(instance, _CHECKS, {"before": naive, "kept": kept, "page": page})
    events = _pages(instance, _EVENTS, {"before": naive, "kept": told, "page": page})
    return Deleted(events, checks, sum(_delete_runs(instance, job, before) for job in jobs))


def _pages(instance: dg.DagsterInstance, statement: sa.TextClause, values: dict[str, Any]) -> int:
    deleted, after, more = 0, 0, True
    while more:
        asked = {**values, "after": after}
        row = _connected(instance, lambda connection, asked=asked: connection.execute(statement, asked).one())
        deleted, after, more = deleted + row[0], row[1] or after, bool(row[2])
    return deleted


def _delete_runs(instance: dg.DagsterInstance, job: str, before: datetime) -> int:
    status = dg.DagsterRunStatus
    ended = [status.SUCCESS, status.FAILURE, status.CANCELED]
    old = dg.RunsFilter(job_name=job, statuses=ended, created_before=before)
    deleted = 0
    while runs := instance.get_runs(old, limit=_RUNS):
        for run in runs:
            instance.delete_run(run.run_id)
        deleted += len(runs)
    return deleted


def _refuse_others(instance: dg.DagsterInstance) -> None:
    if not dg.__version__.startswith(f"{LINE}."):
        raise FrazilError(
            f"This is Dagster {dg.__version__}, and the tables of {LINE} are those that frazil knows.",
            fix=f"pip install 'dagster=={LINE}.*'",
        )
    versions = instance.event_log_storage.alembic_version()
    if versions is not None and versions[0] != versions[1]:
        raise FrazilError(
            f"Dagster's tables are those of another release: revision {versions[0]}, and not {versions[1]}.",
            fix="stop Dagster's services, then dagster instance migrate",
        )


def _connected(instance: dg.DagsterInstance, act: Callable[[sa.Connection], Any]) -> Any:
    """What comes of asking the event log's database; None if it has none. Each statement is committed by itself."""
    connect = getattr(instance.event_log_storage, "index_connection", None)
    if connect is None:
        return None
    with connect() as connection:
        return act(connection)
