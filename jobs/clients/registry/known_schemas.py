"""Known schemas of a stream: those that its records named, kept in a document so that it starts without the registry.

They belong to one registry. A recreated registry gives the same ids to other schemas, and records would be decoded with
the wrong ones. So some known schemas are compared with the registry at each start.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping

import msgspec

from jobs.base.errors import StreamStopped
from jobs.base.system.typed_json import decode_json
from jobs.clients.registry.failures import NotInRegistryError, RegistryError
from jobs.clients.state_store.documents import DAMAGED
from jobs.clients.state_store.store import StateStore
from jobs.records.formats.interface.writer_schema import RegistrySchema, SchemaId, WriterSchema

log = logging.getLogger(__name__)

KEY = "known-schemas.json"
MOST_SCHEMAS = 500
MOST_CHARACTERS = 2_000_000
COMPARED = 5
"""Number of schemas that are compared with the registry at a start."""

Ask = Callable[[SchemaId], RegistrySchema]
"""Function that asks the registry itself, such as `jobs.clients.registry.client.RegistryClient.schema`."""


class RegistryRemadeError(StreamStopped):
    """The registry has another schema under an id that the stream knows, so it was recreated.

    Safe: Nothing of the batch was committed, and no record is lost.
    Next: restore the registry; if no older records are left to read, `frazil registry forget S`
    """


class RegistryLostError(RegistryRemadeError):
    """The registry has none of the schemas that the batch needs: it was recreated, or has not loaded its own yet.

    Safe: Nothing of the batch was committed, and no record is lost.
    Next: wait for the registry or restore it; if no older records are left to read, `frazil registry forget S`
    """


class _Schema(msgspec.Struct, frozen=True, omit_defaults=True):
    kind: str
    text: str
    number: int | None = None
    guid: str | None = None
    references: tuple[tuple[str, str], ...] = ()


class _Document(msgspec.Struct, frozen=True):
    registry: str
    schemas: list[_Schema] = []


class KnownSchemas:
    """The schemas that a stream has met, for the process that holds the stream's lease.

    Args:
        store: The stream's part of the state store.
        registry: Identity of the registry (`RegistrySettings.identity`). Schemas of another registry are not read, and
            the first added schema replaces them.
        stream: Id of the stream, for messages.
    """

    def __init__(self, store: StateStore, registry: str, stream: str) -> None:
        self._store: StateStore = store
        self._registry: str = registry
        self._stream: str = stream
        self._schemas: dict[SchemaId, RegistrySchema] = read_known_schemas(store, registry)

    @property
    def schemas(self) -> Mapping[SchemaId, RegistrySchema]:
        """Return all schemas, oldest first, for the tasks (`jobs.clients.registry.lookup.RegistryLookup.known`)."""
        return dict(self._schemas)

    def add(self, learned: Mapping[SchemaId, RegistrySchema]) -> None:
        """Keep schemas that tasks have looked up. If the store refuses them, the stream goes on.

        Raises:
            RegistryRemadeError: A known id has another schema.
        """
        for each, schema in learned.items():
            if each in self._schemas and not same_schema(self._schemas[each], schema):
                raise self._remade(f"{each} was another schema before")
        new = {each: schema for each, schema in learned.items() if each not in self._schemas}
        if not new:
            return
        self._schemas = _bounded(self._schemas | new)
        try:
            self._store.put(KEY, _encoded(self._registry, self._schemas))
        except OSError as problem:
            log.warning("%s cannot be written: %s", KEY, problem)

    def compare(self, ask: Ask) -> bool:
        """Compare some known schemas with the registry, if it answers.

        Returns:
            Whether the registry still has one of them; False also if it does not answer, or no schema is known.

        Raises:
            RegistryRemadeError: An id has another schema.
            RegistryLostError: The registry has none of them any more.
        """
        # Another thread may add schemas meanwhile.
        schemas = self._schemas
        chosen = _sample(list(schemas), COMPARED)
        gone = 0
        for each in chosen:
            try:
                found = ask(each)
            except NotInRegistryError:
                gone += 1
                continue
            except RegistryError as problem:
                log.warning("known schemas are not compared with the registry: %s", problem.message)
                return False
            if not same_schema(schemas[each], found):
                raise self._remade(f"{each} is another schema there")
        if chosen and gone == len(chosen):
            found = self._remade(f"it has none of the {gone} schemas that were looked for, such as {chosen[-1]}")
            raise RegistryLostError(found.message, fix=found.fix)
        return bool(chosen)

    def _remade(self, what: str) -> RegistryRemadeError:
        return RegistryRemadeError(
            f"stream {self._stream}: the schema registry at {self._registry} was recreated: {what}. Earlier records "
            "would be read with other schemas.",
            fix=f"restore the registry; or, if no records from before are left to read: "
            f"frazil registry forget {self._stream}",
        )


def read_known_schemas(store: StateStore, registry: str | None = None) -> dict[SchemaId, RegistrySchema]:
    """Return the known schemas of a stream, of one registry if given; empty if the document cannot be read."""
    try:
        found = decode_json(store.get(KEY) or b"", _Document)
    except (OSError, *DAMAGED):
        return {}
    if registry not in (None, found.registry):
        return {}
    return {
        SchemaId(each.number, each.guid): RegistrySchema(each.kind, WriterSchema(each.text, each.references))
        for each in found.schemas
    }


def registry_of(store: StateStore) -> str | None:
    """Return the identity of the registry whose schemas are kept; None if none are."""
    try:
        return decode_json(store.get(KEY) or b"", _Document).registry
    except (OSError, *DAMAGED):
        return None


def forget_known_schemas(store: StateStore) -> int:
    """Remove the document; return how many schemas were in it."""
    count = len(read_known_schemas(store))
    store.delete(KEY)
    return count


def same_schema(one: RegistrySchema, other: RegistrySchema) -> bool:
    """Whether two schemas are the same; an updated registry may format a text with other blanks."""
    return one == other or _plain(one) == _plain(other)


def _plain(schema: RegistrySchema) -> object:
    texts = [schema.schema.text, *(text for _, text in schema.schema.references)]
    names = [name for name, _ in schema.schema.references]
    if schema.kind == "PROTOBUF":
        return schema.kind, names, ["".join(text.split()) for text in texts]
    try:
        return schema.kind, names, [json.loads(text) for text in texts]
    except ValueError:
        return schema.kind, names, texts


def _sample(ids: list[SchemaId], most: int) -> list[SchemaId]:
    """Return the oldest ids, which a recreated registry assigns first, and the newest."""
    if len(ids) <= most:
        return ids
    oldest = most // 2
    return ids[:oldest] + ids[oldest - most :]


def _bounded(schemas: dict[SchemaId, RegistrySchema]) -> dict[SchemaId, RegistrySchema]:
    """Return the newest schemas, within the limits."""
    kept: dict[SchemaId, RegistrySchema] = {}
    rest = MOST_CHARACTERS
    for each, schema in reversed(schemas.items()):
        size = len(schema.schema.text) + sum(len(text) for _, text in schema.schema.references)
        if len(kept) < MOST_SCHEMAS and size <= rest:
            kept[each] = schema
            rest -= size
    return dict(reversed(kept.items()))


def _encoded(registry: str, schemas: Mapping[SchemaId, RegistrySchema]) -> bytes:
    return msgspec.json.encode(
        _Document(
            registry,
            [
                _Schema(schema.kind, schema.schema.text, each.number, each.guid, schema.schema.references)
                for each, schema in schemas.items()
            ],
        )
    )
