"""Assessment of a stream: its observation, the decision about it, and what its checks say."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from assets.stream_checks import CheckOutcome
from jobs.base.errors import FrazilError
from jobs.config.documents.validation import SpecError
from jobs.config.redaction import redacted
from jobs.config.settings.loading import find_stream_file
from jobs.quality.publishing.main_freshness import UNKNOWN, MainFreshness
from jobs.streaming.driver.context.unknown_fields import UnknownFields, read_unknown_fields
from jobs.streaming.supervision.documents.launches import launched_file
from jobs.streaming.supervision.state.desired import StreamFiles, desired_state
from jobs.streaming.supervision.state.observation import Observation, observe
from orchestration.reconcile.check_outcomes import check_outcomes, settings_outcome
from orchestration.reconcile.cursor import StreamCursor, due
from orchestration.reconcile.decide import Decision, decide
from orchestration.reconcile.lag import Lag, lag_by_heartbeat
from orchestration.reconcile.remote_queries import RemoteQueries
from orchestration.reconcile.stream_files import read_files
from resources.deployment import Deployment

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from jobs.clients.kafka.metadata import KafkaLog


# How often Kafka is asked for the lag of a stream whose driver does not report it.
LOOKUP_SECONDS = 60
# How often the catalog is asked what main has of a write-audit-publish stream.
MAIN_SECONDS = 30
# A driver that is paused, or waits for its trigger, does not look: then the supervisor does.
_OLD_LAG_SECONDS = 240


@dataclass(frozen=True, slots=True)
class Assessment:
    """A stream as it was observed, and what follows.

    Attributes:
        unknown_fields: Keys that the schema does not declare, as the newest configuration met them.
    """

    observed: Observation
    decision: Decision
    unknown_fields: UnknownFields | None = None

    def check_outcomes(self, lag: Lag | None, now: float, main: MainFreshness | None = None) -> list[CheckOutcome]:
        """The outcome of every check.

        Args:
            lag: The lag that the heartbeat reports, or that was looked up for a stream without a driver.
            now: Seconds since 1970.
            main: What main lacks of the branch of a write-audit-publish stream.
        """
        observed = self.observed
        return check_outcomes(observed.desired, observed.actual, self.decision, self.unknown_fields, lag, now, main)


def assess(observed: Observation, now: float, clock: float, memory: StreamCursor | None = None) -> Assessment:
    """Decide about a stream.

    Args:
        now: Seconds since 1970.
        memory: What the supervisor remembers of the stream; without it durations follow the wall clock.
    """
    if memory is not None:
        observed = replace(observed, actual=memory.timed(observed.actual, clock))
    decision = decide(observed.desired, observed.actual, now)
    return Assessment(observed, decision, read_unknown_fields(observed.folder.store))


def assess_file_change(observed: Observation, files: StreamFiles, remote: RemoteQueries) -> Observation:
    """Assess a changed file: taken for invalid in the observation if the stream's table cannot hold what it declares.

    Asks the catalog only where a file differs from what was launched. Until that has answered nothing is rolled out,
    and a driver that dies meanwhile is started as it was.
    """
    desired, launch = observed.desired, observed.actual.launch
    if desired.file != "valid" or desired.spec is None or not desired.continuous or observed.actual.problem:
        return observed
    if launch is None or launch.generation == desired.generation:
        return observed
    stream, settings = observed.stream, observed.settings
    try:
        refused = remote.refusal(desired.spec, lambda: find_stream_file(settings.home / "streams", stream))
    except FrazilError as problem:
        # Clients quote addresses, and one may hold a token.
        said = redacted(settings, problem.message)
        why = f"its file has changed, and it is unknown whether its table fits it: {said}"
        refused = SpecError([why])
    if refused is None:
        return observed
    launched = partial(launched_file, observed.folder)
    invalid = desired_state(stream, files, settings, launched, desired.control, launch, refused=refused)
    return replace(observed, desired=invalid)


def assessed_lag(observed: Observation, memory: StreamCursor, remote: RemoteQueries, now: float) -> Lag | None:
    """The lag for an assessment, as readers see it: for a write-audit-publish stream that of main.

    What main has of the branch is looked up twice a minute.
    """
    lag, spec = _landed_lag(observed, memory, remote, now), observed.desired.spec
    if spec is None or spec.publish is None:
        memory.main = None
        return lag
    if due(now, memory.main_at, MAIN_SECONDS):
        before, memory.main, memory.main_at = memory.main, remote.main_freshness(spec), int(now)
        if memory.main == UNKNOWN and before is not None:
            # Quarantined rows do not vanish while the catalog gives no answer.
            memory.main = msgspec.structs.replace(UNKNOWN, held=before.held, held_fix=before.held_fix)
    if lag is None or memory.main is None:
        return lag
    found = lag.on_main(memory.main)
    if memory.main.lacks or found.valid_through is None:
        return found
    # Records that have landed since the look-up may not be in main.
    return replace(found, valid_through=min(found.valid_through, max(memory.main_at, now - MAIN_SECONDS)))


def _landed_lag(observed: Observation, memory: StreamCursor, remote: RemoteQueries, now: float) -> Lag | None:
    """The lag that the driver reports; where none does, Kafka is asked once a minute.

    A driver that was launched while its stream was paused has never looked.
    """
    reported, spec = lag_by_heartbeat(observed.actual), observed.desired.spec
    told = reported is not None and reported.records is not None and observed.actual.driver_lives
    if reported is not None and told and now - reported.at <= _OLD_LAG_SECONDS:
        memory.looked_at, memory.waiting = 0, None
        return replace(reported, valid_through=memory.complete_through(reported.valid_through))
    if spec is not None and due(now, memory.looked_at, LOOKUP_SECONDS):
        memory.looked_at = int(now)
        found = remote.lag(spec, now)
        if found is not None:
            memory.waiting, memory.waiting_at = found.records, int(now)
            memory.watermark = None if found.watermark is None else int(found.watermark)
            return replace(found, valid_through=memory.complete_through(found.valid_through))
    if memory.waiting is None:
        return reported
    return Lag(memory.waiting, memory.waiting_at, memory.through, watermark=memory.watermark)


def assess_now(deployment: Deployment, stream: str, remote: RemoteQueries, now: float) -> Assessment:
    """Observe one stream now, and decide about it.

    Raises:
        FrazilError: The settings cannot be read.
    """
    files = read_files(deployment)
    return assess(assess_file_change(observe(stream, files, deployment.settings()), files, remote), now, 0.0)


def evaluate_checks(
    deployment: Deployment, stream: str, catalog: Callable[[], Catalog], kafka: Callable[[], KafkaLog]
) -> Sequence[CheckOutcome]:
    """Look now at one stream, and return the outcomes of its checks; asks Kafka and the catalog if no driver reports.

    This is what a check does that is executed from the UI; the sensor says the same from the same facts.
    """
    now = time.time()
    try:
        deployment.settings()
    except SpecError as problem:
        return [settings_outcome(problem)]
    remote = RemoteQueries(catalog, kafka)
    assessed = assess_now(deployment, stream, remote, now)
    actual, spec = assessed.observed.actual, assessed.observed.desired.spec
    lag = lag_by_heartbeat(actual)
    if (lag is None or lag.records is None or not actual.driver_lives) and spec is not None:
        lag = remote.lag(spec, now) or lag
    main = remote.main_freshness(spec) if spec is not None else None
    if lag is not None and main is not None:
        lag = lag.on_main(main)
    return assessed.check_outcomes(lag, now, main)
