"""Commands `frazil up` and `frazil down`: the local broker, and the local schema registry where there is one."""

from __future__ import annotations

import click

from jobs.base.errors import FrazilError
from jobs.clients.install.preflight import preflight
from jobs.local.broker.broker import LocalBroker
from jobs.local.registry.registry import LocalRegistry
from orchestration.cli.common.options import json_option
from orchestration.cli.common.terminal import print_json
from resources.deployment import Deployment


def local_broker(deployment: Deployment, *, detached: bool = False) -> LocalBroker:
    """The deployment's local broker, whether it runs or not.

    Args:
        detached: If it is started, let it outlive this process.

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
    """The deployment's local schema registry, whether it runs or not; None where there never was one."""
    registry = deployment.settings().registry
    if registry is None or not registry.is_local:
        return None
    folder = deployment.embedded / "registry"
    return LocalRegistry(folder, detached=True, on_progress=lambda line: click.echo(line, err=True))


@click.command()
@json_option()
@click.pass_obj
def up(deployment: Deployment, as_json: bool) -> None:
    """Start the local broker, unless it runs already. It keeps running until `frazil down`."""
    preflight()
    broker = local_broker(deployment, detached=True)
    running = broker.status().running
    address = broker.start()
    if not as_json:
        click.echo(f"The local broker {'runs already' if running else 'is up'} at {address}.")
    registry = local_registry(deployment)
    url = registry.start() if registry else None
    if as_json:
        print_json({"broker": {"address": address, "ran_already": running}, "registry": url and {"url": url}})
    elif url:
        click.echo(f"The local schema registry is up at {url}.")


@click.command()
@json_option()
@click.pass_obj
def down(deployment: Deployment, as_json: bool) -> None:
    """Stop the local broker, if it runs. What it holds stays, and the next `frazil up` has it again."""
    stopped = local_broker(deployment).stop()
    if not as_json:
        click.echo("The local broker is stopped." if stopped else "The local broker is not running.")
    registry = local_registry(deployment)
    registry_stopped = registry is not None and registry.stop()
    if as_json:
        print_json({"broker": {"stopped": stopped}, "registry": registry and {"stopped": registry_stopped}})
    elif registry_stopped:
        click.echo("The local schema registry is stopped.")
