"""Stream files of a deployment, parsed once per version, and the ids of all streams that have a file or state."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

from jobs.clients.state_store.stream_folder import state_store, streams_with
from jobs.config.documents.validation import SpecError
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.streaming.supervision.documents.heartbeat import KEY as HEARTBEAT
from jobs.streaming.supervision.documents.launches import LAUNCH_KEY
from jobs.streaming.supervision.state.desired import StreamFiles, file_stamp, stream_files
from jobs.streaming.supervision.state.observation import observe
from resources.deployment import Deployment

# When the streams of each store were listed, by its place: listing costs some requests to a service.
_KEPT: dict[str, tuple[float, tuple[str, ...]]] = {}
_KEPT_SECONDS = 60.0


def read_files(deployment: Deployment) -> StreamFiles:
    """The stream files of a deployment as they are now. Each version of the folder is parsed once."""
    folder = deployment.streams_folder
    try:
        found = [path for path in folder.iterdir() if path.suffix in (".yaml", ".yml") and not _is_lock(path)]
        stamps = tuple(sorted((path.name, *file_stamp(path)) for path in found))
    except OSError as problem:
        _, errors = deployment.streams()
        return StreamFiles({}, tuple(errors), absence=f"the folder {folder} cannot be read ({problem.strerror})")
    return _parsed(deployment, stamps)


def _is_lock(path: Path) -> bool:
    """Whether a file is the lock of an editor: Emacs marks a file that it edits with a link `.#NAME` to nowhere."""
    return path.name.startswith(".#") and path.is_symlink() and not path.exists()


# A cache, not a memory: a code server that starts reads the files once more.
@lru_cache(maxsize=4)
def _parsed(deployment: Deployment, stamps: tuple[object, ...]) -> StreamFiles:
    return stream_files(deployment.streams_folder, *deployment.streams())


def stream_ids(files: StreamFiles, settings: Settings) -> list[str]:
    """Ids of the streams with a file or a state folder, in order."""
    ids = {*files.specs, *files.claimed}
    with contextlib.suppress(OSError):
        ids.update(_kept_streams(settings))
    return sorted(ids)


def _kept_streams(settings: Settings) -> Iterable[str]:
    """The streams with state in the store; of a shared store as listed within the last minute."""
    store, now = state_store(settings), time.monotonic()
    at, known = _KEPT.get(store.place(""), (-_KEPT_SECONDS, ()))
    if not store.shared or now - at >= _KEPT_SECONDS:
        known = (*streams_with(settings, LAUNCH_KEY), *streams_with(settings, HEARTBEAT))
        _KEPT[store.place("")] = now, known
    return known


def as_launched(
    specs: Sequence[StreamSpec], errors: Sequence[SpecError], settings: Settings, deployment: Deployment
) -> list[StreamSpec]:
    """The streams of broken files as they were launched last, unless another stream has their tables by now."""
    files = stream_files(deployment.streams_folder, specs, errors)
    taken = {table for spec in specs for table in spec.target_names}
    shown: list[StreamSpec] = []
    for stream in stream_ids(files, settings):
        desired = observe(stream, files, settings).desired if stream not in files.specs else None
        if desired is None or desired.file != "invalid" or desired.spec is None:
            continue
        tables = {*desired.spec.target_names}
        if desired.spec.stream == stream and not tables & taken:
            taken |= tables
            shown.append(desired.spec)
    return shown
