"""Stopped record: the one that stopped a stream without tolerance, published to the dead-letter topic once, marked."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import Any

import msgspec
import pyarrow.compute as pc
import pyarrow.parquet as pq

from jobs.commit.errors import FencedError
from jobs.deadletter.kafka_record import FRAZIL, connect_record
from jobs.deadletter.outbox.topic import OutboxError, TopicCluster, cluster_of
from jobs.deadletter.outbox.transactions import Transactions
from jobs.errors import FrazilError
from jobs.redaction import redacted
from jobs.spec.error_handling import dead_letter_secrets
from jobs.steps import step
from jobs.stream.open_stream import OpenStream
from jobs.stream.results import TaskResults
from jobs.stream.tolerance import first_failed
from jobs.task.tally import Example

log = logging.getLogger(__name__)

GROUP = "frazil-stopped-"
MARK = FRAZIL + "stopped"
# What the mark takes of the largest record.
_ROOM = 64


def publish_stopped_record(stream: OpenStream, results: TaskResults) -> str | None:
    """Publish the record that a stop names, unless it was published before; what fails here is only reported.

    Args:
        results: Of the batch, whose files are still there and are referenced by nobody.

    Returns:
        What to add to the stop's message; None if the stream does not ask for it.

    Raises:
        FencedError: The stream is lost.
    """
    topic = stream.spec.errors.topic
    if topic is None or not topic.stops or stream.spec.errors.tolerance != "none":
        return None
    try:
        letter = _letter(stream, results, first_failed(results.tallies))
        if letter is None:
            return None
        fresh = _publish(stream, letter)
    except FencedError:
        raise
    except Exception as problem:
        # Whatever it is, the stream stops for its own reason, and says this one as well.
        text = problem.message if isinstance(problem, FrazilError) else type(problem).__name__
        message = redacted(stream.settings, text, tuple(dead_letter_secrets(stream.spec.errors)))
        log.warning("the record that stopped the stream is not published: %s", message)
        return f"The record is not in topic {topic.name}: {message}."
    return f"The record is in topic {topic.name}, marked with {MARK}{'' if fresh else ', since an earlier stop'}."


def _letter(stream: OpenStream, results: TaskResults, first: Example) -> dict[str, Any] | None:
    """The letter of a record, from the files of the batch."""
    table = stream.dead_letters.table
    coordinates = (
        (pc.field("topic") == first.topic)
        & (pc.field("partition") == first.partition)
        & (pc.field("offset") == first.offset)
    )
    for file in results.files.get(stream.dead_letters.name, ()):
        with table.io.new_input(file.file_path).open() as source:
            rows = pq.read_table(source, filters=coordinates).to_pylist()
        if rows:
            return rows[0]
    return None


def _publish(stream: OpenStream, letter: dict[str, Any]) -> bool:
    """Put the letter into the topic in a transaction that also says which one it was; False if it was there already."""
    spec, topic = stream.spec, stream.spec.errors.topic
    assert topic is not None
    cluster = TopicCluster(cluster_of(topic, stream.settings.kafka), topic, spec.stream)
    limits = cluster.limits()
    room = replace(limits, max_bytes=limits.max_bytes - _ROOM)
    record = connect_record(letter, spec.dead_letter_table, room, time.time_ns() // 1_000_000)
    if record is None:
        raise OutboxError(f"topic {topic.name} takes {limits.max_bytes} bytes, too few for the reasons alone")
    name = {each: letter[each] for each in ("topic", "partition", "offset")}
    # A topic that is made anew has another record at the same offset.
    text = msgspec.json.encode(name | {"id": stream.log.topics.get(letter["topic"])}).decode()
    held = Transactions(cluster, GROUP + spec.stream, topic.name, limits.max_bytes, stream.lease.verify)
    try:
        published = held.take_over()
        if published is not None and published[1] == text:
            return False
        held.begin()
        held.produce(replace(record, headers=(*record.headers, (MARK, b"true"))))
        held.deliver()
        held.offer(letter["offset"], text)
        step("stopped_before_commit")
        held.commit()
        step("stopped_after_commit")
        return True
    finally:
        held.close()
