"""Commands `frazil up` and `frazil down`: the local broker, and the local schema registry where a stream needs it."""

from __future__ import annotations

import click

from jobs.base.errors import FrazilError
from jobs.clients.install.preflight import preflight
from jobs.local.broker.broker import LocalBroker
from jobs.local.registry.registry import LocalRegistry
from orchestration.cli.common.options import json_option
from orchestration.cli.common.terminal import print_json
from orchestration.cli.local.attended_streams import attended_streams
from resources.deployment import Deployment


def local_broker(deployment: Deployment, *, detached: bool = False) -> LocalBroker:
    """The deployment's local broker, whether it runs or not.

    Args:
        deployment: The deployment.
        detached: Whether the broker, once started, outlives this process.

    Raises:
        FrazilError: The settings name other brokers, so nothing would use it.
    """
    kafka = deployment.settings().kafka
    if not kafka.is_embedded:
        raise FrazilError(
            f"The settings name the brokers {kafka.bootstrap_servers}, so nothing would use the local one.",
            fix="remove kafka.bootstrap_servers from frazil.yaml to use the local broker",
        )
    return LocalBroker(
        deployment.embedded / "broker", detached=detached, on_progress=lambda line: click.echo(line, err=True)
    )


def local_registry(deployment: Deployment) -> LocalRegistry | None:
    """The deployment's local schema registry, whether it runs or not; None if nothing uses it.

    Beside the local broker, streams use it whose values or keys name schemas of a registry, unless the settings name
    another one. Once it was started, its folder is there, and the settings name it.
    """
    settings = deployment.settings()
    if settings.registry is None:
        needed = settings.kafka.is_embedded and any(spec.decode.needs_registry for spec in deployment.streams()[0])
    else:
        needed = settings.registry.is_local
    if not needed:
        return None
    folder = deployment.embedded / "registry"
    return LocalRegistry(folder, detached=True, on_progress=lambda line: click.echo(line, err=True))


@click.command()
@json_option()
@click.pass_obj
def up(deployment: Deployment, as_json: bool) -> None:
    """Start the local broker, and the local schema registry if a stream needs it. Both run until `frazil down`.

    A stream needs it whose values or keys are Avro, Protobuf or JSON Schema, unless frazil.yaml names a registry.
    """
    deployment.require()
    preflight()
    broker = local_broker(deployment, detached=True)
    running = broker.status().running
    address = broker.start()
    if not as_json:
        click.echo(f"The local broker {'runs already' if running else 'is up'} at {address}.")
    registry = local_registry(deployment)
    ran_already = registry is not None and registry.running() is not None
    url = registry.start() if registry else None
    if as_json:
        print_json({"broker": {"address": address, "ran_already": running}, "registry": url and {"url": url}})
    elif url:
        click.echo(f"The local schema registry {'runs already' if ran_already else 'is up'} at {url}.")


@click.command()
@json_option()
@click.pass_obj
def down(deployment: Deployment, as_json: bool) -> None:
    """Stop the local broker and schema registry, if they run. Their data stays for the next `frazil up`."""
    stopped = local_broker(deployment).stop()
    if not as_json:
        click.echo("The local broker is stopped." if stopped else "The local broker is not running.")
    registry = local_registry(deployment)
    registry_stopped = registry is not None and registry.stop()
    if as_json:
        print_json({"broker": {"stopped": stopped}, "registry": registry and {"stopped": registry_stopped}})
    elif registry_stopped:
        click.echo("The local schema registry is stopped.")
    if stopped and (left := attended_streams(deployment.settings())):
        click.echo(f"Running on, without a broker: {', '.join(left)}.  (`frazil stop --all` ends them)", err=True)
