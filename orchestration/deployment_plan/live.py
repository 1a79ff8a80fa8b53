"""Looks at what is live for a plan: state folders, tables and topics, each asked once, without a JVM."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from pyiceberg.catalog import Catalog
from pyiceberg.table.metadata import TableMetadata

from jobs.base.errors import FrazilError
from jobs.base.system.deadline import DeadlineError
from jobs.clients.catalog.catalog import NoCatalogYet, find_table, quick_catalog
from jobs.clients.kafka.metadata import KafkaLog, KafkaUnavailableError, quick_kafka
from jobs.clients.state_store.epochs import read_epoch, read_file, read_settings
from jobs.clients.state_store.lease import stream_lease
from jobs.config.redaction import redacted
from jobs.config.settings.generation import settings_of_generation
from jobs.config.settings.loading import load_stream
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.streaming.supervision.documents.launches import launched_file
from jobs.streaming.supervision.state.desired import StreamFiles, launched_spec
from jobs.streaming.supervision.state.observation import Observation, observe
from jobs.tables.commit.stamp.offsets import Positions
from jobs.tables.commit.stamp.stamps import Stamp
from orchestration.deployment_plan.change import Change, Unknown
from orchestration.deployment_plan.file_changes import settings_changes
from orchestration.deployment_plan.stream_plan import LiveStream, Waiting, others_in, read_topics
from orchestration.deployment_plan.table_changes import TableFacts, newest_stamp, rows_tables
from orchestration.reconcile.decide import decide

T = TypeVar("T")
# A catalog behind a network is asked for several tables at once.
_AT_ONCE = 8
_CHECK = "frazil validate"
# A person waits for the plan, which is worth nothing without its tables: longer than a quick look.
_CATALOG_SECONDS = 30.0
_SLOW = "frazil doctor, and frazil plan again once the catalog answers"


class LiveFacts:
    """Reader of a deployment's live state. A service that does not answer once is not asked again.

    Args:
        settings: Settings of the deployment.
        files: Files in `streams/`.
        folder: The folder `streams/`.
    """

    def __init__(self, settings: Settings, files: StreamFiles, folder: Path) -> None:
        self._settings: Settings = settings
        self._files: StreamFiles = files
        self._launched: dict[str, StreamSpec] = _texts(folder, files)
        self._catalog: Catalog | FrazilError | None = None
        self._answered_at: float = 0.0
        self._kafka: KafkaLog | FrazilError | None = None

    def look(self, streams: Sequence[str]) -> list[LiveStream]:
        """Look at streams, in their order."""
        wanted = [each for each in streams if each in self._files.specs]
        if wanted:
            self._catalog = self._catalog or _or_error(lambda: quick_catalog(self._settings, _CATALOG_SECONDS))
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="plan") as pool:
            tables = dict(zip(wanted, pool.map(self._tables, wanted), strict=True))
        return [self._stream(each, tables.get(each)) for each in streams]

    def _stream(self, stream: str, tables: TableFacts | Unknown | None) -> LiveStream:
        observed = observe(stream, self._files, self._settings)
        unknown = [tables] if isinstance(tables, Unknown) else []
        if observed.actual.problem:
            unknown.append(Unknown("state", observed.actual.problem, observed.actual.fix))
        facts = tables if isinstance(tables, TableFacts) else None
        spec = self._files.specs.get(stream)
        newest = newest_stamp(facts.tables.get(spec.table.name), stream) if facts and spec else None
        former = self._former(observed, newest)
        live = LiveStream(
            observed.desired,
            observed.actual,
            decide(observed.desired, observed.actual, time.time()),
            spec,
            former,
            facts,
            newest,
        )
        live = replace(live, settings=self._settings_changes(observed))
        others = dict[str, Positions | None]()
        if facts is not None and spec is not None and live.never_ran:
            own = facts.tables.get(spec.table.name)
            for other in others_in(spec, facts, self._files.specs):
                stamp = newest_stamp(own, other)
                others[other] = stamp.position if stamp is not None else None
        found: Waiting | None = None
        asks = former.source if former is not None else None
        if spec is not None and (live.never_ran or (former is not None and read_topics(asks, spec.source))):
            answer = self._waiting(spec, former, newest)
            if isinstance(answer, Unknown):
                unknown.append(answer)
            else:
                found = answer
        return replace(live, others=others, waiting=found, unknown=tuple(unknown))

    def _tables(self, stream: str) -> TableFacts | Unknown:
        """The tables of rows of a stream that has a file."""
        spec, catalog = self._files.specs[stream], self._catalog
        name = self._settings.catalog.name
        if isinstance(catalog, FrazilError) and not isinstance(catalog, NoCatalogYet):
            said = f"{self._redacted(catalog.message).rstrip('.')}, so the tables of {stream} were not looked at"
            return Unknown("catalog", said, catalog.fix or (_SLOW if isinstance(catalog, DeadlineError) else _CHECK))

        def find(table: str) -> TableMetadata | None:
            if catalog is None or isinstance(catalog, FrazilError):
                return None
            return self._find(catalog, table, spec.branch_of(table))

        try:
            lease = stream_lease(self._settings, stream).read()
            known = dict(lease.targets) if lease is not None else {}
            own = find(spec.table.name)
            names = rows_tables(spec, own)
            tables = {each: own if each == spec.table.name else find(each) for each in names}
            tables.setdefault(spec.table.name, own)
            letters, newest = find(spec.dead_letter_table), newest_stamp(own, stream)
        except DeadlineError as problem:
            said = f"{self._redacted(problem.message)}, so the tables of {stream} were not looked at"
            return Unknown("catalog", said, _SLOW)
        except FrazilError as problem:
            return Unknown("catalog", self._redacted(problem.message), problem.fix or _CHECK)
        uuids = known | dict(newest.targets if newest is not None else {})
        return TableFacts(tables, frozenset(known), name, letters, uuids)

    def _find(self, catalog: Catalog, table: str, branch: str) -> TableMetadata | None:
        """A table on a branch. If no question was answered within the time limit, the catalog is not asked again.

        Raises:
            DeadlineError: The catalog did not answer in time.
            FrazilError: It refuses.
        """
        asked_at = time.monotonic()
        try:
            found = find_table(catalog, table, branch, _CATALOG_SECONDS)
        except DeadlineError as problem:
            late = DeadlineError(f"{problem.message} about table {table}")
            if self._answered_at < asked_at:
                self._catalog = late
            raise late from None
        self._answered_at = time.monotonic()
        return found.metadata if found is not None else None

    def _former(self, observed: Observation, newest: Stamp | None) -> StreamSpec | None:
        """The stream as it last ran: by its newest launch, or by its newest opening if that was later."""
        launch, store = observed.actual.launch, observed.folder.store
        with contextlib.suppress(FrazilError, OSError):
            # The lease knows the newest opening, also where the file names another table by now.
            epoch = max(observed.actual.lease.epoch, newest.epoch if newest is not None else 0)
            opening = read_epoch(store, epoch) if epoch else None
            if opening is not None and observed.driver is None and (launch is None or opening.at > launch.at):
                text = read_file(store, opening.config, opening.generation)
                return None if text is None else self._parsed(observed.stream, text)
            if launch is not None:
                file = launched_file(observed.folder)
                known = self._launched.get(file.read_text(encoding="utf-8"))
                return known or launched_spec(partial(launched_file, observed.folder))
        return None

    def _settings_changes(self, observed: Observation) -> tuple[Change, ...] | None:
        """Changes of the settings since the launch of the stream's driver; None if the former ones are not stored."""
        desired, launch, beat = observed.desired, observed.actual.launch, observed.actual.heartbeat
        if desired.spec is None or launch is None:
            return None
        runs = beat.generation if beat is not None else launch.generation
        if runs == desired.generation:
            return ()
        with contextlib.suppress(FrazilError, OSError):
            former = read_settings(observed.folder.store, runs)
            if former is not None:
                return tuple(settings_changes(former, settings_of_generation(desired.spec, self._settings)))
        return None

    def _parsed(self, stream: str, text: str) -> StreamSpec | None:
        """A file's text as a stream; None if this release does not read it."""
        if (known := self._launched.get(text)) is not None:
            return known
        with tempfile.TemporaryDirectory() as folder, contextlib.suppress(FrazilError):
            path = Path(folder) / f"{stream}.yaml"
            path.write_text(text, encoding="utf-8")
            return load_stream(path)
        return None

    def _waiting(self, spec: StreamSpec, former: StreamSpec | None, newest: Stamp | None) -> Waiting | Unknown:
        """Records of topics without a position, and of those that the file reads no more."""
        if self._kafka is None:
            self._kafka = _or_error(lambda: quick_kafka(self._settings.kafka))
        kafka = self._kafka
        if isinstance(kafka, FrazilError):
            return self._kafka_unknown(kafka)
        try:
            return waiting(kafka, spec, former, newest)
        except FrazilError as problem:
            if isinstance(problem, KafkaUnavailableError):
                self._kafka = problem
            return self._kafka_unknown(problem)

    def _kafka_unknown(self, problem: FrazilError) -> Unknown:
        said = f"{self._redacted(problem.message).rstrip('.')}, so its topics were not looked at"
        return Unknown("kafka", said, problem.fix or _CHECK)

    def _redacted(self, text: str) -> str:
        return redacted(self._settings, text)


def waiting(kafka: KafkaLog, spec: StreamSpec, former: StreamSpec | None, newest: Stamp | None) -> Waiting:
    """Records that a start would read of topics without a position, and that it would leave of topics that go.

    Args:
        kafka: Is asked for topics and ends.
        former: The stream as it last ran; None of a new one.
        newest: Its newest stamp; None if it has none.

    Raises:
        FrazilError: Kafka does not answer.
    """
    position = dict(newest.position) if newest is not None else {}
    log = kafka.state(spec.source)
    known = {each.topic for each in position}
    begins = kafka.first_start(spec.source, log)
    records = dict[str, int]()
    for partition, end in log.latest.items():
        if partition.topic not in known:
            records[partition.topic] = records.get(partition.topic, 0) + max(0, end - begins.get(partition, end))
    missing = tuple(each for each in spec.source.topics or () if each not in log.topics)
    if former is not None and (
        left := {each: at for each, at in position.items() if not spec.source.reads(each.topic)}
    ):
        records |= _left(kafka, former, left)
    return Waiting(records, missing)


def _left(kafka: KafkaLog, former: StreamSpec, left: Positions) -> dict[str, int]:
    """Records that wait in topics which are read no more; none of a topic that is gone."""
    there = kafka.topics(former.source)
    partitions = [each for each in left if each.partition in there.get(each.topic, ())]
    ends = kafka.ends(partitions).latest if partitions else {}
    records = dict[str, int]()
    for partition, end in ends.items():
        records[partition.topic] = records.get(partition.topic, 0) + max(0, end - left[partition])
    return records


def _or_error(connect: Callable[[], T]) -> T | FrazilError:
    try:
        return connect()
    except FrazilError as problem:
        return problem


def _texts(folder: Path, files: StreamFiles) -> dict[str, StreamSpec]:
    """Specs of valid files by the file's text, so that an unchanged launched file is not parsed again."""
    found: dict[str, StreamSpec] = {}
    if files.specs:
        for path in sorted(folder.glob("*.y*ml")):
            with contextlib.suppress(OSError, UnicodeError):
                text = path.read_text(encoding="utf-8")
                name = _stream_of(text)
                if name in files.specs:
                    found[text] = files.specs[name]
    return found


def _stream_of(text: str) -> str:
    """The stream that a file says in a line of its own; empty if none does."""
    for line in text.splitlines():
        if line.startswith("stream:"):
            return line.partition(":")[2].partition("#")[0].strip().strip("\"'")
    return ""
