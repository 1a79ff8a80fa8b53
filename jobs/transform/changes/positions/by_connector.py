"""Positions by connector: which of Debezium's connectors wrote an event, and what its position is made of."""

# pyarrow.compute makes its functions when it is imported, so a type checker sees none of them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from jobs.transform.changes.positions.binlog import binlog_positions
from jobs.transform.changes.positions.log_numbers import db2_positions, sqlserver_positions
from jobs.transform.changes.positions.oracle import oracle_positions
from jobs.transform.changes.positions.position import Positions, no_positions
from jobs.transform.changes.positions.postgresql import postgresql_positions
from jobs.transform.changes.source_block import SourceBlock
from jobs.transform.masks import mask_of

_KERNELS: Mapping[str, Callable[[SourceBlock], Positions]] = {
    "postgresql": postgresql_positions,
    "mysql": binlog_positions,
    "mariadb": binlog_positions,
    "sqlserver": sqlserver_positions,
    "db2": db2_positions,
    "oracle": oracle_positions,
}
"""By `source.connector`. MongoDB's events are not among them: their time is the server's clock since version 6.0, not
that of its log, so nothing in them sorts."""
_FIELDS = (("pos", "mysql"), ("event_serial_no", "sqlserver"), ("commit_scn", "oracle"), ("sequence", "postgresql"))
"""Where a file declares `source` without `connector`: a field that tells which one it is."""


def source_positions(source: SourceBlock) -> Positions:
    """The positions of events; of those of another connector none, so that Kafka's order is theirs."""
    if not source.has("connector"):
        named = next((name for field, name in _FIELDS if source.has(field)), None)
        return no_positions(source.count) if named is None else _KERNELS[named](source)
    connectors = source.texts("connector")
    known = [each for each in pc.unique(connectors).to_pylist() if each in _KERNELS]
    if len(known) == 1:
        found = _KERNELS[known[0]](source)
        return found if mask_of(pc.equal(connectors, known[0])).all() else _where(source, found, known[0], connectors)
    result = no_positions(source.count)
    for each in known:
        result = _merged(result, _where(source, _KERNELS[each](source), each, connectors))
    return result


def _where(source: SourceBlock, found: Positions, connector: str, connectors: pa.Array) -> Positions:
    mine = pc.equal(connectors, connector)
    none = pa.scalar(None, pa.string())
    texts, lineages = (pc.if_else(mine, each, none) for each in (found.texts, found.lineages))
    return replace(
        found,
        texts=texts,
        lineages=lineages,
        lacking={field: lacking & mask_of(mine) for field, lacking in found.lacking.items()},
    )


def _merged(one: Positions, other: Positions) -> Positions:
    lacking = dict(one.lacking)
    for field, mask in other.lacking.items():
        lacking[field] = lacking[field] | mask if field in lacking else mask
    texts, lineages = pc.coalesce(one.texts, other.texts), pc.coalesce(one.lineages, other.lineages)
    return Positions(texts, lineages, lacking)
