"""One tick of the supervisor: looks at every stream, decides, and gathers what there is to ask for and to report."""

from __future__ import annotations

import contextlib
import os
import socket
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import dagster as dg
import msgspec

from assets import names
from assets.stream_checks import evaluation
from assets.supervisor import SUPERVISOR_KEY
from jobs.errors import FrazilError
from jobs.spec.settings import Settings
from jobs.spec.validation import SpecError
from jobs.state.stream_folder import state_store
from jobs.supervise.observation import Observation, observe
from orchestration.reconcile.assessment import Assessment, assess, held_back
from orchestration.reconcile.decision import Action, Decision
from orchestration.reconcile.desired import read_files, stream_ids
from orchestration.reconcile.fleet import FleetRow, Need, fleet_code, fleet_metadata, fleet_row
from orchestration.reconcile.lookups import Lookups
from orchestration.reconcile.memory import CHANGED_SECONDS, Memory, StreamMemory, checksum, due
from orchestration.reconcile.reports import CHECKS_SECONDS, SUPERVISOR_SECONDS, Event, stream_events
from orchestration.reconcile.stream_state import standing
from orchestration.reconcile.supervisor_file import SupervisorNote, write_supervisor_note
from orchestration.reconcile.verdicts import Lag, lag_of, settings_verdict
from orchestration.sensors.requests import CONTROL_ACTIONS, control_run
from resources.deployment import Deployment

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from jobs.kafka.metadata import KafkaLog

_LOOK_SECONDS = 60
# A driver that is paused, or waits for its trigger, does not look: then the supervisor does.
_OLD_LAG_SECONDS = 240
_TOLD_STREAMS = 12
_TOLD_LETTERS = 240
_VERBS = {
    Action.ADOPT: "as wanted",
    Action.IDLE: "idle",
    Action.WAIT: "waiting",
    Action.BACKOFF: "backing off",
    Action.HALT: "halted",
    Action.START: "to start",
    Action.ROLL: "to roll",
    Action.STOP: "to end",
}


@dataclass(slots=True)
class Tick:
    """What a tick comes to.

    Attributes:
        decisions: By stream.
        problems: By stream, what kept it from being looked at, or from being reported.
        rows: How the streams stand, for the table of all of them.
    """

    requests: list[dg.RunRequest] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    decisions: dict[str, Decision] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    rows: list[FleetRow] = field(default_factory=list)
    sentence: str = ""

    @property
    def count(self) -> int:
        """How many streams there are."""
        return len({*self.decisions, *self.problems})


def run_tick(
    deployment: Deployment,
    catalog: Callable[[], Catalog],
    kafka: Callable[[], KafkaLog],
    memory: Memory,
    under_way: Mapping[str, str],
    newest_requests: Callable[[Iterable[str]], Mapping[str, int]],
    now: float,
    clock: float,
) -> Tick:
    """Look at every stream and decide; changes nothing but the memory and the supervisor's note.

    Args:
        catalog: Connects to the catalog.
        kafka: Connects to Kafka.
        under_way: By stream, the run that acts on it now.
        newest_requests: The numbers of the newest control runs of streams, for those that the memory has lost.
        now: Seconds since 1970.
        clock: The boot clock.
    """
    tick = Tick()
    files = read_files(deployment)
    try:
        settings = deployment.settings()
    except SpecError as problem:
        return _without_settings(tick, problem, deployment, memory, now)
    if memory.settings:
        # What was said while they could not be read has to be taken back.
        memory.settings = 0
        for remembered in memory.streams.values():
            remembered.checks = []
    ask_kafka = due(now, memory.away_until - _LOOK_SECONDS, _LOOK_SECONDS)
    lookups = Lookups(catalog, kafka if ask_kafka else None)
    for stream in stream_ids(files, settings):
        remembered = memory.streams.setdefault(stream, StreamMemory())
        try:
            observed = held_back(observe(stream, files, settings), files, lookups)
            assessed = assess(observed, now, clock, remembered)
            tick.decisions[stream] = assessed.decision
            tick.events.extend(_events(tick, assessed, remembered, lookups, now))
        except Exception as problem:
            # One stream's trouble is none of the others'.
            tick.problems[stream] = f"{type(problem).__name__}: {problem}"
            tick.rows.append(FleetRow(stream, "not looked at", Need.NOW))
    if lookups.kafka_is_away:
        memory.away_until = int(now) + _LOOK_SECONDS
    for stream in set(memory.streams) - set(tick.decisions) - set(tick.problems):
        del memory.streams[stream]
    _request(tick, memory, under_way, newest_requests, clock)
    fleet = fleet_code(tick.rows)
    every = SUPERVISOR_SECONDS if fleet == memory.fleet else CHANGED_SECONDS
    if due(now, memory.reported_at, every):
        memory.reported_at, memory.fleet = int(now), fleet
        tick.events.append(_supervised(tick, now))
    _note(settings, tick, now)
    tick.sentence = _told(tick, under_way)
    return tick


def _events(tick: Tick, assessed: Assessment, memory: StreamMemory, lookups: Lookups, now: float) -> list[Event]:
    """What there is to report of a stream, whose row it adds to the tick's."""
    observed, decision = assessed.observed, assessed.decision
    desired, actual, spec = observed.desired, observed.actual, observed.desired.spec
    stands = standing(observed, decision, now)
    known = spec is not None and desired.file != "none"
    lag = _lag(observed, memory, lookups, now) if known else lag_of(actual)
    found = assessed.verdicts(lag, now)
    events: list[Event] = []
    if spec is not None and known:
        events += stream_events(spec, assessed, stands, lag, found, memory, lookups, now)
    if known or desired.file != "none" or actual.driver_lives:
        key = names.table_key(observed.settings, spec.table.name) if spec is not None else None
        row = fleet_row(observed.stream, key, actual.heartbeat, stands, decision, lag, memory.letters, found)
        tick.rows.append(row)
    return events


def _lag(observed: Observation, memory: StreamMemory, lookups: Lookups, now: float) -> Lag | None:
    """As the driver says; Kafka is asked, once a minute, for a stream without one, or whose driver does not say.

    A driver that was launched while its stream was paused has never looked.
    """
    told, spec = lag_of(observed.actual), observed.desired.spec
    if told is not None and observed.actual.driver_lives and now - told.at <= _OLD_LAG_SECONDS:
        memory.looked_at, memory.waiting = 0, None
        return replace(told, valid_through=memory.complete_through(told.valid_through))
    if spec is not None and due(now, memory.looked_at, _LOOK_SECONDS):
        memory.looked_at = int(now)
        found = lookups.lag(spec, now)
        if found is not None:
            memory.waiting, memory.waiting_at = found.records, int(now)
            return replace(found, valid_through=memory.complete_through(found.valid_through))
    if memory.waiting is None:
        return told
    return Lag(memory.waiting, memory.waiting_at, memory.through)


def _request(
    tick: Tick,
    memory: Memory,
    under_way: Mapping[str, str],
    newest_requests: Callable[[Iterable[str]], Mapping[str, int]],
    clock: float,
) -> None:
    wanted: list[str] = []
    for stream, decision in tick.decisions.items():
        action = decision.action.value if decision.action in CONTROL_ACTIONS else ""
        if stream not in under_way and memory.streams[stream].may_ask(action, clock):
            wanted.append(stream)
    lost = [stream for stream in wanted if memory.streams[stream].request == 0]
    newest = newest_requests(lost) if lost else {}
    for stream in wanted:
        remembered = memory.streams[stream]
        remembered.request = max(remembered.request, newest.get(stream, 0)) + 1
        tick.requests.append(control_run(stream, tick.decisions[stream], remembered.request))


def _supervised(tick: Tick, now: float) -> dg.AssetMaterialization:
    counts = Counter(decision.action for decision in tick.decisions.values())
    return dg.AssetMaterialization(
        SUPERVISOR_KEY,
        metadata=fleet_metadata(tick.rows, now)
        | {
            "streams": tick.count,
            "as_wanted": counts[Action.ADOPT] + counts[Action.IDLE],
            "halted": counts[Action.HALT],
            "backing_off": counts[Action.BACKOFF],
            "not_looked_at": len(tick.problems),
        },
    )


def _note(settings: Settings, tick: Tick, now: float) -> None:
    note = SupervisorNote(
        at=now,
        host=socket.gethostname(),
        pid=os.getpid(),
        decisions={
            stream: {"action": decision.action.value, "sentence": decision.sentence, "fix": decision.fix or ""}
            for stream, decision in tick.decisions.items()
        },
    )
    # A full disk must not keep streams from being supervised.
    with contextlib.suppress(OSError, msgspec.EncodeError):
        write_supervisor_note(state_store(settings), note)


def _told(tick: Tick, under_way: Mapping[str, str]) -> str:
    """The tick in a sentence or two, for the list of ticks."""
    count = tick.count
    if not count:
        return "There are no streams."
    counts = Counter(decision.action for decision in tick.decisions.values())
    summed = ", ".join(f"{counts[action]} {verb}" for action, verb in _VERBS.items() if counts[action])
    told = [f"{count} {'stream' if count == 1 else 'streams'}: {summed or 'none could be looked at'}."]
    lines = [
        f"{stream}: {'not reported' if stream in tick.decisions else 'not looked at'}: {problem}"
        for stream, problem in sorted(tick.problems.items())
    ]
    for stream, decision in sorted(tick.decisions.items(), key=lambda item: list(_VERBS).index(item[1].action)):
        if stream in under_way:
            lines.append(f"{stream}: run {under_way[stream][:8]} is under way ({decision.sentence})")
        elif decision.action not in (Action.ADOPT, Action.IDLE):
            lines.append(f"{stream}: {decision.sentence}")
    told += [line if len(line) <= _TOLD_LETTERS else f"{line[:_TOLD_LETTERS]}…" for line in lines[:_TOLD_STREAMS]]
    if len(lines) > _TOLD_STREAMS:
        told.append(f"and {len(lines) - _TOLD_STREAMS} more")
    return "\n".join(told)


def _without_settings(tick: Tick, problem: FrazilError, deployment: Deployment, memory: Memory, now: float) -> Tick:
    """Nobody can tell where the streams' state is: say so on every stream, and change nothing."""
    told = checksum(problem.message)
    if told != memory.settings or due(now, memory.reported_at, CHECKS_SECONDS):
        memory.settings, memory.reported_at = told, int(now)
        settings = Settings.embedded(deployment.home)
        verdict = settings_verdict(problem)
        for spec in read_files(deployment).specs.values():
            tick.events.append(evaluation(verdict, names.table_key(settings, spec.table.name)))
    tick.sentence = f"{settings_verdict(problem).sentence} Nothing is started or changed; drivers that run go on."
    return tick
