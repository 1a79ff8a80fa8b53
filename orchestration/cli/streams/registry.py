"""`frazil registry`: what streams know of the schema registry, and forgetting it."""

from __future__ import annotations

import click

from jobs.base.errors import FrazilError
from jobs.clients.registry.client import registry_client
from jobs.clients.registry.known_schemas import (
    KEY,
    forget_known_schemas,
    read_known_schemas,
    registry_of,
)
from jobs.clients.state_store.stream_folder import stream_folder, streams_with
from jobs.streaming.supervision.processes.actual import read_certain
from orchestration.cli.common.options import stream_argument
from resources.deployment import Deployment


@click.group()
def registry() -> None:
    """The schema registry: whether it answers, and which of its schemas streams know."""


@registry.command()
@click.pass_obj
def status(deployment: Deployment) -> None:
    """Ask the registry, and show how many of its schemas each stream has met."""
    settings = deployment.settings()
    for stream in streams_with(settings, KEY):
        store = stream_folder(settings, stream).store
        found = read_known_schemas(store)
        ids = ", ".join(str(each) for each in list(found)[-5:])
        more = f": {ids}" if len(found) <= 5 else f", the last of them {ids}"
        click.echo(f"{stream}: {len(found)} schemas of {registry_of(store)}{more}")
    client = registry_client(settings.registry)
    client.check()
    click.echo(f"{client.shown} answers.")


@registry.command()
@stream_argument()
@click.pass_obj
def forget(deployment: Deployment, stream: str) -> None:
    """Forget the schemas that STREAM knows, after the registry was made anew.

    Records that were written before are then read with whatever schema has their id now: do it only if none are left to
    read, or the ids mean the same.
    """
    settings = deployment.settings()
    store = stream_folder(settings, stream).store
    if registry_of(store) is None:
        # A name that is mistyped is told.
        deployment.stream(stream)
    actual = read_certain(store, stream)
    if actual.lease.state == "live":
        raise FrazilError(
            f"stream {stream} is run by {actual.lease.name}, which knows them, too.",
            fix=f"frazil stop {stream} --reason 'the registry was made anew'; then this again",
        )
    count = forget_known_schemas(store)
    click.echo(f"{stream} has forgotten {count} schemas; it asks the registry for those that its records name.")
    click.echo(f"  Next: frazil run {stream}, or frazil start {stream}")
