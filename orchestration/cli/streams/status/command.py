"""Command `frazil status`: state, lag, rate, last commit and last error of the streams."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import click
from pyiceberg.catalog import Catalog

from jobs.base.errors import FrazilError
from jobs.clients.catalog.catalog import quick_catalog
from jobs.clients.kafka.metadata import KafkaLog, quick_kafka
from jobs.clients.state_store.stream_folder import state_store
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from orchestration.cli.common.options import json_option, streams_argument
from orchestration.cli.common.terminal import print_error, print_json
from orchestration.cli.streams.status.collection import (
    add_tables_and_topics,
    list_streams,
    name_hanging,
    refuse_unlisted,
    status_from_state,
)
from orchestration.cli.streams.status.mirrors import mirror_lines, mirror_troubles
from orchestration.cli.streams.status.output import print_details, print_table, troubles
from orchestration.cli.streams.status.stream_status import StreamStatus, status_facts
from orchestration.formatting import span
from orchestration.reconcile.supervisor_heartbeat import SupervisorHeartbeat, read_supervisor_heartbeat
from resources.deployment import NO_STREAMS_FIX, Deployment

T = TypeVar("T")

# 1 is a command that could not be carried out, 2 one that could not be read.
NEEDS_SOMEBODY = 3
NOT_KNOWN = 4


@click.command()
@streams_argument()
@json_option()
@click.option(
    "--check",
    is_flag=True,
    help=f"End with status {NEEDS_SOMEBODY} if somebody has to act, {NOT_KNOWN} if something could not be found out.",
)
@click.pass_obj
def status(deployment: Deployment, streams: tuple[str, ...], as_json: bool, check: bool) -> None:
    """Show every stream on a line, or all that is known of STREAMS. Needs neither the broker nor a JVM.

    Where a driver runs, its last heartbeat tells; the tables and the topics are looked at where none does, and for the
    streams that are named. Of a stream that writes, audits and publishes the table is always looked at.
    """
    settings = deployment.settings()
    note = read_supervisor_heartbeat(state_store(settings))
    listed, errors = list_streams(deployment, settings)
    if streams:
        unlisted = [stream for stream in streams if stream not in listed]
        for stream in unlisted:
            refuse_unlisted(deployment, settings, stream)
        listed, errors = {stream: listed[stream] for stream in streams}, ()
    look = _Looks(settings)
    statuses: list[StreamStatus] = []
    for observed, spec in listed.values():
        found = status_from_state(observed, spec, note)
        if streams or not found.driven or spec.publish is not None:
            look.further(found, spec)
        statuses.append(found)
    unsupervised = _silent(note) and any(
        each.control.mode == "running" and each.launched.attempt is not None for each in statuses
    )
    of_mirrors = {stream: list(mirror_troubles(spec, settings)) for stream, (_, spec) in listed.items()}
    if as_json:
        problems = [problem for error in errors for problem in error.problems]
        print_json(
            {
                "streams": [status_facts(each) for each in statuses],
                "problems": problems,
                "supervisor": {
                    "supervises": not _silent(note),
                    "silent_seconds": note.silent_for(time.time()) if note is not None else None,
                },
            }
        )
    elif streams:
        for found in statuses:
            print_details(found, _supervision(note))
            for line in mirror_lines(listed[found.stream][1], settings, look.catalog):
                click.echo(f"  {line}")
    else:
        if statuses:
            print_table(statuses)
        elif not errors:
            click.echo(f"There are no streams in {deployment.streams_folder} yet.\n  Next: {NO_STREAMS_FIX}")
        for stream, problems in of_mirrors.items():
            for sentence, fix in problems:
                click.secho(f"! {stream}: {sentence}", fg="red")
                click.echo(f"  Next: {fix}")
        if unsupervised:
            click.echo(f"! supervision: {_supervision(note)}")
        for error in errors:
            print_error(error)
    broken = any(observed.desired.file == "invalid" for observed, _ in listed.values())
    if errors or broken:
        raise SystemExit(1)
    if check and (unsupervised or any(of_mirrors.values()) or any(map(troubles, statuses))):
        raise SystemExit(NEEDS_SOMEBODY)
    if check and any(each.unknown for each in statuses):
        raise SystemExit(NOT_KNOWN)


class _Looks:
    """Looks at tables and topics, connecting when first needed; what does not answer is asked once, not per stream."""

    def __init__(self, settings: Settings) -> None:
        self._settings: Settings = settings
        self._catalog: Catalog | FrazilError | None = None
        self._kafka: KafkaLog | FrazilError | None = None

    @property
    def catalog(self) -> Catalog | FrazilError:
        """The catalog, or why it does not answer."""
        if self._catalog is None:
            self._catalog = _or_error(lambda: quick_catalog(self._settings))
        return self._catalog

    def further(self, found: StreamStatus, spec: StreamSpec) -> None:
        """Add what tables and topics say of a stream."""
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


def _silent(note: SupervisorHeartbeat | None) -> bool:
    return note is None or note.is_silent(time.time())


def _supervision(note: SupervisorHeartbeat | None) -> str:
    if note is None:
        return "nobody has supervised this deployment yet; `frazil dev`, or Dagster's daemon, does"
    looked = f"last looked {span(note.silent_for(time.time()))} ago, from {note.host}"
    return f"nobody supervises now: {looked}; is Dagster's daemon running?" if _silent(note) else looked
