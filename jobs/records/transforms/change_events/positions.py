"""Positions of changes in their source, by its connector: texts that sort as the source orders its changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.records.transforms.change_events.debezium_events import SourceBlock
from jobs.records.transforms.change_events.fixed_text import joined_digits, number_digits, text_digits
from jobs.records.transforms.masks import Mask, mask_of


@dataclass(frozen=True, slots=True)
class Positions:
    """Positions of some changes.

    Attributes:
        texts: Positions of one width within a source timeline, sorted as the source orders its changes; null without
            one.
        lineages: Source timelines within which positions are compared; null without a position.
        lacking: Mask of the changes that lack a position their source should have, by the field of `source` that they
            lack: their events are not that connector's.
    """

    texts: pa.Array
    lineages: pa.Array
    lacking: Mapping[str, Mask]


def no_positions(count: int) -> Positions:
    """Return no positions, for a source whose events hold nothing that sorts: Kafka's order counts."""
    none = pa.nulls(count, pa.string())
    return Positions(none, none, {})


def null_unless(values: pa.Array, valid: Mask) -> pa.Array:
    """Return the texts where a mask is true, else null."""
    if valid.all():
        return values
    indices = np.where(valid, np.arange(len(values)), -1)
    return values.take(pa.array(indices, mask=~valid))


_PG_SEQUENCE = r'^\s*\[\s*(?:null|"(?P<commit>[0-9]{1,19})")\s*,\s*(?:null|"(?P<lsn>[0-9]{1,19})")\s*\]\s*$'


def postgresql_positions(source: SourceBlock) -> Positions:
    """Return PostgreSQL's positions: the end of the last committed transaction, then the log position; 16 digits each.

    The text is `commit/lsn`. Transactions come in the order of their commits, but the log positions of their changes
    overlap. `source.sequence` holds both: `["24023119","24023128"]`.

    Before a connector has seen the end of a transaction, `sequence` begins with null. The commits 1 and 0, which no log
    has, then distinguish the first transaction from the snapshot before it: some of its changes may have a lower log
    position than the snapshot. Without `sequence` there is no position: by the log position alone a change may seem
    older than one that was committed before it.
    """
    if not source.has("sequence"):
        return no_positions(source.count)
    sequence = source.texts("sequence")
    commit, lsn = sequence_numbers(sequence, source.reads)
    valid = mask_of(lsn.is_valid())
    lacking = ~valid & mask_of(source.values.is_valid()) & ~source.reads & mask_of(sequence.is_valid())
    texts = joined_digits([number_digits(commit), number_digits(lsn)], valid)
    lineage = source.joined("postgresql", source.texts("name"), source.texts("db"))
    return Positions(texts, null_unless(lineage, valid), {"sequence": lacking})


def sequence_numbers(texts: pa.Array, reads: Mask) -> tuple[pa.Array, pa.Array]:
    """Return the two numbers of texts like `["24023119","24023128"]`; the second is null for other texts.

    Args:
        texts: Texts of `source.sequence`.
        reads: Mask of the texts whose rows are read for a snapshot.
    """
    parts = pc.extract_regex(texts, _PG_SEQUENCE)
    commit, place = (_unsigned(pc.struct_field(parts, name)) for name in ("commit", "lsn"))
    first = pa.array(np.where(reads, 0, 1), pa.int64())
    return pc.coalesce(commit, first), place


def _unsigned(digits: pa.Array) -> pa.Array:
    empty = pc.equal(digits, "")
    numbers = pc.if_else(empty, pa.scalar(None, pa.string()), digits)
    return numbers.cast(pa.uint64()).view(pa.int64())


_FILE = r"^(?P<base>.*)\.(?P<number>[0-9]{1,9})$"


def binlog_positions(source: SourceBlock) -> Positions:
    """Return the positions of MySQL and MariaDB: `file/pos/row`, 8, 16 and 8 digits.

    They are compared within the binlogs of one server, identified by the base name of its files and its id. Rows of a
    first snapshot have the id 0, so the changes behind it are on another, later source timeline.
    """
    file = pc.extract_regex(source.texts("file"), _FILE)
    digits = pc.struct_field(file, "number")
    number = pc.if_else(pc.equal(digits, ""), pa.scalar(None, pa.string()), digits).cast(pa.int64())
    valid = mask_of(number.is_valid()) & source.there("pos")
    parts = [number_digits(number, 8), number_digits(source.numbers("pos")), number_digits(source.numbers("row"), 8)]
    server = source.numbers("server_id").cast(pa.string())
    lineage = source.joined(source.texts("connector"), source.texts("name"), pc.struct_field(file, "base"), server)
    lacking = ~valid & mask_of(source.values.is_valid()) & ~source.reads
    negative = lacking & mask_of(pc.less(source.signed("pos"), 0))
    found = {"file or source.pos": lacking & ~negative, "pos": negative}
    return Positions(joined_digits(parts, valid), null_unless(lineage, valid), found)


SQLSERVER_DIGITS, DB2_DIGITS = 20, 32
_LSN_GROUPS = r"^[0-9a-f]{8}(:[0-9a-f]{8})*:[0-9a-f]{2,8}$"


def sqlserver_positions(source: SourceBlock) -> Positions:
    """Return SQL Server's positions: `commit`, 20 digits.

    The number of a change (`__$seqval`) does not ascend within a transaction, so Kafka's order counts there.
    """
    commit = _lsn(source.texts("commit_lsn"))
    valid = mask_of(pc.less_equal(pc.utf8_length(commit), SQLSERVER_DIGITS))
    lacking = mask_of(source.values.is_valid()) & ~source.reads & ~valid
    parts = [text_digits(commit, SQLSERVER_DIGITS)]
    return Positions(joined_digits(parts, valid), _lsn_lineage(source, "sqlserver", valid), {"commit_lsn": lacking})


def db2_positions(source: SourceBlock) -> Positions:
    """Return Db2's positions: `commit/change/serial`, 32, 32 and 16 digits, the last zeros; changes ascend."""
    commit, change = (_lsn(source.texts(name)) for name in ("commit_lsn", "change_lsn"))
    valid = mask_of(pc.less_equal(pc.utf8_length(commit), DB2_DIGITS))
    # A row of a snapshot has the commit up to which it was read, and no change number.
    lacking = mask_of(source.values.is_valid()) & ~source.reads & ~(valid & mask_of(change.is_valid()))
    serial = number_digits(source.numbers("event_serial_no"))
    parts = [text_digits(commit, DB2_DIGITS), text_digits(change, DB2_DIGITS), serial]
    lineage = _lsn_lineage(source, "db2", valid)
    return Positions(joined_digits(parts, valid), lineage, {"commit_lsn or source.change_lsn": lacking})


def _lsn_lineage(source: SourceBlock, connector: str, valid: Mask) -> pa.Array:
    return null_unless(source.joined(connector, source.texts("name"), source.texts("db")), valid)


def _lsn(texts: pa.Array) -> pa.Array:
    """Return a number's digits without colons; null for other texts."""
    small = pc.ascii_lower(texts)
    groups = pc.match_substring_regex(small, _LSN_GROUPS)
    return pc.if_else(groups, pc.replace_substring(small, ":", ""), pa.scalar(None, pa.string()))


def oracle_positions(source: SourceBlock) -> Positions:
    """Return Oracle's positions: the commit's system change number in 16 digits; a snapshot's row has that of its
    reading.

    Transactions come in the order of their commits. Several may have one number, so Kafka's order counts within it.
    """
    if not source.has("commit_scn"):
        return no_positions(source.count)
    commit = source.numbers("commit_scn")
    read = pc.if_else(source.reads, source.numbers("scn"), commit)
    number = pc.coalesce(commit, read)
    valid = mask_of(number.is_valid())
    lacking = mask_of(source.values.is_valid()) & ~source.reads & ~valid
    lineage = source.joined("oracle", source.texts("name"), source.texts("db"))
    return Positions(
        joined_digits([number_digits(number)], valid), null_unless(lineage, valid), {"commit_scn": lacking}
    )


_KERNELS: Mapping[str, Callable[[SourceBlock], Positions]] = {
    "postgresql": postgresql_positions,
    "mysql": binlog_positions,
    "mariadb": binlog_positions,
    "sqlserver": sqlserver_positions,
    "db2": db2_positions,
    "oracle": oracle_positions,
}
"""Position functions by `source.connector`. MongoDB is not among them: since version 6.0 its events have the time of
the server's clock, not of its log, so nothing in them sorts.
"""
_TOLD_BY = (("pos", "mysql"), ("event_serial_no", "sqlserver"), ("commit_scn", "oracle"), ("sequence", "postgresql"))
"""Fields that identify the connector if a file declares `source` without `connector`."""


def source_positions(source: SourceBlock) -> Positions:
    """Return the positions of events; those of another connector have none, so that Kafka's order counts."""
    if not source.has("connector"):
        named = next((name for field, name in _TOLD_BY if source.has(field)), None)
        return no_positions(source.count) if named is None else _KERNELS[named](source)
    connectors = source.texts("connector")
    known = [each for each in pc.unique(connectors).to_pylist() if each in _KERNELS]
    if len(known) == 1:
        found = _KERNELS[known[0]](source)
        return (
            found
            if mask_of(pc.equal(connectors, known[0])).all()
            else _of_connector(source, found, known[0], connectors)
        )
    result = no_positions(source.count)
    for each in known:
        result = _merged(result, _of_connector(source, _KERNELS[each](source), each, connectors))
    return result


def _of_connector(source: SourceBlock, found: Positions, connector: str, connectors: pa.Array) -> Positions:
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
