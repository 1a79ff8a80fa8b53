"""Unknown fields: keys of a stream's records that its schema does not declare, counted across restarts.

The document is for information only. It is written after each batch that met such keys, so it may lack the last batch
of a killed driver. It begins again with each configuration, as another schema declares other keys.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from jobs.base.system.typed_json import decode_json
from jobs.clients.state_store.documents import DAMAGED
from jobs.clients.state_store.store import StateStore
from jobs.records.formats.interface.decoder import OTHER_UNKNOWN_PATHS

if TYPE_CHECKING:
    from jobs.config.stream.event_time import Slo


log = logging.getLogger(__name__)

KEY = "unknown-fields.json"
MOST_FIELDS = 100


class UnknownField(msgspec.Struct, frozen=True):
    """A key that the schema does not declare.

    Attributes:
        records: Number of landed records with the key.
        topic, partition, offset: Coordinates of one of them; without an example the topic is empty.
        within: JSON path of the struct with the key; `$` is the record.
        column: Guess of a column that would take it, such as `note string`; None if its name cannot be declared.
    """

    records: int
    topic: str = ""
    partition: int = 0
    offset: int = 0
    within: str = "$"
    column: str | None = None

    def place(self) -> dict[str, Any] | None:
        """Coordinates of the example."""
        return {"topic": self.topic, "partition": self.partition, "offset": self.offset} if self.topic else None

    def plus(self, other: UnknownField) -> UnknownField:
        """This field with the records of another count; the first example stays."""
        return msgspec.structs.replace(self if self.topic else other, records=self.records + other.records)


class UnknownFields(msgspec.Struct, frozen=True):
    """All unknown keys of a stream under one configuration.

    Attributes:
        config: Hash of the configuration, see `StreamSpec.config_hash`.
        since: Time of the first one; seconds since 1970.
        landed: Records that landed since then.
        fields: Fields by path; the `MOST_FIELDS` that were met first.
        others: Records with further keys, each counted once for each key.
    """

    config: str
    since: float
    landed: int = 0
    fields: dict[str, UnknownField] = {}
    others: int = 0

    def plus(self, landed: int, met: Mapping[str, UnknownField]) -> UnknownFields:
        """These fields with another batch added."""
        fields, others = dict(self.fields), self.others
        for path, found in met.items():
            known = fields.get(path)
            if known is not None:
                fields[path] = known.plus(found)
            elif path == OTHER_UNKNOWN_PATHS or len(fields) >= MOST_FIELDS:
                others += found.records
            else:
                fields[path] = found
        return UnknownFields(self.config, self.since, self.landed + landed, fields, others)

    def most_frequent(self) -> dict[str, UnknownField]:
        """The fields, those of the most records first."""
        return dict(sorted(self.fields.items(), key=lambda each: (-each[1].records, each[0])))

    def unexpected(self, slo: Slo) -> list[str]:
        """Paths that the stream's file does not leave out on purpose, those of the most records first."""
        return [path for path in self.most_frequent() if not slo.leaves_out(path)]

    def sentence(self, path: str) -> str:
        """Report about a field, without a value."""
        met = self.fields[path]
        where = f", such as topic {met.topic}, partition {met.partition}, offset {met.offset}" if met.topic else ""
        return f"{path} in {self.share(path):.1%} of {self.landed:,} records{where}"

    def advice(self, path: str, stream: str) -> str:
        """Entry to add to the stream's file; the column is a guess."""
        met = self.fields[path]
        within = "" if met.within == "$" else f", within {met.within}"
        column = f"`{met.column}` (the type is a guess) to decode.schema{within}, or " if met.column else ""
        return f"add {column}'{path}' to slo.unknown_fields in streams/{stream}.yaml"

    def facts(self, slo: Slo) -> list[dict[str, Any]]:
        """All fields as data."""
        return [
            {
                "path": path,
                "records": met.records,
                "share": round(self.share(path), 4),
                "expected": slo.leaves_out(path),
                "example": met.place(),
                "within": met.within,
                "column": met.column,
            }
            for path, met in self.most_frequent().items()
        ]

    def share(self, path: str) -> float:
        """Share of the records with the key; 1 at most."""
        return min(1.0, self.fields[path].records / self.landed) if self.landed else 0.0


def read_unknown_fields(store: StateStore, config: str | None = None) -> UnknownFields | None:
    """The stored document, of this configuration if one is given; None if no such key was met."""
    with contextlib.suppress(OSError, *DAMAGED):
        found = decode_json(store.get(KEY) or b"", UnknownFields)
        return found if config in (None, found.config) else None
    return None


class UnknownFieldsRecord:
    """The document of a stream, for the process that holds the stream's lease."""

    def __init__(self, store: StateStore, config: str) -> None:
        self._store: StateStore = store
        self._known: UnknownFields | None = read_unknown_fields(store, config)
        self._config: str = config

    def add(self, landed: int, met: Mapping[str, UnknownField], now: float) -> None:
        """Add the keys of a committed batch; if the disk refuses, the stream goes on."""
        if self._known is None and not met:
            return
        self._known = (self._known or UnknownFields(self._config, now)).plus(landed, met)
        try:
            self._store.put(KEY, msgspec.json.encode(self._known), durable=False)
        except OSError as problem:
            log.warning("%s cannot be written: %s", KEY, problem)
