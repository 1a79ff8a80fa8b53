"""Configuration for a launch: that of the file, or of the last launch if the file is invalid."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from jobs.base.errors import FrazilError
from jobs.config.documents.validation import SpecError
from jobs.config.settings.generation import generation
from jobs.config.settings.loading import find_stream_file, load_stream
from jobs.config.stream.models import StreamSpec
from jobs.streaming.supervision.documents.launches import launched_file
from jobs.streaming.supervision.state.observation import Observation


@dataclass(frozen=True, slots=True)
class Configuration:
    """A configuration for a launch.

    Attributes:
        text: Text of the file, as stored for the driver.
        problem: Reason why this is the last launch's configuration instead of the file's: the file is invalid, or could
            not run. None if it is the file's.
    """

    spec: StreamSpec
    text: str
    file: Path
    generation: str
    problem: SpecError | None = None

    @property
    def note(self) -> str:
        """Addition to an action's sentence if this is not the file's configuration; otherwise empty."""
        if self.problem is None:
            return ""
        return (
            f" {self.file} has problems, so the configuration that was launched last is used: "
            f"{self.problem.problems[0]}"
        )


# Returns the reason why a configuration could not run; None if none is known.
SpecCheck: TypeAlias = Callable[[Configuration], SpecError | None]


def configuration(observed: Observation, streams: Path, judgement: SpecCheck = lambda config: None) -> Configuration:
    """Configuration to launch: the file's, or the last launch's while the file is invalid or could not run.

    Args:
        streams: The folder with the streams' files.
        judgement: Checks a configuration that is not the one launched last.

    Raises:
        FrazilError: There is no file, or an invalid one and the stream never ran.
    """
    desired, stream = observed.desired, observed.stream
    file = find_stream_file(streams, stream) if desired.file == "valid" else None
    if desired.spec is not None and desired.generation is not None and file is not None:
        text = file.read_text(encoding="utf-8")
        config = Configuration(desired.spec, text, file, desired.generation)
        return _unless_refused(config, observed, judgement)
    # A missing folder proves nothing; the supervisor starts nothing then either.
    if desired.error is None or (desired.file == "unsure" and not streams.is_dir()):
        raise FrazilError(
            f"There is no file for stream {stream} in streams/, so it is not started.", fix="frazil validate"
        )
    kept = _as_launched(observed, desired.error)
    if kept is None:
        raise desired.error
    return kept


def _unless_refused(config: Configuration, observed: Observation, judgement: SpecCheck) -> Configuration:
    """A file's configuration, unless it could not run and the stream has run under another one before."""
    launch = observed.actual.launch
    if launch is None or launch.generation == config.generation or not config.spec.continuous:
        return config
    problem = judgement(config)
    if problem is None:
        return config
    try:
        kept = _as_launched(observed, problem)
    except SpecError:
        kept = None
    return kept or config


def _as_launched(observed: Observation, problem: SpecError) -> Configuration | None:
    launch, kept = observed.actual.launch, launched_file(observed.folder)
    if launch is None or not kept.exists():
        return None
    spec = load_stream(kept)
    text, runs = kept.read_text(encoding="utf-8"), generation(spec, observed.settings)
    return Configuration(spec, text, Path(launch.file), runs, problem)
