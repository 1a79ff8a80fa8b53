"""Stream files and settings as they were when a plan was made: a plan is carried out only while they are unchanged."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from jobs.base.errors import FrazilError
from jobs.config.settings.settings import SETTINGS_FILE
from jobs.streaming.supervision.state.desired import named_streams
from resources.deployment import Deployment


class ShownFiles:
    """Texts of a deployment's files, read before the plan is made.

    Args:
        deployment: The deployment.
    """

    def __init__(self, deployment: Deployment) -> None:
        self._deployment: Deployment = deployment
        self._texts: Mapping[Path, str] = self._read()

    def changed(self, streams: Collection[str]) -> list[str]:
        """Names of the files that have changed, come or gone, and that concern one of these streams."""
        now = self._read()
        found = list[str]()
        for path in sorted({*self._texts, *now}):
            texts = [self._texts.get(path), now.get(path)]
            if texts[0] != texts[1] and (path == self._settings_file or _concern(texts, streams)):
                home = self._deployment.home
                found.append(str(path.relative_to(home) if path.is_relative_to(home) else path))
        return found

    def refuse_changed(self, streams: Collection[str], left: str, fix: str) -> None:
        """Refuse to do what was shown once files have changed.

        Args:
            streams: Streams that something is done for.
            left: What was not done, as a sentence.
            fix: The next command.

        Raises:
            FrazilError: The message names the files.
        """
        if names := self.changed(streams):
            raise FrazilError(f"The files have changed since the plan was shown: {', '.join(names)}. {left}", fix=fix)

    @property
    def _settings_file(self) -> Path:
        return self._deployment.settings_file or self._deployment.home / SETTINGS_FILE

    def _read(self) -> dict[Path, str]:
        folder = self._deployment.streams_folder
        texts = dict[Path, str]()
        for path in (*folder.glob("*.yaml"), *folder.glob("*.yml"), self._settings_file):
            try:
                texts[path] = path.read_text(encoding="utf-8", errors="surrogateescape")
            except FileNotFoundError:
                continue
            except OSError as problem:
                texts[path] = f"unreadable: {problem.strerror}"
        return texts


def _concern(texts: Collection[str | None], streams: Collection[str]) -> bool:
    """Whether a file declares one of the streams, before or now; assumed of a file without a line that names one."""
    named = [named_streams(text) for text in texts if text is not None]
    return any(not names or not names.isdisjoint(streams) for names in named)
