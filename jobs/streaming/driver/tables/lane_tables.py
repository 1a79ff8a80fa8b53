"""Tables with their own columns: each created in the batch that brings the first records of its topics.

The tables that a batch needs are known before its tasks run. A table for late rows is created with its table.
"""

from __future__ import annotations

import logging

from pyiceberg.table import Table

from jobs.base.errors import FrazilError
from jobs.base.failpoints import step
from jobs.config.stream.models import StreamSpec
from jobs.streaming.driver.context.open_stream import OpenStream
from jobs.streaming.driver.tables.first_records import RecordsAwaitedError
from jobs.streaming.driver.tables.lanes import destinations, topics_of
from jobs.streaming.driver.tables.new_rows import SchemaAwaitedError, new_columns
from jobs.streaming.driver.tables.new_tables import FOREIGN, is_foreign
from jobs.streaming.driver.tables.routed_tables import ensure_late_lane
from jobs.streaming.driver.tables.row_table import ensure_row_table
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.stamp.errors import SchemaChangeError
from jobs.tables.commit.stamp.log_state import LogState
from jobs.tables.commit.stamp.offsets import Ranges
from jobs.tables.commit.stamp.target_positions import TargetNeed, need

log = logging.getLogger(__name__)


class LaneTables:
    """Creates the tables of a stream whose tables each have their own columns."""

    def __init__(self, stream: OpenStream) -> None:
        self._stream: OpenStream = stream
        # Tables named by topics that cannot be created from them, with the reason; the next driver tries again.
        self._unfit: dict[str, str] = {}

    def look(self, ranges: Ranges) -> None:
        """Find the topics of a decided batch that name tables of other owners; no table is created any more."""
        if self._stream.spec.own_columns:
            for name, topics in self._missing(ranges).items():
                if not self._of_file(name) and is_foreign(self._stream, name):
                    self._refused(sorted(topics), FOREIGN.format(name=name, stream=self._stream.id))

    def ensure(self, ranges: Ranges, needs: dict[str, TargetNeed]) -> None:
        """Create the tables that a batch needs and that do not exist.

        Args:
            needs: What each target lacks of the batch; new targets are added.

        Raises:
            FrazilError: A table that the file names cannot be created, or cannot hold its rows.
            OSError: Kafka or the registry does not answer.
        """
        stream = self._stream
        if not stream.spec.own_columns:
            return
        stream.unmade.clear()
        stream.unmade |= self._unfit
        lacks = needs[stream.anchor.name]
        read = {p: range_ for p, range_ in ranges.items() if range_.start < range_.end and p not in lacks.skip}
        missing = self._missing(read)
        if not missing:
            return
        # A later driver's table may have been dropped since: nothing is created in its place.
        stream.refuse_taken_over()
        step("before_new_tables")
        while missing:
            name, topics = next(iter(missing.items()))
            made = self._made(name, {p: range_ for p, range_ in read.items() if p.topic in topics})
            if made:
                stream.spec = stream.spec.with_named_tables([name])
            for target in made:
                stream.targets[target.name] = target
                stream.positions[target.name] = dict(stream.positions[stream.anchor.name])
                needs[target.name] = need(ranges, stream.positions[target.name])
            # The tables that topics name depend on the existing tables and their number.
            missing = self._missing(read)
        step("after_new_tables")

    def _missing(self, read: Ranges) -> dict[str, set[str]]:
        """Tables to create, in the order of their first topics, with their topics in the batch."""
        found: dict[str, set[str]] = {}
        for topic, each in destinations(self._stream, topics_of(read)).items():
            if each.table is not None and each.table not in self._stream.targets:
                found.setdefault(each.table, set()).add(topic)
        return found

    def _made(self, name: str, read: Ranges) -> list[Target]:
        """A table as a target, with that of its late rows; empty if it cannot be created, with the reason recorded."""
        stream, topics = self._stream, sorted({p.topic for p in read})
        catalog, spec, of_file = stream.anchor.catalog, stream.spec.for_table(name), self._of_file(name)
        if not of_file and is_foreign(self._stream, name):
            self._refused(topics, FOREIGN.format(name=name, stream=stream.id))
            return []
        try:
            there = catalog.table_exists(name)
            self._ensured(spec, read)
            late = spec.late_table and ensure_late_lane(stream.spec, catalog, name) and spec.late_table
        except (RecordsAwaitedError, SchemaAwaitedError) as awaited:
            log.warning("stream %s: table %s is not made yet: %s", stream.id, name, awaited.message)
            stream.unmade[name] = awaited.message.rstrip(".").partition(": ")[2]
            return []
        except FrazilError as problem:
            if type(problem) is not FrazilError and (of_file or type(problem) is not SchemaChangeError):
                # The error is about Kafka, the registry or the catalog, not about the topic.
                raise
            told = f"stream {stream.id}: table {name}, of topic {topics[0]}: {problem.message}"
            if of_file:
                raise FrazilError(told, fix=problem.fix) from None
            log.warning("%s", told)
            self._unfit[name] = stream.unmade[name] = problem.message.rstrip(".")
            return []
        verb = "taken" if there else "made"
        log.info("stream %s: table %s is %s for the records of %s", stream.id, name, verb, ", ".join(topics))
        return [stream.new_target(each) for each in ([name, late] if late else [name])]

    def _of_file(self, name: str) -> bool:
        return self._stream.spec.route is not None and name in self._stream.spec.route.table_names

    def _ensured(self, spec: StreamSpec, read: Ranges) -> Table:
        stream = self._stream
        latest = {p: max(stream.log.latest.get(p, end), end) for p, (_, end) in read.items()}
        ids = {p.topic: stream.log.topics.get(p.topic, "") for p in read}
        log_state = LogState(ids, {p: start for p, (start, _) in read.items()}, latest)
        return ensure_row_table(
            spec, stream.anchor.catalog, lambda: new_columns(spec, stream.settings, log_state, log_state.earliest)
        )

    def _refused(self, topics: list[str], why: str) -> None:
        """Record a topic as refused: no topic may stop the stream, so its records follow `unmatched`."""
        found = destinations(self._stream, topics)
        for topic in topics:
            value = found[topic].value
            log.warning("stream %s: the records of topic %s have none that %s", self._stream.id, topic, why)
            if value is not None:
                self._stream.refused_values[value] = why
