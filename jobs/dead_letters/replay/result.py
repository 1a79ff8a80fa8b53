"""Result of a replay, of its dry run, and of a return to a topic; and the progress on the way."""

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
    """A reason in a replay's result why letters would not come back, or did not.

    Attributes:
        example: Topic, partition and offset of one of them; never a value.
    """

    stage: str
    error_class: str
    count: int
    example: Coordinates

    @property
    def place(self) -> str:
        """Where the example is."""
        topic, partition, offset = self.example
        return f"topic {topic}, partition {partition}, offset {offset}"

    @property
    def sentence(self) -> str:
        """Such as `3 × wrong_type in decode_value, such as topic orders, partition 0, offset 17`."""
        return f"{self.count:,} × {self.error_class} in {self.stage}, such as {self.place}"


@dataclass(frozen=True, slots=True)
class ReplayProgress:
    """How far a replay is.

    Attributes:
        total: The letters that were selected.
        done: Those that have been tried.
        failed: Those of them that failed again, parked ones included.
    """

    total: int
    done: int
    replayed: int
    failed: int


class Reasons:
    """The reasons of failures in a replay's result, counted."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], Reason] = {}

    def add(self, failure: Failure, example: Coordinates) -> None:
        """Count the reason of one more record."""
        key = failure.stage, failure.error_class
        known = self._found.get(key) or Reason(*key, 0, example)
        self._found[key] = replace(known, count=known.count + 1)

    def add_batch(self, letters: pa.RecordBatch, failures: Sequence[Failure]) -> None:
        """Count the reasons of the failures of a batch of letters."""
        for failure in failures:
            topic, partition, offset = (letters.column(name)[failure.row].as_py() for name in COORDINATES)
            self.add(failure, (topic, partition, offset))

    def by_count(self) -> tuple[Reason, ...]:
        """The reasons, the most frequent first."""
        return tuple(sorted(self._found.values(), key=lambda reason: (-reason.count, reason.error_class)))


@dataclass(slots=True)
class ReplayResult:
    """The result of a replay, or of a dry run.

    Attributes:
        replay: Its id, as the letters keep it; empty for a dry run.
        selected: Letters that the selection means.
        replayed: Letters whose rows landed now; in a dry run, that would.
        standing: Letters whose rows stood in the table already, or of records that have another letter; they count as
            replayed and land nothing.
        failed_again: Letters that failed again.
        parked: Letters that failed for the last time, and are left alone from now on.
        unreadable: Letters in data files that cannot be read.
        reasons: Why letters failed, the most frequent first.
        problems: A sentence for each data file that cannot be read.
        snapshots: Of the stream's table, with the rows that landed.
        correction: The YAML that the spec was corrected with.
        null_columns: Columns that it leaves out, which are null in the rows that come back.
        unknown_fields: Records by the path of a field that no column takes, so that it was left out.
        there_is: All letters of the stream, told where the selection means none.
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
        """Add the outcome of a batch, `parked` of whose failed letters are parked now."""
        count_unknown_fields(self.unknown_fields, unknown_fields)
        self.replayed += len(outcome.landed)
        self.standing += len(outcome.already_landed)
        self.parked += parked
        self.failed_again += len(outcome.failures) - parked

    @property
    def failed(self) -> int:
        """Letters that failed, for the last time or not."""
        return self.failed_again + self.parked

    @property
    def progress(self) -> ReplayProgress:
        """How far the replay is."""
        done = self.replayed + self.standing + self.failed + self.unreadable
        return ReplayProgress(max(self.selected, done), done, self.replayed, self.failed)

    @property
    def sentence(self) -> str:
        """How many letters came back, or would."""
        if not self.selected and not self.unreadable:
            others = f". All dead letters: {self.there_is.sentence()}" if self.there_is else ""
            return f"{self.stream}: no dead letter fits the selection; nothing to do{others}"
        if self.dry_run:
            came = f"{self.replayed:,} of {self.selected:,} dead letters would come back; nothing was changed"
            return f"{self.stream}: {came}"
        return f"{self.stream}: {self.replayed:,} of {self.selected:,} dead letters came back ({self.replay})"

    @property
    def details(self) -> list[str]:
        """A sentence for each thing to know besides."""
        found = left_out_sentences(self.null_columns, self.unknown_fields)
        if self.standing:
            found.append(f"{self.standing:,} whose record is in the table already")
        if self.null_columns or self.standing:
            found.append(
                "a row that is to land anew has to be deleted from its table first; then "
                f"`frazil replay {self.stream} --state replayed`"
            )
        found += [reason.sentence for reason in self.reasons]
        if self.parked:
            found.append(f"{self.parked:,} of them are parked now, and are only tried again with --state parked")
        return found + self.problems


def left_out_sentences(null_columns: Sequence[str], unknown_fields: Mapping[str, int]) -> list[str]:
    """What rows of a replay lack, in sentences.

    Args:
        null_columns: Columns that its correction leaves out.
        unknown_fields: Records by the path of a field that no column takes; that of most records comes first.
    """
    null = f"null in these rows, as the correction leaves them out: {', '.join(null_columns)}"
    ordered = sorted(unknown_fields.items(), key=lambda each: (-each[1], each[0]))
    found = [f"left out of {count:,} records, as no column takes it: {path}" for path, count in ordered]
    more = len(found) - _SHOWN_FIELDS
    return [*([null] if null_columns else []), *found[:_SHOWN_FIELDS], *([f"and {more:,} more"] if more > 0 else [])]


@dataclass(slots=True)
class ReturnResult:
    """What a return came to.

    Attributes:
        selected: Letters of the selection.
        returned: Those that are in the topic now; in a dry run, that would be.
        recovered: Those that an interrupted return before had put there, and that know it now.
        left: Those that were left as they are, by why: `letter_masked`, `letter_unreadable`; of a topic that the stream
            reads itself also `stands_in_table`, `of_another_topic`.
        unreadable: Letters in data files that cannot be read; `problems` names them.
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
