"""Plan of the files that an import writes: which are new, which change, and which a person has edited."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from jobs.base.errors import FrazilError
from jobs.clients.state_store.durable_files import write_durably
from jobs.config.documents.validation import SpecError
from jobs.config.settings.loading import load_streams
from jobs.config.settings.settings import load_settings
from jobs.migration.conversion.conversion import Conversion, ConvertedConnector
from jobs.migration.conversion.draft import Question, Yaml
from jobs.migration.files.settings_merge import merge_settings, yaml_text
from jobs.migration.report.document import Document, merged_report, report_document
from jobs.migration.report.markdown import report_markdown

REPORT = "import-report.json"
PAGE = "import-report.md"
SETTINGS = "frazil.yaml"
UNFINISHED = ".undecided"
"""Ending of a stream's file that does not validate, so that nothing loads it."""

Action = Literal["create", "update", "unchanged", "edited", "kept"]


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """One file of the import.

    Attributes:
        path: Path below the folder, such as `streams/payments.yaml`.
        text: The file as the import makes it.
        action: `create`, `update`, `unchanged`; `edited`: a person has changed it since the last import, and the import
            differs as well; `kept`: a person has changed it, and the import has nothing new.
    """

    path: str
    text: str
    action: Action


@dataclass(frozen=True, slots=True)
class ImportPlan:
    """Everything that an import would write.

    Attributes:
        folder: Folder of the deployment.
        files: Streams and settings.
        document: Report; `files` in it has the hashes of what was written.
        conflicts: Places of the settings where the existing file stays as it is.
        conversion: What was converted; streams that do not validate have a question.
    """

    folder: Path
    files: tuple[PlannedFile, ...]
    document: Document
    conflicts: tuple[str, ...]
    conversion: Conversion

    @property
    def edited(self) -> list[PlannedFile]:
        """Files that a person has to decide about."""
        return [file for file in self.files if file.action == "edited"]

    @property
    def changes(self) -> list[PlannedFile]:
        """Files that are written without a question."""
        return [file for file in self.files if file.action in ("create", "update")]


def plan_import(conversion: Conversion, folder: Path) -> ImportPlan:
    """Decide what an import writes. Nothing is written.

    Args:
        conversion: What was converted.
        folder: Folder of the deployment; it need not exist.

    Raises:
        FrazilError: The existing settings or report cannot be read, or would not be valid with the import's.
    """
    former = _former(folder / REPORT)
    hashes: Mapping[str, str] = (former or {}).get("files", {})
    settings, conflicts = _settings(conversion, folder, former)
    conversion, texts = _validated(conversion, folder, settings)
    files = [_planned(folder, path, text, hashes.get(path)) for path, text in texts.items()]
    if settings is not None:
        files.append(_planned_settings(folder, settings))
    document = merged_report(former, report_document(conversion))
    written = {file.path: _hash(file.text) for file in files}
    document["files"] = dict(sorted({**hashes, **written}.items()))
    return ImportPlan(folder, tuple(files), document, conflicts, conversion)


def write_import(plan: ImportPlan, *, replace_edited: bool) -> list[str]:
    """Write the planned files, the report last.

    Args:
        plan: The plan.
        replace_edited: Whether files that a person has edited are replaced, too.

    Returns:
        Paths that were written, below the folder.
    """
    (plan.folder / "streams").mkdir(parents=True, exist_ok=True)
    written: list[str] = []
    for file in [*plan.changes, *(plan.edited if replace_edited else [])]:
        write_durably(plan.folder / file.path, file.text.encode(), shared=True)
        written.append(file.path)
    for name, text in ((PAGE, report_markdown(plan.document)), (REPORT, report_text(plan.document))):
        if _read(plan.folder / name) != text:
            write_durably(plan.folder / name, text.encode(), shared=True)
            written.append(name)
    return written


def report_text(document: Document) -> str:
    """The report as the text of its file."""
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def stream_text(converted: ConvertedConnector, stream: Yaml) -> str:
    """A stream's file: where it is from, what is to decide, and the stream."""
    source = converted.connector.place.source
    shown = source if "://" in source else Path(source).name
    lines = [f"# From the connector {_line(converted.connector.name)} of {_line(shown)}, by `frazil import`."]
    lines += [f"# Before the first run: {_line(question.text)}" for question in converted.questions if question.blocks]
    return "\n".join(lines) + "\n" + yaml_text(stream)


def _line(text: str) -> str:
    return " ".join(text.split())


def _former(path: Path) -> dict[str, Any] | None:
    text = _read(path)
    if text is None:
        return None
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise FrazilError(
            f"{path.name} is no report of an import: it is no JSON.", fix=f"mv {path.name} {path.name}.old"
        )
    return found


def _settings(
    conversion: Conversion, folder: Path, former: Mapping[str, Any] | None
) -> tuple[str | None, tuple[str, ...]]:
    """Text of `frazil.yaml`, None if no connector was converted; and conflicts with the existing one."""
    if not conversion.streams:
        return None, ()
    existing = _read(folder / SETTINGS)
    if existing is None:
        return yaml_text(conversion.settings), ()
    merged = merge_settings(existing, conversion.settings, (former or {}).get("settings"))
    return merged.text, merged.conflicts


def _validated(conversion: Conversion, folder: Path, settings: str | None) -> tuple[Conversion, dict[str, str]]:
    """Files of streams after frazil's own validation; one that does not pass has another ending and a question."""
    texts = {_path(stream): stream_text(converted, stream) for converted, stream in conversion.streams}
    with tempfile.TemporaryDirectory(prefix="frazil-import-") as name:
        scratch = Path(name)
        streams = scratch / "streams"
        streams.mkdir()
        own = {Path(path).name for path in texts}
        for file in sorted((folder / "streams").glob("*.y*ml")) if (folder / "streams").is_dir() else ():
            if file.name not in own:
                shutil.copyfile(file, streams / file.name)
        for path, text in texts.items():
            (scratch / path).write_text(text, encoding="utf-8")
        problems = _problems(streams, own)
        if settings is not None:
            _check_settings(scratch, settings)
    if not problems:
        return conversion, texts
    connectors: list[ConvertedConnector] = []
    for converted in conversion.connectors:
        asked = [
            Question(f"{_path(stream)}{UNFINISHED} is not loaded: {problems[_path(stream)]}", blocks=True)
            for stream in converted.streams
            if _path(stream) in problems
        ]
        connectors.append(replace(converted, questions=(*converted.questions, *asked)))
    conversion = replace(conversion, connectors=tuple(connectors))
    texts = {
        path + (UNFINISHED if path in problems else ""): stream_text(converted, stream)
        for converted, stream in conversion.streams
        for path in [_path(stream)]
    }
    return conversion, texts


def _problems(streams: Path, own: set[str]) -> dict[str, str]:
    """Streams that do not validate, by path, each with its first problem."""
    found: dict[str, str] = {}
    while errors := [error for error in load_streams(streams)[1] if error.path and error.path.name in own]:
        # Of several files that claim one table the last goes, and the others stay.
        path = max((error.path for error in errors if error.path), key=lambda path: path.name)
        error = next(error for error in errors if error.path == path)
        found[f"streams/{path.name}"] = _sentence(error, path)
        path.unlink()
    return found


def _sentence(error: SpecError, path: Path) -> str:
    problem = error.places[0].sentence if error.places else error.problems[0]
    return problem.replace(f"{path.parent}/", "streams/")


def _check_settings(scratch: Path, settings: str) -> None:
    (scratch / SETTINGS).write_text(settings, encoding="utf-8")
    try:
        load_settings(None, home=scratch)
    except SpecError as error:
        sentences = "; ".join(place.sentence for place in error.places) or "it does not validate"
        raise FrazilError(
            f"frazil.yaml would not be valid with what the import adds: {sentences}. Nothing was written.",
            fix="correct frazil.yaml, or import into a folder of its own: --into FOLDER",
        ) from None


def _path(stream: Yaml) -> str:
    return f"streams/{stream['stream']}.yaml"


def _planned(folder: Path, path: str, text: str, recorded: str | None) -> PlannedFile:
    existing = _read(folder / path)
    if existing is None:
        return PlannedFile(path, text, "create")
    if existing == text:
        return PlannedFile(path, text, "unchanged")
    if recorded == _hash(existing):
        return PlannedFile(path, text, "update")
    return PlannedFile(path, text, "kept" if recorded == _hash(text) else "edited")


def _planned_settings(folder: Path, text: str) -> PlannedFile:
    existing = _read(folder / SETTINGS)
    if existing is None:
        return PlannedFile(SETTINGS, text, "create")
    return PlannedFile(SETTINGS, text, "unchanged" if existing == text else "update")


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as problem:
        raise FrazilError(f"{path} cannot be read: {type(problem).__name__}.", fix=f"ls -l {path}") from None


def _hash(text: str) -> str:
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def planned_paths(files: Sequence[PlannedFile], action: Action) -> list[str]:
    """Paths of the files of one action."""
    return [file.path for file in files if file.action == action]
