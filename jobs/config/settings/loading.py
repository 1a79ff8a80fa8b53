"""Loading of stream files from ``streams/``, with every problem by file, line and field."""

from __future__ import annotations

import contextlib
import re
from collections import defaultdict
from pathlib import Path

from jobs.config.documents.base import Location, Problem
from jobs.config.documents.validation import (
    SpecError,
    load_model,
    located,
    shown_path,
)
from jobs.config.documents.yaml_document import YamlDocument
from jobs.config.settings.stream_rules import STREAM_RULES
from jobs.config.stream.models import StreamSpec
from jobs.config.values.targets import Role, value_of_table

# Keys in which a stream's file names its targets, by role.
_NAMED_AT: dict[Role, Location] = {"rows": ("table", "name"), "dead_letters": ("errors", "dead_letters", "table")}


def load_stream(path: Path) -> StreamSpec:
    """Reads one stream.

    Raises:
        SpecError: The file has problems; the error has all of them.
    """
    return _load(path)[0]


def load_streams(folder: Path) -> tuple[list[StreamSpec], list[SpecError]]:
    """Reads all stream files; an invalid file does not stop the other streams.

    Files that claim the same stream or table are all refused, because nothing says which one is meant.

    Returns:
        The valid specs, and one error for each invalid file; one for the folder if it cannot be read.
    """
    try:
        paths = sorted(path for path in folder.iterdir() if path.suffix in (".yaml", ".yml") and path.is_file())
    except OSError as error:
        return [], [SpecError([f"{shown_path(folder)}: the folder cannot be read: {error.strerror}"])]
    loaded: list[tuple[StreamSpec, YamlDocument]] = []
    files: list[Path] = []
    errors: list[SpecError] = []
    for path in paths:
        try:
            loaded.append(_load(path))
            files.append(path)
        except SpecError as error:
            errors.append(error)
    conflicts = _conflicts(loaded)
    errors.extend(located(loaded[index][1], problems, files[index]) for index, problems in conflicts.items())
    return [spec for index, (spec, _) in enumerate(loaded) if index not in conflicts], errors


def find_stream_file(folder: Path, stream: str) -> Path | None:
    """Return the valid file of a stream; None if there is none."""
    try:
        files = sorted(path for path in folder.iterdir() if path.suffix in (".yaml", ".yml"))
    except OSError:
        return None
    # Most files name their stream in a line of text. If none does, all files are parsed.
    for path in [*(path for path in files if _says(path, stream)), *files]:
        with contextlib.suppress(SpecError):
            if load_stream(path).stream == stream:
                return path
    return None


def _says(path: Path, stream: str) -> bool:
    with contextlib.suppress(OSError):
        text = path.read_text(encoding="utf-8", errors="replace")
        return re.search(rf"^stream:\s*[\"']?{re.escape(stream)}[\"']?\s*(#.*)?$", text, re.MULTILINE) is not None
    return False


def _load(path: Path) -> tuple[StreamSpec, YamlDocument]:
    return load_model(path, StreamSpec, show_values=True, rules=STREAM_RULES)


def _conflicts(loaded: list[tuple[StreamSpec, YamlDocument]]) -> dict[int, list[Problem]]:
    """Returns, by index, the claims of each file that another file also makes."""
    claims: dict[tuple[str, str], list[tuple[int, Location]]] = defaultdict(list)
    for index, (spec, _) in enumerate(loaded):
        claims["stream", spec.stream].append((index, ("stream",)))
        for target in spec.targets:
            claims["table", target.name].append((index, _NAMED_AT[target.role]))
        for at, mirror in enumerate(spec.mirrors):
            if not mirror.is_pattern:
                claims["table", mirror.table].append((index, ("mirrors", at, "table")))
    problems: dict[int, list[Problem]] = defaultdict(list)
    for (kind, name), claimants in claims.items():
        for index, location in claimants:
            others = [loaded[other][1].shown for other, _ in claimants if other != index]
            if others:
                problems[index].append((location, f"the {kind} '{name}' is claimed by {', '.join(others)}, too"))
    for index, (spec, _) in enumerate(loaded):
        if spec.route is None or spec.route.to is None:
            continue
        for (kind, name), claimants in claims.items():
            if kind != "table" or index in (each for each, _ in claimants):
                continue
            claimed = f"'{name}', which {loaded[claimants[0][0]][1].shown} claims"
            if value_of_table(spec.route.to, name):
                problems[index].append((("route", "to"), f"a value may name the table {claimed}"))
            elif (late := spec.late_tables) and late.clash(name):
                said = f"the late rows of a table that a value names may be for {claimed}"
                problems[index].append((("event_time", "late"), said))
    return problems
