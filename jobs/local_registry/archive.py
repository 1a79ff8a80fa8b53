"""Archive of the local registry: fetched and checked like every JVM artifact, and unpacked once for all processes."""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

from jobs.install.artifacts import ArtifactError, OnProgress, resolve_jars
from jobs.system.locks import exclusive

_LOCK_DEADLINE_SECONDS = 300.0


def registry_application(on_progress: OnProgress | None = None) -> Path:
    """The jar to start the registry with; its libraries lie beside it.

    Args:
        on_progress: Called with a line of text now and then while the archive is fetched: 109 MB, the first time.

    Raises:
        ArtifactError: The archive could not be fetched, is not the committed one, or has no such jar.
        PreflightError: Fetching needs Java and PySpark, and one is not there.
    """
    (archive,) = resolve_jars("registry", on_progress=on_progress)
    folder = archive.parent / "unpacked"
    if not folder.exists():
        with exclusive(archive.parent / ".unpacking.lock", deadline_seconds=_LOCK_DEADLINE_SECONDS):
            if not folder.exists():
                _unpack(archive, folder)
    found = sorted(folder.glob("*-runner.jar"))
    if len(found) != 1:
        raise ArtifactError(f"{folder} has no registry in it", fix=f"rm -r {folder}; it is unpacked anew")
    return found[0]


def _unpack(archive: Path, folder: Path) -> None:
    # The folder gets its name only when all is in it.
    partial = folder.with_name(".unpacking")
    shutil.rmtree(partial, ignore_errors=True)
    with tarfile.open(archive) as file:
        file.extractall(partial, filter="data")
    partial.rename(folder)
