"""Command `frazil apply`: does what a plan says and is safe, tables first, then drivers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import click

from jobs.base.errors import FrazilError
from jobs.config.settings.settings import Settings
from orchestration.cli.common.consent import consent, show_plan
from orchestration.cli.common.options import dry_run_option, json_option, streams_argument, yes_option
from orchestration.cli.common.recorded_runs import open_recorder
from orchestration.cli.common.terminal import current_user, print_error, print_json
from orchestration.cli.streams.control import begin_controls, carry_out_control, streams_by_driver
from orchestration.cli.streams.plan.output import change_sentence, print_plan, refusal, summary
from orchestration.deployment_plan.change import Saved, StepAction
from orchestration.deployment_plan.plan import make_plan
from orchestration.deployment_plan.shown_files import ShownFiles
from orchestration.deployment_plan.steps import OF_TABLES, Step, change_table, refuse_new_changes, steps_of
from orchestration.jobs.control import ControlConfig, StreamAction
from resources.deployment import Deployment

_REASON = "frazil apply"
_CONTROLS = {
    StepAction.START: StreamAction.ensure_running,
    StepAction.ROLL: StreamAction.roll,
    StepAction.END: StreamAction.end,
}


@click.command()
@streams_argument()
@click.option(
    "--plan",
    "plan_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Apply this plan, as `frazil plan --json` has printed it; refused if more would be done now.",
)
@click.option("--reason", default=_REASON, show_default=True, help="Kept with the actions.")
@dry_run_option("Show what would be done, in its order, and do nothing.")
@yes_option()
@json_option("Print what has come of each step as one JSON document; does nothing without --yes.")
@click.pass_obj
def apply(
    deployment: Deployment,
    streams: tuple[str, ...],
    plan_file: Path | None,
    reason: str,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Carry out what `frazil plan` shows of STREAMS, or of all: alter tables, then start, replace or end drivers.

    Shows the plan and asks. Refused as a whole if it has a reset or a breaking change, if a file has problems, or if a
    table or service could not be read. Streams that an operator has paused or stopped stay so. After Ctrl-C, or a
    failure, the same command goes on, and repeats nothing.
    """
    files = ShownFiles(deployment)
    made = make_plan(deployment, streams)
    if (problem := refusal(made)) is not None:
        raise problem
    if plan_file is not None:
        saved = read_plan(plan_file)
        refuse_new_changes((_named(each.stream, change_sentence(each)) for each in saved.new_in(made)), saved.made_at)
    steps = steps_of(made)
    if not as_json:
        print_plan(made, everything=bool(streams))
    if not steps:
        if as_json:
            print_json({"done": not made.pending, "summary": summary(made), "steps": []})
        elif made.pending:
            click.echo("frazil apply has nothing to do for it.")
        return
    show_plan((f"{number}. {_shown(each)}" for number, each in enumerate(steps, 1)), as_json=as_json)
    if dry_run or (as_json and not yes):
        if as_json:
            print_json({"done": False, "summary": summary(made), "steps": [_facts(each, None) for each in steps]})
        else:
            click.echo("Nothing was changed.")
        return
    consent("Do it?", yes=yes)
    settings = deployment.settings()
    files.refuse_changed({each.stream for each in steps}, "Nothing was applied.", _again(streams))
    facts = _carried_out(deployment, settings, files, steps, reason, as_json=as_json)
    done = all(each["done"] for each in facts)
    if as_json:
        print_json({"done": done, "summary": summary(made), "steps": facts})
    if not done:
        raise SystemExit(1)


def read_plan(file: Path) -> Saved:
    """A plan that was saved.

    Raises:
        FrazilError: The file holds none, or one that compares files.
    """
    fix = "frazil plan --json > plan.json"
    try:
        saved = Saved.of(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise FrazilError(f"{file} is no plan, as `frazil plan --json` prints it.", fix=fix) from None
    if saved.against is not None:
        said = f"{file} compares files with {saved.against}, and contains nothing about live streams."
        raise FrazilError(said, fix=fix)
    return saved


def _named(stream: str | None, sentence: str) -> str:
    return f"{stream}: {sentence}" if stream else sentence


def _shown(step: Step) -> str:
    return f"{step.stream}: {step.shown}"


def _again(streams: Iterable[str]) -> str:
    return " ".join(["frazil apply", *streams])


def _carried_out(
    deployment: Deployment, settings: Settings, files: ShownFiles, steps: list[Step], reason: str, *, as_json: bool
) -> list[dict[str, Any]]:
    """Carry the steps out. If a stream's table fails, its driver stays as it is; the other streams go on."""
    outcomes: dict[Step, str | FrazilError] = {}
    drivers = [each for each in steps if each.action not in OF_TABLES]
    for step, outcome in chain(
        _changed_tables(deployment, settings, files, [each for each in steps if each.action in OF_TABLES]),
        _controlled(deployment, lambda: [each for each in drivers if not _failed(each.stream, outcomes)], reason),
    ):
        outcomes[step] = outcome
        if as_json:
            continue
        if isinstance(outcome, FrazilError):
            print_error(outcome)
        else:
            click.echo(outcome)
    return [_facts(each, outcomes.get(each)) for each in steps]


def _failed(stream: str, outcomes: Mapping[Step, str | FrazilError]) -> bool:
    return any(step.stream == stream and isinstance(outcome, FrazilError) for step, outcome in outcomes.items())


def _changed_tables(
    deployment: Deployment, settings: Settings, files: ShownFiles, steps: Iterable[Step]
) -> Iterator[tuple[Step, str | FrazilError]]:
    for step in steps:
        try:
            spec = deployment.stream(step.stream)
            files.refuse_changed([step.stream], f"Table {step.table} was not changed.", _again([step.stream]))
            said = list(change_table(spec, settings, step, current_user()))
        except FrazilError as problem:
            yield step, problem
        else:
            yield step, f"{step.stream}: {'; '.join(said) or f'table {step.table} matches the file already'}"


def _controlled(
    deployment: Deployment, steps: Callable[[], list[Step]], reason: str
) -> Iterator[tuple[Step, str | FrazilError]]:
    """Start, replace or end drivers by the supervisor's actions, which leave the operator's word as it is.

    Args:
        steps: Gives the steps, once the tables are changed.
    """
    chosen = {each.stream: each for each in steps()}
    if not chosen:
        return
    by = current_user()
    with open_recorder(deployment) as recorder:
        for together in streams_by_driver(deployment, list(chosen)):
            configs = [
                ControlConfig(
                    stream=stream,
                    action=_CONTROLS[chosen[stream].action],
                    reason=reason,
                    by=by,
                    generation=chosen[stream].generation or "",
                )
                for stream in together
            ]
            for config, act in zip(configs, begin_controls(deployment, configs), strict=True):
                try:
                    done, problem = carry_out_control(recorder, config, act)
                except FrazilError as failed:
                    yield chosen[config.stream], failed
                    continue
                yield chosen[config.stream], done.sentence
                if problem:
                    click.echo(f"{problem}; so there is no run of this in Dagster.", err=True)


def _facts(step: Step, outcome: str | FrazilError | None) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "stream": step.stream,
        "step": step.action.value,
        "table": step.table or None,
        "changes": list(step.sentences),
    }
    if isinstance(outcome, FrazilError):
        return {**facts, "done": False, "sentence": outcome.message, "next": outcome.fix}
    return {**facts, "done": outcome is not None, "sentence": outcome, "next": None}
