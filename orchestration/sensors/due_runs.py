"""Sensors that ask for runs: a tick looks over the streams, in turn, for those that a run is due for."""

# No `from __future__ import annotations` here: Dagster looks at the parameters' types as they are.

import math
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeVar

import dagster as dg

from jobs.base.errors import FrazilError
from jobs.clients.catalog.catalog import NoCatalogYet
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from orchestration.jobs.runs import runs_under_way
from orchestration.reconcile.cursor import StreamsCursor
from orchestration.reconcile.stream_files import as_launched, read_files
from resources.deployment import Deployment
from resources.deployment_resource import DeploymentResource
from resources.services import CatalogResource

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

INTERVAL_SECONDS = 30
# A tick looks at as many streams as it can in so long, those that it looked at longest ago first.
BUDGET_SECONDS = 3.0


class Remembered(Protocol):
    """State that a sensor keeps of one stream.

    Attributes:
        at: When the stream was looked at; seconds since 1970, 0 before the first time.
    """

    at: int


R = TypeVar("R", bound=Remembered)


@dataclass(slots=True)
class DueRuns:
    """Result of one tick.

    Attributes:
        start: The streams that a run is due for, each with why.
        sentences: The sentences of the tick's message, by stream.
    """

    start: list[tuple[StreamSpec, str]] = field(default_factory=list)
    sentences: dict[str, str] = field(default_factory=dict)


Look = Callable[[DueRuns, StreamSpec, "Catalog", R, float], None]
"""Looks at one stream: says what is to be said of it, and whether a run is due; may raise a `FrazilError`."""


RequestRun = Callable[[StreamSpec, Settings, Collection[dg.AssetCheckKey], str, float], dg.RunRequest | str]
"""Asks for the run of a stream: by the checks that Dagster has loaded, for a reason, at a time; or says why not."""


def due_runs(
    deployment: Deployment,
    catalog: "Callable[[], Catalog]",
    memory: StreamsCursor[R],
    under_way: Collection[str],
    now: float,
    budget: float = BUDGET_SECONDS,
    *,
    wanted: Callable[[StreamSpec], bool],
    remember: Callable[[], R],
    busy: str,
    look: Look[R],
) -> DueRuns:
    """Look over the streams; the catalog is asked only if one of them may have a run that is due.

    Args:
        memory: State of the sensor, by stream; streams without a file are forgotten.
        now: Seconds since 1970.
        budget: Seconds after which no other stream is looked at that was looked at before.
        wanted: Whether a stream is looked at at all.
        remember: Makes the state of a stream that was not looked at before.
        busy: Sentence about a stream that a run is at work on.
    """
    tick, began = DueRuns(), time.monotonic()
    files, settings = read_files(deployment), deployment.settings()
    specs = [*files.specs.values(), *as_launched(list(files.specs.values()), files.errors, settings, deployment)]
    chosen = [spec for spec in specs if wanted(spec)]
    if not chosen:
        return tick
    try:
        connected = catalog()
    except NoCatalogYet as problem:
        return DueRuns(sentences={spec.stream: problem.message for spec in chosen})
    ages = {stream: known.at for stream, known in memory.streams.items()}
    for spec in sorted(chosen, key=lambda spec: (ages.get(spec.stream, 0), spec.stream)):
        known = memory.streams.setdefault(spec.stream, remember())
        if known.at and time.monotonic() - began > budget:
            break
        known.at = math.floor(now)
        if spec.stream in under_way:
            tick.sentences[spec.stream] = busy
            continue
        try:
            look(tick, spec, connected, known, now)
        except FrazilError as problem:
            # One stream's trouble is none of the others'.
            tick.sentences[spec.stream] = problem.message
    if not files.absence:
        memory.keep_only([*(spec.stream for spec in specs), *files.claimed])
    return tick


def due_runs_sensor(
    *,
    name: str,
    job: str,
    tag: str,
    description: str,
    nothing: str,
    cursor: type[StreamsCursor[R]],
    tick: Callable[..., DueRuns],
    request: RequestRun,
) -> dg.SensorDefinition:
    """A sensor that asks for a run of each stream that one is due for; it reads tables' metadata and no row.

    Args:
        tag: Tag of the job's runs; its value is the stream that a run is at work on.
        nothing: Message of a tick that looks at no stream.
        tick: `due_runs` with what is looked for.
    """

    @dg.sensor(
        name=name,
        job_name=job,
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=description,
    )
    def look_for_due_runs(
        context: dg.SensorEvaluationContext, deployment: DeploymentResource, catalog: CatalogResource
    ) -> dg.SensorResult:
        memory, now = cursor.from_cursor(context.cursor), time.time()
        repository = context.repository_def
        loaded = set(repository.asset_graph.asset_check_keys) if repository is not None else set()
        under_way = {run.tags.get(tag, "") for run in runs_under_way(context.instance, job=job)}
        try:
            settings = deployment.settings()
            found = tick(deployment.deployment(), catalog.quick, memory, under_way, now)
        except FrazilError as problem:
            return dg.SensorResult(skip_reason=str(problem), cursor=context.cursor)
        requests: list[dg.RunRequest] = []
        for spec, why in found.start:
            asked = request(spec, settings, loaded, why, now)
            if isinstance(asked, str):
                found.sentences[spec.stream] = asked
            else:
                requests.append(asked)
        sentences = "\n".join(f"{stream}: {sentence}" for stream, sentence in found.sentences.items())
        return dg.SensorResult(
            run_requests=requests, skip_reason=None if requests else sentences or nothing, cursor=memory.to_cursor()
        )

    return look_for_due_runs
