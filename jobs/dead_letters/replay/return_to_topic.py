"""Return of dead letters to a topic as their original records, for people who feed other consumers from it.

Each batch is one Kafka transaction, which also commits the batch's number to a consumer group. A pending return records
its dead letters before, and their replay state is set after. So the next return asks the group whether the pending
batch is in the topic.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from confluent_kafka import KafkaException
from pyiceberg.catalog import Catalog

from jobs.base.errors import FrazilError
from jobs.base.failpoints import step
from jobs.clients.kafka.metadata import KafkaLog
from jobs.clients.state_store.stream_folder import stream_folder
from jobs.config.settings.settings import Settings
from jobs.config.stream.error_handling import DeadLetterTopic
from jobs.config.stream.models import StreamSpec
from jobs.config.stream.source import Source
from jobs.dead_letters.replay.landed import are_rows, first_of, stand_in_table
from jobs.dead_letters.replay.opening import refuse_unfinished_queue, replay_session
from jobs.dead_letters.replay.pending_return import RETURNED_TO, PendingReturn, pending_returns
from jobs.dead_letters.replay.pipeline import MASKED, UNREADABLE
from jobs.dead_letters.replay.replay_state import (
    attempts_after,
    replay_state_changes,
    update_replay_state,
)
from jobs.dead_letters.replay.request import ReplayRequest, requested_batches, requested_tables
from jobs.dead_letters.replay.result import ReplayProgress, ReturnResult
from jobs.dead_letters.replay.routing import names_beside
from jobs.dead_letters.replay.session import ReplaySession
from jobs.streaming.dead_letter_publisher.topic import OutboxError, TopicCluster
from jobs.streaming.dead_letter_publisher.transactions import Transactions
from jobs.tables.commit.history.branch import existing_table
from jobs.tables.dead_letter_table.kafka_record import KafkaRecord, returned_record
from jobs.tables.dead_letter_table.parked_letters import TABLE_PARKED

GROUP = "frazil-replay-"
STANDING, ELSEWHERE, ROW, WAITS = "stands_in_table", "of_another_topic", "row_as_json", "waits_for_its_table"
MAX_LETTERS = 5_000


def return_letters_to_topic(
    spec: StreamSpec,
    settings: Settings,
    catalog: Catalog,
    topic: str,
    request: ReplayRequest,
    *,
    dry_run: bool = False,
    on_progress: Callable[[ReplayProgress], None] = lambda progress: None,
) -> ReturnResult:
    """Put the selected dead letters into a topic as their original records, each once, and mark them as replayed.

    Args:
        topic: Existing topic in the settings' Kafka.
        request: Request with selection and rate; its correction is ignored.

    Raises:
        LeaseHeldError: Another replay of the stream is running.
        FrazilError: The topic does not exist, or the cluster does not answer; the next return finishes or drops the
            present batch.
    """
    began = time.monotonic()
    _, letters = requested_tables(spec, catalog, request)
    refuse_unfinished_queue(stream_folder(settings, spec.stream), spec.stream)
    partitions = _partitions(settings, topic)
    if not partitions:
        raise FrazilError(
            f"topic {topic} does not exist at {settings.kafka.require_bootstrap()}.",
            fix="name the topic that the records are to go to, such as the one that they came from",
        )
    result = ReturnResult(spec.stream, topic, dry_run)
    if dry_run:
        result.selected = request.count(letters, spec.stream)
        for batch in requested_batches(letters, request, result, MAX_LETTERS):
            kept = _returnable(batch, spec, catalog, topic, result)
            result.returned += len(np.unique(first_of(batch)[kept]))
        result.seconds = time.monotonic() - began
        return result
    with replay_session(spec, settings, catalog, returning=True) as session:
        _recover(session, settings, result)
        session.letters.read()
        with _transactions(session, settings, topic) as (transactions, largest):
            result.replay = session.new_replay()
            _Return(session, transactions, catalog, request, result, partitions, largest).run(on_progress)
    result.seconds = time.monotonic() - began
    return result


def _partitions(settings: Settings, topic: str) -> int:
    """Number of partitions of the topic; 0 if it does not exist."""
    return len(KafkaLog(settings.kafka).topics(Source(topics=(topic,))).get(topic, ()))


@contextmanager
def _transactions(session: ReplaySession, settings: Settings, topic: str) -> Iterator[tuple[Transactions, int]]:
    """Hold the transactional id of the stream's returns; also yields the most bytes of a record.

    Raises:
        OutboxError: Any error of Kafka's client, as a sentence.
    """
    stream = session.spec.stream
    cluster = TopicCluster(settings.kafka, DeadLetterTopic(name=topic), stream)
    largest = cluster.limits().max_bytes
    held = Transactions(cluster, GROUP + stream, topic, largest, session.lease.verify)
    try:
        yield held, largest
    except KafkaException as problem:
        raise OutboxError(f"Kafka: {problem.args[0].str()}") from problem
    finally:
        held.close()


def _recover(session: ReplaySession, settings: Settings, result: ReturnResult) -> None:
    """Set the state of dead letters that an interrupted return put into a topic; drop its record otherwise."""
    store = session.folder.store
    for key in pending_returns(store):
        pending = PendingReturn.read(store, key)
        decided = None
        # A dropped topic has taken its records with it.
        if _partitions(settings, pending.topic):
            with _transactions(session, settings, pending.topic) as (transactions, _):
                # From here on no other process can decide it.
                decided = transactions.take_over()
        # Every later return finishes this one first, so the group is at it, or never reached it.
        if decided is not None and decided[0] == pending.number:
            update_replay_state(session.letters, pending.changes(store), epoch=session.epoch)
            result.recovered += pending.letters
        pending.remove(store)


def _returnable(
    letters: pa.RecordBatch, spec: StreamSpec, catalog: Catalog, topic: str, result: ReturnResult
) -> np.ndarray:
    """Which dead letters are complete and fit the topic; the others are counted by reason."""
    kept = np.ones(letters.num_rows, dtype=bool)

    def leave(why: str, those: np.ndarray) -> None:
        if count := int((kept & those).sum()):
            result.left[why] = result.left.get(why, 0) + count
        kept[those] = False

    leave(MASKED, np.asarray(letters.column("masked").is_valid()))
    leave(UNREADABLE, np.asarray(letters.column("value").is_null()))
    leave(ROW, are_rows(letters))
    # Its record has landed everywhere else, and would land again.
    leave(WAITS, np.array([each == TABLE_PARKED for each in letters.column("error_class").to_pylist()], dtype=bool))
    if spec.source.reads(topic):
        # The stream reads them again: landed ones would land twice.
        leave(ELSEWHERE, np.array([each != topic for each in letters.column("topic").to_pylist()], dtype=bool))
        kafka = spec.kafka_columns
        for name in names_beside(spec, spec.table.name):
            table = existing_table(catalog, name, spec.branch_of(name))
            if table is not None and kafka.locate_rows_of(table.schema()):
                leave(STANDING, stand_in_table(table, letters, spec.stream, columns=kafka.instant_coordinates))
    return np.flatnonzero(kept)


@dataclass(slots=True)
class _Return:
    """One running return.

    Attributes:
        partitions: Number of the topic's partitions.
        largest: Most bytes of a record.
    """

    session: ReplaySession
    transactions: Transactions
    catalog: Catalog
    request: ReplayRequest
    result: ReturnResult
    partitions: int
    largest: int
    batch: int = 0

    def run(self, on_progress: Callable[[ReplayProgress], None]) -> None:
        """Process all batches of the selection."""
        result, spec = self.result, self.session.spec
        self.transactions.take_over()
        letters = self.session.letters.table
        result.selected = self.request.count(letters, spec.stream)
        pace, passed = self.request.pace(spec, MAX_LETTERS), 0
        for batch in requested_batches(letters, self.request, result, pace.batch):
            pace.wait(passed)
            kept = _returnable(batch, spec, self.catalog, result.topic, result)
            if len(kept):
                self._land(batch.take(pa.array(kept)))
            passed += batch.num_rows
            on_progress(ReplayProgress(result.selected, passed, result.returned, sum(result.left.values())))

    def _land(self, letters: pa.RecordBatch) -> None:
        session, result = self.session, self.result
        records = list(self._records(letters))
        pending = PendingReturn.numbered(result.topic, session.epoch, self.batch, letters.num_rows)
        session.lease.verify()
        pending.write(session.folder.store, _changes_of(letters, self.request, self.result))
        step("return_before_produce")
        self.transactions.begin()
        for record, partition in records:
            self.transactions.produce(record, partition)
        self.transactions.deliver()
        self.transactions.offer(pending.number, f'{{"means":"letters that went back","replay":"{result.replay}"}}')
        step("return_before_commit")
        self.transactions.commit()
        step("return_after_commit")
        update_replay_state(session.letters, pending.changes(session.folder.store), epoch=session.epoch)
        step("return_after_life")
        pending.remove(session.folder.store)
        self.batch += 1
        result.returned += len(records)

    def _records(self, letters: pa.RecordBatch) -> Iterator[tuple[KafkaRecord, int | None]]:
        """Each record once, with its original partition if this is its topic."""
        topic = self.result.topic
        for letter in letters.take(pa.array(np.unique(first_of(letters)))).to_pylist():
            record = returned_record(letter, self.result.replay)
            if record.size > self.largest:
                where = f"topic {letter['topic']}, partition {letter['partition']}, offset {letter['offset']}"
                raise FrazilError(
                    f"topic {topic} takes {self.largest} bytes, and the dead letter of {where} has {record.size} with "
                    "its headers.",
                    fix=(
                        f"raise max.message.bytes of topic {topic}, or select other dead letters, such as with "
                        "--offsets"
                    ),
                )
            own = letter["topic"] == topic and letter["partition"] < self.partitions
            yield record, letter["partition"] if own else None


def _changes_of(letters: pa.RecordBatch, request: ReplayRequest, result: ReturnResult) -> pa.Table:
    """Replay state of dead letters after the return."""
    return replay_state_changes(
        letters,
        state="replayed",
        attempts=attempts_after(letters),
        replay=result.replay,
        run_id=request.run_id,
        changed_by=request.by or None,
        note=f"{RETURNED_TO}{result.topic}",
    )
