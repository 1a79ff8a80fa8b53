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


_PG_SEQUENCE = r'^\s*\[\s*(?:null|"(?P<commit>[0-9]{1,19})")\s*,\s*(?:null|"(?P<lsn>[0-9]{1,19})")\s*\]\s*$'


def postgresql_positions(source: SourceBlock) -> Positions:
    """PostgreSQL: the end of the last committed transaction, then the place in the log; `commit/lsn`, 16 digits each.

    Transactions come in the order of their commits, but the places of their changes overlap. `source.sequence` holds
    both: `["24023119","24023128"]`.

    Before a connector has seen the end of a transaction, `sequence` begins with null. The first transaction is then
    told from the snapshot before it by the commits 1 and 0, which no log has: some of its changes may stand before the
    place at which the snapshot was taken. Without `sequence` there is no position: by its place alone a change may
    seem older than one that was committed before it.
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
    """The two numbers of texts like `["24023119","24023128"]`; the second is null where a text is none.

    Args:
        texts: Of `source.sequence`.
        reads: Which of them are of rows that are read for a snapshot.
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
    """MySQL and MariaDB: `file/pos/row`, 8, 16 and 8 digits.

    They are compared within the binlogs of one server, which the base name of its files and its id stand for. The
    rows of a first snapshot have the id 0, so the changes behind it are of another lineage, and later.
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
    """SQL Server: `commit`, 20 digits.

    The number of a change (`__$seqval`) does not ascend within a transaction, so within one Kafka's order counts.
    """
    commit = _lsn(source.texts("commit_lsn"))
    valid = mask_of(pc.less_equal(pc.utf8_length(commit), SQLSERVER_DIGITS))
    lacking = mask_of(source.values.is_valid()) & ~source.reads & ~valid
    parts = [text_digits(commit, SQLSERVER_DIGITS)]
    return Positions(joined_digits(parts, valid), _lsn_lineage(source, "sqlserver", valid), {"commit_lsn": lacking})


def db2_positions(source: SourceBlock) -> Positions:
    """Db2, whose changes ascend within a transaction: `commit/change/serial`, 32, 32 and 16 digits, the last zeros."""
    commit, change = (_lsn(source.texts(name)) for name in ("commit_lsn", "change_lsn"))
    valid = mask_of(pc.less_equal(pc.utf8_length(commit), DB2_DIGITS))
    # A row of a snapshot has the commit up to which it was read, and no change.
    lacking = mask_of(source.values.is_valid()) & ~source.reads & ~(valid & mask_of(change.is_valid()))
    serial = number_digits(source.numbers("event_serial_no"))
    parts = [text_digits(commit, DB2_DIGITS), text_digits(change, DB2_DIGITS), serial]
    lineage = _lsn_lineage(source, "db2", valid)
    return Positions(joined_digits(parts, valid), lineage, {"commit_lsn or source.change_lsn": lacking})


def _lsn_lineage(source: SourceBlock, connector: str, valid: Mask) -> pa.Array:
    return null_unless(source.joined(connector, source.texts("name"), source.texts("db")), valid)


def _lsn(texts: pa.Array) -> pa.Array:
    """A number's digits without colons; null where the text is none."""
    small = pc.ascii_lower(texts)
    groups = pc.match_substring_regex(small, _LSN_GROUPS)
    return pc.if_else(groups, pc.replace_substring(small, ":", ""), pa.scalar(None, pa.string()))


def oracle_positions(source: SourceBlock) -> Positions:
    """Oracle: the system change number of the commit, 16 digits; of a row of a snapshot that at which it was read.

    Transactions come in the order of their commits. Several may have one number, so within one Kafka's order counts.
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
"""By `source.connector`. MongoDB's events are not among them: their time is the server's clock since version 6.0, not
that of its log, so nothing in them sorts."""
_TOLD_BY = (("pos", "mysql"), ("event_serial_no", "sqlserver"), ("commit_scn", "oracle"), ("sequence", "postgresql"))
"""Where a file declares `source` without `connector`: a field that tells which one it is."""


def source_positions(source: SourceBlock) -> Positions:
    """The positions of events; of those of another connector none, so that Kafka's order is theirs."""
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
