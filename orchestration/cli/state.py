"""`frazil state`: where the documents of a deployment's streams are, and copying them to another store."""

from __future__ import annotations

from pathlib import Path

import click

from jobs.errors import FrazilError
from jobs.spec.settings import Settings, load_settings
from jobs.state.document_copy import copy_documents
from jobs.state.lease_record import read_lease
from jobs.state.store_proof import prove_store
from jobs.state.stream_folder import state_store, stream_folder, streams_with
from jobs.supervise.actual import read_certain
from jobs.supervise.control_request import read_control
from jobs.supervise.groups import DriverGroup, known_groups
from jobs.supervise.launches import LAUNCH_KEY
from jobs.system.private_files import keep_private
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
@click.pass_obj
def copy(deployment: Deployment, to: Path) -> None:
    """Copy the documents of all streams to the store that other settings name, while none runs.

    Leases are left. Nothing is overwritten, and all of it is read back. The documents stay where they are.
    """
    settings = deployment.settings()
    others = load_settings(to.absolute(), home=deployment.home)
    source, target = state_store(settings), state_store(others)
    if source.place("") == target.place(""):
        raise FrazilError(
            f"{to} names the state that is in effect: {source.place('')}.",
            fix="write down another `state`: docs/state-store.md",
        )
    keep_private(others.state)
    try:
        prove_store(source)
        refuse_running(settings)
        prove_store(target)
        done = copy_documents(source, target)
        refuse_running(settings)
    except OSError as problem:
        raise FrazilError(
            f"A state store cannot be reached: {problem.strerror or problem}.", fix="run this again when it answers"
        ) from None
    click.echo(
        f"{done.documents:,} documents ({done.bytes:,} bytes) stand in {target.place('')} as in {source.place('')}; "
        f"all were read back. {done.leases} leases were left."
    )
    click.echo(f"  Next: put the `state` of {to} into the settings, then frazil start --all")


def refuse_running(settings: Settings) -> None:
    """Raise unless every stream is stopped, and no process holds one.

    Raises:
        FrazilError: Names the stream and who runs it.
    """
    whole = state_store(settings)
    # Also of what works on a stream beside its driver: replays, publications.
    leased = [key.rpartition("/")[0] for depth in ("*", "*/*") for key in whole.keys(f"streams/{depth}/lease-*.json")]
    for folder in sorted(set(leased)):
        name = "~".join(folder.split("/")[1:])
        lease = read_lease(whole.below(folder), name)
        if lease is not None and lease.held():
            raise FrazilError(
                f"stream {name} is run by process {lease.pid} on {lease.host}.",
                fix=f"frazil stop --all; wait for what else runs, or stop process {lease.pid}; then run this again",
            )
    for stream in streams_with(settings, LAUNCH_KEY):
        store = stream_folder(settings, stream).store
        actual = read_certain(store, stream)
        driver = actual.driver
        if driver is not None and not (driver.heartbeat is not None and driver.heartbeat.final):
            raise FrazilError(f"stream {stream} is run by {driver.name}.", fix="frazil stop --all")
        if read_control(store).mode != "stopped":
            raise FrazilError(
                f"stream {stream} is not stopped, so its supervisor may start it at any time.", fix="frazil stop --all"
            )
    for name in known_groups(settings):
        driver = DriverGroup.of(settings, name).actual().driver
        if driver is not None:
            raise FrazilError(
                f"the driver of group {name} ({driver.name}) has not ended yet.", fix="run this again in a moment"
            )
