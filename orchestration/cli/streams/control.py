"""Commands `frazil start`, `stop`, `pause`, `resume`, `restart` and `flush`: an operator's control of streams."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeAlias

import click

from jobs.base.errors import FrazilError
from jobs.base.system.threads import background_thread
from jobs.clients.state_store.store import StateStore
from jobs.clients.state_store.stream_folder import stream_folder, streams_with
from jobs.config.documents.validation import SpecError
from jobs.config.settings.groups import group_of
from jobs.streaming.supervision.control.lifecycle import ActionResult
from jobs.streaming.supervision.control.stream_control import FLUSH_SECONDS, StreamControl
from jobs.streaming.supervision.documents.control_request import read_control
from jobs.streaming.supervision.documents.launches import LAUNCH_KEY
from jobs.streaming.supervision.processes.actual import read_certain
from orchestration.cli.common.durations import seconds_of
from orchestration.cli.common.options import (
    dry_run_option,
    json_option,
    stream_argument,
    streams_argument,
)
from orchestration.cli.common.recorded_runs import RunRecorder, open_recorder
from orchestration.cli.common.terminal import (
    current_user,
    print_doubts,
    print_error,
    print_json,
)
from orchestration.jobs.control import (
    MAX_RUNTIME_SECONDS,
    ControlConfig,
    StreamAction,
    control_job_of,
    control_run_config,
    control_tags,
    perform_control,
)
from orchestration.jobs.runs import MAX_RUNTIME_TAG
from resources.deployment import Deployment

_TOGETHER = 8
_STARTING = (StreamAction.start, StreamAction.resume, StreamAction.restart)
_WOULD = {
    StreamAction.start: "would run by its file",
    StreamAction.stop: "would end after its batch, and start no more",
    StreamAction.pause: "would keep its driver, and read nothing",
    StreamAction.resume: "would go on",
    StreamAction.restart: "would end after its batch, and start again",
    StreamAction.flush: "would land at once all records in its topics",
}
Act: TypeAlias = Callable[[Deployment, ControlConfig], ActionResult]


def _command(action: StreamAction, text: str) -> click.Command:
    @click.command(action.value, help=text)
    @streams_argument()
    @click.option("--all", "every", is_flag=True, help="All streams of the deployment.")
    @click.option("--reason", default="asked on the command line", show_default=True, help="Kept with the action.")
    @dry_run_option()
    @json_option("Print what came of it as one JSON document.")
    @click.pass_obj
    def command(
        deployment: Deployment, streams: tuple[str, ...], every: bool, reason: str, dry_run: bool, as_json: bool
    ) -> None:
        deployment.require()
        chosen, unread = _chosen(deployment, streams, action, every=every)
        if dry_run:
            _show_plan(deployment, chosen, action, as_json=as_json)
            return
        by = current_user()
        if action in _STARTING:
            with contextlib.suppress(FrazilError):
                print_doubts(deployment.settings())
        facts: list[dict[str, Any]] = []
        unkept: dict[str, None] = {}
        with open_recorder(deployment) as ledger:
            for together in streams_by_driver(deployment, chosen):
                configs = [ControlConfig(stream=stream, action=action, reason=reason, by=by) for stream in together]
                for config, act in zip(configs, begin_controls(deployment, configs), strict=True):
                    done: ActionResult | FrazilError
                    try:
                        done, problem = carry_out_control(ledger, config, act)
                    except FrazilError as error:
                        done, problem = error, ledger.problem
                    if problem:
                        unkept[problem] = None
                    facts.append(_facts(config.stream, action, done, problem))
                    if not as_json:
                        _say(done)
        for problem in unkept:
            click.echo(f"{problem}; so there is no run of this in Dagster.", err=True)
        if as_json:
            print_json({"actions": facts})
        # A stream is stopped or paused without its file; it does not start without one.
        if not all(fact["done"] for fact in facts) or (unread and action in _STARTING):
            raise SystemExit(1)

    return command


def carry_out_control(
    ledger: RunRecorder, config: ControlConfig, act: Act = perform_control
) -> tuple[ActionResult, str | None]:
    """Carry a control action out, as a run if possible.

    Returns:
        Result of the action, and the reason why Dagster has no run of it; None if it has one.

    Raises:
        FrazilError: The action failed.
    """
    tags = {**control_tags(config), MAX_RUNTIME_TAG: str(MAX_RUNTIME_SECONDS)}
    return ledger.run(control_job_of, act, config, control_run_config(config), tags)


def _chosen(
    deployment: Deployment, streams: tuple[str, ...], action: StreamAction, *, every: bool
) -> tuple[list[str], list[SpecError]]:
    """The streams to act on, and the errors of files that name further ones."""
    if bool(streams) == every:
        raise FrazilError(
            "Name the streams, or give --all, not both." if streams else "Name at least one stream, or give --all.",
            fix=f"frazil {action.value} --all",
        )
    if streams:
        return list(dict.fromkeys(streams)), []
    specs, errors = deployment.streams()
    for error in errors:
        print_error(error)
    found = [
        spec.stream for spec in specs if spec.continuous or action not in (StreamAction.start, StreamAction.restart)
    ]
    # A stream without a valid file can be stopped, too, as its state folder remains.
    settings = deployment.settings()
    if action is StreamAction.restart:
        stopped = [stream for stream in found if _is_stopped(stream_folder(settings, stream).store)]
        for stream in stopped:
            click.echo(f"{stream} is stopped, and stays so; `frazil start {stream}` starts it", err=True)
        found = [stream for stream in found if stream not in stopped]
    left = streams_with(settings, LAUNCH_KEY)
    if action in (StreamAction.stop, StreamAction.pause):
        found += [stream for stream in left if stream not in {spec.stream for spec in specs}]
    return found, errors


def _show_plan(deployment: Deployment, streams: list[str], action: StreamAction, *, as_json: bool) -> None:
    """Show the state of streams, and the effect that an action would have.

    Raises:
        FrazilError: A stream does not exist, or its state is uncertain.
    """
    settings, plans = deployment.settings(), list[dict[str, Any]]()
    launched = {*streams_with(settings, LAUNCH_KEY)}
    for stream in streams:
        if stream not in launched:
            deployment.stream(stream)
        store = stream_folder(settings, stream).store
        driver, mode = read_certain(store, stream).driver, read_control(store).mode
        driven = f"is driven by {driver.name}" if driver else "has no driver"
        sentence = f"{stream} {_WOULD[action]}. It {driven}; its desired state is {mode}. Nothing was changed."
        plans.append(
            {"stream": stream, "action": action.value, "done": False, "mode": mode, "driver": driver and driver.name}
            | {"sentence": sentence}
        )
    if as_json:
        print_json({"actions": plans})
        return
    for plan in plans:
        click.echo(plan["sentence"])


def streams_by_driver(deployment: Deployment, streams: list[str]) -> list[list[str]]:
    """Batches of streams: the streams of one driver group together, every other stream alone."""
    if len(streams) == 1:
        return [streams]
    specs, _ = deployment.streams()
    settings = deployment.settings()
    groups = {spec.stream: group_of(spec, settings) for spec in specs}
    drivers = dict[tuple[str | None, str], list[str]]()
    for stream in streams:
        group = groups.get(stream)
        drivers.setdefault((group, "" if group else stream), []).append(stream)
    return list(drivers.values())


def begin_controls(deployment: Deployment, configs: list[ControlConfig]) -> list[Act]:
    """Functions that carry out the actions, one for each config. Several actions start at once, in threads.

    Only the main thread records runs, as Dagster's logging is global in a process. A thread ends with the process as if
    it were killed, which every action survives.
    """
    if len(configs) == 1:
        return [perform_control]
    outcomes, turns = [Future[ActionResult]() for _ in configs], threading.Semaphore(_TOGETHER)

    def perform(config: ControlConfig, outcome: Future[ActionResult]) -> None:
        with turns:
            try:
                outcome.set_result(perform_control(deployment, config))
            except BaseException as problem:
                outcome.set_exception(problem)

    for config, outcome in zip(configs, outcomes, strict=True):
        background_thread(perform, config.stream, config, outcome).start()
    return [lambda _, __, outcome=outcome: outcome.result() for outcome in outcomes]


def _is_stopped(store: StateStore) -> bool:
    with contextlib.suppress(FrazilError):
        return read_control(store).mode == "stopped"
    # The control document is damaged, which the action reports.
    return False


def _say(done: ActionResult | FrazilError) -> None:
    if isinstance(done, FrazilError):
        print_error(done)
    else:
        click.echo(done.sentence)


def _facts(stream: str, action: StreamAction, done: ActionResult | FrazilError, problem: str | None) -> dict[str, Any]:
    facts: dict[str, Any] = {"stream": stream, "action": action.value, "kept_as_run": problem is None}
    if isinstance(done, FrazilError):
        return {**facts, "done": False, "sentence": done.message, "next": done.fix}
    beat = done.heartbeat
    driver = beat and {
        "state": beat.state,
        "attempt": beat.attempt,
        "generation": beat.generation,
        "pid": beat.pid,
        "host": beat.host,
        "log": beat.log,
        "spark_ui": beat.ui_url,
        "metrics": beat.metrics_url,
    }
    return {**facts, "done": True, "sentence": done.sentence, "next": None, "driver": driver}


start = _command(StreamAction.start, "Run STREAMS by their files, also after they were stopped, paused or halted.")
stop = _command(StreamAction.stop, "End the drivers of STREAMS after their batch, and start none until `frazil start`.")
pause = _command(StreamAction.pause, "Keep the drivers of STREAMS, and let them read nothing until they are resumed.")
resume = _command(StreamAction.resume, "Let paused or stopped STREAMS go on.")
restart = _command(StreamAction.restart, "End the drivers of STREAMS after their batch, and start others.")


@click.command()
@stream_argument()
@click.option("--reason", default="asked on the command line", show_default=True, help="Kept with the action.")
@click.option(
    "--timeout",
    default=f"{FLUSH_SECONDS:.0f}s",
    show_default=True,
    callback=seconds_of,
    help="How long to wait for it; the driver goes on with it afterwards.",
)
@dry_run_option()
@json_option("Print what has landed as one JSON document.")
@click.pass_obj
def flush(deployment: Deployment, stream: str, reason: str, timeout: float, dry_run: bool, as_json: bool) -> None:
    """Land all present records of STREAM's topics now, without the trigger's pause; ends once they have landed.

    The stream's driver does it, in one batch or several, and goes on as before. Records that arrive meanwhile wait for
    the next batch.
    """
    deployment.require()
    if dry_run:
        _show_plan(deployment, [stream], StreamAction.flush, as_json=as_json)
        return
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
