"""Targets of a stream: the tables that it commits to, what each is for, and which is stamped in every batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from jobs.spec.main_branch import MAIN_BRANCH
from jobs.spec.partitioning import PartitionExpr

DEAD_LETTER_COORDINATES = ("topic", "partition", "offset")

Role = Literal["rows", "dead_letters"]


@dataclass(frozen=True, slots=True)
class TargetSpec:
    """One table that a stream commits to.

    Attributes:
        name: Its full name.
        role: Whether it holds the stream's rows, or the records that became none.
        coordinator: Whether it is stamped in every batch, before all others; its stamps say who else has rows of the
            batch. One table of a stream is.
        partition_by: Of a table of rows; the others are partitioned as frazil decides.
        properties: Iceberg's properties that a table of rows is created with.
        coordinates: The columns that say which record a row is of: topic, partition and offset.
        branch: Of the table, that the stream writes.
    """

    name: str
    role: Role
    coordinator: bool = False
    partition_by: tuple[PartitionExpr, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict, compare=False)
    coordinates: tuple[str, str, str] = DEAD_LETTER_COORDINATES
    branch: str = MAIN_BRANCH
