"""Correction: YAML that is merged over a stream's file for one replay only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from jobs.config.documents.base import Location, field_path
from jobs.config.documents.judgement import judge
from jobs.config.documents.validation import SpecError, shown_path
from jobs.config.documents.yaml_document import (
    YamlDocument,
    YamlUnreadable,
    parse_yaml,
    read_yaml,
)
from jobs.config.settings.stream_rules import STREAM_RULES
from jobs.config.stream.models import StreamSpec

# Keys that make rows of records and choose their tables; the source stays.
MAY_CHANGE: tuple[Location, ...] = (
    ("decode",),
    ("transform",),
    ("predicates",),
    ("rules",),
    ("route",),
    ("errors", "replay", "park_after"),
    ("errors", "replay", "rate"),
)
_NO_MATTER: dict[Location, str] = {
    ("errors", "tolerance"): "records that fail again stay dead letters, and stop nothing",
    ("errors", "stop_above"): "records that fail again stay dead letters, and stop nothing",
    ("errors", "replay", "automatic"): "this replay is started by hand",
}
"""Keys that a replay ignores, with the reason."""


@dataclass(frozen=True, slots=True)
class Correction:
    """A stream's spec for one replay.

    Attributes:
        spec: Spec with the correction.
        text: The correction as YAML; dead letters that it was tried on keep it.
    """

    spec: StreamSpec
    text: str


def load_correction(stream_file: Path, correction: Path) -> Correction:
    """Merge the YAML of a file over a stream's file.

    Raises:
        SpecError: One of them cannot be read, or the result is no valid stream; by file, line and field.
    """
    shown = shown_path(correction)
    return _corrected(stream_file, _read(lambda: read_yaml(correction, shown=shown), shown))


def parse_correction(stream_file: Path, text: str, *, shown: str = "correction") -> Correction:
    """Merge YAML that is in no file over a stream's file; see `load_correction`."""
    return _corrected(stream_file, _read(lambda: parse_yaml(text, shown=shown), shown))


def _corrected(stream_file: Path, patch: YamlDocument) -> Correction:
    shown, of_stream = patch.shown, shown_path(stream_file)
    base = _read(lambda: read_yaml(stream_file, shown=of_stream), of_stream)
    if not isinstance(patch.data, dict):
        raise _error([f"{shown}:1: must be a mapping of keys to values, such as `decode: {{schema: …}}`"])
    known = ", ".join(".".join(map(str, place)) for place in MAY_CHANGE)
    refused = [
        f"{shown}:{patch.line_of(place)}: {field_path(place)}: {_why_not(place)}; it may change {known}"
        for place in _beyond(patch.data, ())
    ]
    if refused:
        raise _error(refused)
    merged = _merged(base.data, patch.data)
    context = {"base": stream_file.absolute().parent}
    spec, found = judge(merged, StreamSpec, context=context, show_values=True, rules=STREAM_RULES)
    if spec is not None:
        return Correction(spec, yaml.safe_dump(_plain(patch.data), sort_keys=False, allow_unicode=True))
    raise _error([_located(patch, base, place, said) for place, said in found])


def _beyond(data: Any, above: Location) -> Iterator[Location]:
    """Yield the places in a correction that it must not change."""
    for key, value in data.items():
        place = (*above, str(key))
        if any(place[: len(allowed)] == allowed for allowed in MAY_CHANGE):
            continue
        if isinstance(value, dict) and any(allowed[: len(place)] == place for allowed in MAY_CHANGE):
            yield from _beyond(value, place)
        else:
            yield place


def _why_not(place: Location) -> str:
    why = next((why for known, why in _NO_MATTER.items() if place[: len(known)] == known), None)
    return "a correction cannot change it" if why is None else f"it does not matter to a replay: {why}"


def _merged(base: Any, patch: Any) -> Any:
    if not isinstance(base, dict) or not isinstance(patch, dict):
        return patch
    return {**base, **{key: _merged(base.get(key), value) for key, value in patch.items()}}


def _located(patch: YamlDocument, base: YamlDocument, place: Location, said: str) -> str:
    document = patch if _reaches(patch.data, place) else base
    field = field_path(place)
    line, column = document.mark_of(place)
    return f"{document.shown}:{line}:{column}: {field}: {said}" if field else f"{document.shown}: {said}"


def _reaches(data: Any, place: Location) -> bool:
    """Whether a place, or a value that contains it, is in the correction."""
    for part in place:
        if not isinstance(data, dict):
            return True
        if part not in data:
            return False
        data = data[part]
    return True


def _plain(data: Any) -> Any:
    if isinstance(data, dict):
        return {str(key): _plain(value) for key, value in data.items()}
    if isinstance(data, list):
        return [_plain(value) for value in data]
    return str(data) if isinstance(data, str) else data


def _read(read: Callable[[], YamlDocument], shown: str) -> YamlDocument:
    try:
        return read()
    except YamlUnreadable as unreadable:
        problems = unreadable.located(shown)
    raise _error(problems)


def _error(problems: list[str]) -> SpecError:
    return SpecError(problems, fix="correct the correction, then run this again")
