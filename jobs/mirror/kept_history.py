"""Kept history: where the history of rows begins in a changelog of which changes have expired."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from jobs.commit.offsets import TopicPartition


@dataclass(frozen=True, slots=True)
class HistoryStart:
    """Where histories begin: with the rows of a base.

    Attributes:
        offsets: By partition, the first offset from which on all changes are there.
        snapshot_id: Of the mirror, the base; None if it has none that stands for what is gone.
    """

    offsets: Mapping[TopicPartition, int]
    snapshot_id: int | None
