"""Plan of the files that an import writes: which are new, which change, and which a person has edited."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from jobs.base.errors import FrazilError
from jobs.clients.state_store.durable_files import write_durably
from jobs.config.documents.validation import SpecError, shown_path
from jobs.config.settings.loading import refuse_later_claims
from jobs.config.settings.settings import load_settings
from jobs.migration.conversion.conversion import Conversion, ConvertedConnector
from jobs.migration.conversion.draft import Question, Yaml
from jobs.migration.files.settings_merge import merge_settings, yaml_text
from jobs.migration.report.document import VERSION, Document, merged_report, report_document
from jobs.migration.report.markdown import report_markdown

REPORT = "import-report.json"
PAGE = "import-report.md"
SETTINGS = "frazil.yaml"
UNFINISHED = ".undecided"
"""Ending of a file that does not validate, so that nothing loads it."""

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
        FrazilError: The existing settings or report cannot be read, existing settings would not be valid with the
            import's, or a stream would take the place of one of another connector.
    """
    former = _former(folder / REPORT)
    _refuse_to_replace_others(conversion, former)
    hashes: Mapping[str, str] = (former or {}).get("files", {})
    settings, conflicts = _settings(conversion, folder, former)
    conversion, texts, problem = _validated(conversion, folder, settings)
    files = [_planned(folder, path, text, hashes.get(path)) for path, text in texts.items()]
    if problem is not None and settings is not None:
        path = SETTINGS + UNFINISHED
        files.append(_planned(folder, path, settings, hashes.get(path)))
    elif settings is not None:
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
    if found.get("version") != VERSION or not _is_report(found):
        raise FrazilError(
            (
                f"{path.name} names the files that people have edited, and is no report of an import that this "
                "release reads."
            ),
            fix=f"take {path.name} back from before it was edited, or import into another folder: --into FOLDER",
        )
    return found


def _is_report(found: Mapping[str, Any]) -> bool:
    parts = [found.get(part, []) for part in ("connectors", "workers")]
    return (
        isinstance(found.get("files", {}), dict)
        and isinstance(found.get("settings", {}), dict)
        and all(isinstance(part, list) for part in parts)
        and all(isinstance(one, dict) and {"name", "source", "keys"} <= one.keys() for part in parts for one in part)
    )


def _refuse_to_replace_others(conversion: Conversion, former: Mapping[str, Any] | None) -> None:
    """Stop if a stream has the name of one that a connector of a former import has, which is not imported now."""
    names = {converted.connector.name for converted in conversion.connectors}
    owners = {
        stream: str(one["name"])
        for one in (former or {}).get("connectors", ())
        if one["name"] not in names
        for stream in one.get("streams", ())
    }
    for converted, stream in conversion.streams:
        if owner := owners.get(stream["stream"]):
            raise FrazilError(
                f"{_path(stream)} is the stream of the connector {owner}, and {converted.connector.name} would take "
                "its place. Nothing was written.",
                fix="import both connectors in one command, or the second into a folder of its own: --into FOLDER",
            )


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


def _validated(
    conversion: Conversion, folder: Path, settings: str | None
) -> tuple[Conversion, dict[str, str], str | None]:
    """Files of streams after frazil's own validation; one that does not pass has another ending and a question.

    The last value is what is wrong with new settings, which have another ending then; None if nothing is.
    """
    texts = {_path(stream): stream_text(converted, stream) for converted, stream in conversion.streams}
    with tempfile.TemporaryDirectory(prefix="frazil-import-") as name:
        scratch = Path(name)
        streams = scratch / "streams"
        streams.mkdir()
        own = {Path(path).name for path in texts}
        others = [file for file in sorted((folder / "streams").glob("*.y*ml")) if file.name not in own]
        for path, text in texts.items():
            (scratch / path).write_text(text, encoding="utf-8")
        problems = _problems(others, sorted(streams / name for name in own))
        problem = None if settings is None else _settings_problem(scratch, settings)
    if problem is not None and (folder / SETTINGS).exists():
        raise FrazilError(
            f"frazil.yaml would not be valid with what the import adds: {problem}. Nothing was written.",
            fix="correct the connector's value, or import into a folder of its own: --into FOLDER",
        )
    if not problems and problem is None:
        return conversion, texts, None
    unloaded = (Question(f"{SETTINGS}{UNFINISHED} is not loaded: {problem}", blocks=True),) if problem else ()
    connectors: list[ConvertedConnector] = []
    for converted in conversion.connectors:
        asked = [
            Question(f"{_path(stream)}{UNFINISHED} is not loaded: {problems[_path(stream)]}", blocks=True)
            for stream in converted.streams
            if _path(stream) in problems
        ]
        of_settings = unloaded if converted.streams else ()
        connectors.append(replace(converted, questions=(*converted.questions, *of_settings, *asked)))
    conversion = replace(conversion, connectors=tuple(connectors))
    texts = {
        path + (UNFINISHED if path in problems else ""): stream_text(converted, stream)
        for converted, stream in conversion.streams
        for path in [_path(stream)]
    }
    return conversion, texts, problem


def _problems(others: Sequence[Path], own: Sequence[Path]) -> dict[str, str]:
    """Imported streams that do not load, by path, each with its first problem.

    Args:
        others: Files that the deployment has already. Their claims come first.
        own: Files of the import. Of several that claim one table, the first stays.
    """
    known = set(own)
    folders = {path.parent for path in (*others, *own)}
    return {
        f"streams/{error.path.name}": _sentence(error, folders)
        for error in refuse_later_claims([*others, *own])
        if error.path in known
    }


def _sentence(error: SpecError, folders: Iterable[Path]) -> str:
    """The first problem of an error, in which all files are below `streams/`."""
    problem = error.places[0].sentence if error.places else error.problems[0]
    for folder in folders:
        problem = problem.replace(f"{shown_path(folder)}/", "streams/")
    return problem


def _settings_problem(scratch: Path, settings: str) -> str | None:
    """What is wrong with settings; None if they are valid."""
    (scratch / SETTINGS).write_text(settings, encoding="utf-8")
    try:
        load_settings(None, home=scratch)
    except SpecError as error:
        return "; ".join(place.sentence for place in error.places) or "it does not validate"
    return None


def _path(stream: Yaml) -> str:
    return f"streams/{stream['stream']}.yaml"


def _planned(folder: Path, path: str, text: str, recorded: str | None) -> PlannedFile:
    existing = _read(folder / path)
    if existing is None:
        finished = path.removesuffix(UNFINISHED)
        if finished != path and recorded == _hash(text) and (folder / finished).exists():
            # A person has corrected the file, and taken the ending away.
            return PlannedFile(finished, text, "kept")
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
