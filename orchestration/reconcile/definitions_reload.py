"""Reload of Dagster's code location after the streams' files have changed, so that pages show what is there.

The sensor's process is one that Dagster's code server has started and starts again. That code server is asked to load
the definitions anew, as a click on `Reload definitions` does; webserver and daemon notice within seconds.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import dagster as dg

from jobs.config.documents.validation import SpecError
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.streaming.supervision.state.desired import StreamFiles
from orchestration.reconcile.cursor import SensorCursor, checksum, due
from orchestration.reconcile.stream_files import read_files
from resources.deployment import Deployment

if TYPE_CHECKING:
    from dagster._core.remote_origin import CodeLocationOrigin, GrpcServerCodeLocationOrigin

# A reload that changed nothing is asked for again after so long.
AGAIN_SECONDS = 600
_MOST_TEXT = 300
_NEXT = "Next: click `Reload definitions` on the page Deployment"
Build = Callable[[Deployment], dg.Definitions]


def definitions_code(specs: Iterable[StreamSpec], errors: Iterable[SpecError], settings: Settings) -> int:
    """A checksum of all that the definitions are made of; a changed comment of a file does not change it."""
    parts = sorted(spec.model_dump_json() for spec in specs)
    problems = [problem for error in errors for problem in error.problems]
    return checksum("\n".join([*_of_settings(settings), *problems, *parts]))


def _of_settings(settings: Settings) -> tuple[str, ...]:
    """The settings that definitions depend on: the alert sensor exists where there are targets."""
    return (settings.catalog.name, "alerts") if settings.alerts.targets else (settings.catalog.name,)


class DefinitionsReload:
    """Watches whether the loaded definitions match the files, and has them reloaded. One for each process.

    Args:
        loaded: `definitions_code` of what this process has loaded.
        build: Makes the definitions, so that files which Dagster would refuse do not replace those that it has.
    """

    def __init__(self, loaded: int, build: Build) -> None:
        self._loaded: int = loaded
        self._build: Build = build
        self._seen: tuple[StreamFiles, tuple[str, ...], int] | None = None
        self._thread: threading.Thread | None = None
        self._problem: str = ""

    def look(
        self,
        deployment: Deployment,
        memory: SensorCursor,
        origin: CodeLocationOrigin | None,
        timeout: int,
        now: float,
    ) -> str:
        """Begin a reload if files differ from what is loaded, and have stayed so since the tick before.

        Args:
            origin: Where the daemon finds this code location; None in a process without one.
            timeout: Seconds that a reload may take.
            now: Seconds since 1970.

        Returns:
            What an operator should know, in a sentence; empty while there is nothing.
        """
        files = read_files(deployment)
        try:
            settings = deployment.settings()
        except SpecError:
            return ""
        if files.absence:
            # A folder that is missing for a moment removes no page.
            return ""
        code = self._code_of(files, settings)
        if code == self._loaded:
            memory.files, memory.reloaded_at = 0, 0
            return ""
        if code != memory.files:
            # A file may be half written, and its neighbours may follow.
            memory.files, memory.reloaded_at, self._problem = code, 0, ""
            return "The streams' files have changed; Dagster loads them in a moment."
        if self._thread is not None and self._thread.is_alive():
            return "Dagster loads the streams' files, which have changed."
        if not due(now, memory.reloaded_at, AGAIN_SECONDS):
            return self._problem
        from dagster._core.remote_origin import GrpcServerCodeLocationOrigin

        memory.reloaded_at = int(now)
        if not isinstance(origin, GrpcServerCodeLocationOrigin):
            self._problem = (
                "The streams' files have changed. Webserver and daemon each load the definitions for themselves, so "
                f"the webserver shows earlier ones. {_NEXT}; or let both use one `dagster code-server`."
            )
            return self._problem
        self._thread = threading.Thread(
            target=self._reload, args=(deployment, origin, timeout), name="frazil reload", daemon=True
        )
        self._thread.start()
        return "Dagster loads the streams' files, which have changed."

    def _code_of(self, files: StreamFiles, settings: Settings) -> int:
        """The code of files; computed once while they, and what is taken from the settings, are the same."""
        taken = _of_settings(settings)
        if self._seen is None or self._seen[0] is not files or self._seen[1] != taken:
            self._seen = files, taken, definitions_code(files.specs.values(), files.errors, settings)
        return self._seen[2]

    def wait(self, seconds: float) -> bool:
        """Wait until a reload that has begun has ended; whether it has."""
        if self._thread is not None:
            self._thread.join(seconds)
        return self._thread is None or not self._thread.is_alive()

    def _reload(self, deployment: Deployment, origin: GrpcServerCodeLocationOrigin, timeout: int) -> None:
        self._problem = ""
        try:
            dg.Definitions.validate_loadable(self._build(deployment))
        except Exception as problem:
            # With definitions that cannot be loaded nobody would supervise any stream.
            self._problem = f"Dagster cannot load the streams' files, and goes on with earlier ones: {_why(problem)}"
            return
        place = origin.socket or f"{origin.host}:{origin.port}"
        why = "it has answered, and goes on with earlier ones"
        try:
            # The server lets calls under way, such as this tick, come to their end before it ends this process. Later
            # ticks are for the process that takes its place: if one comes here all the same, nothing was loaded.
            origin.create_client().reload_code(timeout=timeout)
        except Exception as problem:
            why = _why(problem)
        self._problem = (
            f"The streams' files have changed, and Dagster's code server at {place} does not load them: {why}. "
            "Next: restart it, as `dagster code-server start`"
        )


def _why(problem: Exception) -> str:
    from grpc import RpcError

    cause = problem.__cause__
    if not isinstance(cause, RpcError):
        return f"{type(problem).__name__}: {problem}".partition("\n")[0][:_MOST_TEXT].rstrip(".")
    return f"{cause.code().name}, {cause.details()}"[:_MOST_TEXT]
