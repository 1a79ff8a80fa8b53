"""Outcome of a replayed batch: which dead letters landed, which failed, and the replay state that each has from it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from jobs.commit.errors import unaccounted
from jobs.deadletter.parked_letters import TABLE_PARKED
from jobs.formats.decoder import Failure
from jobs.replay.replay_state import attempts_after, replay_state_changes

# Stands for the snapshot of the batch at hand, which has no id before it is committed.
THIS_BATCH = 0


@dataclass(frozen=True, slots=True)
class ReplayAttempt:
    """One replay, as its letters keep it with their outcome.

    Attributes:
        park_after: A letter that fails for this time, or a later one, is parked.
    """

    replay: str
    by: str | None
    run_id: str | None
    correction: str | None
    park_after: int


@dataclass(frozen=True, slots=True)
class ReplayOutcome:
    """The outcome of a replay for the letters of a batch, by their places in it: each is in one of the three.

    Attributes:
        landed: Their rows are in the batch's files.
        already_landed: Their records have rows already.
        failures: Why the others failed; those of the class `table_parked` wait for a table, and no attempt is counted.
    """

    landed: np.ndarray
    already_landed: np.ndarray
    failures: list[Failure]

    def refuse_unaccounted(self, stream: str, count: int) -> None:
        """Refuse a batch that does not add up, before anything of it is committed.

        Args:
            stream: Id of the stream.
            count: Dead letters in the batch.

        Raises:
            UnaccountedRecordsError: They are not as many as landed, had landed already or failed.
        """
        parts = (len(self.landed), len(self.already_landed), len(self.failures))
        if sum(parts) != count:
            landed, before, failed = parts
            raise unaccounted(
                stream,
                f"of {count:,} dead letters {landed:,} landed, {before:,} had landed already and {failed:,} failed, "
                f"which is {sum(parts):,} in all",
            )


def changes_after(letters: pa.RecordBatch, outcome: ReplayOutcome, attempt: ReplayAttempt) -> pa.Table:
    """The replay state of letters from now on, whole, in the columns of `CHANGE_ARROW`: set twice, it is set once.

    Args:
        letters: The batch.

    Returns:
        Those that change; what waits for a table that takes no rows stays as it is.
    """
    why = [failure for failure in outcome.failures if failure.error_class != TABLE_PARKED]
    failed = np.array([failure.row for failure in why], np.int64)
    taken = letters.take(pa.array(np.concatenate([outcome.landed, outcome.already_landed, failed]).astype(np.int64)))
    attempts = attempts_after(taken)
    landed, before = len(outcome.landed), len(outcome.already_landed)
    good = landed + before
    return replay_state_changes(
        taken,
        state=["replayed"] * good
        + ["parked" if tried >= attempt.park_after else "failed_again" for tried in attempts[good:]],
        attempts=attempts,
        replay=attempt.replay,
        run_id=attempt.run_id,
        replay_snapshot_id=[THIS_BATCH] * landed + [None] * (taken.num_rows - landed),
        replay_error_class=[None] * good + [failure.error_class for failure in why],
        replay_message=[None] * good + [_message(failure) for failure in why],
        correction=attempt.correction,
        changed_by=attempt.by,
        note=[None] * landed + ["the record's row stood in the table already"] * before + [None] * len(why),
    )


def with_snapshot(changes: pa.Table, snapshot: int | None) -> pa.Table:
    """The changes, with the id of the snapshot that the batch has by now."""
    index = changes.schema.get_field_index("replay_snapshot_id")
    known = [snapshot if each == THIS_BATCH else each for each in changes.column(index).to_pylist()]
    return changes.set_column(index, changes.schema.field(index), pa.array(known, pa.int64()))


def _message(failure: Failure) -> str:
    text = failure.message + (f" at {failure.field}" if failure.field else "")
    return text.encode("utf-8", "backslashreplace").decode()


def changes_as_parquet(changes: pa.Table) -> bytes:
    """The outcome's changes of replay state as they are kept until the letters have them."""
    sink = pa.BufferOutputStream()
    pq.write_table(changes, sink, compression="zstd")
    return sink.getvalue().to_pybytes()


def changes_from_parquet(content: bytes) -> pa.Table:
    """The inverse of `changes_as_parquet`."""
    return pq.read_table(pa.BufferReader(content))
