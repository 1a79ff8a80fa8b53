"""Pending record: what a batch is about to commit, written durably before the first commit.

If a restart finds one, it commits the record's files to the targets that lack the batch and runs no tasks. So a batch
never lands half under one configuration and half under another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata

from jobs.base.errors import FrazilError
from jobs.tables.commit.protocol.proposals import Seen
from jobs.tables.commit.stamp.offsets import (
    OffsetRange,
    Positions,
    Ranges,
    TopicPartition,
)
from jobs.tables.commit.stamp.stamps import Stamp
from jobs.tables.write.datafile_json import from_json, to_json

FORMAT = 1


@dataclass(frozen=True, slots=True)
class PendingTarget:
    """What one target is about to receive.

    Attributes:
        position: Positions of the batch's partitions when the tasks were planned.
        stamp: The target's stamp; the totals are added when it is committed.
        unreadable: The table was dropped, or no longer has the partition spec of the files. They can no longer be read
            from the record, and no longer fit the table.
    """

    position: Positions
    stamp: Stamp
    files: tuple[DataFile, ...]
    seen: Seen
    unreadable: bool = False


@dataclass(frozen=True, slots=True)
class Pending:
    """What a batch is about to commit, by target, the coordinator first."""

    batch: Ranges
    targets: Mapping[str, PendingTarget]

    @property
    def anchor(self) -> str | None:
        """Coordinator of the driver that wrote the record; None if it had the batch already."""
        return next((name for name, planned in self.targets.items() if planned.stamp.targets), None)

    def encode(self, metadata: Mapping[str, TableMetadata]) -> bytes:
        """The record as JSON; `metadata` has each target's schemas and partition specs."""
        document = {
            "v": FORMAT,
            "batch": [[p.topic, p.partition, r.start, r.end] for p, r in sorted(self.batch.items())],
            "targets": {
                name: {
                    "position": [[p.topic, p.partition, at] for p, at in sorted(target.position.items())],
                    "stamp": target.stamp.to_json(),
                    "files": [to_json(file, metadata[name]) for file in target.files],
                    "uuid": target.seen.uuid,
                    "schema": target.seen.schema.model_dump_json(),
                    "schema_id": target.seen.schema_id,
                    "spec_id": target.seen.spec_id,
                }
                for name, target in self.targets.items()
            },
        }
        return msgspec.json.encode(document)

    @staticmethod
    def names(content: bytes) -> list[str]:
        """Targets that an encoded record names; their metadata is needed to decode it."""
        return list(msgspec.json.decode(content)["targets"])

    @staticmethod
    def decode(content: bytes, metadata: Mapping[str, TableMetadata]) -> Pending:
        """The inverse of `encode`.

        Raises:
            FrazilError: A version with another format wrote the record.
        """
        document = msgspec.json.decode(content)
        if document["v"] != FORMAT:
            raise FrazilError(
                f"the pending record has format {document['v']}, this version of frazil reads {FORMAT}",
                fix="start the stream once with the version that wrote it",
            )
        return Pending(
            {TopicPartition(t, p): OffsetRange(start, end) for t, p, start, end in document["batch"]},
            {name: _target(target, metadata.get(name)) for name, target in document["targets"].items()},
        )


def _target(document: Mapping[str, Any], metadata: TableMetadata | None) -> PendingTarget:
    files = document["files"]
    # Spark's `expire_snapshots` with `clean_expired_metadata` removes specs that no snapshot uses.
    # The record was written for another table: the table was suspended since, or recreated.
    another = metadata is not None and str(metadata.table_uuid) != document["uuid"]
    gone = metadata is None or not {file["spec"] for file in files} <= metadata.specs().keys()
    return PendingTarget(
        {TopicPartition(t, p): at for t, p, at in document["position"]},
        Stamp.from_json(document["stamp"]),
        () if metadata is None or gone or another else tuple(from_json(file, metadata) for file in files),
        Seen(
            document["uuid"],
            Schema.model_validate_json(document["schema"]),
            document["schema_id"],
            document["spec_id"],
        ),
        unreadable=gone,
    )
