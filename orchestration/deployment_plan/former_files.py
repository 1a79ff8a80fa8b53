"""Files that a plan compares with: another folder, or the deployment's files as a Git revision has them."""

from __future__ import annotations

import io
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobs.base.errors import FrazilError
from jobs.config.documents.validation import load_model
from jobs.config.settings.loading import load_streams
from jobs.config.settings.settings import SETTINGS_FILE, SettingsFile
from jobs.config.stream.models import StreamSpec
from resources.deployment import Deployment
from resources.deployment_folder import STREAMS_FOLDER

_GIT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class FormerFiles:
    """The files of a deployment elsewhere, or at another time.

    Attributes:
        specs: Specs of valid files, by stream.
        settings: The settings file; that of an embedded deployment if there is none.
        problems: Problems of invalid files, as sentences.
        unread: Ids of streams with invalid files, as far as known.
        place: The folder that they were read from.
    """

    specs: dict[str, StreamSpec]
    settings: SettingsFile
    problems: tuple[str, ...]
    unread: frozenset[str]
    place: Path


def read_former(deployment: Deployment, against: str) -> FormerFiles:
    """Read the files that a plan compares with.

    Args:
        deployment: The deployment, whose folder is looked for in the revision.
        against: A folder with `streams/` in it, or a Git revision.

    Raises:
        FrazilError: It is neither.
    """
    folder = Path(against).expanduser()
    if folder.is_dir():
        return _read(folder, _settings_name(deployment))
    with _revision(deployment, against) as checked_out:
        return _read(checked_out, _settings_name(deployment))


def _settings_name(deployment: Deployment) -> str:
    file = deployment.settings_file
    return file.name if file is not None else SETTINGS_FILE


def _read(folder: Path, settings_name: str) -> FormerFiles:
    streams, file = folder / STREAMS_FOLDER, folder / settings_name
    specs, errors = load_streams(streams) if streams.is_dir() else ([], [])
    problems = [problem for error in errors for problem in error.problems]
    settings = read_settings_file(file)
    unread = frozenset(each.stream for each in errors if each.stream is not None)
    return FormerFiles({each.stream: each for each in specs}, settings, tuple(problems), unread, folder)


def read_settings_file(file: Path) -> SettingsFile:
    """A settings file as it is written; that of an embedded deployment if there is none.

    Raises:
        SpecError: It has problems.
    """
    return load_model(file, SettingsFile, show_values=False)[0] if file.exists() else SettingsFile()


def moved(document: Any, place: Path, home: Path) -> Any:
    """A document in which paths below one folder are paths below another one: relative paths mean the same there."""
    if isinstance(document, dict):
        return {key: moved(each, place, home) for key, each in document.items()}
    if isinstance(document, list):
        return [moved(each, place, home) for each in document]
    return document.replace(str(place.absolute()), str(home)) if isinstance(document, str) else document


@contextmanager
def _revision(deployment: Deployment, revision: str) -> Iterator[Path]:
    """The deployment's files of a Git revision, in a folder that goes with the block."""
    home = deployment.home
    fix = "name a folder with streams/ in it, or a Git revision, such as origin/main"
    try:
        top = _git(home, "rev-parse", "--show-toplevel").decode().strip()
        commit = _git(home, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    except (OSError, subprocess.SubprocessError):
        said = f"{revision} is no folder, and no revision of a Git repository that {home} is in."
        raise FrazilError(said, fix=fix) from None
    within = home.resolve().relative_to(Path(top).resolve()).as_posix()
    prefix = "" if within == "." else f"{within}/"
    names = [f"{prefix}{STREAMS_FOLDER}", f"{prefix}{_settings_name(deployment)}"]
    listed = _git(Path(top), "ls-tree", "--name-only", commit.decode().strip(), "--", *names).decode().splitlines()
    with tempfile.TemporaryDirectory(prefix="frazil-plan-") as folder:
        if listed:
            archive = _git(Path(top), "archive", "--format=tar", commit.decode().strip(), "--", *listed)
            with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
                packed.extractall(folder, filter="data")
        yield Path(folder) / within


def _git(folder: Path, *words: str) -> bytes:
    """Run Git and return its output.

    Raises:
        OSError, SubprocessError: Git is not installed, or fails.
    """
    done = subprocess.run(
        ["git", "-C", str(folder), *words],
        capture_output=True,
        check=True,
        timeout=_GIT_SECONDS,
        stdin=subprocess.DEVNULL,
    )
    return done.stdout
