"""Tasks on other machines: the driver's variables and files that they get, and a check of the files they write."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pyiceberg.manifest import DataFile

from jobs.base.errors import FrazilError
from jobs.base.system.carried import Carried
from jobs.config.documents.secrets import Secret, secrets_in
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.tables.write.locations import local_folder

# Tasks do not need the driver's own secrets of a stream; a client's options are sent in the clear.
_OF_THE_DRIVER = frozenset({"errors", "source"})


def carried_settings(spec: StreamSpec, settings: Settings, reader: Mapping[str, Any]) -> Carried:
    """Variables and files for the tasks of a stream, read now: certificates are renewed while a driver runs.

    Raises:
        FrazilError: A variable is not set, or a file cannot be read.
    """
    variables = {
        name: Secret(f"${{env:{name}}}", secret.where).reveal()
        for secret in task_secrets(spec)
        for name in secret.names
    }
    mounted = [(path, secret.where or "a secret") for secret in task_secrets(spec) for path in secret.files]
    files = [*_files(settings, reader), *mounted]
    return Carried(variables, {path: _content(path, whose) for path, whose in files})


def task_secrets(spec: StreamSpec) -> list[Secret]:
    """References to secrets that a stream's tasks read, such as the key of a mask."""
    names = [name for name in type(spec).model_fields if name not in _OF_THE_DRIVER]
    return [secret for name in names for secret in secrets_in(getattr(spec, name))]


def _files(settings: Settings, reader: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key, value in reader.items():
        # Authorities may also be a folder, or a keyword of the client.
        named = key.endswith(".location") and isinstance(value, str) and Path(value).is_absolute()
        if named and not Path(value).is_dir():
            yield value, f"Kafka's option {key}"
    tls = settings.registry.tls if settings.registry else None
    for name in ("ca", "certificate", "key"):
        path = getattr(tls, name, None)
        if isinstance(path, Path):
            yield str(path), f"registry.tls.{name}"


def _content(path: str, whose: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as problem:
        raise FrazilError(f"{whose}: cannot read {path}: {problem.strerror}.") from None


def refuse_unseen(files: Iterable[DataFile], master: str) -> None:
    """Check that files in a local folder exist on the driver's machine, too.

    A table that references missing files would have unreadable rows, and its offsets would count as landed.

    Args:
        files: Files that tasks wrote and no table references yet. Those in an object store are not checked.
    """
    for file in files:
        folder = local_folder(file.file_path)
        if folder is None:
            continue
        try:
            there = folder.stat().st_size == file.file_size_in_bytes
        except OSError:
            there = False
        if not there:
            raise FrazilError(
                f"a task on {master} wrote {file.file_path}, and the driver does not find it: not all hosts share the "
                "folder. Nothing of the batch is committed.",
                fix="put the warehouse into an object store, or mount one folder on every host under this path",
            )
