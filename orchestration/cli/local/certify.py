"""`frazil certify`: kill the pipeline at every step, on the user's own brokers and catalog, and prove what it holds."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from jobs.base.errors import FrazilError
from jobs.clients.install.artifacts import resolve_jars
from jobs.clients.install.preflight import preflight
from jobs.clients.state_store.stream_folder import state_store
from jobs.local.certify.certificate import Certificate, new_id
from jobs.local.certify.certificate import certify as carry_out
from jobs.local.certify.report import (
    mirror_sentence,
    not_tried,
    refused_steps,
    report_facts,
    report_summary,
    report_verdict,
    seconds,
    where_it_ran,
    write_report,
)
from jobs.local.certify.results import CertificateResults
from jobs.local.certify.scenario_plan import Scenario, plan_scenarios, select_steps
from jobs.local.certify.workspace import Workspace, settings_shown
from orchestration.cli.common.interrupts import Interrupts
from orchestration.cli.common.options import json_option
from orchestration.cli.common.terminal import print_columns, print_json, stderr_console
from orchestration.cli.local.broker import local_broker
from resources.deployment import Deployment

_DEFAULT_STEPS = "all"
_SEEDS = 1_000_000


@click.command()
@click.option(
    "--settings",
    "settings_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The settings file to certify.  [default: as for all commands]",
)
@click.option(
    "--steps",
    default=_DEFAULT_STEPS,
    show_default=True,
    help="all, commit, a part such as recovery, or names of steps, several with commas.",
)
@click.option(
    "--runs",
    type=click.IntRange(1),
    default=3,
    show_default=True,
    help="Kills at each step of the commit path; a third as many at the others.",
)
@click.option("--seed", type=click.IntRange(0), help="The same seed makes the same trials.  [default: a new one]")
@click.option(
    "--records", type=click.IntRange(20), default=1000, show_default=True, help="To produce before every start."
)
@click.option(
    "--report",
    type=click.Path(file_okay=False, path_type=Path),
    help="The folder for the reports.  [default: .frazil/certificates]",
)
@click.option("--keep", is_flag=True, help="Leave topic, tables and files as they are in the end.")
@json_option("Print the JSON report, and nothing else there.")
@click.pass_obj
def certify(
    deployment: Deployment,
    settings_file: Path | None,
    steps: str,
    runs: int,
    seed: int | None,
    records: int,
    report: Path | None,
    keep: bool,
    as_json: bool,
) -> None:
    """Kill drivers at every failpoint of the protocol, and prove that no record is lost or doubled.

    It works on the brokers, the catalog, the state store and the Spark master of the settings, with a topic, tables,
    state and a folder of its own. It removes them in the end, and touches nothing else. If anything is wrong, the exit
    status is 1, and everything is left for inspection.
    """
    names = select_steps(steps)
    preflight()
    if settings_file is not None:
        deployment = Deployment.at(deployment.home, settings_file)
    seed = random.randrange(_SEEDS) if seed is None else seed
    scenarios = plan_scenarios(names, runs, seed)
    if refused := refused_steps(deployment.settings(), scenarios):
        raise FrazilError(
            f"{', '.join(refused)}: kills executors of a cluster, and these settings' drivers have none.",
            fix="frazil certify --settings FILE, with spark.master of a cluster there",
        )
    run = new_id()
    console = stderr_console()
    resolve_jars("spark", on_progress=lambda line: console.print(line, markup=False))
    with Interrupts() as interrupts, _broker(deployment, interrupts):
        settings = deployment.prepared_settings()
        console.print(f"certificate {run}: {len(scenarios)} trials, seed {seed}", markup=False)
        progress = _Progress(console, scenarios)
        done = carry_out(
            settings,
            run,
            scenarios,
            seed=seed,
            records=records,
            keep=keep,
            on_progress=progress.show,
            on_cleaning=interrupts.ignore,
        )
        repeat = _repeat(steps, runs, seed, records, settings_file)
        facts = report_facts(
            done.outcome,
            run=run,
            seed=seed,
            repeat=repeat,
            settings=settings_shown(done.settings) | {"tables_in": done.tables_in},
            not_tried=not_tried(done.settings, scenarios),
        )
        folder = report or deployment.embedded / "certificates"
        markdown, document = write_report(folder, facts, done.outcome)
        if as_json:
            print_json(facts)
        else:
            _print(Console(highlight=False), done.outcome, facts)
        _print_ending(console, done, facts, markdown, document)
    click.get_current_context().exit(0 if done.outcome.passed and not done.left else 1)


@contextlib.contextmanager
def _broker(deployment: Deployment, interrupts: Interrupts) -> Iterator[None]:
    """The local broker, if the settings want it; ended when the block is left, if it did not run before."""
    broker = local_broker(deployment) if deployment.settings().kafka.is_embedded else None
    if broker is None or broker.status().running:
        yield
        return
    # Here Ctrl-C may interrupt, while below it waits.
    resolve_jars("broker", on_progress=lambda line: click.echo(line, err=True))
    try:
        with interrupts.deferred():
            broker.start()
        yield
    finally:
        interrupts.ignore()
        broker.stop()


class _Progress:
    """A line for each trial, with about how long it all takes."""

    def __init__(self, console: Console, scenarios: list[Scenario]) -> None:
        self._console: Console = console
        self._count: int = len(scenarios)
        self._told: int = 0
        self._began: float = time.monotonic()

    def show(self, number: int, step: str, _waits_for: str) -> None:
        """Show what is under way."""
        if number == self._told:
            return
        self._told = number
        elapsed = time.monotonic() - self._began
        which = f"trial {number} of {self._count}: {step}" if number <= self._count else step
        left = f", about {elapsed / (number - 1) * (self._count + 1 - number):.0f} s left" if number > 1 else ""
        self._console.print(f"{which} ({elapsed:.0f} s{left})", markup=False)


def _repeat(steps: str, runs: int, seed: int, records: int, settings_file: Path | None) -> str:
    settings = f" --settings {settings_file}" if settings_file else ""
    return f"frazil certify --seed {seed} --steps {steps} --runs {runs} --records {records}{settings}"


def _print(console: Console, outcome: CertificateResults, facts: dict[str, Any]) -> None:
    rows, colours = list(outcome.rows()), {"pass": "green", "FAIL": "bold red"}
    words = [report_verdict(row) for row in rows]
    print_columns(
        ("step", "part", "kills", "result", "median s", "worst s", "replayed"),
        [
            (row.step, row.kind, row.kills, word, seconds(row.median), seconds(row.worst), row.replayed)
            for row, word in zip(rows, words, strict=True)
        ],
        text={"step", "part", "result"},
        optional=("part", "median s"),
        styles={(number, "result"): colours.get(word, "dim") for number, word in enumerate(words)},
    )
    console.print(report_summary(facts), markup=False, soft_wrap=True)
    console.print(f"It ran with {where_it_ran(facts['settings'])}.", markup=False, soft_wrap=True)
    if facts["audit"]:
        console.print(f"frazil audit: {facts['audit']}", markup=False, soft_wrap=True)
    if facts["mirror_snapshots"]:
        console.print(mirror_sentence(facts), markup=False, soft_wrap=True)
    for problem in facts["problems"]:
        console.print(f"  {problem}", markup=False, soft_wrap=True, style="red")


def _state_of(workspace: Workspace) -> str:
    """The place of the state, if that is not in the folder."""
    if workspace.settings.state_store is None:
        return ""
    return f"state in {state_store(workspace.settings).place('')}, "


def _print_ending(console: Console, done: Certificate, facts: dict[str, Any], markdown: Path, document: Path) -> None:
    console.print(f"Reports: {markdown}, {document.name}", markup=False)
    for workspace in done.kept:
        console.print(
            f"Left as it is: topic {workspace.name}, namespace {workspace.name} in catalog "
            f"{workspace.settings.catalog.name}, {_state_of(workspace)}folder {workspace.folder}",
            markup=False,
        )
    for each in done.left:
        console.print(f"Not removed: {each}", markup=False)
    if not done.outcome.passed:
        console.print(f"FAILED. The same again: {facts['repeat']}", markup=False, style="bold red")
