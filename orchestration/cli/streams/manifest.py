"""Command `frazil manifest`: the pod in which Kubernetes would run a stream's driver."""

from __future__ import annotations

import click
import msgspec
import yaml

from jobs.base.errors import FrazilError
from jobs.config.settings.groups import group_of
from jobs.config.settings.settings import SETTINGS_FILE
from jobs.streaming.supervision.documents.launches import Launch
from jobs.streaming.supervision.launchers.kubernetes import KubernetesPods
from jobs.streaming.supervision.launchers.launcher import DriverOrder
from jobs.streaming.supervision.processes.groups import DriverGroup, group_command
from jobs.streaming.supervision.processes.launcher import driver_command
from orchestration.cli.common.options import json_option, stream_argument
from orchestration.cli.common.terminal import print_json
from resources.deployment import Deployment


@click.command()
@stream_argument()
@json_option("Print the pod as JSON, as kubectl takes it too.")
@click.pass_obj
def manifest(deployment: Deployment, stream: str, as_json: bool) -> None:
    """Print the pod of STREAM's driver, or of its group's, as YAML. Nothing is started, and Kubernetes is not asked.

    The attempt, and the name with it, are those of a first start.
    """
    settings, spec = deployment.settings(), deployment.stream(stream)
    if settings.drivers.kubernetes is None:
        raise FrazilError(
            f"{SETTINGS_FILE} does not say how drivers would run in Kubernetes.",
            fix=f"write drivers: {{launcher: kubernetes, kubernetes: {{image: …}}}} into {SETTINGS_FILE}",
        )
    pods, group, command = KubernetesPods(settings), group_of(spec, settings), driver_command()
    label, what = (
        (stream, ("--stream", stream))
        if group is None
        else (
            DriverGroup.of(settings, group).label,
            ("--group", group),
        )
    )
    launch = Launch(1, "", "", 0, 0.0, handle=pods.handle(label, 1))
    given = ("--home", str(settings.home), *what)
    order = DriverOrder(label, launch, settings.state, command if group is None else group_command(command), given)
    pod = msgspec.to_builtins(pods.manifest(order))
    print_json(pod) if as_json else click.echo(yaml.safe_dump(pod, sort_keys=False), nl=False)
