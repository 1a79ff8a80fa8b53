"""Schema change proposals: changes of a table that records need and a person has to decide, stored as documents.

They are in the stream's part of the state store, `schema-proposal-<digest>.json`, one for each change. A document stays
until its change is made; readers leave out what the table has by now.
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
        digest: Name of the proposal: eight digits, the same for the same change.
        says: Sentence about the change.
        column: A column of the type, as Iceberg's JSON text; empty for a column that is to become optional.
        rename: Command that renames a similar column to the new name instead; empty without such a column.
        at: Coordinates of a record that needs the change.
        since: Time of the first such record, seconds since 1970.
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
        """Type of the new column, or the wider type."""
        return column_type(self.column) if self.column else None

    @property
    def as_change(self) -> SchemaChange:
        """The change for judging and committing."""
        return SchemaChange(self.change, self.path, self.type, self.at)

    def is_open(self, schema: Schema) -> bool:
        """Whether a table of this schema still lacks the change."""
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
    """Store a proposal unless it exists; an error of the disk is ignored."""
    digest = _digest(table, change.change, change.path, str(change))
    proposal = SchemaProposal(
        digest,
        stream,
        table,
        change.change,
        change.path,
        change.sentence,
        change.at,
        time.time(),
        f"frazil schema apply {stream} --proposal {digest}",
        column_text(change.type) if change.type else "",
        f"frazil schema apply {stream} {rename_option(change.former, change.path)}" if change.former else "",
    )
    commands = f"{proposal.command}; or {proposal.rename}" if proposal.rename else proposal.command
    try:
        if store.create_if_absent(_KEYS.replace("*", digest), msgspec.json.encode(proposal)):
            log.warning("table %s: it is proposed to %s; %s", table, change.sentence, commands)
    except OSError as problem:
        log.warning("table %s: it is proposed to %s, which cannot be written down: %s", table, change.sentence, problem)


def proposals(store: StateStore, schema: Schema | None = None, table: str | None = None) -> list[SchemaProposal]:
    """Stored proposals, oldest first.

    Args:
        schema: Present schema of the table: proposals that it fulfils are left out.
        table: Name of the table, if each of the stream's tables has its own columns: other tables' are left out.
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
    """Remove a proposal: its change is made, or rejected."""
    store.delete(_KEYS.replace("*", digest))


def _digest(table: str, change: Change, path: Path, says: str) -> str:
    return hashlib.sha256("\0".join((table, change, *path, says)).encode()).hexdigest()[:8]
