"""Write-audit-publish: unpublished snapshots are judged first, and quarantined if unfit, until a decision.

Exactly the judged files are published, on the present heads of main and the branch, unless an operator has decided
something meanwhile. Quarantined snapshots, and all that lands behind them, wait for an operator to release them, or for
another contract.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Literal

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from jobs.base.errors import FrazilError
from jobs.base.failpoints import step
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.quality.publishing.gate import (
    Gate,
    Held,
    Verdict,
    gate_property,
)
from jobs.quality.publishing.interval import PUBLISHED_KEY, Interval, publication_text
from jobs.quality.publishing.publishing import (
    appended,
    given_up,
    interval_of,
    past_others,
    publication_stamp,
    published_table,
    publishing_session,
    refuse_other_spec,
)
from jobs.tables.commit.history.publications import THROUGH
from jobs.tables.commit.protocol.compare_and_swap import Backoff
from jobs.tables.commit.protocol.proposals import Proposal
from jobs.tables.commit.protocol.session import CommitSession
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.schema.operations import Append
from jobs.tables.commit.stamp.stamp_fields import Counts
from jobs.tables.commit.stamp.stamps import Stamp

HELD_KEY = "frazil.held"
# An operator decides, or somebody alters the branch, each time while it is judged.
_ATTEMPTS = 5

Judge = Callable[[Interval], Verdict]
Became = Literal["nothing new", "published", "held", "still held"]


@dataclass(frozen=True, slots=True)
class GateResult:
    """Result of judging unpublished snapshots.

    Attributes:
        became: Outcome; `still held` if they were not judged again because nothing has changed by which they might
            pass, or if the verdict is the same.
        interval: Unpublished snapshots; None if the branch does not exist yet.
        gate: Present state.
        verdict: Verdict, from now or from the quarantine; None if they were not judged.
        snapshot_id: Main's new head, if they were published.
    """

    became: Became
    interval: Interval | None
    gate: Gate
    verdict: Verdict | None = None
    snapshot_id: int | None = None


def publish_if_fit(
    spec: StreamSpec,
    settings: Settings,
    catalog: Catalog,
    by: str,
    judge: Judge,
    judged_by: str,
    *,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
    backoff: Callable[[], Backoff] = Backoff,
) -> GateResult:
    """Judge what the stream has landed on its branch, and append it to main, or quarantine it.

    Args:
        by: Author.
        judge: Judges exactly the snapshots' files.
        judged_by: Digest of the judge's rules; what was quarantined by the same rules is not judged again.
        backoff: Makes the pauses between the attempts at a commit.

    Raises:
        LeaseHeldError: Another process publishes the stream.
        RolledBackError: Main was rolled back to before a publication.
        UnpublishableError: Other writers have written to the branch, or snapshots of it have expired.
        FrazilError: The snapshots could not be judged.
    """
    with publishing_session(spec, settings, catalog, backoff) as session:
        target = session.targets[spec.table.name]
        for _ in range(_ATTEMPTS):
            newest = target.read()
            gate = Gate.standing(target.table.metadata, spec.stream, spec.branch_of(spec.table.name), spec.table.name)
            found = interval_of(spec, target.table, newest)
            if found is None or not found.files:
                _pass_others(session, target, spec)
                return GateResult("nothing new", found, gate)
            if gate.still_holds(found.after, judged_by):
                return GateResult("still held", found, gate)
            refuse_other_spec(spec, found, target.table.metadata)
            step("publish_before_verdict")
            verdict = judge(found)
            step("publish_after_verdict")
            if gate.holds_as(found, verdict):
                return GateResult("still held", found, gate, verdict)
            propose = partial(_judged, session, target, spec, by, found, gate, verdict, now())
            became = target.swap(
                propose, epoch=session.epoch, check=session.lease.verify, given_up=partial(given_up, spec)
            )
            if became is None:
                continue
            step("publish_after_hold" if became == "held" else "publish_after_commit")
            gate = Gate.of(target.table.metadata.properties, spec.stream, spec.table.name)
            return GateResult(became, found, gate, verdict, target.snapshot_id if became == "published" else None)
    raise FrazilError(
        f"stream {spec.stream}: what branch {spec.branch_of(spec.table.name)} has was altered, or decided about, each "
        "time while it was judged. Nothing was published.",
        fix=f"frazil publish {spec.stream}",
    )


def _pass_others(session: CommitSession, target: Target, spec: StreamSpec) -> None:
    """Record on main that the branch's rows are other streams', unless the stream lands something meanwhile."""

    def propose(newest: Stamp | None, metadata: TableMetadata) -> Proposal[None]:
        found = interval_of(spec, target.table, newest)
        return Proposal(None) if found is None or found.files else past_others(session, spec, newest, found, None)

    target.swap(propose, epoch=session.epoch, check=session.lease.verify, given_up=partial(given_up, spec))


def _judged(
    session: CommitSession,
    target: Target,
    spec: StreamSpec,
    by: str,
    found: Interval,
    gate: Gate,
    verdict: Verdict,
    now: datetime,
    newest: Stamp | None,
    metadata: TableMetadata,
) -> Proposal[Became | None]:
    """Commit that publishes or quarantines judged snapshots; None if they changed, so that nothing is committed.

    Args:
        found: Judged snapshots. The stream may have landed more since, which waits for the next time.
        gate: State at the judgement.
        newest: Present stamp of the newest publication.
        metadata: Present metadata of the table.
    """
    again = interval_of(spec, target.table, newest, found.until)
    if again is None or (again.after, again.paths) != (found.after, found.paths):
        return Proposal(None)
    if Gate.of(metadata.properties, spec.stream, spec.table.name).generation != gate.generation:
        return Proposal(None)
    told = {"gate": gate.generation, "judged_by": verdict.judged_by, "checked_rows": verdict.rows}
    if verdict.passed:
        refuse_other_spec(spec, again, metadata)
        step("publish_before_commit")
        said = {PUBLISHED_KEY: publication_text(again, by, verdict="passed", **told)}
        stamp = publication_stamp(session, spec, newest, again)
        return Proposal("published", appended(again), stamp, said, gate_state(spec, gate.open()))
    holding = gate.holding(again, verdict, now)
    said = {HELD_KEY: publication_text(again, by, verdict="held", reasons=list(verdict.reasons), **told)}
    beside = Append(beside={again.branch: again.head})
    return Proposal("held", beside, holding_stamp(session, spec, newest, again), said, gate_state(spec, holding))


def release(spec: StreamSpec, settings: Settings, catalog: Catalog, by: str, why: str) -> GateResult:
    """Publish quarantined snapshots in spite of their verdict; later snapshots wait for the next judgement.

    Args:
        by: Author.
        why: Reason, which is recorded.

    Raises:
        FrazilError: Nothing is quarantined.
    """
    with publishing_session(spec, settings, catalog, Backoff) as session:
        target = session.targets[spec.table.name]

        def propose(newest: Stamp | None, metadata: TableMetadata) -> Proposal[tuple[Interval, Held]]:
            gate, held, found = held_interval(spec, target.table, newest)
            refuse_other_spec(spec, found, metadata)
            step("publish_before_commit")
            told = {"gate": gate.generation + 1, "why": why, "reasons": list(held.reasons)}
            said = {PUBLISHED_KEY: publication_text(found, by, verdict="released", **told)}
            stamp = replace(publication_stamp(session, spec, newest, found), note=f"{by}: {why}")
            return Proposal((found, held), appended(found), stamp, said, gate_state(spec, gate.decided()))

        found, held = target.swap(
            propose, epoch=session.epoch, check=session.lease.verify, given_up=partial(given_up, spec)
        )
        step("publish_after_commit")
        gate = Gate.of(target.table.metadata.properties, spec.stream, spec.table.name)
        return GateResult("published", found, gate, held.verdict, target.snapshot_id)


def plan_release(spec: StreamSpec, settings: Settings, catalog: Catalog) -> GateResult:
    """What `release` would publish now; nothing is changed.

    Raises:
        RolledBackError: Main was rolled back to before a publication.
        FrazilError: The stream does not use write-audit-publish, or nothing is quarantined.
    """
    refuse_without_gate(spec)
    table, newest = published_table(spec, settings, catalog)
    gate, held, found = held_interval(spec, table, newest)
    refuse_other_spec(spec, found, table.metadata)
    return GateResult("still held", found, gate, held.verdict)


def refuse_without_gate(spec: StreamSpec) -> None:
    """Raise unless the stream uses write-audit-publish.

    Raises:
        FrazilError: It does not.
    """
    if spec.publish is None:
        raise FrazilError(
            f"stream {spec.stream} publishes nothing by contract: its file has no `publish`.",
            fix=f"put `publish` back into streams/{spec.stream}.yaml, if `frazil status {spec.stream}` shows that "
            "rows are quarantined",
        )


def held_interval(spec: StreamSpec, table: Table, newest: Stamp | None) -> tuple[Gate, Held, Interval]:
    """The state, and the quarantined snapshots.

    Args:
        table: The whole table, not seen from a branch.
        newest: Stamp of the last publication.

    Raises:
        FrazilError: Nothing is quarantined.
    """
    gate = Gate.standing(table.metadata, spec.stream, spec.branch_of(spec.table.name), spec.table.name)
    held = gate.held
    found = interval_of(spec, table, newest, held.until) if held else None
    if held is None or found is None or found.after != held.after or not found.files:
        raise FrazilError(f"stream {spec.stream}: no rows are quarantined.", fix=f"frazil publish {spec.stream}")
    return gate, held, found


def gate_state(spec: StreamSpec, gate: Gate) -> dict[str, str]:
    """Table property with the state."""
    return {gate_property(spec.stream): gate.to_json()}


def holding_stamp(session: CommitSession, spec: StreamSpec, newest: Stamp | None, found: Interval) -> Stamp:
    """Stamp that records an unchanged publication of the branch."""
    stamp = publication_stamp(session, spec, newest, found)
    totals = newest.totals if newest else Counts()
    published = {**stamp.published, found.branch: found.after}
    through_ms = newest.valid_through_ms if newest else None
    stamp = replace(stamp, valid_through_ms=through_ms, event_time=None, landed=newest.landed if newest else {})
    return replace(stamp, position={THROUGH: found.after}, rows={}, counts=Counts(), totals=totals, published=published)
