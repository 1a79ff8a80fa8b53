"""`frazil dev`: the local broker and Dagster, until Ctrl-C."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import click

from jobs.runtime.artifacts import resolve_jars
from jobs.runtime.preflight import preflight
from orchestration.commands.broker import local_broker
from orchestration.dagster_services import DagsterServices
from orchestration.interrupts import Interrupts
from resources.deployment import Deployment


@contextlib.contextmanager
def local_services(deployment: Deployment, port: int | None, interrupts: Interrupts) -> Iterator[DagsterServices]:
    """The local broker (if the settings want one) and Dagster's services, ended when the block is left.

    A broker that was running before is left running.
    """
    settings = deployment.settings()
    services = DagsterServices(deployment, port)
    broker = local_broker(deployment) if settings.kafka.is_embedded else None
    ours = broker is not None and not broker.status().running
    if broker is not None:
        # Here Ctrl-C may interrupt, while below it waits.
        resolve_jars("broker", on_progress=lambda line: click.echo(line, err=True))
    resolve_jars("spark", on_progress=lambda line: click.echo(line, err=True))
    try:
        with interrupts.deferred():
            services.start()
        if broker is not None:
            with interrupts.deferred():
                broker.start()
        yield services
    finally:
        interrupts.ignore()
        services.stop()
        if broker is not None and ours:
            broker.stop()


def wait_for_ui(services: DagsterServices, deadline_seconds: float = 120.0) -> None:
    """Wait until the web UI answers.

    Raises:
        FrazilError: A service ended meanwhile.
    """
    deadline = time.monotonic() + deadline_seconds
    while time.monotonic() < deadline:
        services.check()
        with contextlib.suppress(OSError):
            services.api.ask("query { version }", 5.0)
            return
        time.sleep(0.2)


def stay(services: DagsterServices) -> None:
    """Stay until Ctrl-C, or until a service ends.

    Raises:
        FrazilError: A service ended.
    """
    while True:
        services.check()
        time.sleep(0.5)


@click.command()
@click.option("--port", type=click.IntRange(1, 65535), help="Of the web UI.  [default: 3000, or a free one]")
@click.pass_obj
def dev(deployment: Deployment, port: int | None) -> None:
    """Start the local broker and Dagster's web UI and daemon, until Ctrl-C.

    Dagster keeps its state in .frazil/dagster; its dagster.yaml is written once and then yours.
    """
    preflight()
    with Interrupts() as interrupts, local_services(deployment, port, interrupts) as services:
        wait_for_ui(services)
        click.echo(f"Dagster is at {services.url}  (Ctrl-C ends it)")
        stay(services)
