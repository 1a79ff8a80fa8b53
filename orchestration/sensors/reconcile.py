"""Sensor `frazil_reconcile`, which keeps streams in their desired state."""

# No `from __future__ import annotations` here: Dagster looks at the parameters' types as they are.

import contextlib
import os
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import dagster as dg
import msgspec

from assets import dagster_names
from assets.deployment_assets import SUPERVISOR_KEY
from assets.named_tables import named_tables_key, named_tables_of
from assets.stream_checks import evaluation
from jobs.base.errors import FrazilError
from jobs.base.system.boot import boot_clock
from jobs.clients.state_store.stream_folder import state_store
from jobs.config.documents.validation import SpecError
from jobs.config.redaction import redacted
from jobs.config.settings.settings import Settings
from jobs.streaming.supervision.state.observation import observe
from orchestration.jobs.control import (
    JOB,
    MAX_RUNTIME_SECONDS,
    ControlConfig,
    StreamAction,
    control_run_config,
    control_tags,
)
from orchestration.jobs.replay import JOB as REPLAY_JOB
from orchestration.jobs.runs import BY_TAG, MAX_RUNTIME_TAG, REQUEST_TAG, STREAM_TAG, runs_under_way
from orchestration.reconcile.assessment import LOOKUP_SECONDS, Assessment, assess, assess_file_change, assessed_lag
from orchestration.reconcile.asset_events import CHECKS_SECONDS, SUPERVISOR_SECONDS, Event, stream_events
from orchestration.reconcile.check_outcomes import settings_outcome
from orchestration.reconcile.cursor import CHANGED_SECONDS, SensorCursor, StreamCursor, checksum, due
from orchestration.reconcile.decide import Action, Decision
from orchestration.reconcile.definitions_reload import DefinitionsReload
from orchestration.reconcile.lag import lag_by_heartbeat
from orchestration.reconcile.overview import Need, StreamRow, overview_code, overview_metadata, stream_row
from orchestration.reconcile.remote_queries import RemoteQueries
from orchestration.reconcile.stream_files import read_files, stream_ids
from orchestration.reconcile.stream_state import stream_state
from orchestration.reconcile.supervisor_heartbeat import HALTED, SupervisorHeartbeat, write_supervisor_heartbeat
from resources.deployment import Deployment
from resources.deployment_resource import DeploymentResource
from resources.services import CatalogResource, KafkaResource

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from jobs.clients.kafka.metadata import KafkaLog


SUPERVISOR = "supervisor"

# Names of the supervisor's actions in the control code. Unlike `start` and `stop` they leave the operator's wish.
CONTROL_ACTIONS = {
    Action.START: StreamAction.ensure_running,
    Action.ROLL: StreamAction.roll,
    Action.STOP: StreamAction.end,
}
_MAX_REASON = 300
_SHOWN_STREAMS = 12
_SHOWN_CHARACTERS = 240
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
SENSOR = "frazil_reconcile"
INTERVAL_SECONDS = 10


def acting_runs(instance: dg.DagsterInstance) -> dict[str, str]:
    """The run that acts on each stream now; one query for all. Runs whose process is gone are given up.

    A replay does not act on the stream, which may be started and ended meanwhile.
    """
    runs = [run for run in runs_under_way(instance) if STREAM_TAG in run.tags]
    return {run.tags[STREAM_TAG]: run.run_id for run in runs if run.job_name != REPLAY_JOB}


def newest_requests(instance: dg.DagsterInstance, streams: Iterable[str]) -> dict[str, int]:
    """The number of the newest run that the supervisor asked for, of each stream; for a cursor that was lost.

    Runs that people asked for have no number, however many of them are newer.
    """
    found: dict[str, int] = {}
    for stream in streams:
        asked_for = {STREAM_TAG: stream, BY_TAG: SUPERVISOR}
        runs = instance.get_runs(dg.RunsFilter(job_name=JOB, tags=asked_for), limit=20)
        numbers = [int(text) for run in runs if (text := run.tags.get(REQUEST_TAG, "")).isdecimal()]
        found[stream] = max(numbers, default=0)
    return found


def control_run(stream: str, decision: Decision, request: int) -> dg.RunRequest:
    """The request for the run that does what was decided.

    Args:
        request: Number of the run, which no earlier run of the stream has.
    """
    reason = decision.sentence if len(decision.sentence) <= _MAX_REASON else f"{decision.sentence[:_MAX_REASON]}…"
    action = StreamAction.let_go if decision.ends else CONTROL_ACTIONS[decision.action]
    config = ControlConfig(stream=stream, action=action, reason=reason, by=SUPERVISOR, request=request)
    return dg.RunRequest(
        run_key=f"{stream}:{action.value}:{request}",
        run_config=control_run_config(config),
        tags={
            **control_tags(config),
            # Before the drains that wait in the queue.
            "dagster/priority": "10",
            MAX_RUNTIME_TAG: str(MAX_RUNTIME_SECONDS),
        },
    )


@dataclass(slots=True)
class ReconcileTick:
    """Result of a tick of the reconcile sensor.

    Attributes:
        decisions: The decision about each stream.
        halted: Streams without a driver, of which none is started before a person acts.
        problems: Why a stream could not be looked at, or reported, by stream.
        rows: One for each stream, for the overview table.
        partitions: The partitions that the tick reports, by the name of their dynamic partitions.
    """

    requests: list[dg.RunRequest] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    decisions: dict[str, Decision] = field(default_factory=dict)
    halted: set[str] = field(default_factory=set)
    problems: dict[str, str] = field(default_factory=dict)
    rows: list[StreamRow] = field(default_factory=list)
    partitions: dict[str, list[str]] = field(default_factory=dict)
    sentence: str = ""

    @property
    def partition_requests(self) -> list[dg.AddDynamicPartitionsRequest]:
        """Requests to add the reported partitions to Dagster; those that it has stay as they are."""
        return [dg.AddDynamicPartitionsRequest(name, keys) for name, keys in self.partitions.items()]

    @property
    def count(self) -> int:
        """Number of streams."""
        return len({*self.decisions, *self.problems})


def run_reconcile_tick(
    deployment: Deployment,
    catalog: "Callable[[], Catalog]",
    kafka: "Callable[[], KafkaLog]",
    memory: SensorCursor,
    under_way: Mapping[str, str],
    newest_requests: Callable[[Iterable[str]], Mapping[str, int]],
    now: float,
    clock: float,
    definitions: str = "",
) -> ReconcileTick:
    """Observe every stream and decide; changes nothing but the cursor and the supervisor's heartbeat.

    Args:
        under_way: The run that acts on each stream now, by stream.
        newest_requests: The numbers of the newest control runs of streams, for those that the memory has lost.
        now: Seconds since 1970.
        definitions: What an operator should know of the definitions that Dagster has loaded; empty for nothing.
    """
    tick = ReconcileTick()
    files = read_files(deployment)
    try:
        settings = deployment.settings()
    except SpecError as problem:
        return _without_settings(tick, problem, deployment, memory, now)
    if memory.settings:
        # A message about unreadable settings has to be taken back.
        memory.settings = 0
        for remembered in memory.streams.values():
            remembered.checks = []
    ask_kafka = due(now, memory.away_until - LOOKUP_SECONDS, LOOKUP_SECONDS)
    remote = RemoteQueries(catalog, kafka if ask_kafka else None)
    for stream in stream_ids(files, settings):
        remembered = memory.streams.setdefault(stream, StreamCursor())
        try:
            observed = assess_file_change(observe(stream, files, settings), files, remote)
            assessed = assess(observed, now, clock, remembered)
            tick.decisions[stream] = assessed.decision
            if assessed.decision.action is Action.HALT and not observed.actual.driver_lives:
                tick.halted.add(stream)
            tick.events.extend(_events(tick, assessed, remembered, remote, now))
        except Exception as problem:
            # One stream's trouble is none of the others'.
            tick.problems[stream] = redacted(settings, f"{type(problem).__name__}: {problem}")
            tick.rows.append(StreamRow(stream, "not looked at", Need.NOW))
    if remote.kafka_unavailable:
        memory.away_until = int(now) + LOOKUP_SECONDS
    memory.keep_only([*tick.decisions, *tick.problems])
    _request(tick, memory, under_way, newest_requests, clock)
    fleet = overview_code(tick.rows)
    every = SUPERVISOR_SECONDS if fleet == memory.fleet else CHANGED_SECONDS
    if due(now, memory.reported_at, every):
        memory.reported_at, memory.fleet = int(now), fleet
        tick.events.append(_supervised(tick, definitions, now))
    _write_heartbeat(settings, tick, now)
    tick.sentence = "\n".join(filter(None, [_summary(tick, under_way), definitions]))
    return tick


def _events(
    tick: ReconcileTick, assessed: Assessment, memory: StreamCursor, remote: RemoteQueries, now: float
) -> list[Event]:
    """The events to report of a stream; adds the stream's row to the tick's."""
    observed, decision = assessed.observed, assessed.decision
    desired, actual, spec = observed.desired, observed.actual, observed.desired.spec
    stands = stream_state(observed, decision, now)
    known = spec is not None and desired.file != "none"
    lag = assessed_lag(observed, memory, remote, now) if known else lag_by_heartbeat(actual)
    found = assessed.check_outcomes(lag, now, memory.main)
    events: list[Event] = []
    if spec is not None and known:
        events += stream_events(spec, assessed, stands, lag, found, memory, remote, now)
        if (group := named_tables_key(spec, observed.settings)) is not None:
            of_group = [each for each in events if not isinstance(each, dg.AssetCheckEvaluation)]
            keys = [each.partition for each in of_group if each.asset_key == group and each.partition]
            tick.partitions |= {str(named_tables_of(spec).name): keys} if keys else {}
    if known or desired.file != "none" or actual.driver_lives:
        key = dagster_names.table_key(observed.settings, spec.table.name) if spec is not None else None
        row = stream_row(observed.stream, key, actual.heartbeat, stands, decision, lag, memory.letters, found)
        tick.rows.append(row)
    return events


def _request(
    tick: ReconcileTick,
    memory: SensorCursor,
    under_way: Mapping[str, str],
    newest_requests: Callable[[Iterable[str]], Mapping[str, int]],
    clock: float,
) -> None:
    wanted: list[str] = []
    for stream, decision in tick.decisions.items():
        action = decision.action.value if decision.action in CONTROL_ACTIONS else ""
        if stream not in under_way and memory.streams[stream].may_request(action, clock):
            wanted.append(stream)
    lost = [stream for stream in wanted if memory.streams[stream].request == 0]
    newest = newest_requests(lost) if lost else {}
    for stream in wanted:
        remembered = memory.streams[stream]
        remembered.request = max(remembered.request, newest.get(stream, 0)) + 1
        tick.requests.append(control_run(stream, tick.decisions[stream], remembered.request))


def _supervised(tick: ReconcileTick, definitions: str, now: float) -> dg.AssetMaterialization:
    counts = Counter(decision.action for decision in tick.decisions.values())
    return dg.AssetMaterialization(
        SUPERVISOR_KEY,
        metadata=overview_metadata(tick.rows, now)
        | {
            "streams": tick.count,
            "as_wanted": counts[Action.ADOPT] + counts[Action.IDLE],
            "halted": counts[Action.HALT],
            "backing_off": counts[Action.BACKOFF],
            "not_looked_at": len(tick.problems),
        }
        | ({"definitions": definitions} if definitions else {}),
    )


def _write_heartbeat(settings: Settings, tick: ReconcileTick, now: float) -> None:
    note = SupervisorHeartbeat(
        at=now,
        host=socket.gethostname(),
        pid=os.getpid(),
        decisions={
            stream: {"action": decision.action.value, "sentence": decision.sentence, "fix": decision.fix or ""}
            | ({HALTED: "yes"} if stream in tick.halted else {})
            for stream, decision in tick.decisions.items()
        },
    )
    # A full disk must not keep streams from being supervised.
    with contextlib.suppress(OSError, msgspec.EncodeError):
        write_supervisor_heartbeat(state_store(settings), note)


def _summary(tick: ReconcileTick, under_way: Mapping[str, str]) -> str:
    """The tick in a sentence or two, for the list of ticks."""
    count = tick.count
    if not count:
        return "There are no streams."
    counts = Counter(decision.action for decision in tick.decisions.values())
    summed = ", ".join(f"{counts[action]} {verb}" for action, verb in _VERBS.items() if counts[action])
    sentences = [f"{count} {'stream' if count == 1 else 'streams'}: {summed or 'none could be looked at'}."]
    lines = [
        f"{stream}: {'not reported' if stream in tick.decisions else 'not looked at'}: {problem}"
        for stream, problem in sorted(tick.problems.items())
    ]
    for stream, decision in sorted(tick.decisions.items(), key=lambda item: list(_VERBS).index(item[1].action)):
        if stream in under_way:
            lines.append(f"{stream}: run {under_way[stream][:8]} is under way ({decision.sentence})")
        elif decision.action not in (Action.ADOPT, Action.IDLE):
            lines.append(f"{stream}: {decision.sentence}")
    sentences += [
        line if len(line) <= _SHOWN_CHARACTERS else f"{line[:_SHOWN_CHARACTERS]}…" for line in lines[:_SHOWN_STREAMS]
    ]
    if len(lines) > _SHOWN_STREAMS:
        sentences.append(f"and {len(lines) - _SHOWN_STREAMS} more")
    return "\n".join(sentences)


def _without_settings(
    tick: ReconcileTick, problem: FrazilError, deployment: Deployment, memory: SensorCursor, now: float
) -> ReconcileTick:
    """Report on every stream that the settings cannot be read; nothing is changed."""
    result_sum = checksum(problem.message)
    if result_sum != memory.settings or due(now, memory.reported_at, CHECKS_SECONDS):
        memory.settings, memory.reported_at = result_sum, int(now)
        settings = Settings.embedded(deployment.home)
        verdict = settings_outcome(problem)
        for spec in read_files(deployment).specs.values():
            tick.events.append(evaluation(verdict, dagster_names.table_key(settings, spec.table.name)))
    tick.sentence = f"{settings_outcome(problem).sentence} Nothing is started or changed; drivers that run go on."
    return tick


def reconcile_sensor(reload: DefinitionsReload) -> dg.SensorDefinition:
    """The sensor; it starts no process itself but asks for a short run of `frazil_control` for each thing to do.

    Args:
        reload: The reload of the definitions that the sensor is part of.
    """

    @dg.sensor(
        name=SENSOR,
        job_name=JOB,
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=(
            "Keeps streams as their files and their operators want them: starts drivers that have ended, rolls out "
            "changed files, ends drivers of streams without a file. Reports new snapshots, lag and checks, and has "
            "Dagster load changed files. Streams run on while it is off; a killed driver is restarted by its "
            "watchdog; a failed one is not restarted."
        ),
    )
    def frazil_reconcile(
        context: dg.SensorEvaluationContext,
        deployment: DeploymentResource,
        catalog: CatalogResource,
        kafka: KafkaResource,
    ) -> dg.SensorResult:
        memory = SensorCursor.from_cursor(context.cursor)
        instance, place = context.instance, deployment.deployment()
        timeout = instance.code_server_reload_timeout
        definitions = reload.look(place, memory, context.code_location_origin, timeout, time.time())
        tick = run_reconcile_tick(
            place,
            catalog.quick,
            kafka.quick,
            memory,
            acting_runs(instance),
            lambda streams: newest_requests(instance, streams),
            time.time(),
            boot_clock(),
            definitions,
        )
        return dg.SensorResult(
            run_requests=tick.requests,
            skip_reason=None if tick.requests else tick.sentence,
            cursor=memory.to_cursor(),
            asset_events=tick.events,
            dynamic_partitions_requests=tick.partition_requests,
        )

    return frazil_reconcile
