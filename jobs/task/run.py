"""What a Spark task does with its slice of a batch: decode, route, write data files, and tell what it did.

Blocks of records go in; out come a few texts of JSON, each a data file's descriptor or a tally. Nothing is committed
here, so whatever a failed or repeated attempt has written is referenced by nobody.
"""

from __future__ import annotations

import contextlib
import gc
import re
import sys
import zipimport
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
from pyiceberg.io import load_file_io
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil

from jobs.commit.offsets import TopicPartition
from jobs.deadletter.rows import dead_letter_rows
from jobs.formats.decoder import OTHER_UNKNOWN_PATHS, Failure, shortened
from jobs.formats.decoder_spec import DecoderSpec
from jobs.formats.known_formats import FORMATS
from jobs.formats.problems import without_value
from jobs.kafka.records import FetchedBlock
from jobs.pipeline.block import Block
from jobs.pipeline.pipeline import Pipeline, stream_pipeline
from jobs.pipeline.stage import UNEXPECTED
from jobs.spec.targets import Role, TargetSpec
from jobs.task.plan import (
    MOST_CAUSES,
    MOST_UNKNOWN,
    Cause,
    Example,
    SlicePlan,
    Tally,
    TargetPlan,
    UnknownExample,
)
from jobs.write.datafile_json import to_json
from jobs.write.target_writer import TargetWriter

_INDEX = re.compile(r"\[\d+\]")
_LONGEST_FIELD = 200


class Result(NamedTuple):
    """One thing that a task tells.

    Attributes:
        target: Of a file, the target it is for; nothing of a tally.
        payload: JSON.
    """

    kind: Literal["file", "tally"]
    target: str
    payload: str


def run_slice(plan: SlicePlan, blocks: Iterable[FetchedBlock]) -> list[Result]:
    """Decode and write one slice, and tell what it did."""
    work = _Slice(plan)
    try:
        with _no_cycles():
            for block in blocks:
                work.take(block)
            return work.finish()
    except BaseException:
        work.abort()
        raise
    finally:
        _forget_archives()


@contextlib.contextmanager
def _no_cycles() -> Iterator[None]:
    """Keeps Python from looking for unreachable cycles: records make none.

    It would look at thousands of them again and again while a block is read, which takes longer than the reading.
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _forget_archives() -> None:
    """Spare the next task a tenth of a second of CPU.

    PySpark's worker invalidates the import caches before every task, and Python then reads the directories of PySpark's
    own zip archives anew, unless nobody remembers them. They come back with the next import that looks for them.
    """
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimport.zipimporter):
            del sys.path_importer_cache[path]


class _Slice:
    def __init__(self, plan: SlicePlan) -> None:
        self._plan: SlicePlan = plan
        self._tallies: dict[TopicPartition, Tally] = {}
        self._sinks: dict[str, _Sink] = {each.target.name: _Sink(each, plan) for each in plan.targets}
        self._coordinator: _Sink = next(sink for sink in self._sinks.values() if sink.target.coordinator)
        self._rows: _Sink = self._sink_of("rows")
        self._dead: _Sink = self._sink_of("dead_letters")
        self._pipeline: Pipeline = stream_pipeline(
            plan.resolved.decoder,
            self._rows.target.name,
            lambda rows: self._rows.writer.fit(rows),
            kafka_columns=plan.kafka_columns,
        )

    def take(self, fetched: FetchedBlock) -> None:
        source, records = fetched.source, fetched.records
        tally = self._tallies.setdefault(source, Tally(source.topic, source.partition))
        offsets = records.column("offset").to_numpy()
        tally.after, tally.leader_epoch = int(offsets[-1]) + 1, fetched.leader_epoch
        tally.appended_ms = fetched.appended_ms
        wanted = {name: sink.wants(source, offsets) for name, sink in self._sinks.items()}
        if not any(each.any() for each in wanted.values()):
            return
        block = self._pipeline.run(records)
        self._count(tally, block, wanted[self._coordinator.target.name])
        self._land(tally, block, wanted[block.destination])
        failures = [failure for failure in block.failures if wanted[self._dead.target.name][failure.row]]
        if failures:
            self._dead.count(tally, len(failures))
            self._set_aside(fetched, failures)

    def _set_aside(self, fetched: FetchedBlock, failures: list[Failure]) -> None:
        letters = dead_letter_rows(
            fetched.whole([failure.row for failure in failures]),
            failures,
            stream=self._plan.stream,
            config_hash=self._plan.config,
            batch_id=self._plan.batch,
            epoch=self._plan.epoch,
            first_seen=self._plan.first_seen,
            mask=self._plan.mask,
            rows=self._plan.resolved.schema,
        )
        self._dead.writer.write(letters)

    def _land(self, tally: Tally, block: Block, wanted: np.ndarray) -> None:
        rows = block.rows
        if not wanted.all():
            rows = rows.filter(pa.array(wanted[block.positions]))
        if rows.num_rows:
            self._sinks[block.destination].count(tally, rows.num_rows)
            self._sinks[block.destination].writer.add(rows)

    def _count(self, tally: Tally, block: Block, wanted: np.ndarray) -> None:
        if not wanted.any():
            return
        records = block.records
        tally.read += int(wanted.sum())
        tally.landed += int(wanted[block.positions].sum())
        tally.tombstones += int(wanted[block.dropped].sum())
        for failure in block.failures:
            if wanted[failure.row]:
                tally.dead += 1
                tally.reasons[failure.error_class] = tally.reasons.get(failure.error_class, 0) + 1
                _count_cause(tally, records, failure)
                if failure.error_class not in tally.examples:
                    tally.examples[failure.error_class] = _example(tally, records, failure)
                if failure.error_class == UNEXPECTED and tally.unexpected is None:
                    tally.unexpected = tally.examples[UNEXPECTED]
        if block.unknown_fields:
            _count_unknown(tally, block, self._plan.resolved.decoder)

    def finish(self) -> list[Result]:
        files = [Result("file", name, payload) for name, sink in self._sinks.items() for payload in sink.close()]
        tallies = [Result("tally", "", msgspec.json.encode(tally).decode()) for tally in self._tallies.values()]
        return files + tallies

    def abort(self) -> None:
        for sink in self._sinks.values():
            sink.abort()

    def _sink_of(self, role: Role) -> _Sink:
        return next(sink for sink in self._sinks.values() if sink.target.role == role)


class _Sink:
    """One target's writer, opened when its first row comes."""

    def __init__(self, plan: TargetPlan, slice_plan: SlicePlan) -> None:
        self.target: TargetSpec = plan.target
        self._plan: TargetPlan = plan
        self._slice: SlicePlan = slice_plan
        self._metadata: TableMetadata | None = None
        self._writer: TargetWriter | None = None

    @property
    def writer(self) -> TargetWriter:
        if self._writer is None:
            self._metadata = TableMetadataUtil.parse_raw(self._plan.metadata)
            io = load_file_io(dict(self._plan.io_properties), self._metadata.location)
            self._writer = TargetWriter(self._metadata, io, file_prefix=self._slice.file_prefix)
        return self._writer

    def wants(self, source: TopicPartition, offsets: np.ndarray) -> np.ndarray:
        """Which of the records the target has not yet."""
        if source in self._plan.skip:
            return np.zeros(len(offsets), dtype=bool)
        floor = self._plan.floors.get(source)
        return np.ones(len(offsets), dtype=bool) if floor is None else offsets >= floor

    def count(self, tally: Tally, rows: int) -> None:
        """Note how many rows of a partition it is given."""
        tally.rows[self.target.name] = tally.rows.get(self.target.name, 0) + rows

    def close(self) -> list[str]:
        if self._writer is None or self._metadata is None:
            return []
        return [msgspec.json.encode(to_json(file, self._metadata)).decode() for file in self._writer.close()]

    def abort(self) -> None:
        if self._writer is not None:
            self._writer.abort()


def _count_unknown(tally: Tally, block: Block, decoder: DecoderSpec) -> None:
    """Keys that are not declared, each with a record that has it: the first time it is met, one is looked for."""
    counts = tally.unknown_fields
    for path, count in block.unknown_fields.items():
        name = shortened(path)
        if name not in counts and len(counts) >= MOST_UNKNOWN:
            name = OTHER_UNKNOWN_PATHS
        counts[name] = counts.get(name, 0) + count
    known = tally.unknown_examples
    new = [path for path in block.unknown_fields if (name := shortened(path)) in counts and name not in known]
    if not new:
        return
    values, offsets = block.records.column("value"), block.records.column("offset")
    found = FORMATS[decoder.kind].unknown_fields(decoder, values, block.positions, new)
    for path, field in found.items():
        known.setdefault(shortened(path), UnknownExample(offsets[field.row].as_py(), field.within, field.column))


def _count_cause(tally: Tally, records: pa.RecordBatch, failure: Failure) -> None:
    """A hundred records with the same mistake at `$.items[0].n` and `$.items[7].n` have one cause."""
    field = _INDEX.sub("[]", failure.field or "")[:_LONGEST_FIELD]
    key = f"{failure.error_class} {field} {without_value(failure.message) or ''}"
    cause = tally.causes.get(key)
    if cause is None:
        if len(tally.causes) >= MOST_CAUSES:
            return
        cause = tally.causes[key] = Cause(_example(tally, records, failure))
    cause.count += 1


def _example(tally: Tally, records: pa.RecordBatch, failure: Failure) -> Example:
    return Example(
        tally.topic,
        tally.partition,
        records.column("offset")[failure.row].as_py(),
        failure.stage,
        failure.error_class,
        failure.field,
        failure.message if failure.error_class == UNEXPECTED else None,
        without_value(failure.message),
    )
