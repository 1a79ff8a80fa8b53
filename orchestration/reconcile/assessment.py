"""Assessment of a stream: what was observed, what to do about it, and what its checks say."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from assets.stream_checks import Verdict
from jobs.errors import FrazilError
from jobs.spec.loading import find_stream_file
from jobs.spec.validation import SpecError
from jobs.stream.unknown_fields import UnknownFields, read_unknown_fields
from jobs.supervise.desired import StreamFiles, desired_state
from jobs.supervise.observation import Observation, observe
from orchestration.reconcile.decide import decide
from orchestration.reconcile.decision import Decision
from orchestration.reconcile.desired import read_files
from orchestration.reconcile.lookups import Lookups
from orchestration.reconcile.memory import StreamMemory
from orchestration.reconcile.verdicts import Lag, lag_of, settings_verdict, verdicts
from resources.deployment import Deployment

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from jobs.kafka.metadata import KafkaLog


@dataclass(frozen=True, slots=True)
class Assessment:
    """A stream as it was observed, and what follows.

    Attributes:
        unknown_fields: Keys that the schema does not declare, as the newest configuration met them.
    """

    observed: Observation
    decision: Decision
    unknown_fields: UnknownFields | None = None

    def verdicts(self, lag: Lag | None, now: float) -> list[Verdict]:
        """What every check says.

        Args:
            lag: As the heartbeat tells it, or as it was looked up for a stream without a driver.
            now: Seconds since 1970.
        """
        observed = self.observed
        return verdicts(observed.desired, observed.actual, self.decision, self.unknown_fields, lag, now)


def assess(observed: Observation, now: float, clock: float, memory: StreamMemory | None = None) -> Assessment:
    """Decide about a stream.

    Args:
        now: Seconds since 1970.
        clock: The boot clock.
        memory: What the supervisor remembers of it; without it the wall clock says how long things have been so.
    """
    if memory is not None:
        observed = replace(observed, actual=memory.timed(observed.actual, clock))
    decision = decide(observed.desired, observed.actual, now)
    return Assessment(observed, decision, read_unknown_fields(observed.folder.store))


def held_back(observed: Observation, files: StreamFiles, lookups: Lookups) -> Observation:
    """The observation, with the stream's file taken for invalid if its table cannot hold what it declares now.

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
        refused = lookups.refusal(desired.spec, lambda: find_stream_file(settings.home / "streams", stream))
    except FrazilError as problem:
        why = f"its file has changed, and it is not known whether its table can hold it: {problem.message}"
        refused = SpecError([why])
    if refused is None:
        return observed
    invalid = desired_state(stream, files, settings, observed.folder.root, desired.control, launch, refused=refused)
    return replace(observed, desired=invalid)


def assess_now(deployment: Deployment, stream: str, lookups: Lookups, now: float) -> Assessment:
    """Observe one stream now, and decide about it.

    Raises:
        FrazilError: The settings cannot be read.
    """
    files = read_files(deployment)
    return assess(held_back(observe(stream, files, deployment.settings()), files, lookups), now, 0.0)


def judge(
    deployment: Deployment, stream: str, catalog: Callable[[], Catalog], kafka: Callable[[], KafkaLog]
) -> Sequence[Verdict]:
    """What the checks say of one stream, looked at now; asks Kafka and the catalog if no driver tells.

    This is what a check does that is executed from the UI; the sensor says the same from the same facts.
    """
    now = time.time()
    try:
        deployment.settings()
    except SpecError as problem:
        return [settings_verdict(problem)]
    lookups = Lookups(catalog, kafka)
    assessed = assess_now(deployment, stream, lookups, now)
    actual, spec = assessed.observed.actual, assessed.observed.desired.spec
    lag = lag_of(actual)
    if (lag is None or not actual.driver_lives) and spec is not None:
        lag = lookups.lag(spec, now) or lag
    return assessed.verdicts(lag, now)
