"""What a replay makes of the life of letters."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from jobs.formats.decoder import Failure
from jobs.replay.lifecycle import CHANGE_ARROW

# Stands for the snapshot of the batch at hand, which has no id before it is committed.
THIS_BATCH = 0


@dataclass(frozen=True, slots=True)
class Attempt:
    """What the letters of a replay keep of it.

    Attributes:
        park_after: A letter that fails for this time, or a later one, is parked.
    """

    replay: str
    by: str | None
    run_id: str | None
    correction: str | None
    park_after: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of the letters of a batch, by their places in it: each is in one of the three.

    Attributes:
        landed: Their rows are in the batch's files.
        standing: Their records have rows already.
        failures: Why the others failed.
    """

    landed: np.ndarray
    standing: np.ndarray
    failures: list[Failure]


def changes_after(letters: pa.RecordBatch, outcome: Outcome, attempt: Attempt) -> pa.Table:
    """The life that letters have from now on, whole, in the columns of `CHANGE_ARROW`: set twice, it is set once.

    Args:
        letters: The batch.
    """
    failed = np.array([failure.row for failure in outcome.failures], np.int64)
    taken = letters.take(pa.array(np.concatenate([outcome.landed, outcome.standing, failed]).astype(np.int64)))
    attempts = [(known or 0) + 1 for known in taken.column("attempts").to_pylist()]
    count, landed, standing = taken.num_rows, len(outcome.landed), len(outcome.standing)
    good = landed + standing
    why = outcome.failures
    states = ["parked" if tried >= attempt.park_after else "failed_again" for tried in attempts[good:]]
    columns = {
        **{name: taken.column(name) for name in ("topic", "partition", "offset", "first_seen")},
        "state": ["replayed"] * good + states,
        "attempts": attempts,
        "state_at": [datetime.now(UTC)] * count,
        "replay": [attempt.replay] * count,
        "run_id": [attempt.run_id] * count,
        "replay_snapshot_id": [THIS_BATCH] * landed + [None] * (count - landed),
        "replay_error_class": [None] * good + [failure.error_class for failure in why],
        "replay_message": [None] * good + [_message(failure) for failure in why],
        "correction": [attempt.correction] * count,
        "changed_by": [attempt.by] * count,
        "note": [None] * landed + ["the record's row stood in the table already"] * standing + [None] * len(why),
    }
    return pa.table({each.name: pa.array(columns[each.name], each.type) for each in CHANGE_ARROW}, schema=CHANGE_ARROW)


def with_snapshot(changes: pa.Table, snapshot: int | None) -> pa.Table:
    """The changes, with the id of the snapshot that the batch has by now."""
    index = changes.schema.get_field_index("replay_snapshot_id")
    known = [snapshot if each == THIS_BATCH else each for each in changes.column(index).to_pylist()]
    return changes.set_column(index, changes.schema.field(index), pa.array(known, pa.int64()))


def _message(failure: Failure) -> str:
    said = failure.message + (f" at {failure.field}" if failure.field else "")
    return said.encode("utf-8", "backslashreplace").decode()


def as_parquet(changes: pa.Table) -> bytes:
    """The life of letters as it is kept until they know it."""
    sink = pa.BufferOutputStream()
    pq.write_table(changes, sink, compression="zstd")
    return sink.getvalue().to_pybytes()


def from_parquet(content: bytes) -> pa.Table:
    """The inverse of `as_parquet`."""
    return pq.read_table(pa.BufferReader(content))
