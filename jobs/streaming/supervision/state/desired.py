"""Desired state of a stream: its present file under `streams/`, and its operator's newest request."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Literal

from jobs.base.errors import FrazilError
from jobs.config.documents.validation import SpecError
from jobs.config.services.trigger import Restart
from jobs.config.settings.generation import generation
from jobs.config.settings.loading import load_stream, load_streams
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.streaming.supervision.documents.control_request import ControlRequest
from jobs.streaming.supervision.documents.launches import Launch
from jobs.streaming.supervision.documents.stall import STALLED_SECONDS, stalled_after

FileState = Literal["valid", "invalid", "none", "unsure"]

_NAMED = re.compile(r"""^stream:[ \t]*(["']?)([A-Za-z0-9_-]+)\1[ \t]*(?:#.*)?$""", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class StreamFiles:
    """Content of the folder `streams/`.

    Attributes:
        specs: Specs of the valid files, by stream.
        errors: Errors of the other files, and of the folder.
        claimed: Errors of files that name a stream in a line of their own, by stream.
        absence: Reason why a missing stream may be wanted nevertheless; empty if the folder is reliable.
    """

    specs: Mapping[str, StreamSpec]
    errors: tuple[SpecError, ...] = ()
    claimed: Mapping[str, tuple[SpecError, ...]] = field(default_factory=dict)
    absence: str = ""

    def errors_of(self, stream: str, launch: Launch | None, home: Path) -> tuple[SpecError, ...]:
        """Errors of a stream's file, if it has no valid one; empty if it has none at all.

        An invalid file belongs to the stream if a line of its own names it, if the stream was launched from it, or if
        it has the stream's name and names no other.

        Args:
            launch: The stream's newest launch.
            home: Base of a relative path of that launch's file.
        """
        if stream in self.claimed:
            return self.claimed[stream]
        bad = {error.path.absolute(): error for error in self.errors if error.path is not None}
        if launch is not None:
            for path in (Path(launch.file).absolute(), (home / launch.file).absolute()):
                if path in bad:
                    return (bad[path],)
        others = [error for errors in self.claimed.values() for error in errors]
        return tuple(error for path, error in bad.items() if path.stem == stream and error not in others)


@dataclass(frozen=True, slots=True)
class DesiredState:
    """Desired state of one stream.

    Attributes:
        file: `valid`; `invalid`: its file has problems, or could not run; `none`: no file names it; `unsure`: the
            folder `streams/` is missing, unreadable or empty, which proves nothing about a stream.
        generation: Generation of the present file; None if it is not valid.
        problem: Reason why the file is not `valid`, in a sentence; `error` has the errors of the file or the folder.
        launchable: Whether there is a configuration for a launch: the file's, or the last launch's.
        continuous: Whether a driver has to run all the time.
        control: The operator's newest request.
        restart: Restart rules; the default if the file cannot be read.
        stalled_after: Seconds without progress after which a busy driver counts as stalled, and is replaced.
        spec: Spec of the file; of the last launch if the file cannot be read; None without either.
    """

    stream: str
    file: FileState
    generation: str | None = None
    problem: str = ""
    error: SpecError | None = None
    launchable: bool = True
    continuous: bool = True
    control: ControlRequest = field(default_factory=ControlRequest)
    restart: Restart = field(default_factory=Restart)
    stalled_after: float = STALLED_SECONDS
    spec: StreamSpec | None = None

    @property
    def gone(self) -> bool:
        """Whether it has no file, valid or not, as far as the folder can be read."""
        return self.file in ("none", "unsure") and self.error is None


def read_stream_files(folder: Path) -> StreamFiles:
    """Present files of a folder.

    Args:
        folder: `streams/` of a deployment; need not exist.
    """
    specs, errors = load_streams(folder)
    return stream_files(folder, specs, errors)


def stream_files(folder: Path, specs: Sequence[StreamSpec], errors: Sequence[SpecError]) -> StreamFiles:
    """Sort specs and errors of a folder by stream."""
    claimed: dict[str, tuple[SpecError, ...]] = {}
    for error in errors:
        with contextlib.suppress(OSError):
            text = error.path.read_text(encoding="utf-8", errors="replace") if error.path is not None else ""
            for stream in named_streams(text):
                claimed[stream] = (*claimed.get(stream, ()), error)
    absence = next((error.message for error in errors if error.path is None), "")
    if not specs and not errors:
        absence = f"the folder {folder} is empty"
    return StreamFiles({spec.stream: spec for spec in specs}, tuple(errors), claimed, absence)


def named_streams(text: str) -> set[str]:
    """Streams that a file's text names in a line of their own."""
    return {stream for _, stream in _NAMED.findall(text)}


def desired_state(
    stream: str,
    files: StreamFiles,
    settings: Settings,
    launched: Callable[[], Path],
    control: ControlRequest,
    launch: Launch | None,
    *,
    refused: SpecError | None = None,
) -> DesiredState:
    """Desired state of one stream. Never raises for the content of its files.

    Args:
        launched: Finds the configuration of its newest launch, if its file cannot be read.
        launch: Newest launch of the stream.
        refused: Reason why its readable file could not run; it then counts as unreadable.
    """
    errors = (refused,) if refused is not None else ()
    file: FileState = "valid"
    if refused is not None:
        file = "invalid"
    elif stream not in files.specs:
        errors = files.errors_of(stream, launch, settings.home)
        file = "invalid" if errors else "unsure" if files.absence else "none"
        if file == "unsure":
            errors = tuple(error for error in files.errors if error.path is None)
    problem = files.absence if file == "unsure" else "; ".join(dict.fromkeys("; ".join(e.problems) for e in errors))
    error = errors[0] if errors else None
    spec = files.specs[stream] if file == "valid" else launched_spec(launched)
    if spec is None:
        return DesiredState(stream, file, problem=problem, error=error, launchable=False, control=control)
    now, launchable = None, True
    try:
        of_spec = generation(spec, settings)
        now = of_spec if file == "valid" else None
    except Exception as unknown:
        launchable = False
        if file == "valid":
            file, problem = "invalid", f"its generation is unknown: {unknown}"
            error = SpecError([problem])
    return DesiredState(
        stream,
        file,
        generation=now,
        problem=problem,
        error=error,
        launchable=launchable,
        continuous=spec.continuous,
        control=control,
        restart=spec.restart,
        stalled_after=stalled_after(spec),
        spec=spec,
    )


def file_stamp(path: Path) -> tuple[int, int, int]:
    """Stamp of a stream's file that changes when the file is written.

    Raises:
        OSError: The file does not exist.
    """
    status = path.stat()
    return status.st_mtime_ns, status.st_size, status.st_ino


def launched_spec(launched: Callable[[], Path]) -> StreamSpec | None:
    """Stream of the last launch; None if it never was launched, or if that cannot be read.

    Args:
        launched: Finds that configuration.
    """
    try:
        path = launched()
        return _launched(path, file_stamp(path))
    except (OSError, FrazilError):
        return None


@lru_cache(maxsize=64)
def _launched(path: Path, stamp: tuple[int, int, int]) -> StreamSpec:
    return load_stream(path)
