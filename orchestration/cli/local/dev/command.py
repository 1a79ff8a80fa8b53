"""Command `frazil dev`: the local broker and Dagster, until Ctrl-C; the streams run on."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import click

from jobs.base.errors import FrazilError
from jobs.base.system.private_files import private_folder
from jobs.clients.install.artifacts import resolve_jars
from jobs.clients.install.preflight import preflight
from jobs.local.registry.registry import registry_application
from jobs.streaming.supervision.control.stream_control import StreamControl
from orchestration.cli.common.interrupts import Interrupts
from orchestration.cli.common.terminal import print_error
from orchestration.cli.local.attended_streams import attended_streams, streams_with_drivers
from orchestration.cli.local.broker import local_broker, local_registry
from orchestration.cli.local.dev.services import DagsterServices
from resources.deployment import Deployment


@contextlib.contextmanager
def local_services(
    deployment: Deployment, port: int | None, interrupts: Interrupts, *, end_streams: bool = False
) -> Iterator[DagsterServices]:
    """The local broker and registry (if the settings want them) and Dagster's services, ended when the block is left.

    A broker that was running before is left running, and so is one that streams still read from.

    Args:
        end_streams: End the streams' drivers as well, those that ran before excepted.

    Raises:
        FrazilError: Another process runs Dagster's services on this deployment.
    """
    settings = deployment.settings()
    services = DagsterServices(deployment, port)
    # First of all: what is found below would be the other one's, and ended with this one.
    services.claim()
    broker = local_broker(deployment, detached=True) if settings.kafka.is_embedded else None
    ours = broker is not None and not broker.status().running
    registry = local_registry(deployment)
    our_registry = registry is not None and registry.running() is None
    ran_before = attended_streams(settings)
    if broker is not None:
        # Here Ctrl-C may interrupt, while below it waits.
        resolve_jars("broker", on_progress=lambda line: click.echo(line, err=True))
    resolve_jars("spark", on_progress=lambda line: click.echo(line, err=True))
    if registry is not None:
        registry_application(lambda line: click.echo(line, err=True))
        # From now on the settings name it, also for what Dagster starts before it answers.
        private_folder(registry.folder)
    try:
        with interrupts.deferred():
            services.start_code()
        if broker is not None:
            with interrupts.deferred():
                broker.start()
        if registry is not None:
            with interrupts.deferred():
                registry.start()
        services.wait_for_code()
        with interrupts.deferred():
            services.start_clients()
        yield services
    finally:
        interrupts.ignore()
        services.stop()
        ended = [stream for stream in attended_streams(settings) if stream not in ran_before] if end_streams else []
        for stream in ended:
            drain_driver(deployment, stream)
        # The watchdog of a released stream takes a moment to end.
        living = streams_with_drivers(settings)
        left = [stream for stream in attended_streams(settings) if stream in living or stream not in ended]
        if broker is not None and ours and not left:
            broker.stop()
        if registry is not None and our_registry and not left:
            registry.stop()
        if left:
            names = ", ".join(left)
            down = ", then `frazil down` the broker" if broker is not None else ""
            click.echo(
                f"Running on: {names}.  (`frazil dev` finds them again; `frazil stop --all` ends them{down})", err=True
            )


def drain_driver(deployment: Deployment, stream: str) -> None:
    """End a stream's driver after its batch, without changing the operator's desired state."""
    control = StreamControl(deployment.home, deployment.settings_file, stream)
    try:
        control.drain_driver("what started it ends", "frazil")
    except FrazilError as problem:
        print_error(problem)


def wait_for_ui(services: DagsterServices, deadline_seconds: float = 120.0) -> None:
    """Wait until the web UI answers.

    Raises:
        FrazilError: A service ended meanwhile.
    """
    deadline = time.monotonic() + deadline_seconds
    while time.monotonic() < deadline:
        services.check()
        with contextlib.suppress(OSError):
            services.api.ask("query { version }", 5)
            break
        time.sleep(0.2)


def stay(services: DagsterServices) -> None:
    """Stay until Ctrl-C.

    Raises:
        FrazilError: A service has ended.
    """
    while True:
        services.check()
        time.sleep(0.5)


@click.command()
@click.option(
    "--port", type=click.IntRange(1, 65535), help="Port of the web UI.  [default: 3000, or the next free one]"
)
@click.pass_obj
def dev(deployment: Deployment, port: int | None) -> None:
    """Start the local broker, the schema registry if a stream needs it, and Dagster's UI and daemon, until Ctrl-C.

    Dagster keeps the streams running, and finds those that run already. They run on when it ends, and the local broker
    with them. Its own state is in .frazil/dagster; its dagster.yaml is written once and then yours.
    """
    deployment.require()
    preflight()
    with Interrupts() as interrupts, local_services(deployment, port, interrupts) as services:
        wait_for_ui(services)
        click.echo(f"Dagster is at {services.url}  (Ctrl-C ends it; the streams run on)")
        stay(services)
