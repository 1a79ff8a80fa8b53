"""Rebase of a branch: it begins again at main's head, with copies of the snapshots that main lacks on top.

A published branch keeps every file that its streams have landed there, also those that main has compacted or deleted
since. After a rebase it has main's files and the unpublished ones. Each snapshot with rows that main lacks is copied
with its own stamp. So are the newest stamp of every stream, and stamps that somebody still needs (see `reissue`).
Positions, epochs and times stay. It is one commit, which asserts both heads.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial

from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot

from jobs.base.errors import FrazilError
from jobs.base.failpoints import step
from jobs.config.stream.models import StreamSpec
from jobs.quality.publishing.gate import Gate, gate_property
from jobs.quality.publishing.interval import (
    PART_MARK,
    Interval,
    ManifestMemo,
    branch_begin,
    interval_entries,
    left_out_property,
)
from jobs.quality.publishing.publishing import interval_of, refuse_other_spec
from jobs.tables.commit.history.branch import begin_property, on_branch
from jobs.tables.commit.history.discards import Discards
from jobs.tables.commit.history.lineage import ancestors, last_sequence
from jobs.tables.commit.history.publications import branch_through, publication_id, publications
from jobs.tables.commit.history.reissue import (
    REISSUED_KEY,
    Reissued,
    Remade,
    as_landed,
    last_remade,
    reissued,
    remade_property,
)
from jobs.tables.commit.history.stamp_history import history_of, stamps_along_main, streams_on_branch
from jobs.tables.commit.protocol.compare_and_swap import Backoff, compare_and_swap
from jobs.tables.commit.protocol.pyiceberg_commit import commit_once
from jobs.tables.commit.protocol.target import pass_written
from jobs.tables.commit.schema.operations import RemakeBranch, SnapshotAgain
from jobs.tables.commit.stamp.stamps import PUBLISH_PART, SUMMARY_KEY, Stamp


class NotRemadeError(FrazilError):
    """A branch cannot be rebased onto main: main would lack rows, or the history cannot show that it has them.

    Safe: The branch and `main` are as they were.
    Next: `frazil status S`; then `frazil maintain TABLE`
    """


def gated_streams(metadata: TableMetadata, specs: Sequence[StreamSpec], branch: str, where: str) -> list[StreamSpec]:
    """Streams that write the branch, all of which use write-audit-publish.

    Raises:
        NotRemadeError: A stream does not.
    """
    by_name = {spec.stream: spec for spec in specs}
    writers = {each.partition(PART_MARK)[0] for each in streams_on_branch(metadata, branch)}
    for stream in sorted(writers):
        spec = by_name.get(stream)
        if spec is None or spec.publish is None or spec.publish.branch != branch:
            why = "no file names any more" if spec is None else "has no `publish`"
            raise NotRemadeError(f"{where} is not rebased: stream {stream}, which {why}, has written it.")
    return [by_name[stream] for stream in sorted(writers)]


def stands_in_main(table: Table, spec: StreamSpec, branch: str) -> int:
    """Sequence number through which main has the stream's part of the branch.

    Raises:
        NotRemadeError: Main, or the branch, was rolled back, and nobody has decided about it.
    """
    past = publications(table, spec.stream)
    seen = on_branch(table, branch)
    names = [each for each in streams_on_branch(table.metadata, branch) if each.partition(PART_MARK)[0] == spec.stream]
    if past.rolled_back or any(history_of(seen, each).rolled_back for each in names):
        raise NotRemadeError(
            f"branch {branch} of table {'.'.join(table.name())} is not rebased: it, or main, was rolled back to "
            f"before a commit of stream {spec.stream}, which nobody has answered.",
            fix=f"frazil status {spec.stream}, which names the commands",
        )
    return branch_through(past.newest, branch)


def refuse_left_out(metadata: TableMetadata, gated: Sequence[StreamSpec], branch: str, begin: int, where: str) -> None:
    """Raise if rows were left out of main, as a rebase would remove them from the branch.

    Args:
        metadata: The table's whole metadata.
        gated: The streams that write the branch.
        branch: Branch to rebase.
        begin: Sequence number behind which it is the streams'.
        where: Name of the branch, for a message.

    Raises:
        NotRemadeError: Rows were left out.
    """
    said = metadata.properties.get(left_out_property(branch), "")
    # Earlier versions set no property.
    answers = (
        stamp.decision.answer
        for spec in gated
        for _, stamp in stamps_along_main(metadata, publication_id(spec.stream), begin)
        if stamp.decision
    )
    if (said.isdigit() and int(said) > begin) or "rollback_keep" in answers:
        raise NotRemadeError(
            f"{where} is not rebased: rows that were left out of main (--after-rollback leave-out) are only there.",
            fix="copy them to main if they are needed, then stop the stream, drop the branch, start the stream, "
            "and let it go on with a new branch from main: frazil accept STREAM --rollback keep",
        )


def rows_given(table: Table, gated: Sequence[StreamSpec], branch: str) -> int | None:
    """Number of rows that main got from all branches; None if the branch was rebased, and it is known to be enough."""
    if last_remade(table.metadata, branch) is not None:
        return None
    newest = (publications(table, spec.stream).newest for spec in gated)
    discarded = (
        each
        for spec in gated
        for each in Discards.of(table.metadata.properties, spec.stream, spec.table.name).on(branch)
    )
    # Discarded rows are there, too, and are dead letters.
    return sum(each.totals.read for each in newest if each) + sum(each.rows for each in discarded)


StillNeeded = Callable[[Snapshot, Stamp], bool]
"""Returns whether somebody needs the stamp of a published snapshot; takes the snapshot as it landed."""

_OWN = "frazil."


@dataclass(frozen=True, slots=True)
class RemadeBranch:
    """Result of a rebase.

    Attributes:
        snapshots: Number of copied snapshots.
        waiting: Number of these with rows that main lacks.
        files: Number of data files of those.
        rows: Number of rows of those.
        snapshot_id: New head of the branch.
    """

    branch: str
    snapshots: int
    waiting: int
    files: int
    rows: int
    snapshot_id: int


@dataclass(frozen=True, slots=True)
class Remaking:
    """A rebase before it is committed.

    Attributes:
        operation: Operation to commit.
        properties: Table properties, set in the same commit.
        waiting: Number of copied snapshots with rows that main lacks.
    """

    operation: RemakeBranch
    properties: Mapping[str, str]
    waiting: int


def remake(
    catalog: Catalog,
    name: str,
    specs: Sequence[StreamSpec],
    branch: str,
    *,
    needed: StillNeeded,
    check: Callable[[], None] = lambda: None,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
    backoff: Callable[[], Backoff] = Backoff,
) -> RemadeBranch:
    """Rebase a branch onto main; streams may commit to it meanwhile.

    Args:
        name: Name of the table.
        specs: Streams that write to it.
        needed: Returns whether the stamp of a published snapshot is needed.
        check: Called before each attempt; raises if this process must not commit any more.
        backoff: Makes the pauses between the attempts.

    Raises:
        NotRemadeError: Main would lack something of the branch, or it is unknown.
        FrazilError: Others committed during every attempt.
    """

    memo = ManifestMemo()

    def attempt() -> RemadeBranch:
        check()
        table = catalog.load_table(name)
        found = remaking(table, specs, branch, needed=needed, now=now(), memo=memo)
        step("remake_before_commit")
        written = partial(pass_written, found.operation, None)
        snapshot_id = commit_once(table, found.operation, summary={}, properties=found.properties, on_written=written)
        again = found.operation.snapshots
        files = [file for each in again for file in each.files]
        rows = sum(each.record_count for each in files)
        return RemadeBranch(branch, len(again), found.waiting, len(files), rows, snapshot_id)

    def given_up(said: str) -> FrazilError:
        return NotRemadeError(
            f"branch {branch} of table {name} was not rebased: {said}. The branch is as it was.",
            fix=f"frazil maintain {name}, once less is waiting to be published, or fewer commit to it",
        )

    done = compare_and_swap(name, attempt, given_up, backoff)
    step("remake_after_commit")
    return done


def remaking(
    table: Table,
    specs: Sequence[StreamSpec],
    branch: str,
    *,
    needed: StillNeeded,
    now: datetime,
    memo: ManifestMemo | None = None,
) -> Remaking:
    """Plan of a rebase.

    Args:
        table: The whole table, not seen from a branch.
        specs: Streams that write to it.
        needed: Returns whether the stamp of a published snapshot is needed.
        memo: Cache of manifests from earlier attempts.

    Raises:
        NotRemadeError: Main would lack something of the branch, or it is unknown.
    """
    metadata, where = table.metadata, f"branch {branch} of table {'.'.join(table.name())}"
    if branch not in metadata.refs or MAIN_BRANCH not in metadata.refs or metadata.format_version != 2:
        raise NotRemadeError(f"{where} is not rebased: it does not exist, or the table's format is not 2.")
    gated = gated_streams(metadata, specs, branch, where)
    begin, stands = branch_begin(metadata, branch), {spec.stream: stands_in_main(table, spec, branch) for spec in gated}
    refuse_left_out(metadata, gated, branch, begin, where)
    waiting: dict[str, Interval] = {}
    for spec in gated:
        found = interval_of(spec, table, publications(table, spec.stream).newest)
        if found is not None:
            refuse_other_spec(spec, found, metadata)
            waiting[spec.stream] = found
    along = list(ancestors(metadata, metadata.refs[branch].snapshot_id))[::-1]
    new = [each for each in along if (each.sequence_number or 0) > begin]
    files = _files_by_snapshot(table, branch, begin, waiting, where, memo, given=rows_given(table, gated, branch))
    chosen = list(_chosen(new, stands, files, needed))
    if not chosen:
        raise NotRemadeError(f"{where} is not rebased: no stamp of a stream is left in its snapshots.")
    again = [_again(snapshot, text, files, unpublished=unpublished) for snapshot, text, unpublished in chosen]
    first = last_sequence(metadata) + 1
    numbers = {each.sequence_number or 0: first + at for at, (each, _, _) in enumerate(chosen)}
    base = metadata.snapshot_by_id(metadata.refs[MAIN_BRANCH].snapshot_id)
    remade = Remade(
        metadata.refs[MAIN_BRANCH].snapshot_id,
        (base.sequence_number or 0) if base else 0,
        first,
        first + len(again) - 1,
        round(now.timestamp() * 1000),
        stands,
    )
    properties = {
        begin_property(branch): str(first - 1),
        remade_property(branch): remade.text(),
        **_gates(metadata, gated, branch, first - 1, numbers),
    }
    since = min(Stamp.from_json(text).sequence for _, text, _ in chosen)
    return Remaking(RemakeBranch(branch, again, since), properties, sum(bool(each.files) for each in again))


def _files_by_snapshot(
    table: Table,
    branch: str,
    begin: int,
    waiting: Mapping[str, Interval],
    where: str,
    memo: ManifestMemo | None,
    *,
    given: int | None,
) -> dict[int, list[DataFile]]:
    """Files that main lacks, by the snapshot that added them.

    Raises:
        NotRemadeError: The branch has more rows than main got.
    """
    metadata = table.metadata
    head = metadata.snapshot_by_id(metadata.refs[branch].snapshot_id)
    assert head is not None
    wanted = {path for each in waiting.values() for path in each.paths}
    whole = Interval(branch, begin, head.sequence_number or 0, head.snapshot_id)
    found: defaultdict[int, list[DataFile]] = defaultdict(list)
    published = 0
    for snapshot_id, _, file in interval_entries(head, metadata, table.io, whole, memo):
        if file.file_path in wanted:
            found[snapshot_id or 0].append(file)
        else:
            published += file.record_count
    if given is not None and published > given:
        raise NotRemadeError(
            f"{where} is not rebased: it has {published:,} rows that were published or left out, and main was given "
            f"{given:,}.",
            fix="copy to main what it lacks, then stop the stream, drop the branch, start the stream, "
            "and let it go on with a new branch from main: frazil accept STREAM --rollback keep",
        )
    return found


def _chosen(
    new: Sequence[Snapshot], stands: Mapping[str, int], files: Mapping[int, object], needed: StillNeeded
) -> Iterator[tuple[Snapshot, str, bool]]:
    """Snapshots to copy, oldest first, with their stamps, and whether main lacks their rows.

    They include each stream's newest stamp, and its newest published one, which has the start of the first unpublished
    snapshot.
    """
    stamped: list[tuple[Snapshot, str, bool, bool]] = []
    newest: dict[tuple[str, str], int] = {}
    for each in new:
        text = each.summary.additional_properties.get(SUMMARY_KEY) if each.summary else None
        if text and not (stamp := Stamp.from_json(text)).stream.endswith(PUBLISH_PART):
            before, stood = reissued(each), stands.get(stamp.stream.partition(PART_MARK)[0], 0)
            in_main = (each.sequence_number or 0) <= stood or (before is not None and before.published)
            waits = each.snapshot_id in files or (not in_main and stamp.kind != "claim")
            newest[stamp.stream, "of all"] = each.snapshot_id
            if in_main:
                newest[stamp.stream, "in main"] = each.snapshot_id
            stamped.append((each, text, waits, needed(as_landed(each), stamp)))
    ends = set(newest.values())
    for each, text, waits, wanted in stamped:
        if waits or wanted or each.snapshot_id in ends:
            yield each, text, waits


def _again(
    snapshot: Snapshot, text: str, files: Mapping[int, Sequence[DataFile]], *, unpublished: bool
) -> SnapshotAgain:
    first = as_landed(snapshot)
    said = snapshot.summary.additional_properties if snapshot.summary else {}
    mark = Reissued(first.snapshot_id, first.sequence_number or 0, first.timestamp_ms, published=not unpublished)
    own = {key: value for key, value in said.items() if key.startswith(_OWN)}
    return SnapshotAgain(
        tuple(files.get(snapshot.snapshot_id, ())), {**own, SUMMARY_KEY: text, REISSUED_KEY: mark.text()}
    )


def _gates(
    metadata: TableMetadata, gated: Sequence[StreamSpec], branch: str, after: int, numbers: Mapping[int, int]
) -> dict[str, str]:
    """Quarantined snapshots of each stream, by their new sequence numbers.

    Args:
        branch: Branch before the rebase.
        after: Sequence number before the first copy.
        numbers: New sequence numbers, by the former ones.
    """
    told: dict[str, str] = {}
    for spec in gated:
        gate = Gate.standing(metadata, spec.stream, branch, spec.table.name)
        if gate.held is not None:
            until = max((number for was, number in numbers.items() if was <= gate.held.until), default=after)
            told[gate_property(spec.stream)] = replace(
                gate, held=replace(gate.held, after=after, until=until)
            ).to_json()
    return told
