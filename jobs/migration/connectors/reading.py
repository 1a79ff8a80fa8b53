"""Reading of sources: files, folders and addresses of workers, in whatever form each is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from jobs.base.errors import FrazilError
from jobs.migration.connect_worker import WorkerLogin, is_address
from jobs.migration.connectors.document_tree import UnreadableDocument, parse_json, parse_yaml
from jobs.migration.connectors.json_documents import read_connectors
from jobs.migration.connectors.model import Connector, Sources, Worker
from jobs.migration.connectors.properties_files import read_properties
from jobs.migration.connectors.rest import read_worker
from jobs.migration.connectors.strimzi import is_resource, read_resources

_ENDINGS = {".json": "json", ".properties": "properties", ".yaml": "yaml", ".yml": "yaml"}
_LARGEST = 16 * 1024 * 1024


class UnreadableSource(FrazilError):
    """A source of an import is no configuration of Kafka Connect that frazil reads.

    Safe: Nothing was written.
    Next: correct the file that the message names; then the same command
    """


def read_sources(sources: Sequence[str], login: WorkerLogin | None = None, *, cwd: Path | None = None) -> Sources:
    """All connectors and workers of some sources.

    Args:
        sources: Files, folders and addresses of workers. Of a folder all files in JSON, YAML and properties are read,
            also below it; those that are something else are named in `skipped`.
        login: How addresses are asked.
        cwd: Folder that relative paths start at; the current one without it.

    Raises:
        UnreadableSource: A file cannot be read, or is not what it seems to be.
        ConnectWorkerError: A worker does not answer.
    """
    parts: list[tuple[str, Sources]] = []
    for source in sources:
        if is_address(source):
            parts.append((source, read_worker(source, login)))
            continue
        path = (cwd or Path()) / source
        if not path.is_dir():
            parts.append((str(Path(source).parent), read_file(path, source)))
            continue
        files = [
            file
            for file in sorted(path.rglob("*"))
            if file.suffix in _ENDINGS and file.is_file() and not _hidden(file.relative_to(path))
        ]
        for file in files:
            shown = str(Path(source) / file.relative_to(path))
            parts.append((str(Path(shown).parent), _read_of_folder(file, shown)))
        if not files:
            parts.append((source, Sources((), skipped=(f"{source}: has no files in JSON, YAML or properties",))))
    return _joined(parts)


def read_file(path: Path, shown: str) -> Sources:
    """Connectors and workers of one file.

    Args:
        path: The file.
        shown: Name of the file for messages and places.

    Raises:
        UnreadableSource: It cannot be read, or is not what it seems to be.
    """
    try:
        if path.stat().st_size > _LARGEST:
            raise UnreadableSource(f"{shown} is larger than {_LARGEST // 1024**2} MB, so it is no connector.")
        content = path.read_bytes()
    except OSError as problem:
        raise UnreadableSource(
            f"{shown} cannot be read: {problem.strerror or type(problem).__name__}.", fix=f"ls -l {shown}"
        ) from None
    try:
        return _read(content, path, shown)
    except UnreadableDocument as problem:
        raise UnreadableSource(f"{shown} {problem}.", fix=f"correct {shown}; then the same command") from None


def _read(content: bytes, path: Path, shown: str) -> Sources:
    text = content.decode("utf-8", errors="replace")
    form = _ENDINGS.get(path.suffix.lower()) or _form(text)
    if form == "properties":
        # Java reads properties files as Latin-1.
        return read_properties(content.decode("latin-1"), shown, path.stem)
    if form == "json":
        tree = parse_json(text)
        return read_resources(tree, shown) if is_resource(tree) else read_connectors(tree, shown, path.stem)
    parts = [
        read_resources(tree, shown) if is_resource(tree) else read_connectors(tree, shown, path.stem)
        for tree in parse_yaml(text)
        if tree is not None
    ]
    return _united(parts)


def _form(text: str) -> str:
    if text.lstrip("\ufeff \t\r\n")[:1] in ("{", "["):
        return "json"
    return "yaml" if re.search(r"^(apiVersion|kind|connectors?|config)\s*:", text, re.MULTILINE) else "properties"


def _read_of_folder(file: Path, shown: str) -> Sources:
    """A file of a folder; one that is something else is no error."""
    try:
        return read_file(file, shown)
    except UnreadableSource as problem:
        return Sources((), skipped=(problem.message,))


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _united(parts: Sequence[Sources]) -> Sources:
    return Sources(
        tuple(connector for part in parts for connector in part.connectors),
        tuple(worker for part in parts for worker in part.workers),
        tuple(sentence for part in parts for sentence in part.skipped),
    )


def _joined(parts: Sequence[tuple[str, Sources]]) -> Sources:
    """All parts, with the worker of each connector: by name for Strimzi, else the only one beside it, or of all."""
    found = _united([part for _, part in parts])
    plain = [(folder, worker) for folder, part in parts for worker in part.workers if not _is_resource(worker)]
    connectors = [
        _with_worker(connector, folder, found.workers, plain) for folder, part in parts for connector in part.connectors
    ]
    return replace(found, connectors=tuple(connectors))


def _is_resource(worker: Worker) -> bool:
    return "metadata.name" in worker.settings


def _with_worker(
    connector: Connector, folder: str, workers: Sequence[Worker], plain: Sequence[tuple[str, Worker]]
) -> Connector:
    if connector.worker is not None:
        return connector
    if "metadata.name" in connector.settings:
        named = [
            worker
            for worker in workers
            if worker.name == connector.worker_name
            and _is_resource(worker)
            and (None in (worker.namespace, connector.namespace) or worker.namespace == connector.namespace)
        ]
        return replace(connector, worker=named[0]) if len(named) == 1 else connector
    # A worker whose file has a connector as well is that connector's.
    free = [(place, worker) for place, worker in plain if worker.name is not None]
    for beside in ([worker for place, worker in free if place == folder], [worker for _, worker in free]):
        if len(beside) == 1:
            return replace(connector, worker=beside[0])
        if beside:
            break
    return connector
