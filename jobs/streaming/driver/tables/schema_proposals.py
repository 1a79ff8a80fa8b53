"""Schema proposals: changes of a table that records need and that somebody has to decide about, kept as documents.

They stand in the stream's part of the state store, `schema-proposal-<digest>.json`, one for each change. A document
stays until its change is made: who reads them leaves out what the table has by now.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import time

import msgspec
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType

from jobs.base.system.typed_json import decode_json
from jobs.clients.state_store.documents import DAMAGED
from jobs.clients.state_store.store import StateStore
from jobs.records.schema.compatibility import holds
from jobs.records.schema.difference import rename_option
from jobs.records.schema.iceberg_schema import column_text, column_type
from jobs.records.schema.needs import Change, Coordinates, Path
from jobs.records.schema.schema_change import SchemaChange, columns_of

log = logging.getLogger(__name__)

_KEYS = "schema-proposal-*.json"


class SchemaProposal(msgspec.Struct, frozen=True):
    """A change that a stream's records need.

    Attributes:
        digest: Names it: eight digits, the same for the same change.
        says: The change as a sentence.
        column: A column of the type, as the text of Iceberg's JSON; empty of a column that is to take null.
        rename: The command that gives another column this name instead, of a new one that looks like it; else empty.
        at: A record that needs it.
        since: When it was met first, seconds since 1970.
    """

    digest: str
    stream: str
    table: str
    change: Change
    path: tuple[str, ...]
    says: str
    at: Coordinates | None
    since: float
    command: str
    column: str = ""
    rename: str = ""

    @property
    def type(self) -> IcebergType | None:
        """The type of the new column, or the wider one."""
        return column_type(self.column) if self.column else None

    @property
    def as_change(self) -> SchemaChange:
        """The change as it is judged and committed."""
        return SchemaChange(self.change, self.path, self.type, self.at)

    def is_open(self, schema: Schema) -> bool:
        """Whether a table of this schema lacks it still."""
        column = dict(columns_of(schema)).get(self.path)
        match self.change:
            case "add":
                return column is None
            case "widen":
                kind = self.type
                return column is not None and not (
                    kind is not None
                    and kind.is_primitive
                    and column.field_type.is_primitive
                    and holds(kind, column.field_type)
                )
            case "relax":
                return column is not None and column.required


def keep_proposal(store: StateStore, stream: str, table: str, change: SchemaChange) -> None:
    """Write a proposal down unless it is there; a disk that refuses it stops nothing."""
    digest = _digest(table, change.change, change.path, str(change))
    proposal = SchemaProposal(
        digest,
        stream,
        table,
        change.change,
        change.path,
        change.told,
        change.at,
        time.time(),
        f"frazil schema apply {stream} --proposal {digest}",
        column_text(change.type) if change.type else "",
        f"frazil schema apply {stream} {rename_option(change.former, change.path)}" if change.former else "",
    )
    commands = f"{proposal.command}; or {proposal.rename}" if proposal.rename else proposal.command
    try:
        if store.create_if_absent(_KEYS.replace("*", digest), msgspec.json.encode(proposal)):
            log.warning("table %s: it is proposed to %s; %s", table, change.told, commands)
    except OSError as problem:
        log.warning("table %s: it is proposed to %s, which cannot be written down: %s", table, change.told, problem)


def proposals(store: StateStore, schema: Schema | None = None, table: str | None = None) -> list[SchemaProposal]:
    """What is proposed, the oldest first.

    Args:
        schema: The table's, as it is now: what it has is left out.
        table: Its name, of a stream each of whose tables has columns of its own: what is of others is left out.
    """
    found: list[SchemaProposal] = []
    for key in store.keys(_KEYS):
        with contextlib.suppress(*DAMAGED):
            proposal = decode_json(store.get(key) or b"", SchemaProposal)
            if table is not None and proposal.table != table:
                continue
            if schema is None or proposal.is_open(schema):
                found.append(proposal)
    return sorted(found, key=lambda each: (each.since, each.digest))


def forget_proposal(store: StateStore, digest: str) -> None:
    """Remove a proposal: its change is made, or nobody wants it."""
    store.delete(_KEYS.replace("*", digest))


def _digest(table: str, change: Change, path: Path, says: str) -> str:
    return hashlib.sha256("\0".join((table, change, *path, says)).encode()).hexdigest()[:8]
