"""The sensor that proposes replays, or starts them where a stream's file says so: `frazil_replays`."""

# No `from __future__ import annotations` here: Dagster looks at the parameters' types as they are.

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

import dagster as dg
import msgspec
from pyiceberg.catalog import Catalog

from assets import dagster_names
from assets.stream_checks import evaluation
from jobs.base.errors import FrazilError
from jobs.clients.state_store.stream_folder import stream_folder
from jobs.config.settings.generation import generation
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.streaming.supervision.documents.control_request import read_control
from jobs.streaming.supervision.processes.actual import read_actual
from orchestration.jobs.replay import CONFIG_TAG, JOB, ReplayConfig, replay_run_config, replay_tags
from orchestration.jobs.runs import BY_TAG, REQUEST_TAG, STREAM_TAG, runs_under_way
from orchestration.reconcile.background_query import BackgroundQuery
from orchestration.reconcile.cursor import StreamsCursor, checksum, due
from orchestration.reconcile.stream_files import read_files
from orchestration.sensors.replay_proposal import Proposal, find_proposal, proposal_outcome
from resources.deployment import Deployment
from resources.deployment_resource import DeploymentResource
from resources.services import CatalogResource

# A tick has 60 s in all. What takes longer goes on, and is picked up by a later tick.
BUDGET_SECONDS = 15.0
# A proposal, or a sample that failed, is looked at again after so long.
AGAIN_SECONDS = 600
_LOOKING = BackgroundQuery()
SENSOR = "frazil_replays"
INTERVAL_SECONDS = 60


class JudgedStream(msgspec.Struct, omit_defaults=True):
    """State that the sensor of replays keeps of one stream.

    Attributes:
        config: Hash of the configuration for which its dead letters were judged.
        at: Time of that judgement; seconds since 1970.
        proposed: Whether a replay would help.
        failed: Hash of the configuration for which they could not be judged at that time.
        result_sum: Checksum of the check's last result.
    """

    config: str = msgspec.field(default="", name="c")
    at: int = msgspec.field(default=0, name="a")
    proposed: bool = msgspec.field(default=False, name="p")
    failed: str = msgspec.field(default="", name="f")
    result_sum: int = msgspec.field(default=0, name="t")

    def rests(self, config: str, now: float) -> bool:
        """Whether there is nothing to look at now."""
        if self.config == config and not self.proposed:
            return True
        return config in (self.config, self.failed) and not due(now, self.at, AGAIN_SECONDS)


class ReplaysCursor(StreamsCursor[JudgedStream]):
    """The cursor of the sensor of replays. If it is lost, letters are looked at again, but none is replayed twice."""


@dataclass(slots=True)
class ReplaysTick:
    """Result of one tick of the sensor of replays.

    Attributes:
        start: The replays to start, if they were not started for the same configuration before.
        sentences: The sentences of the tick's message, by stream.
    """

    start: list[Proposal] = field(default_factory=list)
    events: list[dg.AssetCheckEvaluation] = field(default_factory=list)
    sentences: dict[str, str] = field(default_factory=dict)


def run_replays_tick(
    deployment: Deployment,
    catalog: Callable[[], Catalog],
    memory: ReplaysCursor,
    under_way: Collection[str],
    replayed_for: Callable[[str], str],
    now: float,
    budget: float = BUDGET_SECONDS,
) -> ReplaysTick:
    """Look for replays to propose in streams whose configuration has changed; asks nobody for any other.

    Args:
        replayed_for: The hash of the configuration that a stream's newest automatic replay was for; empty without one.
        now: Seconds since 1970.
        budget: Seconds to wait for what is looked at; what takes longer goes on for a later tick.
    """
    tick, began = ReplaysTick(), time.monotonic()
    files = read_files(deployment)
    settings = deployment.settings()
    for spec in files.specs.values():
        judged = memory.streams.setdefault(spec.stream, JudgedStream())
        if judged.rests(spec.config_hash, now):
            continue
        try:
            if waits := _waits(spec, settings, under_way):
                tick.sentences[spec.stream] = waits
                continue
            left = max(0.0, budget - (time.monotonic() - began))
            key = (str(deployment.home), spec.stream, spec.config_hash)
            found = _LOOKING.ask(key, left, lambda spec=spec: find_proposal(spec, settings, catalog))
            if found is None:
                tick.sentences[spec.stream] = "its dead letters are being sampled"
                continue
            _conclude(tick, spec, settings, found, judged, replayed_for, now)
        except Exception as problem:
            # One stream's trouble is none of the others'.
            judged.at, judged.failed = int(now), spec.config_hash
            tick.sentences[spec.stream] = str(problem) if isinstance(problem, FrazilError) else type(problem).__name__
    if not files.absence:
        memory.keep_only([*files.specs, *files.claimed])
    return tick


def _conclude(
    tick: ReplaysTick,
    spec: StreamSpec,
    settings: Settings,
    found: Proposal,
    judged: JudgedStream,
    replayed_for: Callable[[str], str],
    now: float,
) -> None:
    starts = bool(found.helping) and _may_start(spec, settings) and replayed_for(spec.stream) != spec.config_hash
    said = proposal_outcome(found, "A replay has been started, by errors.replay.automatic." if starts else "")
    if starts:
        tick.start.append(found)
    judged.config, judged.failed, judged.at = spec.config_hash, "", int(now)
    # Also after a replay was started: if its run fails, the check has to say so.
    judged.proposed = bool(found.helping)
    tick.sentences[spec.stream] = said.sentence
    result_sum = checksum(f"{said.code}{said.sentence}")
    # A proposal is reported each time: a run that materializes the letters makes the check read as not evaluated.
    if result_sum != judged.result_sum or judged.proposed:
        judged.result_sum = result_sum
        tick.events.append(evaluation(said, dagster_names.table_key(settings, spec.dead_letter_table)))


def _waits(spec: StreamSpec, settings: Settings, under_way: Collection[str]) -> str:
    """Reason why dead letters cannot be judged yet; empty if they can."""
    if spec.stream in under_way:
        return "its dead letters are being replayed"
    actual = read_actual(stream_folder(settings, spec.stream).store, spec.stream)
    if actual.heartbeat is None or not (actual.driver_lives and actual.fresh):
        return ""
    if actual.heartbeat.generation == generation(spec, settings):
        return ""
    # The driver may still write letters of the former configuration, which the replay would miss.
    return "its driver still runs the former configuration"


def _may_start(spec: StreamSpec, settings: Settings) -> bool:
    """Whether a replay may start by itself: not into a table that an operator wants left alone."""
    if not spec.errors.replay.automatic:
        return False
    return read_control(stream_folder(settings, spec.stream).store).mode == "running"


def replay_sensor() -> dg.SensorDefinition:
    """The sensor; it touches no table itself."""

    @dg.sensor(
        name=SENSOR,
        job_name=JOB,
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=(
            "When a stream's configuration has changed, tries a sample of the dead letters of earlier "
            "configurations. If they would come back now, the check replay_would_help of the dead letters warns and "
            "names the command; with errors.replay.automatic the replay is started, once per configuration. It does "
            "nothing while no configuration changes."
        ),
    )
    def frazil_replays(
        context: dg.SensorEvaluationContext, deployment: DeploymentResource, catalog: CatalogResource
    ) -> dg.SensorResult:
        memory, instance = ReplaysCursor.from_cursor(context.cursor), context.instance
        try:
            tick = run_replays_tick(
                deployment.deployment(),
                catalog.quick,
                memory,
                replays_under_way(instance),
                lambda stream: newest_replay(instance, stream)[1],
                time.time(),
            )
        except FrazilError as problem:
            return dg.SensorResult(skip_reason=str(problem), cursor=context.cursor)
        requests = [replay_run(each, newest_replay(instance, each.stream)[0] + 1) for each in tick.start]
        sentences = "\n".join(f"{stream}: {sentence}" for stream, sentence in tick.sentences.items())
        return dg.SensorResult(
            run_requests=requests,
            skip_reason=None if requests else sentences or "No configuration has changed.",
            cursor=memory.to_cursor(),
            asset_events=tick.events,
        )

    return frazil_replays


def replays_under_way(instance: dg.DagsterInstance) -> set[str]:
    """Streams whose letters a run replays or tries now; runs whose process is gone are given up."""
    return {run.tags.get(STREAM_TAG, "") for run in runs_under_way(instance, job=JOB)}


def newest_replay(instance: dg.DagsterInstance, stream: str) -> tuple[int, str]:
    """The number of the newest replay that the sensor asked for, and the hash of the configuration that it was for.

    Dagster's runs say so, not the cursor: it is written only after the runs are launched, and may be lost.
    """
    asked_for = {STREAM_TAG: stream, BY_TAG: SENSOR}
    for run in instance.get_runs(dg.RunsFilter(job_name=JOB, tags=asked_for), limit=20):
        number, config = run.tags.get(REQUEST_TAG, ""), run.tags.get(CONFIG_TAG, "")
        if number.isdecimal() and config:
            return int(number), config
    return 0, ""


def replay_run(proposal: Proposal, number: int) -> dg.RunRequest:
    """The run that replays what was proposed.

    Args:
        number: Number that no earlier run of the stream has.
    """
    tried, good = (sum(getattr(each, what) for each in proposal.helping) for what in ("tried", "good"))
    config = ReplayConfig(
        stream=proposal.stream,
        reasons=[each.reason for each in proposal.helping],
        where=proposal.where,
        dry_run=False,
        reason=(
            f"the configuration has changed to {proposal.config}; of {tried} dead letters that were tried {good} "
            "succeed"
        ),
        by=SENSOR,
    )
    return dg.RunRequest(
        run_key=f"{proposal.stream}:replay:{proposal.config}:{number}",
        run_config=replay_run_config(config),
        tags={**replay_tags(config), CONFIG_TAG: proposal.config, REQUEST_TAG: str(number)},
    )
