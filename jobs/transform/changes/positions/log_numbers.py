"""Positions of SQL Server and Db2: the log sequence numbers of the commit and of the change, in hexadecimal."""

# pyarrow.compute makes its functions when it is imported, so a type checker sees none of them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from jobs.transform.changes.fixed_text import joined_digits, mask_of, number_digits, text_digits
from jobs.transform.changes.positions.position import Positions, null_unless
from jobs.transform.changes.source_block import SourceBlock

_GROUPS = r"^[0-9a-f]{8}(:[0-9a-f]{8})*:[0-9a-f]{2,8}$"


def sqlserver_positions(source: SourceBlock) -> Positions:
    """`commit/change/serial`, 20, 20 and 16 digits."""
    return _positions(source, "sqlserver", 20)


def db2_positions(source: SourceBlock) -> Positions:
    """`commit/change/serial`, 32, 32 and 16 digits; the last of them zeros."""
    return _positions(source, "db2", 32)


def _positions(source: SourceBlock, connector: str, width: int) -> Positions:
    commit, change = (_number(source.texts(name)) for name in ("commit_lsn", "change_lsn"))
    fits = pc.less_equal(pc.utf8_length(commit), width)
    valid = mask_of(fits)
    # A row of a snapshot has the commit up to which it was read, and no change.
    lacking = mask_of(source.values.is_valid()) & ~source.reads & ~(valid & mask_of(change.is_valid()))
    parts = [text_digits(commit, width), text_digits(change, width), number_digits(source.numbers("event_serial_no"))]
    lineage = source.joined(connector, source.texts("name"), source.texts("db"))
    return Positions(
        joined_digits(parts, valid), null_unless(lineage, valid), lacking, "commit_lsn or source.change_lsn"
    )


def _number(texts: pa.Array) -> pa.Array:
    """A number's digits without colons; null where the text is none."""
    small = pc.ascii_lower(texts)
    groups = pc.match_substring_regex(small, _GROUPS)
    return pc.if_else(groups, pc.replace_substring(small, ":", ""), pa.scalar(None, pa.string()))
