"""Output of `frazil mirror …` as text and as JSON: results of merges, status, and comparisons."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from jobs.base.errors import FrazilError
from jobs.config.stream.mirror import Mirror
from jobs.config.stream.models import StreamSpec
from jobs.mirrors.check.consistency import (
    KINDS,
    Consistency,
    consistency_fix,
    consistency_sentence,
)
from jobs.mirrors.check.source_report import (
    SourceConsistency,
    key_sentence,
    lsn,
    source_fix,
    source_sentence,
)
from jobs.mirrors.model.merge_plan import MirrorState
from jobs.mirrors.model.mirror_stamp import MirrorStamp, SourcePosition, source_position
from jobs.mirrors.run.merging import Merged
from jobs.mirrors.run.mirror_status import MirrorStatus
from jobs.tables.commit.stamp.offsets import Positions, by_topic
from orchestration.formatting import span


def merged_facts(spec: StreamSpec, mirror: Mirror, done: Merged) -> dict[str, Any]:
    """Result of a merge as JSON; times are in UTC, offsets are by topic and partition."""
    return {
        "table": mirror.table,
        "changelog": spec.table.name,
        "snapshot_id": done.snapshot_id,
        "attempts": done.attempts,
        "files": len(done.increment.files) if done.result else 0,
        # Rows never wait for changes of a former key any more, but the field is public.
        "changes": dataclasses.asdict(done.result.counts) | {"awaited": 0} if done.result else None,
        **_position_facts(source_position(done.stamp, spec.stream) if done.stamp else None),
    }


def merged_lines(spec: StreamSpec, mirror: Mirror, done: Merged) -> Iterator[str]:
    """Yield the result of a merge as text."""
    if done.result is None:
        if done.increment.until is None:
            yield f"Mirror {mirror.table}: the changelog {spec.table.name} has nothing yet."
        else:
            yield f"Mirror {mirror.table} has all that changelog {spec.table.name} has."
        return
    counts = done.result.counts
    yield (
        f"Mirror {mirror.table}: {counts.read:,} changes are merged, published as snapshot {done.snapshot_id}: "
        f"{counts.upserts:,} rows set, {counts.deletes:,} deleted."
    )
    left_out = {
        "sent twice by the source": counts.repeats,
        "late, whose keys were collapsed again": counts.late - counts.too_late,
        "left out, from before changes that have expired": counts.too_late,
        "truncates": counts.truncates,
        "rows outside of the filter": counts.filtered,
        "values that no change in the changelog has": counts.unresolved,
    }
    said = "; ".join(f"{number:,} {what}" for what, number in left_out.items() if number)
    if said:
        yield f"  of them {said}"
    if done.increment.why:
        yield f"  all of the changelog was read: {done.increment.why}"
    yield from _through_lines(spec, done.stamp)


def status_facts(spec: StreamSpec, found: MirrorStatus) -> dict[str, Any]:
    """Status of a mirror as JSON; times are in UTC, offsets are by topic and partition."""
    now, stamp = datetime.now(UTC), found.stamp
    return {
        "table": found.table,
        "changelog": spec.table.name,
        "changelog_snapshot": stamp.snapshot_id if stamp else None,
        "changelog_at": _instant(stamp.at_ms) if stamp else None,
        "offsets": _offsets(found.offsets),
        **_position_facts(found.position),
        "merged_at": found.merged_at.isoformat() if found.merged_at else None,
        "lag_rows": found.lag_rows,
        "lag_seconds": found.lag_seconds(now),
        "letters_pending": found.letters,
        "letters_at_merge": stamp.letters if stamp else None,
        "too_late": stamp.too_late if stamp else None,
        "rows_waiting": len(stamp.state.waiting) if stamp else None,
        "values_unresolved": stamp.unresolved if stamp else None,
        "others_wrote": list(found.others),
        "problem": found.problem.message if found.problem else None,
        "fix": found.problem.fix if found.problem else None,
    }


def status_lines(spec: StreamSpec, found: MirrorStatus) -> Iterator[str]:
    """Yield the status of a mirror as text."""
    now, stamp = datetime.now(UTC), found.stamp
    yield f"{found.table}, the mirror of changelog {spec.table.name}"
    if stamp is None:
        yield "  nothing is merged yet"
    else:
        yield from _through_lines(spec, stamp)
        offsets = ", ".join(f"{partition} {offset:,}" for partition, offset in sorted((found.offsets or {}).items()))
        if offsets:
            yield f"  offsets     {offsets}"
    seconds = found.lag_seconds(now)
    if found.lag_rows:
        yield f"  lag         {found.lag_rows:,} changes, for {span(seconds or 0.0)}: frazil mirror run {spec.stream}"
    elif found.lag_rows is not None:
        yield "  lag         none"
    if found.letters:
        yield (
            f"  letters     {found.letters:,} dead letters have not come back, and it lacks their changes: frazil "
            f"letters {spec.stream}"
        )
    if stamp is not None and stamp.too_late:
        yield f"  too late    {stamp.too_late:,} changes from before those that expired came late: they are left out"
    if stamp is not None and stamp.state.waiting:
        yield f"  waiting     {len(stamp.state.waiting):,} rows whose key changed lack values: the next merge stops"
    if stamp is not None and stamp.unresolved:
        yield (
            f"  not sent    {stamp.unresolved:,} values were not sent, and no change has them: they are null, or as "
            "they were before the key changed"
        )
    if found.others:
        yield (
            f"  others      somebody else has changed rows, in snapshots {', '.join(map(str, found.others))}: "
            f"frazil mirror rebuild {spec.stream} --table {found.table}"
        )
    if found.problem is not None:
        yield f"  problem     {found.problem.message}"
        if found.problem.fix:
            yield f"  next        {found.problem.fix}"


def source_agrees(source: SourceConsistency | FrazilError | None) -> bool:
    """Whether a comparison with the source found no difference, or the file names no source."""
    return source is None or (isinstance(source, SourceConsistency) and source.agrees)


def checked_facts(
    mirror: Mirror, found: Consistency | None, source: SourceConsistency | FrazilError | None
) -> dict[str, Any]:
    """Result of a mirror's comparisons as JSON; null before the first merge.

    Args:
        mirror: The mirror.
        found: Result of the comparison with the changelog; None before the first merge.
        source: Result of the comparison with the source, or the reason why it failed; None if the file names no source.
    """
    if found is None:
        return {"table": mirror.table, "consistent": None}
    facts: dict[str, Any] = {
        "table": mirror.table,
        "consistent": found.consistent and source_agrees(source),
        "snapshot_id": found.snapshot_id,
        "changelog_snapshot": found.changelog_snapshot,
        "buckets_looked_at": found.looked_at,
        "rows_expected": found.rows,
        "rows_found": found.found,
        "wrong": dict(found.counts),
        "examples": [
            {"what": what, "key": {name: str(value) for name, value in key.items()}} for what, key in found.examples
        ],
        "letters_pending": found.letters,
    }
    return facts if source is None else {**facts, "source": _source_facts(source)}


def _source_facts(found: SourceConsistency | FrazilError) -> dict[str, Any]:
    if isinstance(found, FrazilError):
        return {"agrees": None, "problem": found.message, "fix": found.fix}
    return {
        "source": found.source,
        "agrees": found.agrees,
        "buckets_looked_at": found.looked_at,
        "rows_source": found.source_rows,
        "rows_mirror": found.mirror_rows,
        "as_of": lsn(found.position),
        "mirror_through": lsn(found.reached) if found.reached is not None else None,
        # A source behind its mirror is an error instead.
        "source_is_behind": False,
        "wrong": {kind: found.wrong.get(kind, 0) for kind in KINDS},
        "unsettled": {kind: found.unsettled.get(kind, 0) for kind in KINDS},
        "looked_at_again": found.again,
        "rows_unread": found.unread,
        "examples": [
            {"what": each.what, "key": dict(each.key), "columns": list(each.columns), "certain": each.certain}
            for each in found.examples
        ],
        "columns_compared": list(found.compared),
        "columns_left_out": [{"column": name, "reason": reason} for name, reason in found.left_out],
    }


def checked_lines(
    spec: StreamSpec, mirror: Mirror, found: Consistency | None, source: SourceConsistency | FrazilError | None
) -> Iterator[str]:
    """Yield the results of a mirror's comparisons as text, without the error of a failed one with the source."""
    if found is None:
        yield f"Nothing is merged into {mirror.table} yet."
        yield f"Next: frazil mirror run {spec.stream} --table {mirror.table}"
        return
    yield consistency_sentence(found)
    for what, key in found.examples:
        yield f"  {what:<10}{', '.join(f'{name} = {value}' for name, value in key.items())}"
    if fix := consistency_fix(spec, found):
        yield f"Next: {fix}"
    if not isinstance(source, SourceConsistency):
        return
    yield source_sentence(source)
    for each in source.examples:
        yield f"  {key_sentence(each)}{'' if each.certain else ', perhaps by a change on its way'}"
    for name, reason in source.left_out:
        yield f"  not compared: {name}, {reason}"
    if fix := source_fix(spec, source, changelog_agrees=not found.wrong, letters=found.letters):
        yield f"Next: {fix}"


def accepted_lines(spec: StreamSpec, mirror: Mirror, said: MirrorState) -> Iterator[str]:
    """Yield the recorded answer as text."""
    yield f"Mirror {mirror.table}: a new source timeline begins at"
    newest = max((each.number for breaks in said.breaks.values() for each in breaks), default=0)
    for partition, breaks in sorted(said.breaks.items()):
        for each in breaks:
            if each.number == newest:
                yield f"  {partition} offset {each.since:,}"
    yield f"Next: frazil mirror run {spec.stream}"


def accepted_facts(mirror: Mirror, state: MirrorState) -> dict[str, Any]:
    """Recorded or planned answer as JSON: the offsets from which a new source timeline begins."""
    newest = max((each.number for breaks in state.breaks.values() for each in breaks), default=0)
    return {
        "table": mirror.table,
        "begins": [
            {"topic": at.topic, "partition": at.partition, "offset": each.since}
            for at, breaks in sorted(state.breaks.items())
            for each in breaks
            if each.number == newest
        ],
    }


def _through_lines(spec: StreamSpec, stamp: MirrorStamp | None) -> Iterator[str]:
    if stamp is None:
        return
    at = datetime.fromtimestamp(stamp.at_ms / 1000, UTC)
    yield f"  true for    changelog snapshot {stamp.snapshot_id}, of {at:%Y-%m-%d %H:%M:%S} UTC"
    where = source_position(stamp, spec.stream)
    if where is not None:
        of = f" of {where.lineage}" if where.lineage else ""
        when = f", {_time(where.at_us):%Y-%m-%d %H:%M:%S} UTC" if where.at_us is not None else ""
        yield f"  source      position {where.position}{of}{when}"


def _position_facts(where: SourcePosition | None) -> dict[str, Any]:
    return {
        "source_position": where.position if where else None,
        "source_lineage": where.lineage if where else None,
        "source_at": _time(where.at_us).isoformat() if where and where.at_us is not None else None,
    }


def _offsets(offsets: Positions | None) -> dict[str, Any] | None:
    return dict(by_topic(offsets)) if offsets is not None else None


def _time(us: int) -> datetime:
    return datetime.fromtimestamp(us / 1_000_000, UTC)


def _instant(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat()
