"""What a target takes, given what its table says: without a catalog."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, StringType

from jobs.commit import proposals
from jobs.commit.errors import TargetRecreatedError
from jobs.commit.offsets import OffsetRange, TopicPartition
from jobs.commit.operations import Append
from jobs.commit.proposals import Proposal, ProposalOutcome, Seen
from jobs.commit.stamp_fields import Counts
from jobs.commit.stamps import Stamp

P0 = TopicPartition("t", 0)
TEXT, NUMBER = (
    Schema(NestedField(1, "id", StringType()), schema_id=0),
    Schema(NestedField(1, "id", LongType()), schema_id=1),
)
SEEN = Seen("uuid", TEXT, 0, 0)
BATCH = Stamp("s", "batch", 7, 1, "c", {P0: 3}, {P0: 6}, rows={"t": 3}, counts=Counts(read=3, landed=3))
BEFORE = Stamp("s", "batch", 6, 1, "c", {P0: 0}, {P0: 3}, rows={"t": 3}, totals=Counts(read=3, landed=3))


def metadata(uuid: str = "uuid", schema: Schema = TEXT, spec: int = 0) -> Any:
    return SimpleNamespace(
        table_uuid=uuid,
        schema=lambda: schema,
        current_schema_id=schema.schema_id,
        default_spec_id=spec,
        spec=lambda: UNPARTITIONED_PARTITION_SPEC,
    )


def data_file() -> DataFile:
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path="mem://1",
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=3,
        file_size_in_bytes=1,
    )


def propose(
    newest: Stamp | None, table: Any, files: list[DataFile] | None = None, at: int = 3
) -> Proposal[ProposalOutcome]:
    given = [data_file()] if files is None else files
    ranges = {P0: OffsetRange(3, 6)}
    return proposals.batch("t", BATCH, given, seen=SEEN, ranges=ranges, position={P0: at})(newest, table)


def test_a_batch_that_is_lacking_is_appended_and_carries_the_totals() -> None:
    proposal = propose(BEFORE, metadata())
    assert proposal.answer is ProposalOutcome.LANDED
    assert isinstance(proposal.operation, Append) and len(proposal.operation.files) == 1
    assert proposal.stamp == replace(BATCH, totals=Counts(read=6, landed=6))


def test_a_batch_that_is_there_is_not_committed_whatever_the_table_is_now() -> None:
    there = replace(BATCH, epoch=1)
    assert propose(there, metadata("another", NUMBER)) == Proposal(ProposalOutcome.LANDED)


def test_a_batch_that_is_there_in_part_runs_again() -> None:
    assert propose(replace(BEFORE, position={P0: 4}), metadata()) == Proposal(ProposalOutcome.RUN_AGAIN)


@pytest.mark.parametrize("table", [metadata(schema=NUMBER), metadata(spec=1)], ids=["schema", "spec"])
def test_files_that_no_longer_fit_run_again_and_none_fit_always(table: Any) -> None:
    assert propose(BEFORE, table) == Proposal(ProposalOutcome.RUN_AGAIN)
    assert propose(BEFORE, table, files=[]).operation == Append([])


def test_another_table_of_the_name_stops() -> None:
    with pytest.raises(TargetRecreatedError, match="it was uuid, it is another"):
        propose(BEFORE, metadata("another"))


def test_a_position_that_is_ahead_is_not_taken_back() -> None:
    p1 = TopicPartition("t", 1)
    ahead = replace(BEFORE, position={P0: 9, p1: 2}, rows={"t": 1, "dead": 2})
    stamp = replace(BATCH, start={P0: 3, p1: 0}, position={P0: 6, p1: 5})
    ranges = {P0: OffsetRange(3, 6), p1: OffsetRange(2, 5)}
    proposal = proposals.batch("t", stamp, (), seen=SEEN, ranges=ranges, position={P0: 9, p1: 2})(ahead, metadata())
    assert proposal.stamp is not None
    assert (proposal.stamp.position, proposal.stamp.rows) == ({P0: 9, p1: 5}, {"t": 3, "dead": 2})


def test_a_claim_is_made_of_the_newest_stamp() -> None:
    claim = proposals.claim(lambda newest: (newest or BATCH).claimed(2))
    for newest in (None, BEFORE):
        proposal = claim(newest, metadata())
        assert proposal.operation == Append() and proposal.stamp == proposal.answer == (newest or BATCH).claimed(2)


def test_a_stamp_goes_on_whatever_was_committed_before() -> None:
    assert proposals.restamp(BATCH)(BEFORE, metadata()) == Proposal(None, Append(), BATCH)
