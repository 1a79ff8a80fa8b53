"""Variables and files of the driver's machine that a stream's tasks need, collected for tasks on other machines.

What a client's options hold travels with the plan as it is; here is the rest: keys that steps of the stream refer to,
and the files that options of Kafka's client and `registry.tls` name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from jobs.errors import FrazilError
from jobs.spec.models import StreamSpec
from jobs.spec.secrets import Secret, secrets_in
from jobs.spec.settings import Settings
from jobs.system.carried import Carried

# What the driver itself does with a stream's secrets is no concern of its tasks; options of a client travel revealed.
_OF_THE_DRIVER = frozenset({"errors", "source"})


def carried_settings(spec: StreamSpec, settings: Settings, reader: Mapping[str, Any]) -> Carried:
    """What the tasks of a stream are given, as it is now: certificates are renewed while a driver runs.

    Args:
        spec: The stream.
        settings: Where the registry is.
        reader: Options of the tasks' consumers.

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
    """The references that a stream's tasks read, such as the key of a mask."""
    names = [name for name in type(spec).model_fields if name not in _OF_THE_DRIVER]
    return [secret for name in names for secret in secrets_in(getattr(spec, name))]


def _files(settings: Settings, reader: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key, value in reader.items():
        # Authorities may also be a folder, or a word of the client's own.
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
