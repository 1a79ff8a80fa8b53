"""Command `frazil status`: state, lag, rate, last commit and last error of the streams."""

from __future__ import annotations

import click

from jobs.base.errors import FrazilError
from orchestration.cli.common.options import json_option, streams_argument
from orchestration.cli.common.terminal import print_error, print_json
from orchestration.cli.streams.status.mirrors import mirror_lines
from orchestration.cli.streams.status.output import print_details, print_table, troubles
from orchestration.cli.streams.status.report import Looks, status_report
from orchestration.cli.streams.status.watch import WATCH_SECONDS, watch_status
from resources.deployment import NO_STREAM_YET_FIX, Deployment

# Exit status 1 is a failed command, 2 a wrong command line.
NEEDS_SOMEBODY = 3
NOT_KNOWN = 4


@click.command()
@streams_argument()
@json_option()
@click.option(
    "--check",
    is_flag=True,
    help=f"End with status {NEEDS_SOMEBODY} if a person has to act, {NOT_KNOWN} if something is unknown.",
)
@click.option(
    "--watch",
    is_flag=False,
    flag_value="",
    default=None,
    metavar="[SECONDS]",
    help=f"Refresh in place until Ctrl-C, every {WATCH_SECONDS:g} seconds by default; as `frazil watch`.",
)
@click.pass_obj
def status(deployment: Deployment, streams: tuple[str, ...], as_json: bool, check: bool, watch: str | None) -> None:
    """Show every stream on one line, or all details of STREAMS. Needs neither the broker nor a JVM.

    If a driver runs, its last heartbeat is shown. Tables and topics are read if none runs, and for the named streams.
    The table of a stream that writes, audits and publishes is always read.
    """
    if watch is not None:
        if check:
            raise FrazilError("--check ends at once, and --watch goes on.", fix="frazil status --check")
        seconds, streams = _watched(watch, streams)
        watch_status(deployment, streams, seconds, as_json=as_json)
        return
    settings = deployment.settings()
    looks = Looks(settings)
    report = status_report(deployment, settings, streams, looks)
    if as_json:
        print_json(report.facts)
    elif streams:
        for found in report.statuses:
            print_details(found, report.supervision)
            for line in mirror_lines(report.listed[found.stream][1], settings, looks.catalog):
                click.echo(f"  {line}")
    else:
        if report.statuses:
            print_table(list(report.statuses))
        elif not report.errors:
            click.echo(f"There are no streams in {deployment.streams_folder} yet.\n  Next: {NO_STREAM_YET_FIX}")
        for stream, problems in report.mirrors.items():
            for sentence, fix in problems:
                click.secho(f"! {stream}: {sentence}", fg="red")
                click.echo(f"  Next: {fix}")
        if report.unsupervised:
            click.echo(f"! supervision: {report.supervision}")
        for error in report.errors:
            print_error(error)
    if report.broken:
        raise SystemExit(1)
    if check and (report.unsupervised or any(report.mirrors.values()) or any(map(troubles, report.statuses))):
        raise SystemExit(NEEDS_SOMEBODY)
    if check and any(each.unknown for each in report.statuses):
        raise SystemExit(NOT_KNOWN)


def _watched(watch: str, streams: tuple[str, ...]) -> tuple[float, tuple[str, ...]]:
    """Seconds between two refreshes, and the streams; a value of --watch that is no number is a stream's id."""
    try:
        seconds = float(watch) if watch else WATCH_SECONDS
    except ValueError:
        return WATCH_SECONDS, (watch, *streams)
    if not 0.1 <= seconds <= 86_400:
        raise FrazilError(f"--watch {watch}: that is no time between two looks.", fix="frazil status --watch 2")
    return seconds, streams
