"""Cache of a registry's schemas in one process: its tasks share it, and each id is looked up once."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping

from jobs.base.errors import first_line
from jobs.clients.registry.client import RegistryClient
from jobs.clients.registry.connection import RegistryConnection
from jobs.clients.registry.failures import NotInRegistryError
from jobs.records.formats.interface.problems import UNKNOWN_SCHEMA, ValueProblem
from jobs.records.formats.interface.writer_schema import RegistrySchema, SchemaId

MOST_SCHEMAS = 1000
UNKNOWN_SECONDS = 60.0
"""How long an unknown id stays unknown without another request, in seconds."""
_MOST_UNKNOWN = 10_000
# Limit of all waits for unknown ids within a minute, in multiples of the wait for one id: many invented ids must not
# delay other records for hours.
_WAITS_A_MINUTE = 3
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0
_MOST_REGISTRIES = 8


class ProcessSchemas:
    """Schemas of one registry that a process has looked up.

    Args:
        ask: Asks the registry; raises `NotInRegistryError` for an unknown id.
        lag: How long an unknown id is looked up again, in seconds, because registries lag behind producers.
        clock: Returns the time in seconds.
        sleep: Waits for a number of seconds.
    """

    def __init__(
        self,
        ask: Callable[[SchemaId], RegistrySchema],
        lag: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._ask: Callable[[SchemaId], RegistrySchema] = ask
        self._lag: float = lag
        self._clock: Callable[[], float] = clock
        self._sleep: Callable[[float], None] = sleep
        self._lock: threading.RLock = threading.RLock()
        self._found: OrderedDict[SchemaId, RegistrySchema] = OrderedDict()
        self._unknown: OrderedDict[SchemaId, tuple[float, str]] = OrderedDict()
        self._waits_began: float = clock()
        self._waited: float = 0.0

    def find(self, schema_id: SchemaId) -> RegistrySchema:
        """Return the schema of an id.

        Raises:
            ValueProblem: The registry does not know the id, even after repeated requests.
            OSError: The registry does not answer.
        """
        with self._lock:
            found = self._found.get(schema_id)
            if found is not None:
                self._found.move_to_end(schema_id)
                return found
            until, said = self._unknown.get(schema_id, (0.0, ""))
            if self._clock() < until:
                raise _unknown(schema_id, said)
            self._unknown.pop(schema_id, None)
            try:
                found = self._asked(schema_id)
            except NotInRegistryError as problem:
                said = first_line(problem.message)
                self._unknown[schema_id] = (self._clock() + UNKNOWN_SECONDS, said)
                while len(self._unknown) > _MOST_UNKNOWN:
                    self._unknown.popitem(last=False)
                raise _unknown(schema_id, said) from None
            self._found[schema_id] = found
            while len(self._found) > MOST_SCHEMAS:
                self._found.popitem(last=False)
            return found

    def besides(self, known: Mapping[SchemaId, RegistrySchema]) -> dict[SchemaId, RegistrySchema]:
        """Return the schemas that were looked up here and are not in `known`."""
        with self._lock:
            return {each: schema for each, schema in self._found.items() if each not in known}

    def _asked(self, schema_id: SchemaId) -> RegistrySchema:
        now = self._clock()
        if now - self._waits_began >= UNKNOWN_SECONDS:
            self._waits_began, self._waited = now, 0.0
        rest = min(self._lag, max(0.0, _WAITS_A_MINUTE * self._lag - self._waited))
        pause = _FIRST_PAUSE
        while True:
            try:
                return self._ask(schema_id)
            except NotInRegistryError:
                if rest <= 0:
                    raise
            pause = min(pause, rest)
            self._sleep(pause)
            rest, self._waited = rest - pause, self._waited + pause
            pause = min(2 * pause, _LONGEST_PAUSE)


_known: OrderedDict[str, tuple[RegistryConnection, ProcessSchemas, RegistryClient]] = OrderedDict()
_known_lock = threading.Lock()


def process_schemas(connection: RegistryConnection) -> tuple[ProcessSchemas, RegistryClient]:
    """Return this process's cache and client for a connection."""
    with _known_lock:
        found = _known.pop(connection.identity, None)
        if found is None or found[0] != connection:
            client = RegistryClient(connection)
            found = (connection, ProcessSchemas(client.schema, connection.lag), client)
        _known[connection.identity] = found
        while len(_known) > _MOST_REGISTRIES:
            _known.popitem(last=False)
        return found[1], found[2]


def learned(connection: RegistryConnection, known: Mapping[SchemaId, RegistrySchema]) -> dict[SchemaId, RegistrySchema]:
    """Return the schemas that this process has looked up and are not in `known`; the registry is not asked."""
    with _known_lock:
        found = _known.get(connection.identity)
    return {} if found is None else found[1].besides(known)


def _unknown(schema_id: SchemaId, said: str) -> ValueProblem:
    return ValueProblem(UNKNOWN_SCHEMA, f"needs the schema with {schema_id}, found none: {said}")
