"""Positions of MySQL and MariaDB: the number of the binlog's file, the place in it, and the row of the event."""

# pyarrow.compute makes its functions when it is imported, so a type checker sees none of them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from jobs.transform.changes.fixed_text import joined_digits, number_digits
from jobs.transform.changes.positions.position import Positions, null_unless
from jobs.transform.changes.source_block import SourceBlock
from jobs.transform.masks import mask_of

_FILE = r"^(?P<base>.*)\.(?P<number>[0-9]{1,9})$"


def binlog_positions(source: SourceBlock) -> Positions:
    """`file/pos/row`, 8, 16 and 8 digits.

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
