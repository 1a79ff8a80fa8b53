"""Deployment: the folder with `streams/`, and the settings that go with it. Reading it opens no connection."""

from __future__ import annotations

import difflib
import os
from dataclasses import dataclass
from pathlib import Path

from jobs.base.errors import FrazilError
from jobs.base.system.private_files import keep_private, private_folder
from jobs.config.documents.validation import SpecError
from jobs.config.settings.loading import find_stream_file, load_streams
from jobs.config.settings.settings import EMBEDDED_FOLDER, SETTINGS_FILE, Settings, load_settings
from jobs.config.stream.models import StreamSpec
from resources.deployment_folder import HOME_VARIABLE, SETTINGS_VARIABLE, STREAMS_FOLDER, deployment_home

NO_STREAMS_FIX = "frazil init FOLDER creates a deployment, and frazil demo shows one; or name your folder with --home"
NO_STREAM_YET_FIX = f"frazil schema infer TOPIC --output {STREAMS_FOLDER}/TOPIC.yaml writes one; or {NO_STREAMS_FIX}"
"""Next command in a deployment whose folder of streams is empty."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """Paths of a deployment on this machine; streams and settings are read from them at each call.

    Attributes:
        home: The folder that holds `streams/` and `.frazil/`; absolute.
        settings_file: The settings; None for `frazil.yaml` in `home`, or the embedded default without that file.
    """

    home: Path
    settings_file: Path | None = None

    @staticmethod
    def here() -> Deployment:
        """Return the deployment that the environment names, else the nearest folder upwards with `streams/`."""
        home = os.environ.get(HOME_VARIABLE)
        settings = os.environ.get(SETTINGS_VARIABLE)
        return Deployment.at(Path(home) if home else None, Path(settings) if settings else None)

    @staticmethod
    def at(home: Path | None, settings_file: Path | None = None) -> Deployment:
        """Return the deployment in `home`; if None, in the nearest folder upwards with `streams/`, else the current."""
        return Deployment(deployment_home(home), settings_file.expanduser().absolute() if settings_file else None)

    @property
    def embedded(self) -> Path:
        """The folder of the local broker, the embedded catalog and Dagster's own state."""
        return self.home / EMBEDDED_FOLDER

    @property
    def streams_folder(self) -> Path:
        """The folder of the streams' files."""
        return self.home / STREAMS_FOLDER

    @property
    def exists(self) -> bool:
        """Whether the folder has streams, settings or state, or other settings are named."""
        marks = (self.streams_folder, self.home / SETTINGS_FILE, self.embedded)
        return self.settings_file is not None or any(mark.exists() for mark in marks)

    def require(self) -> None:
        """Refuse a folder that is no deployment, before a command starts a service or makes a file there.

        Raises:
            SpecError: It is none.
        """
        if not self.exists:
            raise self._no_streams()

    def settings(self) -> Settings:
        """The settings in effect.

        Raises:
            SpecError: The settings file is missing or has problems.
        """
        settings = load_settings(self.settings_file, home=self.home)
        # Earlier versions left these folders open to every user of the host.
        keep_private(settings.state, self.embedded / "broker", self.embedded / "dagster")
        return settings

    def streams(self) -> tuple[list[StreamSpec], list[SpecError]]:
        """The good streams, and one error for each bad file."""
        if not self.streams_folder.is_dir():
            return [], [self._no_streams()]
        return load_streams(self.streams_folder)

    def stream(self, name: str) -> StreamSpec:
        """One stream by its id.

        Raises:
            FrazilError: There is none with this id, or its file has problems.
        """
        specs, errors = self.streams()
        for spec in specs:
            if spec.stream == name:
                return spec
        if errors:
            raise SpecError([problem for error in errors for problem in error.problems], fix=errors[0].fix or "")
        known = [spec.stream for spec in specs]
        close = difflib.get_close_matches(name, known, n=1)
        raise FrazilError(
            f"There is no stream '{name}' in {self.streams_folder}"
            + (f"; it has {', '.join(sorted(known))}." if known else ", which is empty."),
            fix=f"did you mean {close[0]}?" if close else "frazil status" if known else NO_STREAM_YET_FIX,
        )

    def file_of(self, stream: str) -> Path:
        """Return the file that declares a stream.

        Raises:
            FrazilError: No file declares it.
        """
        file = find_stream_file(self.streams_folder, stream)
        if file is None:
            raise FrazilError(f"the file of stream {stream} is missing.", fix="frazil status")
        return file

    def prepared_settings(self) -> Settings:
        """Return the settings, and make the folder of the embedded catalog, because SQLite does not."""
        settings = self.settings()
        if settings.catalog.properties.get("type") == "sql":
            private_folder(self.embedded)
        return settings

    def _no_streams(self) -> SpecError:
        problem = f"There are no streams in {self.home}: it has no folder `{STREAMS_FOLDER}`."
        return SpecError([problem], fix=NO_STREAMS_FIX)
