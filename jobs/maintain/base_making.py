"""Base making, a step of a mirror's maintenance: the newest merge is tagged, and the base before loses its tag."""

from __future__ import annotations

import time

import msgspec
from pyiceberg.table import Table
from pyiceberg.table.update.snapshot import ManageSnapshots

from jobs.commit.compare_and_swap import compare_and_swap, conflicts_as_moved_head
from jobs.commit.stamp_history import history_of
from jobs.errors import FrazilError
from jobs.maintain.mirror_bases import BASE_PREFIX, MirrorBase, newest_published, tagged_bases
from jobs.maintain.mirror_property import MIRROR_PART
from jobs.maintain.plan import Step
from jobs.maintain.plan_changes import BaseForecast
from jobs.maintain.results import StepResult
from jobs.maintain.table_context import TableContext
from jobs.spark.jvm_calls import jvm_error_text
from jobs.spec.mirror import Mirror
from jobs.spec.models import StreamSpec
from jobs.time_travel.tags import TAG_PREFIX, TagNote, ends_at

_MAKER = "frazil maintain"


def kept_mirror(context: TableContext) -> tuple[StreamSpec, Mirror] | None:
    """The stream and the mirror that a table is, where its changelog lets changes go; None of any other table."""
    for spec in context.specs:
        if spec.changes is not None and spec.changes.keep is not None:
            for _, mirror in spec.mirrored:
                if mirror.table == context.name:
                    return spec, mirror
    return None


def base_forecast(context: TableContext, table: Table) -> BaseForecast | None:
    """What a base of a table would be; None of one that needs none.

    Args:
        table: As it is now.
    """
    found = kept_mirror(context)
    if found is None:
        return None
    mirror_id = f"{found[0].stream}{MIRROR_PART}{context.name}"
    try:
        return _forecast(table, mirror_id, f"frazil mirror run {found[0].stream} --table {context.name}")
    except FrazilError as problem:
        return BaseForecast(refused=f"{problem.message} {problem.fix or ''}".strip())
    except Exception as problem:
        # The other actions are planned all the same.
        return BaseForecast(refused=f"No base can be made: {jvm_error_text(context.settings, problem)}")


def _forecast(table: Table, mirror_id: str, run: str) -> BaseForecast:
    past = history_of(table, mirror_id)
    stamped = past.newest.mirror if past.newest is not None else {}
    if past.rolled_back or "changelog" not in stamped:
        return BaseForecast(refused=f"Nothing was merged into the mirror, or it was moved back. Next: {run}")
    published = newest_published(table.metadata, mirror_id)
    if published is None or not published.stands_for(None, stamped):
        return BaseForecast(refused=f"The snapshot of its newest merge has expired: the next merge can be one. {run}")
    if published.stamped.get("others"):
        said = "Somebody else has changed rows of the mirror, so what it has is not what its changelog says. Next: "
        return BaseForecast(refused=said + run.replace("mirror run", "mirror rebuild"))
    newest = _newest(table, mirror_id, published)
    return BaseForecast(
        published.snapshot_id,
        published.at,
        newest.at if newest else None,
        newest is None or newest.sequence < published.sequence,
    )


def _newest(table: Table, mirror_id: str, published: MirrorBase) -> MirrorBase | None:
    found = [each for each in tagged_bases(table.metadata, mirror_id) if each.stands_for(None, published.stamped)]
    return max(found, key=lambda each: each.sequence, default=None)


def make_base(context: TableContext, step: Step) -> StepResult:
    """Tag the snapshot that the plan says, and take the tags off all bases before it, in one commit.

    Raises:
        FrazilError: The snapshot is gone, or others committed each time.
    """
    snapshot_id = int(step.detail["snapshot_id"])
    found = kept_mirror(context)
    mirror_id = f"{found[0].stream if found else ''}{MIRROR_PART}{context.name}"

    def attempt() -> StepResult:
        table = context.load()
        snapshot = table.metadata.snapshot_by_id(snapshot_id)
        if snapshot is None:
            raise FrazilError(
                f"table {context.name}: snapshot {snapshot_id}, which was to become a base, has expired.",
                fix=f"frazil maintain {context.name}",
            )
        name = f"{BASE_PREFIX}{snapshot.timestamp_ms}"
        former = [each.tag for each in tagged_bases(table.metadata, mirror_id) if each.tag != name]
        note = TagNote(_MAKER, time.time(), "a base: stands for the changes before it, which the changelog may let go")
        with conflicts_as_moved_head(), table.transaction() as change:
            change.set_properties({TAG_PREFIX + name: msgspec.json.encode(note).decode()})
            ManageSnapshots(change).create_tag(snapshot_id, name).commit()
            for each in former:
                ManageSnapshots(change).remove_tag(each).commit()
                if TAG_PREFIX + each in table.metadata.properties:
                    change.remove_properties(TAG_PREFIX + each)
        detail: dict[str, str | int | float] = {"tag": name, "snapshot_id": str(snapshot_id)}
        if former:
            detail["untagged"] = ", ".join(former)
        if ends := ends_at(table.metadata, table.metadata.refs[name]):
            said = "history.expire.max-ref-age-ms of the table lets the tag go at"
            detail["warning"] = f"{said} {ends:%Y-%m-%d %H:%M} UTC"
        return StepResult(step, len(former), 1, detail=detail)

    def given_up(said: str) -> FrazilError:
        return FrazilError(f"{said}; so no base was made.", fix=f"frazil maintain {context.name}")

    return compare_and_swap(context.name, attempt, given_up)
