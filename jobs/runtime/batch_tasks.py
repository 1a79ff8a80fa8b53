"""What the tasks of a batch are told, and what they have told."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec
from pyiceberg.manifest import DataFile

from jobs.commit.decide import Need, Ranges
from jobs.commit.offsets import TopicPartition
from jobs.commit.target import Seen, Target
from jobs.runtime.open_stream import OpenStream
from jobs.runtime.slice_plan import SlicePlan, Tally, TargetPlan, task_metadata
from jobs.runtime.task_results import TaskResults
from jobs.write.datafile_json import from_json


@dataclass(frozen=True, slots=True)
class Prepared:
    """A batch before anything of it is noted.

    Attributes:
        seen: The tables as the tasks saw them.
        results: What the tasks wrote and counted.
        tasks_ended: When, of the monotonic clock.
        now_ms: Before the log's ends were asked for, milliseconds since 1970.
        latest: The log's ends.
    """

    seen: dict[str, Seen]
    results: TaskResults
    tasks_ended: float
    now_ms: int
    latest: dict[TopicPartition, int]


def slice_plan(stream: OpenStream, batch: int, ranges: Ranges, needs: dict[str, Need]) -> SlicePlan:
    """What each task of a batch is told.

    Args:
        stream: The stream.
        batch: Spark's number of it.
        ranges: The batch's.
        needs: Of it, by target, what the target lacks.
    """
    spec = stream.spec
    topics = {partition.topic for partition, range_ in ranges.items() if range_.end > range_.start}

    def of(target: Target) -> TargetPlan:
        wanted = needs[target.name]
        io = dict(target.table.io.properties)
        return TargetPlan(task_metadata(target.table.metadata), wanted.skip, wanted.floors, io)

    return SlicePlan(
        stream=spec.stream,
        config=spec.config_hash,
        batch=batch,
        epoch=stream.epoch,
        first_seen=datetime.now(UTC),
        schema_text=spec.decode.schema_text,
        unknown_fields=spec.decode.unknown_fields,
        kafka_columns=spec.table.kafka_columns,
        anchor=of(stream.anchor),
        dead_letters=of(stream.dead_letters),
        file_prefix=f"{spec.stream}-{stream.epoch}-{batch}-{uuid.uuid4().hex[:8]}",
        topic=next(iter(topics)) if len(topics) == 1 else None,
        mask=spec.errors.mask,
    )


def task_results(stream: OpenStream, rows: Iterable[Any]) -> TaskResults:
    """What the tasks of a batch have told, in rows of `jobs.runtime.slice_task.RESULT_SCHEMA`."""
    files: dict[str, list[DataFile]] = {name: [] for name in stream.targets}
    tallies: list[Tally] = []
    names = {"anchor": stream.anchor.name, "dead_letters": stream.dead_letters.name}
    for row in rows:
        if row.kind == "tally":
            tallies.append(msgspec.json.decode(row.payload, type=Tally))
        else:
            name = names[row.target]
            metadata = stream.targets[name].table.metadata
            files[name].append(from_json(msgspec.json.decode(row.payload), metadata))
    return TaskResults(files, tallies)
