"""Returning letters to a topic as the records that they were, for those who feed other consumers from it.

Each batch is one Kafka transaction, which also commits the batch's number to a consumer group. Which letters it has is
noted before, and told to the letters after; so whoever comes next asks the group whether the noted batch is in.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import KafkaException
from pyiceberg.catalog import Catalog

from jobs.deadletter.connect_headers import KafkaRecord
from jobs.deadletter.letters import count_letters
from jobs.deadletter.outbox.topic import OutboxError, TopicCluster
from jobs.deadletter.outbox.transactions import Transactions
from jobs.errors import FrazilError
from jobs.kafka.metadata import KafkaLog
from jobs.replay.dry_run import ReplayRequest, batches_of, limited, tables_for
from jobs.replay.landed import first_of, has_coordinates, standing
from jobs.replay.lifecycle import CHANGE_ARROW, change_life
from jobs.replay.opening import refuse_unfinished_queue, replay_session
from jobs.replay.pipeline import MASKED, UNREADABLE
from jobs.replay.result import Progress, Sums
from jobs.replay.return_note import RETURNED_TO, ReturnNote, changes_of, remove_note, return_notes
from jobs.replay.returned_record import returned_record
from jobs.replay.session import ReplaySession
from jobs.spec.errors import LetterTopic
from jobs.spec.models import StreamSpec
from jobs.spec.settings import Settings
from jobs.spec.source import Source
from jobs.state.paths import stream_folder
from jobs.steps import step

GROUP = "frazil-replay-"
STANDING, ELSEWHERE = "stands_in_table", "of_another_topic"
MAX_LETTERS = 5_000
_RATE_SECONDS = 5.0


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


def return_letters(
    spec: StreamSpec,
    settings: Settings,
    catalog: Catalog,
    topic: str,
    request: ReplayRequest,
    *,
    dry_run: bool = False,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> ReturnResult:
    """Put the selected letters into a topic as the records that they were, each once, and mark them as replayed.

    Args:
        topic: In the Kafka of the settings; there has to be one of this name.
        request: Its selection and rate count; a correction has no meaning here.

    Raises:
        LeaseHeldError: Another replay of the stream is at work.
        FrazilError: The topic does not exist, or the cluster does not answer; the batch at hand is finished, or
            dropped, by the next return.
    """
    began = time.monotonic()
    _, letters = tables_for(spec, catalog, request)
    refuse_unfinished_queue(stream_folder(settings, spec.stream), spec.stream)
    partitions = _partitions(settings, topic)
    if not partitions:
        raise FrazilError(
            f"topic {topic} does not exist at {settings.kafka.require_bootstrap()}.",
            fix="name the topic that the records are to go to, such as the one that they came from",
        )
    result = ReturnResult(spec.stream, topic, dry_run)
    if dry_run:
        for batch in _batches(letters, spec, request, result, MAX_LETTERS):
            kept = _returnable(batch, spec, catalog, topic, result)
            result.returned += len(np.unique(first_of(batch)[kept]))
        result.seconds = time.monotonic() - began
        return result
    with replay_session(spec, settings, catalog, returning=True) as session:
        _recover(session, settings, result)
        session.letters.read()
        with _transactions(session, settings, topic) as (transactions, largest):
            _Return(session, transactions, catalog, request, result, partitions, largest).run(on_progress)
    result.seconds = time.monotonic() - began
    return result


def _partitions(settings: Settings, topic: str) -> int:
    """How many partitions the topic has; 0 if there is none of this name."""
    return len(KafkaLog(settings.kafka).topics(Source(topics=(topic,))).get(topic, ()))


@contextmanager
def _transactions(session: ReplaySession, settings: Settings, topic: str) -> Iterator[tuple[Transactions, int]]:
    """The hold on the transactional id of the stream's returns, and the most bytes that a record may have.

    Raises:
        OutboxError: In a sentence, whatever Kafka's client raises.
    """
    stream = session.spec.stream
    cluster = TopicCluster(settings.kafka, LetterTopic(name=topic), stream)
    largest = cluster.limits().max_bytes
    held = Transactions(cluster, GROUP + stream, topic, largest, session.lease.verify)
    try:
        yield held, largest
    except KafkaException as problem:
        raise OutboxError(f"Kafka: {problem.args[0].str()}") from problem
    finally:
        held.close()


def _recover(session: ReplaySession, settings: Settings, result: ReturnResult) -> None:
    """Tell letters that an interrupted return put into a topic; forget what it did not."""
    store = session.folder.store
    for key in return_notes(store):
        note = ReturnNote.read(store, key)
        decided = None
        # A topic that is gone has taken its letters with it.
        if _partitions(settings, note.topic):
            with _transactions(session, settings, note.topic) as (transactions, _):
                # From here on nobody else can decide it.
                decided = transactions.take_over()
        # Whoever returns afterwards finishes this one first, so the group stands at it, or never came to it.
        if decided is not None and decided[0] == note.number:
            change_life(session.letters, changes_of(store, key), epoch=session.epoch)
            result.recovered += note.letters
        remove_note(store, key)


def _batches(
    table: Any, spec: StreamSpec, request: ReplayRequest, result: ReturnResult, most: int
) -> Iterator[pa.RecordBatch]:
    sums = Sums()
    result.selected = limited(count_letters(table, spec.stream, request.selection), request)
    yield from batches_of(table, spec.stream, request, sums, most)
    result.unreadable, result.problems = sums.unreadable, sums.problems


def _returnable(
    letters: pa.RecordBatch, spec: StreamSpec, catalog: Catalog, topic: str, result: ReturnResult
) -> np.ndarray:
    """Which letters are whole, and fit the topic; the others are counted by why not."""
    kept = np.ones(letters.num_rows, dtype=bool)

    def leave(why: str, those: np.ndarray) -> None:
        if count := int((kept & those).sum()):
            result.left[why] = result.left.get(why, 0) + count
        kept[those] = False

    leave(MASKED, np.asarray(letters.column("masked").is_valid()))
    leave(UNREADABLE, np.asarray(letters.column("value").is_null()))
    if spec.source.reads(topic):
        # The stream reads them again: what has landed would land twice.
        leave(ELSEWHERE, np.array([each != topic for each in letters.column("topic").to_pylist()], dtype=bool))
        sink = catalog.load_table(spec.table.name)
        if has_coordinates(sink):
            leave(STANDING, standing(sink, letters))
    return np.flatnonzero(kept)


class _Return:
    """One return at work."""

    def __init__(
        self,
        session: ReplaySession,
        transactions: Transactions,
        catalog: Catalog,
        request: ReplayRequest,
        result: ReturnResult,
        partitions: int,
        largest: int,
    ) -> None:
        self._partitions: int = partitions
        self._largest: int = largest
        self._session: ReplaySession = session
        self._transactions: Transactions = transactions
        self._catalog: Catalog = catalog
        self._request: ReplayRequest = request
        self._result: ReturnResult = result
        self._batch: int = 0
        result.replay = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{session.epoch}-{uuid.uuid4().hex[:6]}"

    def run(self, on_progress: Callable[[Progress], None]) -> None:
        """All batches of the selection."""
        result, spec = self._result, self._session.spec
        rate = self._request.rate or spec.errors.replay.rate
        most = MAX_LETTERS if rate is None else max(1, min(MAX_LETTERS, int(rate * _RATE_SECONDS)))
        self._transactions.take_over()
        began, passed = time.monotonic(), 0
        for batch in _batches(self._session.letters.table, spec, self._request, result, most):
            if rate is not None and passed:
                time.sleep(max(0.0, passed / rate - (time.monotonic() - began)))
            kept = _returnable(batch, spec, self._catalog, result.topic, result)
            if len(kept):
                self._land(batch.take(pa.array(kept)))
            passed += batch.num_rows
            on_progress(Progress(result.selected, passed, result.returned, sum(result.left.values())))

    def _land(self, letters: pa.RecordBatch) -> None:
        session, result = self._session, self._result
        records = list(self._records(letters))
        note = ReturnNote.numbered(result.topic, session.epoch, self._batch, letters.num_rows)
        session.lease.verify()
        key = note.write(session.folder.store, self._changes(letters))
        step("return_before_produce")
        self._transactions.begin()
        for record, partition in records:
            self._transactions.produce(record, partition)
        self._transactions.deliver()
        self._transactions.offer(note.number, f'{{"means":"letters that went back","replay":"{result.replay}"}}')
        step("return_before_commit")
        self._transactions.commit()
        step("return_after_commit")
        change_life(session.letters, changes_of(session.folder.store, key), epoch=session.epoch)
        step("return_after_life")
        remove_note(session.folder.store, key)
        self._batch += 1
        result.returned += len(records)

    def _records(self, letters: pa.RecordBatch) -> Iterator[tuple[KafkaRecord, int | None]]:
        """Each record once, and the partition that it came from if this is its topic."""
        topic = self._result.topic
        for letter in letters.take(pa.array(np.unique(first_of(letters)))).to_pylist():
            record = returned_record(letter, self._result.replay)
            if record.size > self._largest:
                where = f"topic {letter['topic']}, partition {letter['partition']}, offset {letter['offset']}"
                raise FrazilError(
                    f"topic {topic} takes {self._largest} bytes, and the letter of {where} has {record.size} with its "
                    "headers.",
                    fix=f"raise max.message.bytes of topic {topic}, or select other letters, such as with --offsets",
                )
            own = letter["topic"] == topic and letter["partition"] < self._partitions
            yield record, letter["partition"] if own else None

    def _changes(self, letters: pa.RecordBatch) -> pa.Table:
        """The life that letters have once they are in the topic."""
        count, request = letters.num_rows, self._request
        constant: dict[str, Any] = {
            "state": "replayed",
            "state_at": datetime.now(UTC),
            "replay": self._result.replay,
            "run_id": request.run_id,
            "changed_by": request.by or None,
            "note": f"{RETURNED_TO}{self._result.topic}",
        }
        columns: dict[str, Any] = {each.name: [constant.get(each.name)] * count for each in CHANGE_ARROW}
        columns |= {name: letters.column(name) for name in ("topic", "partition", "offset", "first_seen")}
        columns["attempts"] = [(known or 0) + 1 for known in letters.column("attempts").to_pylist()]
        return pa.table(
            {each.name: pa.array(columns[each.name], each.type) for each in CHANGE_ARROW}, schema=CHANGE_ARROW
        )
