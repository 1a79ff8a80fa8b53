"""Table of Kafka Connect's keys, with the key of frazil for each, or why it is not needed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from functools import cache, cached_property
from pathlib import Path
from typing import Literal

KeyOwner = Literal["connector", "strimzi", "worker", "files", "aiven-files", "jdbc", "debezium", "getindata"]
_FILE = Path(__file__).with_suffix(".json")
# Similarity of keys with one wrong letter or another separator; other keys of the same family are less similar.
_NEAR = 0.88
_PIECE = re.compile(r"\[|\]|\(|\)|\||\*|[A-Z]{2,}|[^\[\]()|*A-Z]+|[A-Z]")
_PLACEHOLDER = re.compile(r"[A-Z]{2,}")


class KeyClass(StrEnum):
    """What becomes of a key of Kafka Connect when its connector is imported, in the order of the report."""

    SAME = "same"
    APPROXIMATED = "approximated"
    NOT_NEEDED = "not_needed"
    NO_EFFECT = "no_effect"
    IMPOSSIBLE = "impossible"
    DECIDE = "decide"


@dataclass(frozen=True)
class ConnectKey:
    """One entry of the table: one key, or several that have the same answer.

    Attributes:
        key: The key as people write it. `TABLE` stands for a name, `*` for the rest of a key, `[…]` for a part that may
            be missing, `(a|b)` for alternatives.
        key_class: Treatment of the key when a connector is imported, unless its converter decides otherwise.
        says: Rest of the sentence "this key of Kafka Connect …".
        read_by: Generations of the Iceberg sink that read the key; empty if all do, or if it belongs to something else.
        rest: Whether the entry takes the other keys of a family; a misspelt key is reported before it is tried.
        of: Owner of the key: any connector or the Iceberg sink; a Strimzi resource outside of its `config`; a worker;
            S3 and HDFS sinks (`files`), Aiven's S3 sink, JDBC sinks, Debezium's sources, or GetInData's sink.
    """

    key: str
    key_class: KeyClass
    says: str
    read_by: tuple[str, ...] = ()
    rest: bool = False
    of: KeyOwner = "connector"

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Regular expression that matches each of its keys as a whole."""
        words = {"[": "(?:", "]": ")?", "(": "(?:", ")": ")", "|": "|", "*": ".+"}
        parts = _PIECE.findall(self.key)
        return re.compile("".join(words.get(p) or (".+" if _PLACEHOLDER.fullmatch(p) else re.escape(p)) for p in parts))

    def spelled(self) -> Iterator[str]:
        """Yield all keys in full, with every choice expanded; nothing for an entry with `*`."""
        if "*" not in self.key:
            yield from _choices(self.key)


def _choices(text: str) -> Iterator[str]:
    """Yield all texts that a pattern stands for; the innermost bracket is expanded first."""
    if (match := re.search(r"\[([^\[\]()]*)\]|\(([^\[\]()]*)\)", text)) is None:
        yield text
        return
    options = ["", match[1]] if match[1] is not None else match[2].split("|")
    for option in options:
        yield from _choices(text[: match.start()] + option + text[match.end() :])


@cache
def connect_keys() -> tuple[ConnectKey, ...]:
    """Return the table. The first entry whose pattern matches a whole key counts.

    Connect silently accepts unknown keys, so frazil has to report each key that is carried over.
    """
    entries = json.loads(_FILE.read_text(encoding="utf-8"))
    return tuple(
        ConnectKey(
            *(each["key"], KeyClass(each["class"]), each["says"], tuple(each.get("read_by", ()))),
            **{name: each[name] for name in ("rest", "of") if name in each},
        )
        for each in entries
    )


@cache
def find_key(key: str, *of: KeyOwner) -> ConnectKey | None:
    """Return the entry of a key; None if the table has none.

    Args:
        key: The key.
        of: Owners whose keys are looked at; none for all.
    """
    entries = (entry for entry in connect_keys() if not of or entry.of in of)
    return next((entry for entry in entries if entry.pattern.fullmatch(key)), None)


@cache
def _spelled(*of: KeyOwner) -> dict[str, str]:
    """Return the known keys of some owners, by the normalized form in which misspellings are compared."""
    known = [entry for entry in connect_keys() if not of or entry.of in of]
    read = [entry for entry in known if not entry.rest and entry.key_class is not KeyClass.NO_EFFECT]
    return {_plain(key): key for entry in reversed(read) for key in entry.spelled()}


def _plain(key: str) -> str:
    """Normalize a key to lower case and one separator: `commitIntervalMs` and `commit.interval-ms` become equal."""
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z][a-z])", ".", key)
    return re.sub(r"[-_.]+", ".", apart).lower()


def nearest_key(key: str, *of: KeyOwner) -> str | None:
    """Return the known key that an unknown one may misspell; None if none is similar, or the key is known.

    Args:
        key: The key.
        of: Owners whose keys are looked at; none for all.
    """
    entry = find_key(key, *of)
    if entry is not None and not entry.rest:
        return None
    plain, known = _plain(key), _spelled(*of)
    near = known.get(plain) or next((known[each] for each in get_close_matches(plain, known, 1, _NEAR)), None)
    if near is None and (match := re.fullmatch(r"(.+\.)([^.]+)", key)) is not None:
        tails = {each.rpartition(".")[2]: each for each in known.values() if _PLACEHOLDER.search(each)}
        tail = next(iter(get_close_matches(match[2], tails, 1, _NEAR)), None)
        if tail is not None and re.fullmatch(_PLACEHOLDER.sub(".+", tails[tail]), match[1] + tail):
            near = match[1] + tail
    return near if near != key else None


def connect_answer(above: str, key: str) -> str | None:
    """Return the answer to a key of Kafka Connect, as the rest of a sentence; None if the key is unknown.

    Args:
        above: Keys above it in the file, with dots: `errors`; empty at the top of the file.
        key: The key as written, such as `deadletterqueue` or `errors.deadletterqueue.topic.name`.
    """
    for written in (f"{above}.{key}" if above else key, key):
        # Words such as `timezone` are keys of file sinks, but below the top of a stream's file they are misspelt keys.
        if (entry := find_key(written)) is None or entry.of in ("strimzi", "worker"):
            continue
        if entry.of != "connector" and (above or "." not in key):
            continue
        near = nearest_key(written) if entry.rest else None
        if near is not None and (meant := find_key(near)) is not None:
            return f"is read by no connector; it may mean {near}, which {meant.says}"
        return entry.says
    return None
