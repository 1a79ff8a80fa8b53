"""Cases of single-message transforms: records, a chain of Connect's, and what a worker made of them.

`cases/*.yaml` is written by hand, `tables/*.json` by `python -m tests.smt.generate` with the real classes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.smt.connect_schema import connect_schema

FOLDER = Path(__file__).parent
CASES = FOLDER / "cases"
TABLES = FOLDER / "tables"
TIMESTAMP = 1_700_000_000_123
"""Of records that name none, in ms."""


@dataclass(frozen=True)
class CaseRecord:
    """A record of a case, as it is produced.

    Attributes:
        value: Its bytes; None is a tombstone.
        key: Its bytes, or None.
        headers: Names and values, in order.
        timestamp: In ms.
    """

    value: bytes | None
    key: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    timestamp: int


@dataclass(frozen=True)
class Case:
    """One chain, and records for it.

    Attributes:
        file: Of its case file, without its ending.
        name: Unique in the file.
        transforms: With Connect's property names; `type` and perhaps `predicate`, `negate`.
        predicates: By alias.
        topic: Of the records.
        records: In their order; offsets count from 0.
        raw: As the file has it.
    """

    file: str
    name: str
    transforms: Sequence[dict[str, Any]]
    predicates: dict[str, dict[str, Any]]
    topic: str
    records: Sequence[CaseRecord]
    raw: dict[str, Any] = field(repr=False)

    def __str__(self) -> str:
        return f"{self.file}: {self.name}"


def cases() -> Iterator[Case]:
    """Every case of the case files."""
    for path in sorted(CASES.glob("*.yaml")):
        for number, raw in enumerate(yaml.safe_load(path.read_text())):
            yield _case(path.stem, number, raw)


def table(file: str) -> dict[str, dict[str, Any]]:
    """What the worker made of the cases of a file, by the case's name."""
    found: dict[str, dict[str, Any]] = json.loads((TABLES / f"{file}.json").read_text())
    return found


def _case(file: str, number: int, raw: dict[str, Any]) -> Case:
    topic = raw.get("topic", f"{file}-{number:02d}")
    schema = connect_schema(raw["schema"]) if "schema" in raw else None
    key_schema = connect_schema(raw["key_schema"]) if "key_schema" in raw else None
    given = raw.get("records") or [{"value": each} for each in raw["values"]]
    records = [
        CaseRecord(
            value=_enveloped(schema, each.get("value")),
            key=_enveloped(key_schema, each.get("key")),
            headers=tuple((name, str(value).encode()) for name, value in each.get("headers", ())),
            timestamp=each.get("timestamp", TIMESTAMP),
        )
        for each in given
    ]
    return Case(file, raw["case"], raw["transforms"], raw.get("predicates", {}), topic, records, raw)


def _enveloped(schema: dict[str, Any] | None, payload: Any) -> bytes | None:
    return None if payload is None else json.dumps({"schema": schema, "payload": payload}).encode()
