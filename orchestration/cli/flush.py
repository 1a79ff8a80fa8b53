"""`frazil flush`: has a running stream land now what its topics hold."""

from __future__ import annotations

import click

from jobs.supervise.lifecycle import ActionResult
from jobs.supervise.stream_control import FLUSH_SECONDS, StreamControl
from orchestration.cli.durations import seconds_of
from orchestration.cli.recorded_runs import open_recorder
from orchestration.cli.terminal import current_user, print_json
from orchestration.jobs.control import ControlConfig, StreamAction, control_job_of, control_run_config, control_tags
from orchestration.jobs.runs import MAX_RUNTIME_TAG
from resources.deployment import Deployment


@click.command()
@click.argument("stream")
@click.option("--reason", default="asked on the command line", show_default=True, help="Kept with the action.")
@click.option(
    "--timeout",
    default=f"{FLUSH_SECONDS:.0f}s",
    show_default=True,
    callback=seconds_of,
    help="How long to wait for it; the driver goes on with it afterwards.",
)
@click.option("--json", "as_json", is_flag=True, help="Print what has landed as one JSON document.")
@click.pass_obj
def flush(deployment: Deployment, stream: str, reason: str, timeout: float, as_json: bool) -> None:
    """Land now what STREAM's topics hold, without waiting for the pause of its trigger; ends once it has landed.

    The stream's driver does it, in one batch or several, and goes on as before. What comes in meanwhile waits for the
    next batch.
    """
    config = ControlConfig(stream=stream, action=StreamAction.flush, reason=reason, by=current_user())

    def act(paths: Deployment, asked: ControlConfig) -> ActionResult:
        control = StreamControl(paths.home, paths.settings_file, asked.stream)
        return control.flush(asked.reason, asked.by, seconds=timeout, say=lambda line: click.echo(line, err=True))

    tags = {**control_tags(config), MAX_RUNTIME_TAG: str(int(timeout) + 300)}
    with open_recorder(deployment) as ledger:
        done, problem = ledger.run(control_job_of, act, config, control_run_config(config), tags)
    if problem:
        click.echo(f"{problem}; so there is no run of this in Dagster.", err=True)
    if as_json:
        print_json({"stream": stream, "sentence": done.sentence, **done.facts, "kept_as_run": problem is None})
    else:
        click.echo(done.sentence)
