"""Which streams a deployment has: by their files, and by what was launched and still runs without a good file."""

from __future__ import annotations

from pathlib import Path

from jobs.spec.loading import load_stream
from jobs.spec.models import StreamSpec
from jobs.spec.problems import SpecError
from jobs.spec.settings import Settings
from jobs.state.paths import stream_folder
from jobs.supervise.driver_process import find_driver
from jobs.supervise.launches import SPEC_FILE, read_launch
from jobs.supervise.wanted import Wanted, find_wanted
from resources.deployment import Deployment

# By stream: its spec, and what is wrong with its file if that is not where the spec is from.
Listed = dict[str, tuple[StreamSpec, SpecError | None]]


def list_streams(deployment: Deployment, settings: Settings) -> tuple[Listed, list[SpecError]]:
    """The streams, by id; and the bad files, also those of streams that could be listed."""
    specs, errors = deployment.streams()
    listed: Listed = {spec.stream: (spec, None) for spec in specs}
    folder = settings.state / "streams"
    for below in sorted(folder.iterdir()) if folder.is_dir() else ():
        if below.name not in listed and (kept := _as_launched(below)) is not None:
            problem = _problem_of(below, errors)
            if problem is not None:
                listed[below.name] = kept, problem
            elif find_driver(below, below.name, settings.lease_ttl.total_seconds()) is not None:
                gone = f"no file in {deployment.streams_folder} names the stream any more"
                listed[below.name] = kept, SpecError([gone], fix=f"frazil stop {below.name}")
    return dict(sorted(listed.items())), errors


def find_listed(deployment: Deployment, settings: Settings, stream: str) -> tuple[StreamSpec, SpecError | None]:
    """One stream, by its file or as it was launched last.

    Raises:
        FrazilError: There is no such stream, or its file has problems and it was never launched.
    """
    listed, _ = list_streams(deployment, settings)
    if stream in listed:
        return listed[stream]
    wanted: Wanted = find_wanted(deployment.streams_folder, stream_folder(settings, stream).root, stream)
    if wanted.error is not None and wanted.file is not None:
        raise wanted.error
    return deployment.stream(stream), None


def _as_launched(folder: Path) -> StreamSpec | None:
    try:
        return load_stream(folder / SPEC_FILE) if (folder / SPEC_FILE).exists() else None
    except SpecError:
        return None


def _problem_of(folder: Path, errors: list[SpecError]) -> SpecError | None:
    launch = read_launch(folder)
    for error in errors:
        if error.path is not None and (
            error.path.stem == folder.name or (launch is not None and launch.file == str(error.path))
        ):
            return error
    return None
