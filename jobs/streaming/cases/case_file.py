"""Case files: `streams/tests/STREAM.yaml`, records with the rows and dead letters that a stream makes of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import msgspec
import yaml
from pydantic import Field

from jobs.config.documents.base import AnyInt, Location, Problem, SpecModel
from jobs.config.documents.validation import load_model
from jobs.config.documents.yaml_document import YamlDocument

FOLDER = "tests"
"""Folder of the case files, below the streams' folder. Only files directly in the latter are streams."""

FIRST_TIMESTAMP = datetime(2026, 1, 1, tzinfo=UTC)
"""Timestamp of records without one."""

_JSON = msgspec.json.Encoder(decimal_format="number")
_HEX = "hex"


class CaseRecord(SpecModel):
    """A record as Kafka would return it.

    Args:
        value: A text is used unchanged; a mapping, list, number or flag is written as JSON, numbers with the digits in
            the file; null is a tombstone.
        value_hex: Bytes of the value in hexadecimal, instead of `value`.
        key: Key, written like `value`; without it the record has none.
        key_hex: Bytes of the key in hexadecimal, instead of `key`.
        headers: Values by name, written like `value`, or `{hex: …}`.
        timestamp: Instant in ISO 8601; without a zone it is UTC.
        topic: Topic; without it the stream's first one.
        offset: Offset; without it the next one of the partition.
    """

    value: Any = None
    value_hex: str | None = None
    key: Any = None
    key_hex: str | None = None
    headers: dict[str, Any] = Field(default_factory=dict)
    timestamp: str | None = None
    topic: str | None = None
    partition: Annotated[AnyInt, Field(ge=0)] = 0
    offset: Annotated[AnyInt | None, Field(ge=0)] = None

    def _problems(self) -> Iterator[Problem]:
        given = self.model_fields_set
        if ("value" in given) == ("value_hex" in given):
            yield (), "has one of value and value_hex; value: null is a tombstone"
        if "key" in given and "key_hex" in given:
            yield ("key_hex",), "stands beside key; give one of them"
        hexes: list[tuple[Location, Any]] = [(("value_hex",), self.value_hex), (("key_hex",), self.key_hex)]
        hexes += [(("headers", name, _HEX), value[_HEX]) for name, value in self.headers.items() if _is_hex(value)]
        yield from ((place, "is no hexadecimal") for place, text in hexes if text is not None and _unhex(text) is None)
        if self.timestamp is not None and _instant(self.timestamp) is None:
            yield ("timestamp",), "is no instant, such as 2026-01-31T08:00:00Z"

    @property
    def value_bytes(self) -> bytes | None:
        """The value; None for a tombstone."""
        return _unhex(self.value_hex) if self.value_hex is not None else _encoded(self.value)

    @property
    def key_bytes(self) -> bytes | None:
        """The key; None without one."""
        return _unhex(self.key_hex) if self.key_hex is not None else _encoded(self.key)

    @property
    def header_list(self) -> list[tuple[str, str | bytes | None]]:
        """The headers, in the order of the file."""
        return [
            (name, _unhex(value[_HEX]) if _is_hex(value) else _encoded(value)) for name, value in self.headers.items()
        ]

    @property
    def instant(self) -> datetime:
        """The timestamp."""
        return (_instant(self.timestamp) if self.timestamp is not None else None) or FIRST_TIMESTAMP


class ExpectedLetter(SpecModel):
    """A dead letter; missing entries are not compared.

    Args:
        error_class: `class` in the file: the letter's class, such as `wrong_type`.
        stage: The stage that refused the record, such as `transform[0].cast`.
        field: Path of the field at fault.
        message: Text that the letter's message contains.
    """

    error_class: Annotated[str | None, Field(alias="class")] = None
    stage: str | None = None
    field: str | None = None
    message: str | None = None


class Case(SpecModel):
    """Records, and everything that the stream makes of them.

    Args:
        rows: Rows in the order of the records: a list, or lists by table. Missing columns are not compared.
        dead_letters: Dead letters, in the order of the records.
    """

    name: Annotated[str, Field(min_length=1)]
    records: Annotated[tuple[CaseRecord, ...], Field(min_length=1)]
    rows: Any = ()
    dead_letters: tuple[ExpectedLetter, ...] = ()

    def _problems(self) -> Iterator[Problem]:
        given = [(record.topic, record.partition, record.offset) for record in self.records]
        for number, at in enumerate(given):
            if at[2] is not None and at in given[:number]:
                yield ("records", number, "offset"), "is that of an earlier record of the partition"
        by_table = self.rows.items() if isinstance(self.rows, dict) else [(None, self.rows)]
        for table, rows in by_table:
            place: Location = ("rows",) if table is None else ("rows", str(table))
            if not isinstance(rows, (list, tuple)):
                yield place, "must be a list of rows" + ("" if table else ", or lists by the names of tables")
                continue
            yield from (
                ((*place, number), "must be a mapping of columns to values")
                for number, row in enumerate(rows)
                if not isinstance(row, dict)
            )

    @property
    def rows_by_table(self) -> Mapping[str | None, Sequence[Mapping[str, Any]]]:
        """The rows by table; under None the rows of all tables together."""
        return self.rows if isinstance(self.rows, dict) else {None: self.rows or ()}


class CaseFile(SpecModel):
    """The cases of one stream."""

    cases: Annotated[tuple[Case, ...], Field(min_length=1)]

    def _problems(self) -> Iterator[Problem]:
        names = [case.name for case in self.cases]
        for number, name in enumerate(names):
            if name in names[:number]:
                yield ("cases", number, "name"), f"the name '{name}' is here twice"


def case_files(streams: Path) -> dict[str, Path]:
    """The case files of a deployment, by the stream that each tests.

    Args:
        streams: Folder of the streams' files.
    """
    folder = streams / FOLDER
    found = folder.iterdir() if folder.is_dir() else ()
    return {path.stem: path for path in sorted(found) if path.suffix in (".yaml", ".yml") and path.is_file()}


def load_cases(path: Path) -> tuple[CaseFile, YamlDocument]:
    """Read the cases of a stream.

    Returns:
        The cases, whose numbers with a point are exact decimals; and the document.

    Raises:
        SpecError: Lists every problem of the file with its line.
    """
    _, document = load_model(path, CaseFile, show_values=True)
    return cases_of(document), document


def cases_of(document: YamlDocument) -> CaseFile:
    """The cases in a document that was parsed.

    Raises:
        ValueError: The document has no cases.
    """
    return CaseFile.model_validate(_exact(document.root))


def _exact(node: yaml.Node) -> Any:
    """Value of a node, in which numbers with a point or an exponent are decimals."""
    if isinstance(node, yaml.MappingNode):
        return {str(key.value): _exact(value) for key, value in node.value}
    if isinstance(node, yaml.SequenceNode):
        return [_exact(item) for item in node.value]
    text = str(node.value)
    match node.tag.rpartition(":")[2]:
        case "null":
            return None
        case "bool":
            return text.lower() == "true"
        case "int":
            return int(text.replace("_", ""))
        case "float":
            return Decimal(text.lower().replace("_", "").replace(".inf", "inf").replace(".nan", "nan"))
        case _:
            return text


def _encoded(value: Any) -> bytes | None:
    if value is None:
        return None
    return value.encode() if isinstance(value, str) else _JSON.encode(value)


def _is_hex(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() == {_HEX}


def _unhex(text: Any) -> bytes | None:
    try:
        return bytes.fromhex(str(text))
    except ValueError:
        return None


def _instant(text: str) -> datetime | None:
    try:
        at = datetime.fromisoformat(text)
        return at if at.tzinfo else at.replace(tzinfo=UTC)
    except ValueError:
        return None


def as_decimal(value: Any) -> Decimal | None:
    """A number, or a text with a number, as a decimal; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal, str)):
        return None
    if isinstance(value, float) and math.isfinite(value):
        return Decimal(repr(value))
    try:
        return Decimal(value)
    except ArithmeticError:
        return None
