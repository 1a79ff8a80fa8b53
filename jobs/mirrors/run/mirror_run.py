"""Runs and rebuilds of a stream's mirrors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from jobs.base.errors import FrazilError
from jobs.clients.state_store.mirror_problem import forget_problem
from jobs.config.settings.settings import Settings
from jobs.config.stream.mirror import Mirror
from jobs.config.stream.models import StreamSpec
from jobs.mirrors.fold.merge_sql import branch_path, table_path
from jobs.mirrors.fold.merging_session import merging_session
from jobs.mirrors.merge.merge import merge_increment
from jobs.mirrors.merge.mirror_table import ensure_mirror, mirror_key
from jobs.mirrors.merge.small_merge.small_merge import merge_small
from jobs.mirrors.model.changed_topics import refuse_recreated_topics
from jobs.mirrors.model.changelog_increment import changelog_increment, hold_changelog, refuse_incomplete
from jobs.mirrors.model.merge_plan import MergePlan, MergeResult
from jobs.mirrors.model.mirror_stamp import mirror_id, mirrored, refuse_other_rows
from jobs.mirrors.model.session import LOCK_SECONDS, mirror_session
from jobs.mirrors.run.merging import How, Merged, Merger, load_changelog, merge_new
from jobs.mirrors.run.mirror_status import pending_letters
from jobs.mirrors.run.publication import stamp_is_due
from jobs.tables.commit.history.lineage import ancestors
from jobs.tables.commit.history.stamp_history import history_of
from jobs.tables.commit.protocol.named_tables import with_named_tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class IncrementMerger:
    """Merger that merges few changes in this process and all others with Spark, which starts when it is needed.

    Args:
        settings: Settings of the deployment.
        spark: Returns a session for SQL.
    """

    def __init__(self, settings: Settings, spark: Callable[[], SparkSession]) -> None:
        self._settings: Settings = settings
        self._spark: Callable[[], SparkSession] = spark

    def merge(
        self, changelog: Table, files: Sequence[DataFile], mirror: Table, branch: str, plan: MergePlan
    ) -> MergeResult:
        """See `Merger`."""
        # Both produce the same rows, and can continue each other's merges.
        small = merge_small(changelog, files, mirror, branch, plan)
        if small is not None:
            return small
        return merge_increment(self._spark(), self._settings, changelog, files, mirror, branch, plan)

    def clear(self, mirror: Table, branch: str) -> None:
        """See `Merger`."""
        head = mirror.metadata.refs[branch].snapshot_id
        snapshot = next(ancestors(mirror.metadata, head))
        if snapshot.summary is not None and snapshot.summary["total-data-files"] == "0":
            return
        path = branch_path(table_path(self._settings, mirror), branch)
        merging_session(self._spark(), self._settings).sql(f"DELETE FROM {path}")


def run_mirror(
    spec: StreamSpec,
    mirror: Mirror,
    settings: Settings,
    catalog: Catalog,
    merger: Merger,
    *,
    wait_seconds: float = LOCK_SECONDS,
) -> Merged:
    """Merge new changes of the changelog into one mirror; a session is opened only if there are some.

    Raises:
        LeaseHeldError, TableBusyError: Another process merges into the table, or maintains it.
        FrazilError: See `merge_new`.
    """
    changelog = load_changelog(catalog, spec)
    table = ensure_mirror(spec, mirror, catalog, changelog.schema())
    past = history_of(table, mirror_id(spec.stream, mirror.table))
    known = None if past.rolled_back else mirrored(past.newest, spec.stream, mirror.table)
    done: Merged | None = None
    if known is not None:
        found = changelog_increment(changelog.metadata, changelog.io, spec.stream, mirror.table, known)
        refuse_other_rows(spec, mirror, known, mirror_key(spec, mirror, changelog.schema()))
        refuse_recreated_topics(spec, mirror, changelog, known)
        if not found.files and not stamp_is_due(known, found, changelog.metadata):
            done = Merged(None, found, None, known)
    if done is None:
        with mirror_session(spec, mirror, settings, catalog, table, wait_seconds=wait_seconds) as session:
            done = merge_new(session, merger, partial(pending_letters, spec, catalog))
    _hold(spec, mirror, catalog, done)
    forget_problem(settings, spec.stream, mirror.table)
    return done


def rebuild_mirror(
    spec: StreamSpec,
    mirror: Mirror,
    settings: Settings,
    catalog: Catalog,
    merger: Merger,
    *,
    incomplete: bool = False,
) -> Merged:
    """Rebuild a mirror from the whole changelog; readers get the new mirror in one commit.

    Args:
        incomplete: Whether to accept a changelog that lacks rows which the stream has landed there.

    Raises:
        LeaseHeldError, TableBusyError: Another process merges into the table, or maintains it.
        FrazilError: The changelog lacks rows; or see `merge_new`.
    """
    changelog = load_changelog(catalog, spec)
    if not incomplete:
        refuse_incomplete(spec, mirror, changelog)
    how: How = "incomplete" if incomplete else "anew"
    table = ensure_mirror(spec, mirror, catalog, changelog.schema())
    with mirror_session(spec, mirror, settings, catalog, table) as session:
        done = merge_new(session, merger, partial(pending_letters, spec, catalog), how=how)
    _hold(spec, mirror, catalog, done)
    forget_problem(settings, spec.stream, mirror.table)
    return done


def chosen_mirrors(spec: StreamSpec, catalog: Catalog, named: str | None = None) -> list[tuple[StreamSpec, Mirror]]:
    """Return the mirror of a name, or all, each with the spec of its stream for its changelog.

    Args:
        spec: Spec of the stream.
        catalog: Catalog with the stream's dynamic tables.
        named: Name of a mirror; None for all.

    Raises:
        FrazilError: The stream has no mirrors, or none of that name.
    """
    if not spec.mirrors:
        raise FrazilError(
            f"stream {spec.stream} has no mirrors.",
            fix=f"write mirrors: [{{table: {spec.table.name}_mirror}}] into streams/{spec.stream}.yaml",
        )
    whole = with_named_tables(spec, catalog)
    every = [(whole.for_table(changelog), mirror) for changelog, mirror in whole.mirrored]
    if named is not None and named not in (names := [mirror.table for _, mirror in every]):
        raise FrazilError(
            f"stream {spec.stream} has no mirror {named}; it has {', '.join(names) or 'none yet'}.",
            fix=f"frazil mirror status {spec.stream}",
        )
    return [(of, mirror) for of, mirror in every if named in (None, mirror.table)]


def _hold(spec: StreamSpec, mirror: Mirror, catalog: Catalog, done: Merged) -> None:
    """Record the mirror's snapshot on the changelog, so that later snapshots do not expire."""
    if done.stamp is not None:
        hold_changelog(catalog, spec.table.name, spec.stream, mirror.table, done.stamp.snapshot_id)
