"""Subjects of a registry that a stream's records are of, as its file and its topics name them."""

from __future__ import annotations

from collections.abc import Iterable

from jobs.formats.known_formats import FORMATS
from jobs.spec.decode import Decode


def value_subjects(decode: Decode, topics: Iterable[str]) -> tuple[str, ...]:
    """Those of values: the one that the file names, else each topic's; none of values that name no schema."""
    if FORMATS[decode.format].registry_kind is None:
        return ()
    return (decode.subject,) if decode.subject is not None else tuple(f"{topic}-value" for topic in topics)


def key_subjects(decode: Decode, topics: Iterable[str]) -> tuple[str, ...]:
    """Those of keys: the one that the file names, else each topic's; none where keys name no schema."""
    if decode.key is None or FORMATS[decode.key.format].registry_kind is None:
        return ()
    return (decode.key.subject,) if decode.key.subject is not None else tuple(f"{topic}-key" for topic in topics)
