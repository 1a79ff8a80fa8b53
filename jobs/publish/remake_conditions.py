"""Conditions of a remake of a branch: who may have written it, how far main has it, and what only the branch has."""

from __future__ import annotations

from collections.abc import Sequence

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from jobs.commit.branch import on_branch
from jobs.commit.discards import Discards
from jobs.commit.publications import branch_through, publication_id, publications
from jobs.commit.reissue import last_remade
from jobs.commit.stamp_history import history_of, stamps_along_main, streams_on_branch
from jobs.errors import FrazilError
from jobs.publish.interval import PART_MARK
from jobs.publish.publication import left_out_property
from jobs.spec.models import StreamSpec


class NotRemadeError(FrazilError):
    """A branch that cannot be remade from main: main would not have all that the branch has, or nobody can say."""


def gated_streams(metadata: TableMetadata, specs: Sequence[StreamSpec], branch: str, where: str) -> list[StreamSpec]:
    """The streams that write the branch, all of which are published through a gate.

    Raises:
        NotRemadeError: One is not.
    """
    by_name = {spec.stream: spec for spec in specs}
    writers = {each.partition(PART_MARK)[0] for each in streams_on_branch(metadata, branch)}
    for stream in sorted(writers):
        spec = by_name.get(stream)
        if spec is None or spec.publish is None or spec.publish.branch != branch:
            why = "no file names any more" if spec is None else "has no gate"
            raise NotRemadeError(f"{where} is not remade: stream {stream}, which {why}, has written it.")
    return [by_name[stream] for stream in sorted(writers)]


def stands_in_main(table: Table, spec: StreamSpec, branch: str) -> int:
    """Through which sequence number main has the stream's part of the branch.

    Raises:
        NotRemadeError: Main, or the branch, was rolled back, and nobody has said what becomes of that.
    """
    past = publications(table, spec.stream)
    seen = on_branch(table, branch)
    names = [each for each in streams_on_branch(table.metadata, branch) if each.partition(PART_MARK)[0] == spec.stream]
    if past.rolled_back or any(history_of(seen, each).rolled_back for each in names):
        raise NotRemadeError(
            f"branch {branch} of table {'.'.join(table.name())} is not remade: it, or main, was rolled back to before "
            f"a commit of stream {spec.stream}, which nobody has answered.",
            fix=f"frazil status {spec.stream}, which names the commands",
        )
    return branch_through(past.newest, branch)


def refuse_left_out(metadata: TableMetadata, gated: Sequence[StreamSpec], branch: str, begin: int, where: str) -> None:
    """See that no rows were left out of main, which would go with the branch.

    Args:
        metadata: The table's own.
        gated: The streams that write the branch.
        branch: Which is to be remade.
        begin: The sequence number behind which it is the streams'.
        where: The branch, for a message.

    Raises:
        NotRemadeError: Some were.
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
            f"{where} is not remade: rows that were left out of main (--after-rollback leave-out) stand there alone.",
            fix="copy them to main if they are needed, and let the stream begin a new branch, see docs/publishing.md",
        )


def rows_given(table: Table, gated: Sequence[StreamSpec], branch: str) -> int | None:
    """How many rows main was given of all branches; None where the branch was remade, and it is known to be enough."""
    if last_remade(table.metadata, branch) is not None:
        return None
    newest = (publications(table, spec.stream).newest for spec in gated)
    discarded = (
        each
        for spec in gated
        for each in Discards.of(table.metadata.properties, spec.stream, spec.table.name).on(branch)
    )
    # What was discarded stands there, too, and letters have it.
    return sum(each.totals.read for each in newest if each) + sum(each.rows for each in discarded)
