"""Guard of a reset: whether the stream is stopped, and its tables are the ones that it wrote."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from pyiceberg.catalog import Catalog

from jobs.commit.errors import table_gone
from jobs.commit.reset import ResetRefusedError, complete_positions
from jobs.commit.target import Target
from jobs.spec.models import StreamSpec
from jobs.spec.settings import Settings
from jobs.state.stream_folder import StreamFolder, stream_folder
from jobs.stream.open_stream import known_targets
from jobs.stream.source_topics import coordinator_stamp
from jobs.supervise.actual import read_certain
from jobs.supervise.control_request import LOCK, read_control
from jobs.supervise.launchers.choice import looker
from jobs.system.locks import exclusive
from jobs.system.private_files import private_folder

_LOCK_SECONDS = 120.0


@contextlib.contextmanager
def control_lock(folder: StreamFolder, stream: str) -> Iterator[None]:
    """Guard a reset with the stream's control lock, so that nobody starts the stream meanwhile.

    Raises:
        ResetRefusedError: Another control action keeps it.
    """
    private_folder(folder.root)
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(exclusive(folder.root / LOCK, deadline_seconds=_LOCK_SECONDS))
        except TimeoutError:
            raise ResetRefusedError(
                f"stream {stream}: another control action is at work.", fix="wait for it to end, then run this again"
            ) from None
        yield


def reset_refusal(spec: StreamSpec, settings: Settings) -> ResetRefusedError | None:
    """Why the stream's offsets must not be moved now: it runs, or is wanted to; None if it is stopped."""
    store = stream_folder(settings, spec.stream).store
    stop = f"frazil stop {spec.stream} --reason 'reset offsets'"
    actual = read_certain(store, spec.stream, looker(settings))
    if actual.lease.state == "live":
        return ResetRefusedError(
            f"stream {spec.stream} is run by {actual.lease.name}; offsets are reset while it is stopped.",
            fix=stop if spec.continuous else f"wait for process {actual.lease.pid} to end, then run this again",
        )
    if not spec.continuous:
        return None
    beat = actual.heartbeat
    if beat and not beat.final and actual.process:
        return ResetRefusedError(
            f"stream {spec.stream}: its driver, process {beat.pid}, is {beat.state}; offsets are reset while it is "
            "stopped.",
            fix=stop,
        )
    if read_control(store).mode == "running":
        return ResetRefusedError(
            f"stream {spec.stream} is wanted running, so a driver may start at any moment; offsets are reset while it "
            "is stopped.",
            fix=stop,
        )
    return None


def existing_targets(spec: StreamSpec, catalog: Catalog, remembered: Mapping[str, str]) -> dict[str, Target]:
    """The tables of a stream to be reset, the anchor first, read and known to be the ones it wrote; none is created.

    Args:
        remembered: Uuids by name, from the lease.

    Raises:
        ResetRefusedError: The stream has never run.
        StreamStopped: A table was rolled back, dropped or recreated; the message names the answer.
    """
    coordinator = coordinator_stamp(spec, catalog)
    names = [name for name in spec.target_names if coordinator is None or name not in coordinator.parked]
    missing = [name for name in names if not catalog.table_exists(name)]
    if missing and not remembered:
        complete_positions(spec.stream, {}, spec.coordinator)
    for name in missing:
        raise table_gone(spec.stream, name)
    return known_targets(spec, catalog, remembered)
