"""Commands `frazil registry …`: schemas of the registry that streams have cached, and their removal."""

from __future__ import annotations

from typing import Any

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
from orchestration.cli.common.consent import consent, show_plan
from orchestration.cli.common.options import dry_run_option, json_option, stream_argument, yes_option
from orchestration.cli.common.terminal import print_json
from resources.deployment import Deployment

_SHOWN = 5


@click.group()
def registry() -> None:
    """Show the schema registry's state, and which of its schemas streams know."""


@registry.command()
@json_option()
@click.pass_obj
def status(deployment: Deployment, as_json: bool) -> None:
    """Ask the registry, and show how many of its schemas each stream has met."""
    settings = deployment.settings()
    known: list[dict[str, Any]] = []
    for stream in streams_with(settings, KEY):
        store = stream_folder(settings, stream).store
        ids = list(map(str, read_known_schemas(store)))
        known.append({"stream": stream, "registry": registry_of(store), "schemas": len(ids), "newest": ids[-_SHOWN:]})
    if not as_json:
        for each in known:
            ids = ", ".join(each["newest"])
            more = f": {ids}" if each["schemas"] <= _SHOWN else f", the last of them {ids}"
            click.echo(f"{each['stream']}: {each['schemas']} schemas of {each['registry']}{more}")
    client = registry_client(settings.registry)
    client.check()
    print_json({"registry": client.shown, "streams": known}) if as_json else click.echo(f"{client.shown} answers.")


@registry.command()
@stream_argument()
@dry_run_option()
@yes_option()
@json_option()
@click.pass_obj
def forget(deployment: Deployment, stream: str, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Forget the schemas that STREAM knows, after the registry was rebuilt.

    Earlier records are then read with the present schema of their id: do it only if none are left to read, or the ids
    mean the same. Shows the number of schemas and asks.
    """
    settings = deployment.settings()
    store = stream_folder(settings, stream).store
    if registry_of(store) is None:
        # A mistyped name raises an error.
        deployment.stream(stream)
    actual = read_certain(store, stream)
    if actual.lease.state == "live":
        raise FrazilError(
            f"stream {stream} is run by {actual.lease.name}, which knows them, too.",
            fix=f"frazil stop {stream} --reason 'the registry was rebuilt'; then this again",
        )
    count = len(read_known_schemas(store))
    if not dry_run:
        said = f"{stream} knows {count} schemas of {registry_of(store)}, and is to ask the registry for them again."
        show_plan([said], as_json=as_json)
        consent(f"Forget the schemas that stream {stream} knows?", yes=yes)
        count = forget_known_schemas(store)
    if as_json:
        print_json({"stream": stream, "schemas": count, "done": not dry_run})
        return
    if dry_run:
        click.echo(f"{stream} would forget {count} schemas. Nothing was changed.")
        click.echo(f"  Next: frazil registry forget {stream}")
        return
    click.echo(f"{stream} has forgotten {count} schemas; it asks the registry for those that its records name.")
    click.echo(f"  Next: frazil run {stream}, or frazil start {stream}")
