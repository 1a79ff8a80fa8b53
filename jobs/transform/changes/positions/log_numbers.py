"""Positions of SQL Server and Db2: log sequence numbers in hexadecimal.

SQL Server's is that of the commit alone: the number of a change (`__$seqval`) does not ascend within a transaction, so
within one Kafka's order counts. Db2's changes ascend within theirs.
"""

# pyarrow.compute makes its functions when it is imported, so a type checker sees none of them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from jobs.transform.changes.fixed_text import joined_digits, number_digits, text_digits
from jobs.transform.changes.positions.position import Positions, null_unless
from jobs.transform.changes.source_block import SourceBlock
from jobs.transform.masks import Mask, mask_of

SQLSERVER_DIGITS, DB2_DIGITS = 20, 32
_GROUPS = r"^[0-9a-f]{8}(:[0-9a-f]{8})*:[0-9a-f]{2,8}$"


def sqlserver_positions(source: SourceBlock) -> Positions:
    """`commit`, 20 digits."""
    commit = _number(source.texts("commit_lsn"))
    valid = mask_of(pc.less_equal(pc.utf8_length(commit), SQLSERVER_DIGITS))
    lacking = mask_of(source.values.is_valid()) & ~source.reads & ~valid
    parts = [text_digits(commit, SQLSERVER_DIGITS)]
    return Positions(joined_digits(parts, valid), _lineage(source, "sqlserver", valid), {"commit_lsn": lacking})


def db2_positions(source: SourceBlock) -> Positions:
    """`commit/change/serial`, 32, 32 and 16 digits; the last of them zeros."""
    commit, change = (_number(source.texts(name)) for name in ("commit_lsn", "change_lsn"))
    valid = mask_of(pc.less_equal(pc.utf8_length(commit), DB2_DIGITS))
    # A row of a snapshot has the commit up to which it was read, and no change.
    lacking = mask_of(source.values.is_valid()) & ~source.reads & ~(valid & mask_of(change.is_valid()))
    serial = number_digits(source.numbers("event_serial_no"))
    parts = [text_digits(commit, DB2_DIGITS), text_digits(change, DB2_DIGITS), serial]
    lineage = _lineage(source, "db2", valid)
    return Positions(joined_digits(parts, valid), lineage, {"commit_lsn or source.change_lsn": lacking})


def _lineage(source: SourceBlock, connector: str, valid: Mask) -> pa.Array:
    return null_unless(source.joined(connector, source.texts("name"), source.texts("db")), valid)


def _number(texts: pa.Array) -> pa.Array:
    """A number's digits without colons; null where the text is none."""
    small = pc.ascii_lower(texts)
    groups = pc.match_substring_regex(small, _GROUPS)
    return pc.if_else(groups, pc.replace_substring(small, ":", ""), pa.scalar(None, pa.string()))
