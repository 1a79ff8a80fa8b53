"""Stored specs of a stream: its file as it was under a configuration hash, kept in the state store by each opening."""

from __future__ import annotations

from pydantic import ValidationError

from jobs.errors import FrazilError
from jobs.spec.models import StreamSpec
from jobs.spec.settings import Settings
from jobs.spec.yaml_document import YamlUnreadable, parse_yaml
from jobs.state.epochs import read_file
from jobs.state.stream_folder import stream_folder
from jobs.verify.route_judge import Unprovable


class StoredSpecs:
    """Finds the spec of a configuration hash.

    Args:
        spec: The stream as it is now.
        settings: Of the deployment.
    """

    def __init__(self, spec: StreamSpec, settings: Settings) -> None:
        self._settings: Settings = settings
        self._stream: str = spec.stream
        self._known: dict[str, StreamSpec | Unprovable] = {spec.config_hash: spec}

    def spec(self, config: str) -> StreamSpec | Unprovable:
        """The spec, or why it is not known."""
        if config not in self._known:
            self._known[config] = self._read(config)
        return self._known[config]

    def _read(self, config: str) -> StreamSpec | Unprovable:
        text = read_file(stream_folder(self._settings, self._stream).store, config, "")
        if text is None:
            return Unprovable("the stream's file as it was then is not kept")
        try:
            document = parse_yaml(text, shown=f"configuration {config}")
            found = StreamSpec.model_validate(document.data, context={"base": self._settings.home / "streams"})
        except (YamlUnreadable, ValidationError, FrazilError):
            return Unprovable("this version does not read the stream's file as it was then")
        if found.config_hash != config:
            # A file that it names has been changed since, or this version hashes more of it.
            return Unprovable("the stream's file as it was then means something else by now")
        return found
