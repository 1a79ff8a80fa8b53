"""Plan of `frazil run`: records that wait in a stream's topics by its newest stamp, without reading any."""

from __future__ import annotations

import time
from typing import Any

import click

from jobs.base.errors import FrazilError
from jobs.clients.catalog.catalog import NoCatalogYet, find_table, quick_catalog
from jobs.clients.catalog.translate import translate_errors
from jobs.clients.kafka.metadata import quick_kafka
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from orchestration.cli.common.terminal import print_error, print_json
from orchestration.reconcile.lag import lag_by_stamps
from resources.deployment import NO_STREAM_YET_FIX, Deployment


def plan_run(spec: StreamSpec, settings: Settings) -> dict[str, Any]:
    """Number of records that a run would land, as JSON.

    Raises:
        FrazilError: Kafka or the catalog does not answer, or no topic exists.
    """
    with translate_errors(settings, spec.stream):
        kafka = quick_kafka(settings.kafka.with_options(spec.source.options))
        try:
            with quick_catalog(settings) as catalog:
                found = lag_by_stamps(spec, find_table(catalog, spec.table.name), kafka, time.time())
        except NoCatalogYet:
            found = lag_by_stamps(spec, None, kafka, time.time())
    if found is None:
        raise FrazilError(f"stream {spec.stream}: there is no topic yet.", fix=f"frazil validate {spec.stream}")
    return {
        "stream": spec.stream,
        "table": spec.table.name,
        "done": False,
        "waiting": found.records,
        "undecided": found.undecided,
        "by_partition": found.by,
    }


def show_run_plan(deployment: Deployment, stream: str | None, *, as_json: bool) -> None:
    """Show what a run of a stream, or of all, would land; exit with status 1 if a plan fails."""
    settings = deployment.settings()
    if stream is not None:
        specs, problems = [deployment.stream(stream)], list[FrazilError]()
    else:
        specs, errors = deployment.streams()
        problems = list[FrazilError](errors)
    plans: list[dict[str, Any]] = []
    for spec in specs:
        try:
            plans.append(plan_run(spec, settings))
        except FrazilError as problem:
            problems.append(problem)
    if as_json:
        print_json(plans[0] if stream is not None and plans else {"runs": plans})
    elif not specs and not problems:
        click.echo(f"There are no streams in {deployment.streams_folder} yet.\n  Next: {NO_STREAM_YET_FIX}")
    else:
        for plan in plans:
            click.echo(f"{plan['stream']}: {plan['waiting']:,} records would be landed in {plan['table']}.")
        if plans:
            click.echo("Nothing was changed.")
    for problem in problems:
        print_error(problem)
    if problems:
        raise SystemExit(1)
