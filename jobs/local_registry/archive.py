"""Archive of the local registry: fetched and checked like every JVM artifact, and unpacked once for all processes."""

from __future__ import annotations

from pathlib import Path

from jobs.install.archive import unpacked
from jobs.install.artifacts import ArtifactError, OnProgress, resolve_jars


def registry_application(on_progress: OnProgress | None = None) -> Path:
    """The jar to start the registry with; its libraries lie beside it.

    Args:
        on_progress: Called with a line of text now and then while the archive is fetched: 109 MB, the first time.

    Raises:
        ArtifactError: The archive could not be fetched, is not the committed one, or has no such jar.
        PreflightError: Fetching needs Java and PySpark, and one is not there.
    """
    (archive,) = resolve_jars("registry", on_progress=on_progress)
    folder = unpacked(archive)
    found = sorted(folder.glob("*-runner.jar"))
    if len(found) != 1:
        raise ArtifactError(f"{folder} has no registry in it", fix=f"rm -r {folder}; it is unpacked anew")
    return found[0]
