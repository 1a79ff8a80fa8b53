"""Loading of stream files from ``streams/``, with every problem by file, line and field."""

from __future__ import annotations

import contextlib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from jobs.config.documents.base import Location, Problem, field_path
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


Claim = tuple[str, str]
"""What one file alone may name: `stream` or `table`, and the name."""


def _claims(spec: StreamSpec) -> Iterator[tuple[Claim, Location]]:
    """The claims of a stream, each with the place in its file."""
    yield ("stream", spec.stream), ("stream",)
    for target in spec.targets:
        yield ("table", target.name), _NAMED_AT[target.role]
    for at, mirror in enumerate(spec.mirrors):
        if not mirror.is_pattern:
            yield ("table", mirror.table), ("mirrors", at, "table")


def _claimed(claim: Claim, files: Iterable[str]) -> str:
    kind, name = claim
    return f"the {kind} '{name}' is claimed by {', '.join(files)}, too"


def _route_problem(spec: StreamSpec, name: str, owner: str) -> Problem | None:
    """A problem of a stream whose values may name a table that another file claims; None if they cannot.

    Args:
        spec: The stream.
        name: Table of the other file.
        owner: The other file, as messages show it.
    """
    if spec.route is None or spec.route.to is None:
        return None
    claimed = f"'{name}', which {owner} claims"
    if value_of_table(spec.route.to, name):
        return ("route", "to"), f"a value may name the table {claimed}"
    if (late := spec.late_tables) and late.clash(name):
        return ("event_time", "late"), f"the late rows of a table that a value names may be for {claimed}"
    return None


def _conflicts(loaded: list[tuple[StreamSpec, YamlDocument]]) -> dict[int, list[Problem]]:
    """Returns, by index, the claims of each file that another file also makes."""
    claims: dict[Claim, list[tuple[int, Location]]] = defaultdict(list)
    for index, (spec, _) in enumerate(loaded):
        for claim, location in _claims(spec):
            claims[claim].append((index, location))
    problems: dict[int, list[Problem]] = defaultdict(list)
    for claim, claimants in claims.items():
        for index, location in claimants:
            others = [loaded[other][1].shown for other, _ in claimants if other != index]
            if others:
                problems[index].append((location, _claimed(claim, others)))
    for index, (spec, _) in enumerate(loaded):
        for (kind, name), claimants in claims.items():
            if kind != "table" or index in (each for each, _ in claimants):
                continue
            if problem := _route_problem(spec, name, loaded[claimants[0][0]][1].shown):
                problems[index].append(problem)
    return problems


def refuse_later_claims(paths: Iterable[Path]) -> list[SpecError]:
    """Reads files one after the other. Of files that claim the same stream or table, the first is good.

    Returns:
        One error for each bad file, and for each one that claims what a good file before it claims.
    """
    owners: dict[Claim, str] = {}
    routed: list[tuple[StreamSpec, str]] = []
    errors: list[SpecError] = []
    for path in paths:
        try:
            spec, document = _load(path)
        except SpecError as error:
            errors.append(error)
            continue
        if problems := _late_problems(spec, owners, routed):
            errors.append(located(document, problems, path))
            continue
        owners |= {claim: document.shown for claim, _ in _claims(spec)}
        if spec.route is not None and spec.route.to is not None:
            routed.append((spec, document.shown))
    return errors


def _late_problems(
    spec: StreamSpec, owners: Mapping[Claim, str], routed: Iterable[tuple[StreamSpec, str]]
) -> list[Problem]:
    """What a stream claims that earlier files claim, or that values in their streams may name."""
    claims = list(_claims(spec))
    problems = [(location, _claimed(claim, [owners[claim]])) for claim, location in claims if claim in owners]
    if spec.route is not None and spec.route.to is not None:
        of_tables = ((name, owner) for (kind, name), owner in owners.items() if kind == "table")
        problems += [problem for name, owner in of_tables if (problem := _route_problem(spec, name, owner))]
    for (kind, name), location in claims:
        for other, file in routed if kind == "table" else ():
            if problem := _route_problem(other, name, file):
                problems.append((location, f"the table '{name}' may be named by {field_path(problem[0])} of {file}"))
    return problems
