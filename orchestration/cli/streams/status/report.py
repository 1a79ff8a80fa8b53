"""Report of `frazil status`: listed streams, their mirrors, invalid files, and the supervisor."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from jobs.base.errors import FrazilError
from jobs.clients.state_store.stream_folder import state_store
from jobs.config.documents.validation import SpecError
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from orchestration.cli.streams.status.collection import (
    Listed,
    list_streams,
    name_hanging,
    refuse_unlisted,
    status_from_state,
)
from orchestration.cli.streams.status.mirrors import mirror_troubles
from orchestration.cli.streams.status.stream_status import StreamStatus, status_facts
from orchestration.formatting import span
from orchestration.reconcile.supervisor_heartbeat import SupervisorHeartbeat, read_supervisor_heartbeat
from resources.deployment import Deployment

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from jobs.clients.kafka.metadata import KafkaLog

T = TypeVar("T")


class Looks:
    """Lazy connections to catalog and Kafka. A service that does not answer is asked once, not for each stream."""

    def __init__(self, settings: Settings) -> None:
        self._settings: Settings = settings
        self._catalog: Catalog | FrazilError | None = None
        self._kafka: KafkaLog | FrazilError | None = None

    @property
    def catalog(self) -> Catalog | FrazilError:
        """The catalog, or the reason why it does not answer."""
        if self._catalog is None:
            # Imported here: if heartbeats suffice, neither PyIceberg nor Kafka's client is needed.
            from jobs.clients.catalog.catalog import quick_catalog

            self._catalog = _or_error(lambda: quick_catalog(self._settings))
        return self._catalog

    def further(self, found: StreamStatus, spec: StreamSpec) -> None:
        """Add figures from tables and topics to a stream's status."""
        from jobs.clients.kafka.metadata import quick_kafka
        from orchestration.cli.streams.status.tables_and_topics import add_tables_and_topics

        if not found.work.knows_lag and self._kafka is None:
            self._kafka = _or_error(lambda: quick_kafka(self._settings.kafka))
        asked = self._kafka or FrazilError("Kafka was not asked.")
        by_driver = found.unknown.get("kafka")
        self._catalog = add_tables_and_topics(found, spec, self.catalog, asked) or self._catalog
        name_hanging(found, self._settings.kafka.bootstrap_servers)
        problem = found.unknown.get("kafka")
        known = problem in (None, by_driver) or isinstance(self._kafka, FrazilError)
        if problem is not None and not known and "does not exist" not in problem:
            self._kafka = FrazilError(problem)


def _or_error(connect: Callable[[], T]) -> T | FrazilError:
    try:
        return connect()
    except FrazilError as problem:
        return problem


@dataclass(frozen=True, slots=True)
class StatusReport:
    """Status of streams at one moment.

    Attributes:
        listed: Observation and spec of each stream, by id.
        statuses: Status of each stream, in the same order.
        errors: Errors of invalid files.
        mirrors: Problems of mirrors, each with its next command, by stream.
        note: The supervisor's newest heartbeat; None if there was none.
    """

    listed: Listed
    statuses: Sequence[StreamStatus]
    errors: Sequence[SpecError]
    mirrors: Mapping[str, Sequence[tuple[str, str]]]
    note: SupervisorHeartbeat | None

    @property
    def silent(self) -> bool:
        """Whether nobody supervises the deployment now."""
        return self.note is None or self.note.is_silent(time.time())

    @property
    def unsupervised(self) -> bool:
        """Whether a stream is meant to run and nobody supervises it."""
        launched = (each for each in self.statuses if each.launched.attempt is not None)
        return self.silent and any(each.control.mode == "running" for each in launched)

    @property
    def broken(self) -> bool:
        """Whether a file is invalid."""
        return bool(self.errors) or any(observed.desired.file == "invalid" for observed, _ in self.listed.values())

    @property
    def supervision(self) -> str:
        """Phrase about the supervision of the deployment."""
        if self.note is None:
            return "this deployment has never been supervised; start `frazil dev`, or Dagster's daemon"
        looked = f"last looked {span(self.note.silent_for(time.time()))} ago, from {self.note.host}"
        return f"no supervisor runs: {looked}; is Dagster's daemon running?" if self.silent else looked

    @property
    def facts(self) -> dict[str, Any]:
        """Report as JSON."""
        return {
            "streams": [status_facts(each) for each in self.statuses],
            "problems": [problem for error in self.errors for problem in error.problems],
            "supervisor": {
                "supervises": not self.silent,
                "silent_seconds": self.note.silent_for(time.time()) if self.note is not None else None,
            },
        }


def status_report(
    deployment: Deployment, settings: Settings, streams: Sequence[str], looks: Looks | None = None
) -> StatusReport:
    """Current status of streams.

    Args:
        deployment: The deployment with the streams.
        settings: Settings of the deployment.
        streams: Ids of streams; empty for all. Tables and topics are always read for named streams, and for others only
            if no driver reports.
        looks: Connections of an earlier report.

    Raises:
        FrazilError: A stream does not exist, or the state store does not answer.
    """
    note = read_supervisor_heartbeat(state_store(settings))
    listed, errors = list_streams(deployment, settings)
    if streams:
        for stream in streams:
            if stream not in listed:
                refuse_unlisted(deployment, settings, stream)
        listed, errors = {stream: listed[stream] for stream in streams}, ()
    looks = looks or Looks(settings)
    statuses: list[StreamStatus] = []
    for observed, spec in listed.values():
        found = status_from_state(observed, spec, note)
        if streams or not found.driven or spec.publish is not None:
            looks.further(found, spec)
        statuses.append(found)
    mirrors = {stream: list(mirror_troubles(spec, settings)) for stream, (_, spec) in listed.items()}
    return StatusReport(listed, statuses, errors, mirrors, note)
