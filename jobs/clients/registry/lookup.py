"""Look-up of writer schemas in a task: what the driver sent along is known, the rest is asked of the registry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from jobs.clients.registry.connection import RegistryConnection
from jobs.records.formats.interface.problems import NO_SCHEMA_ID, UNKNOWN_SCHEMA, ValueProblem
from jobs.records.formats.interface.writer_schema import RegistrySchema, SchemaId


@dataclass(frozen=True, slots=True)
class RegistryLookup:
    """Finds writer schemas (`jobs.records.formats.interface.writer_schema.SchemaLookup`); travels to the tasks pickled.

    The registry's client is imported only where an id is met that the driver does not know.

    Attributes:
        connection: Of the registry. Never logged; what is secret in it is left out of its repr.
        known: What the driver knows already.
        refused: Ids that count as unknown whatever the registry says by now: it did not know them when a batch was
            decided on that is run again.
        unmet: Ids that were looked for here, and that the registry did not know.
    """

    connection: RegistryConnection
    known: Mapping[SchemaId, RegistrySchema] = field(default_factory=dict, repr=False)
    refused: frozenset[SchemaId] = frozenset()
    unmet: set[SchemaId] = field(default_factory=set, repr=False, compare=False)

    def find(self, schema_id: SchemaId) -> RegistrySchema:
        """The schema of an id.

        Raises:
            ValueProblem: The registry does not know the id, though it was asked for a time.
            OSError: The registry cannot be asked.
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
        """What this process had to ask for and the driver does not know: for a task to return."""
        from jobs.clients.registry.process_schemas import learned

        return learned(self.connection, self.known)


def unknown_ids_mean_away(landed: int, failures: Mapping[str, int]) -> bool:
    """Whether a batch's tallies look like a registry that is away, rather than like bad records.

    One in which no record had an id that the registry knows was asked of a registry that is empty, is another one, or
    lags. Where the registry still has schemas that the stream knows (`KnownSchemas.compare` in the same room), the
    records are bad after all.

    Args:
        landed: Records of the batch that became rows.
        failures: The others, by the class of their failure. A record without an id says nothing of the registry.
    """
    with_known_id = landed + sum(
        count for each, count in failures.items() if each not in (UNKNOWN_SCHEMA, NO_SCHEMA_ID)
    )
    return failures.get(UNKNOWN_SCHEMA, 0) > 0 and with_known_id == 0
