"""Reading what is wanted: the files in `streams/`, and the operators' words in the state folders."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from jobs.errors import FrazilError
from jobs.spec.generation import generation
from jobs.spec.loading import load_stream
from jobs.spec.models import StreamSpec
from jobs.spec.problems import SpecError
from jobs.spec.settings import Settings
from jobs.state.paths import stream_folder
from jobs.supervise.control import Control, read_control
from jobs.supervise.heartbeat import FILE as HEARTBEAT_FILE
from jobs.supervise.launches import FILE as LAUNCH_FILE
from jobs.supervise.launches import SPEC_FILE, read_launch
from jobs.supervise.stall import stalled_after
from orchestration.reconcile.facts import Desired, FileState
from resources.deployment import Deployment

_NAMED = re.compile(r"""^stream:[ \t]*(["']?)([A-Za-z0-9_-]+)\1[ \t]*(?:#.*)?$""", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is wanted of one stream, and the file behind it.

    Attributes:
        spec: As its file says; as it was launched last, where the file cannot be read; None if neither is there.
        control_problem: Why the operator's word cannot be read; `control_fix` is the next command.
    """

    desired: Desired
    spec: StreamSpec | None = None
    control_problem: str = ""
    control_fix: str | None = None


@dataclass(frozen=True, slots=True)
class Files:
    """What `streams/` holds.

    Attributes:
        claimed: By stream id, the problem of a file that names it and cannot be read.
        paths: By absolute path, the problem of each file that cannot be read.
        absence: Why a stream that is not here may all the same be wanted; empty if the folder can be believed.
    """

    specs: Mapping[str, StreamSpec]
    claimed: Mapping[str, str]
    paths: Mapping[Path, str]
    absence: str


def read_files(deployment: Deployment) -> Files:
    """The files as they are now. Each version of the folder is parsed once."""
    folder = deployment.streams_folder
    try:
        found = [path for path in folder.iterdir() if path.suffix in (".yaml", ".yml")]
        signature = tuple(sorted((path.name, *_stamp(path)) for path in found))
    except OSError as problem:
        return Files({}, {}, {}, f"the folder {folder} cannot be read ({problem.strerror})")
    specs, errors = _parsed(deployment, signature)
    absence = "" if specs or errors else f"the folder {folder} is empty"
    return files_of(specs, errors, absence)


def files_of(specs: Sequence[StreamSpec], errors: Sequence[SpecError], absence: str = "") -> Files:
    """Sort what was read, and what could not be, by stream."""
    claimed: dict[str, list[str]] = {}
    paths: dict[Path, str] = {}
    for error in errors:
        if error.path is None:
            absence = absence or error.message
            continue
        sentence = "; ".join(error.problems)
        paths[error.path.absolute()] = sentence
        with contextlib.suppress(OSError, UnicodeDecodeError):
            for _, stream in _NAMED.findall(error.path.read_text(encoding="utf-8")):
                claimed.setdefault(stream, []).append(sentence)
    joined = {stream: "; ".join(dict.fromkeys(sentences)) for stream, sentences in claimed.items()}
    return Files({spec.stream: spec for spec in specs}, joined, paths, absence)


def _stamp(path: Path) -> tuple[int, int, int]:
    status = path.stat()
    return status.st_mtime_ns, status.st_size, status.st_ino


# A cache and no memory: a code server that starts anew reads the files once more.
@lru_cache(maxsize=4)
def _parsed(deployment: Deployment, signature: tuple[object, ...]) -> tuple[list[StreamSpec], list[SpecError]]:
    return deployment.streams()


def read_desired(files: Files, settings: Settings, deployment: Deployment) -> Iterator[Wanted]:
    """What is wanted of every stream that has a file or a state folder, by id."""
    ids = {*files.specs, *files.claimed, *_streams_with_state(settings)}
    for stream in sorted(ids):
        yield wanted(stream, files, settings, deployment)


def _streams_with_state(settings: Settings) -> Iterator[str]:
    folder = settings.state / "streams"
    with contextlib.suppress(OSError):
        for each in folder.iterdir():
            if (each / LAUNCH_FILE).exists() or (each / HEARTBEAT_FILE).exists():
                yield each.name


def wanted(stream: str, files: Files, settings: Settings, deployment: Deployment, refused: str | None = None) -> Wanted:
    """What is wanted of one stream. Never raises for what its files or its state folder hold.

    Args:
        refused: Why the stream's file, which can be read, could not run; as if it could not be read.
    """
    folder = stream_folder(settings, stream).root
    control, problem, fix = Control(), "", None
    try:
        control = read_control(folder)
    except FrazilError as error:
        problem, fix = error.message, error.fix
    except OSError as error:
        problem = f"{folder} cannot be read ({error.strerror})"
    state, sentence = ("invalid", refused) if refused else _file_state(stream, files, folder, deployment)
    spec = files.specs.get(stream) if state == "valid" else launched_spec(folder)
    if spec is None:
        nothing = Desired(stream, state, problem=sentence, launchable=False, control=control)
        return Wanted(nothing, None, problem, fix)
    now, launchable = None, True
    try:
        of_spec = generation(spec, settings)
        now = of_spec if state == "valid" else None
    except Exception as error:
        launchable = False
        if state == "valid":
            state, sentence = "invalid", f"its generation cannot be told: {error}"
    desired = Desired(
        stream,
        state,
        generation=now,
        problem=sentence,
        launchable=launchable,
        continuous=spec.continuous,
        control=control,
        restart=spec.restart,
        stalled_after=stalled_after(spec),
    )
    return Wanted(desired, spec, problem, fix)


def _file_state(stream: str, files: Files, folder: Path, deployment: Deployment) -> tuple[FileState, str]:
    if stream in files.specs:
        return "valid", ""
    if stream in files.claimed:
        return "invalid", files.claimed[stream]
    launch = read_launch(folder)
    if launch is not None:
        for path in (Path(launch.file).absolute(), (deployment.home / launch.file).absolute()):
            if path in files.paths:
                return "invalid", files.paths[path]
    if files.absence:
        return "unsure", files.absence
    return "none", ""


def launched_spec(folder: Path) -> StreamSpec | None:
    """The stream as it was launched last; None if it never was, or if that cannot be read."""
    path = folder / SPEC_FILE
    try:
        status = _stamp(path)
        return _launched(path, status)
    except (OSError, FrazilError):
        return None


@lru_cache(maxsize=64)
def _launched(path: Path, signature: tuple[int, int, int]) -> StreamSpec:
    return load_stream(path)
