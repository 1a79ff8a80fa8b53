"""Comparison of an import's outcome with what has to come of it, by meaning."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from jobs.config.documents.units import parse_duration
from jobs.config.values.partitioning import PartitionError, parse_partition_expr

_DURATION = re.compile(r"[0-9]+(ms|s|m|h|d)")
_SHORT = {"decode.value": "format", "trigger": "every"}


def differences(expected: Any, actual: Any, path: str = "") -> list[str]:
    """Places where an outcome does not have what is expected; empty if it has all of it.

    Args:
        expected: Subset of the outcome. `{any_of: [a, b]}` takes either, `{not: a}` all others, `{absent: true}`
            nothing. Durations and partition expressions are compared by meaning.
        actual: The outcome.
        path: Place, for messages.
    """
    if isinstance(expected, Mapping):
        match expected:
            case {"any_of": choices}:
                tried = [differences(choice, actual, path) for choice in choices]
                return [] if not all(tried) else [f"{path}: {_shown(actual)} is none of {choices}"]
            case {"not": refused}:
                return [f"{path}: is {_shown(actual)}"] if not differences(refused, actual, path) else []
            case {"absent": True}:
                return [f"{path}: is {_shown(actual)}"] if actual not in (None, [], {}) else []
            case _:
                return _of_mapping(expected, actual, path)
    if isinstance(expected, Sequence) and not isinstance(expected, str):
        if not isinstance(actual, Sequence) or isinstance(actual, str) or len(actual) != len(expected):
            return [f"{path}: expected {expected}, found {_shown(actual)}"]
        pairs = zip(expected, actual, strict=True)
        return [found for at, (one, other) in enumerate(pairs) for found in differences(one, other, f"{path}[{at}]")]
    if isinstance(actual, Mapping) and isinstance(expected, str):
        short = actual.get("format", actual.get("name", actual.get("envelope")))
        return differences(expected, short, path) if short is not None else [f"{path}: found {_shown(actual)}"]
    return [] if _meaning(expected) == _meaning(actual) else [f"{path}: expected {expected}, found {_shown(actual)}"]


def stream_differences(expected: Sequence[Mapping[str, Any]], actual: Sequence[Mapping[str, Any]]) -> list[str]:
    """Differences of streams: those with a name by it, the others in their order."""
    by_name = {stream.get("stream"): stream for stream in actual}
    found = [] if len(expected) == len(actual) else [f"{len(actual)} streams: {list(by_name)}"]
    for at, one in enumerate(expected):
        other = by_name.get(one.get("stream")) or (actual[at] if at < len(actual) else None)
        found += differences(one, other, f"streams[{one.get('stream', at)}]")
    return found


def _of_mapping(expected: Mapping[str, Any], actual: Any, path: str) -> list[str]:
    if isinstance(actual, str) and len(expected) == 1 and next(iter(expected)) in ("format", "envelope", "every"):
        actual = {next(iter(expected)): actual}
    if not isinstance(actual, Mapping):
        if all(value == {"absent": True} for value in expected.values()) and actual is None:
            return []
        return [f"{path}: expected {dict(expected)}, found {_shown(actual)}"]
    return [found for key, value in expected.items() for found in differences(value, actual.get(key), f"{path}.{key}")]


def _meaning(value: Any) -> Any:
    if not isinstance(value, str):
        return str(value).lower() if isinstance(value, bool) else str(value)
    if _DURATION.fullmatch(value):
        return parse_duration(value)
    try:
        return parse_partition_expr(value)
    except PartitionError:
        return value


def _shown(value: Any) -> str:
    return f"{value!r}"[:200]
