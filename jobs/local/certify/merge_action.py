"""Action of the command that merges into a certificate's mirror, and merges all of its changelog once more."""

from __future__ import annotations

from collections import Counter

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from jobs.base.errors import FrazilError
from jobs.clients.catalog.catalog import connect_catalog
from jobs.clients.spark.end import end_spark
from jobs.clients.spark.session import start_session
from jobs.clients.spark.start import SessionOnDemand
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.mirrors.model.changelog_increment import every_file
from jobs.mirrors.model.merge_plan import ORDER_COLUMN
from jobs.mirrors.model.mirror_stamp import attempt_branch, mirrored
from jobs.mirrors.model.session import mirror_session
from jobs.mirrors.run.merging import Merger, load_changelog, merge_plan
from jobs.mirrors.run.mirror_run import IncrementMerger, run_mirror
from jobs.tables.commit.history.stamp_history import history_of

Rows = Counter[tuple[object, ...]]


def merge(spec: StreamSpec, settings: Settings, *, again: bool) -> str:
    """Merge new changes of a stream's changelog into its mirror, and return the result as text.

    Args:
        again: Whether to merge the whole changelog a second time, on a branch, which must change no row.

    Raises:
        FrazilError: The merge failed, or the second merge changed rows.
    """
    session = SessionOnDemand(
        lambda: start_session(settings, "frazil certify, merges", work="sql", conf={"spark.ui.port": "0"}), again=False
    )
    merger, (mirror, *_) = IncrementMerger(settings, session.get), spec.mirrors
    try:
        with connect_catalog(settings) as catalog:
            done = run_mirror(spec, mirror, settings, catalog, merger)
            if again:
                _merge_again(spec, settings, catalog, merger)
    finally:
        end_spark()
    return f"snapshot {done.snapshot_id}"


def _merge_again(spec: StreamSpec, settings: Settings, catalog: Catalog, merger: Merger) -> None:
    """Merge all changes into a branch of a complete mirror, like after an expiry of the changelog's snapshots."""
    mirror = spec.mirrors[0]
    changelog, table = load_changelog(catalog, spec), catalog.load_table(mirror.table)
    with mirror_session(spec, mirror, settings, catalog, table) as session:
        newest = session.read()
        known = mirrored(newest, spec.stream, mirror.table)
        assert known is not None, "it has just been merged into"
        session.claim(newest)
        base = session.target.snapshot_id
        assert base is not None, "it is claimed"
        branch = attempt_branch(session.epoch, 1, "again")
        session.begin_branch(branch, base)
        plan = merge_plan(spec, mirror, changelog, known.key, known.state, known.snapshot_id)
        files = every_file(changelog.metadata, changelog.io, spec.stream)
        result = merger.merge(changelog, files, catalog.load_table(mirror.table), branch, plan)
        merged = catalog.load_table(mirror.table)
        before, after = _rows(merged, base), _rows(merged, merged.metadata.refs[branch].snapshot_id)
        session.drop_branches(lambda _: [branch])
    stamp = history_of(changelog, spec.stream).newest
    problem = merged_again_problem(before, after, result.counts.read, stamp.totals.landed if stamp else 0)
    if problem:
        raise FrazilError(f"All of the changelog was merged again into {mirror.table}: {problem}.")


def merged_again_problem(before: Rows, after: Rows, read: int, landed: int) -> str | None:
    """Problem of a second merge of the same changes; None if it changed nothing.

    Args:
        before, after: Rows of the mirror with their numbers.
        read: Changes that were merged again.
        landed: Changes in the changelog.
    """
    if read < landed:
        return f"{read:,} changes were read, of {landed:,} that are landed"
    others = (before - after) + (after - before)
    return f"{others.total():,} rows are others than before" if others else None


def _rows(table: Table, snapshot_id: int) -> Rows:
    """The rows of a snapshot, without their order: that of a change which was sent twice may become its copy's."""
    found = table.scan(snapshot_id=snapshot_id).to_arrow().drop_columns([ORDER_COLUMN])
    return Counter(zip(*(column.to_pylist() for column in found.columns), strict=True))
