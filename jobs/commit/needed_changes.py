"""Needed changes: what becomes of needs of a stream's table, by policy, steps and the tables that follow it. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

from pyiceberg.table.metadata import TableMetadata

from jobs.commit.followers import followable
from jobs.schema.evolution import Evolution, judged
from jobs.schema.needs import EvolutionPolicy, Path, RecordNeed
from jobs.spec.models import StreamSpec
from jobs.spec.transform.shaping import evolving_rules, evolving_schema, followed


def needed_changes(
    spec: StreamSpec,
    needs: Iterable[RecordNeed],
    metadata: TableMetadata,
    *,
    policy: EvolutionPolicy | None = None,
    added_lately: int = 0,
    always: Container[Path] = (),
    followers: Mapping[str, TableMetadata] | None = None,
) -> Evolution:
    """What becomes of needs of a table's columns; of a stream with steps, of its decoded columns.

    Args:
        spec: The stream.
        needs: What records need.
        metadata: The table's.
        policy: What becomes of each kind of change; None for the stream's.
        added_lately: How many columns were added within the last hour.
        always: Columns that are added whatever the policy says.
        followers: Metadata of the tables that have the table's columns, by name; None: they are not asked.
    """
    if spec.shapes:
        # The table's columns are those behind the steps, which name them.
        needs = [each._replace(former=None) for each in needs]
    found = judged(
        needs,
        evolving_schema(spec, metadata),
        policy or spec.evolution,
        added_lately=added_lately,
        json=spec.decode.format == "json",
        always=always,
        **evolving_rules(spec, metadata),
    )
    found = followed(spec, found, metadata)
    return found if followers is None else followable(spec, found, metadata, followers)
