"""Results of a replay, of its dry run, and of a return to a topic; and progress."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from jobs.dead_letters.replay.replay_state import ReplayOutcome
from jobs.records.formats.interface.decoder import Failure
from jobs.streaming.task.tally import count_unknown_fields
from jobs.tables.dead_letter_table.reader import DeadLetterCounts

Coordinates = tuple[str, int, int]
COORDINATES = ("topic", "partition", "offset")
_SHOWN_FIELDS = 20


@dataclass(frozen=True, slots=True)
class Reason:
    """Reason of failures in a replay's result.

    Attributes:
        example: Topic, partition and offset of one dead letter; never a value.
    """

    stage: str
    error_class: str
    count: int
    example: Coordinates

    @property
    def place(self) -> str:
        """Coordinates of the example."""
        topic, partition, offset = self.example
        return f"topic {topic}, partition {partition}, offset {offset}"

    @property
    def sentence(self) -> str:
        """Sentence such as `3 × wrong_type in decode_value, such as topic orders, partition 0, offset 17`."""
        return f"{self.count:,} × {self.error_class} in {self.stage}, such as {self.place}"


@dataclass(frozen=True, slots=True)
class ReplayProgress:
    """Progress of a replay.

    Attributes:
        total: Number of selected dead letters.
        done: Number of tried ones.
        failed: Number of these that failed again, exhausted ones included.
    """

    total: int
    done: int
    replayed: int
    failed: int


class Reasons:
    """Reasons of failures in a replay's result, with counts."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], Reason] = {}

    def add(self, failure: Failure, example: Coordinates) -> None:
        """Count the reason of another record."""
        key = failure.stage, failure.error_class
        known = self._found.get(key) or Reason(*key, 0, example)
        self._found[key] = replace(known, count=known.count + 1)

    def add_batch(self, letters: pa.RecordBatch, failures: Sequence[Failure]) -> None:
        """Count the reasons of a batch's failures."""
        for failure in failures:
            topic, partition, offset = (letters.column(name)[failure.row].as_py() for name in COORDINATES)
            self.add(failure, (topic, partition, offset))

    def by_count(self) -> tuple[Reason, ...]:
        """The reasons, the most frequent first."""
        return tuple(sorted(self._found.values(), key=lambda reason: (-reason.count, reason.error_class)))


@dataclass(slots=True)
class ReplayResult:
    """Result of a replay, or of a dry run.

    Attributes:
        replay: Its id, as recorded in the dead letters; empty for a dry run.
        selected: Dead letters of the selection.
        replayed: Dead letters whose rows landed now; in a dry run, would land.
        standing: Dead letters whose rows were in the table already, or whose records have another dead letter; they
            count as replayed and land nothing.
        failed_again: Dead letters that failed again.
        parked: Dead letters that failed for the last time, and are exhausted.
        unreadable: Dead letters in data files that cannot be read.
        reasons: Reasons of failures, the most frequent first.
        problems: A sentence for each data file that cannot be read.
        snapshots: Snapshots of the stream's table with the landed rows.
        correction: YAML of the correction.
        null_columns: Columns that the correction omits, which are null in the landed rows.
        unknown_fields: Records by the path of an omitted field without a column.
        there_is: All dead letters of the stream, if the selection has none.
    """

    stream: str
    dry_run: bool
    replay: str = ""
    selected: int = 0
    replayed: int = 0
    standing: int = 0
    failed_again: int = 0
    parked: int = 0
    unreadable: int = 0
    reasons: tuple[Reason, ...] = ()
    problems: list[str] = field(default_factory=list)
    snapshots: list[int] = field(default_factory=list)
    correction: str | None = None
    null_columns: tuple[str, ...] = ()
    unknown_fields: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    there_is: DeadLetterCounts | None = None

    def add(self, outcome: ReplayOutcome, unknown_fields: Mapping[str, int], parked: int = 0) -> None:
        """Add the outcome of a batch, with `parked` newly exhausted dead letters."""
        count_unknown_fields(self.unknown_fields, unknown_fields)
        self.replayed += len(outcome.landed)
        self.standing += len(outcome.already_landed)
        self.parked += parked
        self.failed_again += len(outcome.failures) - parked

    @property
    def failed(self) -> int:
        """Dead letters that failed, for the last time or not."""
        return self.failed_again + self.parked

    @property
    def progress(self) -> ReplayProgress:
        """Progress of the replay."""
        done = self.replayed + self.standing + self.failed + self.unreadable
        return ReplayProgress(max(self.selected, done), done, self.replayed, self.failed)

    @property
    def sentence(self) -> str:
        """Sentence with the number of dead letters that came back, or would."""
        if not self.selected and not self.unreadable:
            others = f". All dead letters: {self.there_is.sentence()}" if self.there_is else ""
            return f"{self.stream}: no dead letter fits the selection; nothing to do{others}"
        if self.dry_run:
            came = f"{self.replayed:,} of {self.selected:,} dead letters would come back; nothing was changed"
            return f"{self.stream}: {came}"
        return f"{self.stream}: {self.replayed:,} of {self.selected:,} dead letters came back ({self.replay})"

    @property
    def details(self) -> list[str]:
        """Sentences about all other results."""
        found = left_out_sentences(self.null_columns, self.unknown_fields)
        if self.standing:
            found.append(f"{self.standing:,} whose record is in the table already")
        if self.null_columns or self.standing:
            found.append(
                "a row that is to land again has to be deleted from its table first; then `frazil replay "
                f"{self.stream} --state replayed`"
            )
        found += [reason.sentence for reason in self.reasons]
        if self.parked:
            found.append(f"{self.parked:,} of them are exhausted now, and are only tried again with --state parked")
        return found + self.problems


def left_out_sentences(null_columns: Sequence[str], unknown_fields: Mapping[str, int]) -> list[str]:
    """Sentences about what rows of a replay lack.

    Args:
        null_columns: Columns that its correction omits.
        unknown_fields: Records by the path of a field without a column, most records first.
    """
    null = f"null in these rows, as the correction leaves them out: {', '.join(null_columns)}"
    ordered = sorted(unknown_fields.items(), key=lambda each: (-each[1], each[0]))
    found = [f"left out of {count:,} records, as no column takes it: {path}" for path, count in ordered]
    more = len(found) - _SHOWN_FIELDS
    return [*([null] if null_columns else []), *found[:_SHOWN_FIELDS], *([f"and {more:,} more"] if more > 0 else [])]


@dataclass(slots=True)
class ReturnResult:
    """Result of a return to a topic.

    Attributes:
        selected: Dead letters of the selection.
        returned: Dead letters that are in the topic now; in a dry run, would be.
        recovered: Dead letters that an interrupted return had put there, and whose state is set now.
        left: Unchanged dead letters by reason: `letter_masked`, `letter_unreadable`; for a topic that the stream reads
            itself also `stands_in_table`, `of_another_topic`.
        unreadable: Dead letters in data files that cannot be read; `problems` names the files.
    """

    stream: str
    topic: str
    dry_run: bool
    replay: str = ""
    selected: int = 0
    returned: int = 0
    recovered: int = 0
    left: dict[str, int] = field(default_factory=dict)
    unreadable: int = 0
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0
