"""Look-up of writer schemas in a task: among those that the driver sent along, then in the registry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from jobs.clients.registry.connection import RegistryConnection
from jobs.records.formats.interface.problems import NO_SCHEMA_ID, UNKNOWN_SCHEMA, ValueProblem
from jobs.records.formats.interface.writer_schema import RegistrySchema, SchemaId


@dataclass(frozen=True, slots=True)
class RegistryLookup:
    """Picklable `SchemaLookup` of a task (see `jobs.records.formats.interface.writer_schema`).

    The registry's client is imported only for an id that the driver does not know.

    Attributes:
        connection: Connection to the registry. Never logged; its secrets are left out of its repr.
        known: Schemas that the driver knows.
        refused: Ids that count as unknown whatever the registry knows now: it did not know them when the batch, which
            is now repeated, was decided.
        unmet: Ids that this task has looked up, and that the registry did not know.
    """

    connection: RegistryConnection
    known: Mapping[SchemaId, RegistrySchema] = field(default_factory=dict, repr=False)
    refused: frozenset[SchemaId] = frozenset()
    unmet: set[SchemaId] = field(default_factory=set, repr=False, compare=False)

    def find(self, schema_id: SchemaId) -> RegistrySchema:
        """Return the schema of an id.

        Raises:
            ValueProblem: The registry does not know the id, even after repeated requests.
            OSError: The registry does not answer.
        """
        if schema_id in self.refused:
            said = "the registry did not know it when the batch was decided on"
            raise ValueProblem(UNKNOWN_SCHEMA, f"needs the schema with {schema_id}, found none: {said}")
        found = self.known.get(schema_id)
        if found is not None:
            return found
        from jobs.clients.registry.process_schemas import process_schemas

        try:
            return process_schemas(self.connection)[0].find(schema_id)
        except ValueProblem:
            self.unmet.add(schema_id)
            raise

    def learned(self) -> dict[SchemaId, RegistrySchema]:
        """Return the schemas that this process has looked up and the driver does not know; a task returns them."""
        from jobs.clients.registry.process_schemas import learned

        return learned(self.connection, self.known)


def unknown_ids_mean_away(landed: int, failures: Mapping[str, int]) -> bool:
    """Whether a batch's failures point to an unusable registry rather than to bad records.

    If no record of the batch has an id that the registry knows, the registry may be empty, another one, or lagging. If
    the registry still has schemas that the stream knows (`KnownSchemas.compare`), the records are bad after all.

    Args:
        landed: Number of records that became rows.
        failures: Number of failed records by error class. A record without an id does not count.
    """
    with_known_id = landed + sum(
        count for each, count in failures.items() if each not in (UNKNOWN_SCHEMA, NO_SCHEMA_ID)
    )
    return failures.get(UNKNOWN_SCHEMA, 0) > 0 and with_known_id == 0
