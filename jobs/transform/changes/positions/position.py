"""Positions of changes in their source: what each connector's kernel gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from jobs.transform.masks import Mask


@dataclass(frozen=True, slots=True)
class Positions:
    """Positions of some changes.

    Attributes:
        texts: Of one width within a lineage, sorted as the source orders its changes; null where there is none.
        lineages: Within what they are compared; null where there is no position.
        lacking: Which changes have no position though the source gives them one, as their events are no such
            connector's, by the field of `source` that they lack.
    """

    texts: pa.Array
    lineages: pa.Array
    lacking: Mapping[str, Mask]


def no_positions(count: int) -> Positions:
    """Changes of a source whose events hold nothing that sorts: Kafka's order is theirs."""
    none = pa.nulls(count, pa.string())
    return Positions(none, none, {})


def null_unless(values: pa.Array, valid: Mask) -> pa.Array:
    """The texts where a mask says so, else null."""
    if valid.all():
        return values
    indices = np.where(valid, np.arange(len(values)), -1)
    return values.take(pa.array(indices, mask=~valid))
