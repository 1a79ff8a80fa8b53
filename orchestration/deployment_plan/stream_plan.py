"""Plan of one stream: its file is compared with its tables, its position and its driver. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.config.stream.source import Source, StartOffsets
from jobs.streaming.supervision.processes.actual import ActualState
from jobs.streaming.supervision.state.desired import DesiredState
from jobs.tables.commit.stamp.offsets import Positions, by_topic, spark_offsets
from jobs.tables.commit.stamp.stamps import Stamp
from orchestration.deployment_plan.change import (
    Change,
    ChangeClass,
    Doer,
    Status,
    StreamPlan,
    Unknown,
)
from orchestration.deployment_plan.driver_changes import driver_changes
from orchestration.deployment_plan.file_changes import (
    changed_keys,
    dagster_changes,
    file_changes,
)
from orchestration.deployment_plan.key_classes import ROWS
from orchestration.deployment_plan.table_changes import TableFacts, foreign_streams, table_changes
from orchestration.deployment_plan.table_stops import table_stops
from orchestration.formatting import thousands
from orchestration.reconcile.decide import Decision

_SHOWN_PARTITIONS = 3
_READS = frozenset({"source.topics", "source.topics_pattern"})


@dataclass(frozen=True, slots=True)
class Waiting:
    """Records of topics that a stream has no position in, or leaves.

    Attributes:
        records: By topic, the records that its start would read, or that it would leave unread.
        missing: Topics that do not exist.
    """

    records: Mapping[str, int]
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LiveStream:
    """Live state of one stream.

    Attributes:
        desired: Desired state, by its file and its operator.
        actual: Actual state of its driver.
        decision: The supervisor's decision from both.
        spec: Spec in its file; None without a file.
        former: Spec of its last run; None if it never ran, or if that is not stored.
        tables: Its tables of rows; None if the catalog does not answer, or if it has no file.
        newest: Its newest stamp; None if it has never landed.
        others: Positions in this stream's table of streams without a file, by id.
        waiting: Records of added or removed topics; None if Kafka was not asked.
        unknown: Parts that could not be read.
        settings: Changes of the settings since its driver's launch; None if the former ones are not stored.
    """

    desired: DesiredState
    actual: ActualState
    decision: Decision
    spec: StreamSpec | None
    former: StreamSpec | None = None
    tables: TableFacts | None = None
    newest: Stamp | None = None
    others: Mapping[str, Positions | None] | None = None
    waiting: Waiting | None = None
    unknown: tuple[Unknown, ...] = ()
    settings: tuple[Change, ...] | None = None

    @property
    def stream(self) -> str:
        """The stream's id."""
        return self.desired.stream

    @property
    def never_ran(self) -> bool:
        """Whether nothing is known of a run of it."""
        return self.actual.launch is None and self.newest is None and self.actual.lease.state == "none"


def read_topics(former: Source | None, now: Source) -> bool:
    """Whether Kafka has to be asked: the topics are new, or others than before."""
    return former is None or (former.topics, former.topics_pattern) != (now.topics, now.topics_pattern)


def plan_stream(live: LiveStream, settings: Settings) -> StreamPlan:
    """Plan a stream's changes against its live state."""
    spec, former = live.spec, live.former
    if spec is None:
        return _without_file(live, settings)
    new = live.never_ran
    keys = changed_keys(former, spec) if former is not None else frozenset[str]()
    restarts = live.actual.launch is None or live.desired.generation != live.actual.launch.generation
    driver = driver_changes(
        *(live.desired, live.actual, live.decision),
        file_changed=bool(keys) and restarts,
        new=new,
        settings_keys=None if live.settings is None else [each.place for each in live.settings],
    )
    changes = [] if former is None else _key_changes(live, former, spec, driver)
    if (former is not None or new) and former is not spec:
        changes += dagster_changes(former, spec, settings, live=True)
    if former is None and live.newest is not None and live.newest.config != spec.config_hash:
        said = f"the file is not kept under which the newest rows were made; {ROWS}"
        changes.append(_of_file(live, "file", said, Doer.APPLY))
    if live.tables is not None:
        changes += table_changes(spec, former, live.tables)
        changes += table_stops(spec, live.tables)
    changes += _renamed(spec.stream, spec, live.others or {}) if new else []
    changes += _positions(live, spec, keys, new=new)
    changes += driver
    status: Status = "new" if new else "changed" if any(each.pending for each in changes) else "unchanged"
    return StreamPlan(live.stream, status, tuple(changes), live.unknown)


def live_settings_changes(streams: Iterable[LiveStream], plans: Iterable[StreamPlan]) -> list[Change]:
    """Distinct changes of the settings since the launches of the drivers that are replaced.

    Args:
        streams: Live states of the streams.
        plans: Their plans, in the same order.
    """
    found: dict[str, tuple[Change, list[LiveStream]]] = {}
    for live, plan in zip(streams, plans, strict=True):
        if any(each.subject == "driver" and each.step is not None for each in plan.changes):
            for change in live.settings or ():
                found.setdefault(change.identity, (change, []))[1].append(live)
    return [_in_this_catalog(change, of) for change, of in found.values()]


def _in_this_catalog(change: Change, streams: Iterable[LiveStream]) -> Change:
    """A change of the catalog, which only restarts drivers if the catalog has the position of each stream."""
    if change.stops and change.place.startswith("catalog.") and all(each.newest is not None for each in streams):
        said = "every driver reconnects; tables and positions are in this catalog, too"
        return replace(change, kind=ChangeClass.RESTART, doer=Doer.APPLY, sentence=said, fix=None)
    return change


def _without_file(live: LiveStream, settings: Settings) -> StreamPlan:
    driver = driver_changes(live.desired, live.actual, live.decision, file_changed=False, new=False)
    if not driver:
        return StreamPlan(live.stream, "removed", (), live.unknown)
    changes = driver
    if live.former is not None:
        said = f"table {live.former.table.name} and the stream's position stay"
        table = live.former.table.name
        changes = [*driver, Change(live.stream, "table", table, ChangeClass.NOTHING, Doer.NOBODY, said)]
        changes += dagster_changes(live.former, None, settings, live=True)
    return StreamPlan(live.stream, "removed", tuple(changes), live.unknown)


def _key_changes(live: LiveStream, former: StreamSpec, spec: StreamSpec, driver: list[Change]) -> list[Change]:
    """The changes of the file, with the range from which on rows differ; made by whoever sees to the driver."""
    replaced = next((each for each in driver if each.step is not None), None)
    waits = next((each for each in driver if each.doer is Doer.OPERATOR), None)
    found: list[Change] = []
    for change in file_changes(former, spec, live=True):
        if change.sentence == ROWS or change.sentence.endswith("from here on"):
            change = replace(change, detail=_boundary(live))
        if change.doer is Doer.APPLY and replaced is None:
            # No driver is replaced: the next run takes the file as it is, or what an operator starts.
            change = replace(change, doer=Doer.FRAZIL, fix=waits.fix if waits is not None else change.fix)
        found.append(change)
    return found


def _boundary(live: LiveStream) -> str:
    """Text with the offsets of the newest stamp, from which a change takes effect."""
    if live.newest is None or not live.newest.position:
        return ""
    named = [f"{partition} {offset}" for partition, offset in sorted(live.newest.position.items())]
    more = len(named) - _SHOWN_PARTITIONS
    return f"from {', '.join(named[:_SHOWN_PARTITIONS])}" + (f" and {more} more partitions" if more > 0 else "")


def _of_file(live: LiveStream, place: str, sentence: str, doer: Doer) -> Change:
    return Change(live.stream, "file", place, ChangeClass.RESTART, doer, sentence, detail=_boundary(live))


def _positions(live: LiveStream, spec: StreamSpec, keys: Collection[str], *, new: bool) -> Iterator[Change]:
    """Changes of a stream's position: the start of a new stream, and topics that are added or removed."""
    waiting, stream = live.waiting, live.stream
    if waiting is not None and waiting.missing:
        said = f"topic {', '.join(waiting.missing)} does not exist, so no driver would start"
        fix = "create the topic, or correct source in " + f"streams/{stream}.yaml"
        yield Change(stream, "position", "source", ChangeClass.BREAKING, Doer.OPERATOR, said, fix)
    if not new and not _READS.intersection(keys):
        return
    detail = "" if waiting is None else counted_topics(waiting.records)
    if new:
        said = f"the stream begins at {start_text(spec.source)}"
        fix = None if spec.continuous else f"frazil run {stream}"
        doer = Doer.NOBODY if spec.continuous else Doer.OPERATOR
        kind = ChangeClass.NOTHING if spec.continuous else ChangeClass.RESTART
        yield Change(stream, "position", "source.start", kind, doer, said, fix, detail=detail)
    elif detail:
        said = "topics that come are read from source.start on; records of those that go stay unread"
        yield Change(stream, "position", "source", ChangeClass.NOTHING, Doer.NOBODY, said, detail=detail)


def start_text(source: Source) -> str:
    """Text that names the start of a stream without a position."""
    start = source.start
    if isinstance(start, str):
        return f"the {start} records" if start == "earliest" else "the end of its topics"
    return "the offsets of source.start" if isinstance(start, StartOffsets) else f"{start.timestamp.isoformat()}"


def counted_topics(records: Mapping[str, int]) -> str:
    """Records by topic, in words."""
    named = [f"{thousands(count)} records in {topic}" for topic, count in sorted(records.items())]
    more = len(named) - _SHOWN_PARTITIONS
    return ", ".join(named[:_SHOWN_PARTITIONS]) + (f" and {more} more topics" if more > 0 else "")


def others_in(spec: StreamSpec, facts: TableFacts, known: Collection[str]) -> list[str]:
    """Streams without a file that have landed in a stream's main table, as one may be its former name.

    Args:
        spec: Spec of the stream.
        facts: Tables of the stream.
        known: Ids of the streams with a file.
    """
    own = facts.tables.get(spec.table.name)
    return [] if own is None else [each for each in foreign_streams(spec.stream, own) if each not in known]


def _renamed(stream: str, spec: StreamSpec, others: Mapping[str, Positions | None]) -> Iterator[Change]:
    for former, position in others.items():
        yield renamed(stream, former, spec, position)


def renamed(stream: str, former: str, spec: StreamSpec, position: Positions | None) -> Change:
    """A stream that has taken the table of another one, which has no file any more.

    Args:
        stream: Id of the stream.
        former: Id of the other stream.
        spec: Spec of the stream.
        position: Position of the former stream; None if unknown.
    """
    start = spec.source.start
    if position and isinstance(start, StartOffsets) and _same(start, position):
        said = f"the stream goes on in table {spec.table.name} at the position of {former}, by source.start"
        return Change(stream, "position", "stream", ChangeClass.RESTART, Doer.FRAZIL, said)
    said = (
        f"table {spec.table.name} has rows of stream {former}, which has no file any more. Under another name it is "
        f"another stream without a position: from {start_text(spec.source)} on it lands again what {former} has landed"
    )
    detail = f"to go on there: source.start: {{offsets: {spark_offsets(position)}}}" if position else ""
    fix = f"write `stream: {former}` into the file, whatever the file is called"
    return Change(stream, "position", "stream", ChangeClass.BREAKING, Doer.OPERATOR, said, fix, detail=detail)


def _same(start: StartOffsets, position: Positions) -> bool:
    return {topic: {str(n): at for n, at in each.items()} for topic, each in start.offsets.items()} == by_topic(
        position
    )


def plan_against(
    former: Mapping[str, StreamSpec], specs: Mapping[str, StreamSpec], settings: Settings, streams: Collection[str] = ()
) -> list[StreamPlan]:
    """Plan the changes of files against other files, without the live state.

    Args:
        former: Specs in the other files, by stream.
        specs: Specs in the files, by stream.
        settings: Asset keys begin with the catalog's name.
        streams: Ids of streams; empty for all.
    """
    names = [each for each in sorted({*former, *specs}) if not streams or each in streams]
    return [_against(name, former, specs, settings) for name in names]


def _against(
    stream: str, former: Mapping[str, StreamSpec], specs: Mapping[str, StreamSpec], settings: Settings
) -> StreamPlan:
    before, now = former.get(stream), specs.get(stream)
    changes = dagster_changes(before, now, settings, live=False)
    if now is None:
        said = "its driver ends after its batch; its table and position stay"
        ended = Change(stream, "driver", "driver", ChangeClass.RESTART, Doer.APPLY, said, f"frazil stop {stream}")
        return StreamPlan(stream, "removed", (ended, *changes))
    if before is None:
        taken = [each for name, each in former.items() if name not in specs and each.table.name == now.table.name]
        changes = [*(renamed(stream, each.stream, now, None) for each in taken), *changes]
        said = f"the stream begins at {start_text(now.source)}" + (", and a driver starts" if now.continuous else "")
        fix = None if now.continuous else f"frazil run {stream}"
        doer = Doer.APPLY if now.continuous else Doer.OPERATOR
        begins = Change(stream, "driver", "driver", ChangeClass.RESTART, doer, said, fix)
        return StreamPlan(stream, "new", (begins, *changes))
    found = (*file_changes(before, now, live=False), *changes)
    return StreamPlan(stream, "changed" if any(each.pending for each in found) else "unchanged", found)
