"""Commands `frazil state …`: copies the state documents of a deployment's streams to another store."""

from __future__ import annotations

import errno
import shlex
from collections.abc import Iterator
from pathlib import Path

import click

from jobs.base.errors import FrazilError
from jobs.base.system.private_files import keep_private
from jobs.clients.state_store.document_copy import copy_documents, documents_of
from jobs.clients.state_store.lease_record import read_lease
from jobs.clients.state_store.store_proof import prove_store
from jobs.clients.state_store.stream_folder import state_store, stream_folder, streams_with
from jobs.config.settings.settings import Settings, load_settings
from jobs.streaming.supervision.documents.control_request import KEY, read_control
from jobs.streaming.supervision.documents.launches import LAUNCH_KEY
from jobs.streaming.supervision.processes.actual import read_certain
from jobs.streaming.supervision.processes.groups import DriverGroup, known_groups
from orchestration.cli.common.options import dry_run_option, json_option
from orchestration.cli.common.terminal import print_json
from resources.deployment import Deployment


@click.group()
def state() -> None:
    """The documents that streams keep outside their tables."""


@state.command()
@click.option(
    "--to",
    "to",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    required=True,
    help="Settings like those in effect, but for their `state`: it names the other store.",
)
@dry_run_option("Look whether it can be done, and change nothing.")
@json_option()
@click.pass_obj
def copy(deployment: Deployment, to: Path, dry_run: bool, as_json: bool) -> None:
    """Copy the documents of all streams to the store that other settings name, while none runs.

    Leases are left. Nothing is overwritten, and all of it is read back. The documents stay where they are.
    """
    settings = deployment.settings()
    others = load_settings(to.absolute(), home=deployment.home)
    source, target = state_store(settings), state_store(others)
    if _where(settings) == _where(others):
        raise FrazilError(
            f"{to} names the state that is in effect: {source.place('')}.",
            fix=f"write another store into {to}, such as state: {{store: s3://bucket/frazil}}",
        )
    if dry_run:
        refuse_running(deployment, settings)
        documents = len(documents_of(source))
        if as_json:
            print_json({"from": source.place(""), "to": target.place(""), "documents": documents, "done": False})
        else:
            click.echo(f"{documents:,} documents would be copied from {source.place('')} to {target.place('')}.")
            click.echo("Nothing was changed.")
        return
    keep_private(others.state)
    try:
        prove_store(source)
        refuse_running(deployment, settings)
        prove_store(target)
        done = copy_documents(source, target)
        refuse_running(deployment, settings)
        restarts = list(_restarts(deployment, settings))
    except OSError as problem:
        raise _unusable(problem) from None
    if as_json:
        facts = {"from": source.place(""), "to": target.place(""), "documents": done.documents, "bytes": done.bytes}
        print_json(facts | {"leases_left": done.leases, "restarts": restarts, "done": True})
        return
    click.echo(
        f"{done.documents:,} documents ({done.bytes:,} bytes) are in {target.place('')} as in {source.place('')}; all "
        f"were read back. {done.leases} leases were left."
    )
    click.echo(f"  Next: put the `state` of {to} into the settings. There, too, all streams are stopped; then")
    for line in restarts:
        click.echo(f"    {line}")


def _where(settings: Settings) -> tuple[str, str]:
    """Identity of a state store: its location, and the S3 endpoint, which the location does not name."""
    chosen = settings.state_store
    endpoint = chosen.revealed().get("s3.endpoint", "") if chosen is not None else ""
    return state_store(settings).place(""), endpoint.rstrip("/")


def _unusable(problem: OSError) -> FrazilError:
    """Error for a store that could not be read or written during a copy."""
    what = f"{problem.strerror or problem}{f' ({problem.filename})' if problem.filename else ''}"
    again = "then run this again: it continues with the existing copy"
    if problem.errno in (errno.ENOSPC, errno.EDQUOT):
        return FrazilError(f"There is no space for the copy: {what}.", fix=f"free space, {again}")
    if problem.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return FrazilError(f"A state store may not be used: {what}.", fix=f"give this user the right to, {again}")
    return FrazilError(f"A state store cannot be reached: {what}.", fix="run this again when it answers")


def _restarts(deployment: Deployment, settings: Settings) -> Iterator[str]:
    """Yield the commands that continue stopped streams, below a line with who stopped them and why; newest first."""
    specs = {spec.stream: spec for spec in deployment.streams()[0]}
    asked = {stream: read_control(stream_folder(settings, stream).store) for stream in streams_with(settings, KEY)}
    stops = dict[tuple[str, str], list[str]]()
    for stream, control in sorted(asked.items(), key=lambda each: -each[1].at):
        stops.setdefault((control.by, control.reason), []).append(stream)
    for (by, reason), streams in stops.items():
        yield f"what was stopped by {by or 'somebody'}{f': {reason}' if reason else ''}"
        mine = sorted(streams)
        known = [stream for stream in mine if stream in specs]
        going = [stream for stream in known if asked[stream].paused is None]
        for command, chosen in (
            ("start", [stream for stream in going if specs[stream].continuous]),
            ("resume", [stream for stream in going if not specs[stream].continuous]),
        ):
            if chosen:
                yield f"  frazil {command} {' '.join(chosen)}"
        for stream in known:
            if (why := asked[stream].paused) is not None:
                yield f"  frazil pause {stream} --reason {shlex.quote(why)}"
        for stream in mine:
            if stream not in specs:
                yield f"  {stream} has no file that can be read, and stays stopped"


def refuse_running(deployment: Deployment, settings: Settings) -> None:
    """Refuse unless every stream is stopped, even one that was never launched, and no process works on one.

    Raises:
        FrazilError: A stream is not stopped, or a process works on it; the message names both.
    """
    whole = state_store(settings)
    # Replays and publications, which work on a stream beside its driver, have leases, too.
    leased = [key.rpartition("/")[0] for depth in ("*", "*/*") for key in whole.keys(f"streams/{depth}/lease-*.json")]
    for folder in sorted(set(leased)):
        name = "~".join(folder.split("/")[1:])
        lease = read_lease(whole.below(folder), name)
        if lease is not None and lease.held():
            raise FrazilError(
                f"stream {name} is run by process {lease.pid} on {lease.host}.",
                fix=f"frazil stop --all; wait for what else runs, or stop process {lease.pid}; then run this again",
            )
    # A schedule of Dagster may run streams that were never launched.
    declared = {spec.stream for spec in deployment.streams()[0]}
    for stream in sorted(declared.union(streams_with(settings, LAUNCH_KEY))):
        store = stream_folder(settings, stream).store
        actual = read_certain(store, stream)
        driver = actual.driver
        if driver is not None and not (driver.heartbeat is not None and driver.heartbeat.final):
            raise FrazilError(f"stream {stream} is run by {driver.name}.", fix="frazil stop --all")
        if read_control(store).mode != "stopped":
            raise FrazilError(
                f"stream {stream} is not stopped, so it may be started at any time.", fix="frazil stop --all"
            )
    for name in known_groups(settings):
        driver = DriverGroup.of(settings, name).actual().driver
        if driver is not None:
            raise FrazilError(
                f"the driver of group {name} ({driver.name}) has not ended yet.", fix="run this again in a moment"
            )
