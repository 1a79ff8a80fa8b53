"""Rows of a decoded block that come, or go, once its records were looked at again."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa

from jobs.formats.decoder import OTHER_UNKNOWN_PATHS, Decoded, Failure


def with_rows(decoded: Decoded, parts: Mapping[int, Decoded]) -> Decoded:
    """The block with rows of records that had failed, by row."""
    positions = np.concatenate([decoded.positions, np.fromiter(parts, np.int64, len(parts))])
    order = np.argsort(positions)
    together = pa.Table.from_batches([decoded.rows, *(each.rows for each in parts.values())], decoded.rows.schema)
    batches = together.take(pa.array(order)).combine_chunks().to_batches()
    unknown = dict(decoded.unknown_fields)
    for each in parts.values():
        for path, count in each.unknown_fields.items():
            unknown[path] = unknown.get(path, 0) + count
    return replace(
        decoded,
        rows=batches[0],
        positions=positions[order],
        failures=[each for each in decoded.failures if each.row not in parts],
        unknown_fields=unknown,
    )


def without_rows(decoded: Decoded, failures: Mapping[int, Failure], left: Collection[set[str]]) -> Decoded:
    """The block without rows that fail after all.

    Args:
        failures: By row.
        left: Of each, the fields without a column.
    """
    good = ~np.isin(decoded.positions, np.fromiter(failures, np.int64, len(failures)))
    unknown = dict(decoded.unknown_fields)
    for places in left:
        for place in places:
            name = place if place in unknown else OTHER_UNKNOWN_PATHS
            if unknown.get(name, 0) > 1:
                unknown[name] -= 1
            else:
                unknown.pop(name, None)
    return replace(
        decoded,
        rows=decoded.rows.filter(pa.array(good)),
        positions=decoded.positions[good],
        failures=sorted([*decoded.failures, *failures.values()], key=lambda each: each.row),
        unknown_fields=unknown,
    )
