"""Base making, a step of a mirror's maintenance: the newest merge is tagged, and old bases lose their tags.

What may become a base is asked again where it is made: between plan and step the mirror may have been made anew, or
another process may have made a later base, which changes have expired by since.
"""

from __future__ import annotations

import time
from datetime import datetime

import msgspec
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.update.snapshot import ManageSnapshots

from jobs.catalog import find_table
from jobs.commit.compare_and_swap import compare_and_swap, conflicts_as_moved_head
from jobs.commit.expired_changes import EXPIRED_CHANGES, ExpiredChanges, expired_changes
from jobs.commit.stamp_history import history_of
from jobs.errors import FrazilError
from jobs.maintain.mirror_bases import BASE_PREFIX, MirrorBase, former_bases, newest_published, tagged_bases
from jobs.maintain.plan import Step
from jobs.maintain.plan_expiry import BaseForecast
from jobs.maintain.results import StepResult
from jobs.maintain.table_context import TableContext
from jobs.maintain.table_properties import MIRROR_PART
from jobs.spark.jvm_calls import jvm_error_text
from jobs.spec.changes import DELETION_MEMORY
from jobs.spec.mirror import Mirror
from jobs.spec.models import StreamSpec
from jobs.time_travel.tags import TAG_PREFIX, TagNote

_MAKER = "frazil maintain"
# Said of the tag, as a property of the table may let all tags go that say nothing: the longest age there is.
_FOR_EVER_MS = 2**63 - 1


def kept_mirror(context: TableContext) -> tuple[StreamSpec, Mirror] | None:
    """The stream and the mirror that a table is, where its changelog lets changes go, or has; None of all others."""
    for spec in context.specs:
        for changelog, mirror in spec.mirrored if spec.changes is not None else ():
            if mirror.table == context.name and _lets_go(context, spec, changelog):
                return spec, mirror
    return None


def _lets_go(context: TableContext, spec: StreamSpec, changelog: str) -> bool:
    """Whether changes of a changelog expire, or have before `keep` was taken out of the file."""
    if spec.changes is not None and spec.changes.keep is not None:
        return True
    table = find_table(context.catalog, changelog)
    return table is not None and EXPIRED_CHANGES in table.metadata.properties


def base_forecast(context: TableContext, table: Table) -> BaseForecast | None:
    """What a base of a table would be; None of one that needs none.

    Args:
        table: As it is now.
    """
    try:
        found = kept_mirror(context)
        return None if found is None else _forecast(context, table, found[0].stream)
    except FrazilError as problem:
        return BaseForecast(refused=f"{problem.message} {problem.fix or ''}".strip())
    except Exception as problem:
        # The other actions are planned all the same.
        return BaseForecast(refused=f"No base can be made: {jvm_error_text(context.settings, problem)}")


def _expired(context: TableContext) -> ExpiredChanges | None:
    """What has expired of the changelog that a mirror is made from."""
    of = (
        (spec, changelog)
        for spec in context.specs
        for changelog, mirror in spec.mirrored
        if mirror.table == context.name
    )
    for spec, changelog in of:
        if spec.changes is not None and (table := find_table(context.catalog, changelog)) is not None:
            return expired_changes(table.metadata.properties, changelog)
    return None


def _forecast(context: TableContext, table: Table, stream: str) -> BaseForecast:
    expired, name = _expired(context), ".".join(table.name())
    mirror_id, run = f"{stream}{MIRROR_PART}{name}", f"frazil mirror run {stream} --table {name}"
    past = history_of(table, mirror_id)
    stamped = past.newest.mirror if past.newest is not None else {}
    if past.rolled_back or "changelog" not in stamped:
        return BaseForecast(refused=f"Nothing was merged into the mirror, or it was moved back. Next: {run}")
    published = newest_published(table.metadata, mirror_id)
    if published is None or not published.stands_for(None, stamped):
        return BaseForecast(refused=f"The snapshot of its newest merge has expired: the next merge can be one. {run}")
    if not published.stands_for(expired, stamped):
        return BaseForecast(refused=f"The mirror has not merged all changes that have expired. Next: {run}")
    if published.stamped.get("others"):
        said = "Somebody else has changed rows of the mirror, so what it has is not what its changelog says. Next: "
        return BaseForecast(refused=said + run.replace("mirror run", "mirror rebuild"))
    if _waits(published, context.now()):
        said = "Rows whose key changed wait for changes of their former keys, for a week at most. Next: "
        return BaseForecast(refused=f"{said}frazil mirror status {stream}")
    newest = _newest(table, mirror_id, published)
    return BaseForecast(
        published.snapshot_id,
        published.at,
        newest.at if newest else None,
        newest is None or newest.sequence < published.sequence,
    )


def _waits(published: MirrorBase, now: datetime) -> bool:
    """Whether rows wait; no stamp may say that their week is over, as there is none while nothing comes."""
    least = (now - DELETION_MEMORY).timestamp() * 1000
    waiting = published.stamped.get("state", {}).get("waiting", ())
    return any((since or published.stamped.get("at", 0)) > least for _, since, *_ in waiting)


def _newest(table: Table, mirror_id: str, published: MirrorBase) -> MirrorBase | None:
    found = [each for each in tagged_bases(table.metadata, mirror_id) if each.stands_for(None, published.stamped)]
    return max(found, key=lambda each: each.sequence, default=None)


def make_base(context: TableContext, step: Step) -> StepResult:
    """Tag the snapshot of the newest merge, and take the tags off bases that are not needed any more, in one commit.

    Raises:
        FrazilError: None can be made any more, or others committed each time.
    """
    found = kept_mirror(context)
    if found is None:
        raise FrazilError(f"table {context.name} is no mirror whose changelog lets changes go.", fix="frazil validate")
    stream = found[0].stream

    def attempt() -> StepResult:
        table = context.load()
        due = _forecast(context, table, stream)
        if due.refused is not None:
            raise FrazilError(f"table {context.name}: {due.refused}", fix=f"frazil maintain {context.name}")
        if due.snapshot_id is None or not due.newer:
            return StepResult(step, 0, 0, done=False)
        snapshot = table.metadata.snapshot_by_id(due.snapshot_id)
        assert snapshot is not None, "it is on main"
        name = f"{BASE_PREFIX}{snapshot.timestamp_ms}"
        tagged = tagged_bases(table.metadata, f"{stream}{MIRROR_PART}{context.name}")
        ref = table.metadata.refs.get(name)
        if ref is not None and ref.snapshot_ref_type == SnapshotRefType.BRANCH:
            raise FrazilError(
                f"table {context.name} has a branch {name}, which is the name of the base to be made.",
                fix="give the branch another name",
            )
        made = newest_published(table.metadata, f"{stream}{MIRROR_PART}{context.name}")
        assert made is not None, "it is due"
        former = [each.tag for each in former_bases(tagged, made, context.now()) if each.tag != name]
        note = TagNote(_MAKER, time.time(), "a base: stands for the changes before it, which the changelog may let go")
        with conflicts_as_moved_head(), table.transaction() as change:
            change.set_properties({TAG_PREFIX + name: msgspec.json.encode(note).decode()})
            ManageSnapshots(change).create_tag(due.snapshot_id, name, max_ref_age_ms=_FOR_EVER_MS).commit()
            for each in former:
                ManageSnapshots(change).remove_tag(each).commit()
                if TAG_PREFIX + each in table.metadata.properties:
                    change.remove_properties(TAG_PREFIX + each)
        detail: dict[str, str | int | float] = {"tag": name, "snapshot_id": str(due.snapshot_id)}
        if former:
            detail["untagged"] = ", ".join(former)
        return StepResult(step, len(former), 1, detail=detail)

    def given_up(said: str) -> FrazilError:
        return FrazilError(f"{said}; so no base was made.", fix=f"frazil maintain {context.name}")

    return compare_and_swap(context.name, attempt, given_up)
