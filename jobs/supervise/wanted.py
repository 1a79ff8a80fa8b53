"""What a stream's file wants of it now, or why that cannot be said; and what was launched last."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from jobs.errors import FrazilError
from jobs.spec.generation import generation
from jobs.spec.loading import load_stream, load_streams_tolerant
from jobs.spec.models import StreamSpec
from jobs.spec.problems import SpecError
from jobs.spec.settings import Settings
from jobs.supervise.launches import SPEC_FILE, read_launch


@dataclass(frozen=True, slots=True)
class Configuration:
    """A configuration that a driver can be launched with.

    Attributes:
        text: Of the file, as it is kept for the driver.
        problem: Why this is the configuration that was launched last and not the file's: the file is bad, or its
            configuration could not run; None if it is the file's.
    """

    spec: StreamSpec
    text: str
    file: Path
    generation: str
    problem: SpecError | None = None


# Why a configuration could not run; None if nothing is known to be in its way.
Judgement: TypeAlias = Callable[[Configuration], SpecError | None]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the files under `streams/` say of one stream.

    Attributes:
        spec: None if there is no file for it, or a bad one.
        file: Its file, good or bad; None if there is none.
        error: What is wrong with its file.
        known: The ids of the streams whose files are good.
    """

    spec: StreamSpec | None
    file: Path | None
    error: SpecError | None
    known: tuple[str, ...]

    @property
    def gone(self) -> bool:
        """Whether there is no file for it, good or bad, as far as the folder can be read."""
        return self.file is None and self.error is None


def find_wanted(streams: Path, folder: Path, stream: str) -> Wanted:
    """Look a stream up.

    A bad file belongs to the stream if it says so in a line of its own, if the stream was launched from it, or if it
    bears its name.

    Args:
        streams: The folder with the streams' files.
        folder: The stream's state folder.
    """
    specs, errors = load_streams_tolerant(streams)
    known = tuple(spec.stream for spec in specs)
    bad = {error.path: error for error in errors if error.path is not None}
    for spec in specs:
        if spec.stream == stream:
            return Wanted(spec, _file_of(streams, spec, bad), None, known)
    launch = read_launch(folder)
    for path, error in bad.items():
        if _says(path, stream) or (launch is not None and launch.file == str(path)) or path.stem == stream:
            return Wanted(None, path, error, known)
    unreadable = next((error for error in errors if error.path is None), None) if streams.is_dir() else None
    return Wanted(None, None, unreadable, known)


def configuration(
    wanted: Wanted, folder: Path, settings: Settings, stream: str, judgement: Judgement = lambda config: None
) -> Configuration:
    """What to launch: the file's configuration, or the one launched last while the file is bad or could not run.

    Args:
        judgement: Asked about a configuration that is not the one that was launched last.

    Raises:
        FrazilError: There is no file, or a bad one and the stream never ran.
    """
    if wanted.spec is not None and wanted.file is not None:
        text = wanted.file.read_text(encoding="utf-8")
        config = Configuration(wanted.spec, text, wanted.file, generation(wanted.spec, settings))
        return _unless_refused(config, folder, settings, judgement)
    if wanted.error is None:
        raise FrazilError(
            f"There is no file for stream {stream} in streams/, so it is not started.", fix="frazil validate"
        )
    kept = _as_launched(folder, settings, wanted.error)
    if kept is None:
        raise wanted.error
    return kept


def _unless_refused(config: Configuration, folder: Path, settings: Settings, judgement: Judgement) -> Configuration:
    """The configuration of a file, unless it could not run and the stream has run under another one before."""
    launch = read_launch(folder)
    if launch is None or launch.generation == config.generation or not config.spec.continuous:
        return config
    problem = judgement(config)
    if problem is None:
        return config
    try:
        kept = _as_launched(folder, settings, problem)
    except SpecError:
        kept = None
    return kept or config


def _as_launched(folder: Path, settings: Settings, problem: SpecError) -> Configuration | None:
    launch, kept = read_launch(folder), folder / SPEC_FILE
    if launch is None or not kept.exists():
        return None
    spec = load_stream(kept)
    return Configuration(spec, kept.read_text(encoding="utf-8"), Path(launch.file), generation(spec, settings), problem)


def _file_of(streams: Path, spec: StreamSpec, bad: dict[Path, SpecError]) -> Path | None:
    files = sorted(path for path in streams.iterdir() if path.suffix in (".yaml", ".yml") and path not in bad)
    # As a rule a file says its stream in a line of its own; if none does, all are read again.
    for path in [*(path for path in files if _says(path, spec.stream)), *files]:
        try:
            if load_stream(path).stream == spec.stream:
                return path
        except SpecError:
            continue
    return None


def _says(path: Path, stream: str) -> bool:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return re.search(rf"^stream:\s*[\"']?{re.escape(stream)}[\"']?\s*(#.*)?$", text, re.MULTILINE) is not None
