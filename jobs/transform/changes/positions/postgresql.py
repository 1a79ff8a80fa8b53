"""Positions of PostgreSQL: the end of the last committed transaction, then the place of the change in the log.

Transactions come one behind the other in the order in which they were committed, but the places of their changes
overlap. `source.sequence` holds both: `["24023119","24023128"]`.
"""

# pyarrow.compute makes its functions when it is imported, so a type checker sees none of them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.transform.changes.fixed_text import joined_digits, number_digits
from jobs.transform.changes.positions.position import Positions, no_positions, null_unless
from jobs.transform.changes.source_block import SourceBlock
from jobs.transform.masks import Mask, mask_of

_SEQUENCE = r'^\s*\[\s*(?:null|"(?P<commit>[0-9]{1,19})")\s*,\s*(?:null|"(?P<lsn>[0-9]{1,19})")\s*\]\s*$'


def postgresql_positions(source: SourceBlock) -> Positions:
    """`commit/lsn`, 16 digits each.

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
    parts = pc.extract_regex(texts, _SEQUENCE)
    commit, place = (_numbers(pc.struct_field(parts, name)) for name in ("commit", "lsn"))
    first = pa.array(np.where(reads, 0, 1), pa.int64())
    return pc.coalesce(commit, first), place


def _numbers(digits: pa.Array) -> pa.Array:
    empty = pc.equal(digits, "")
    numbers = pc.if_else(empty, pa.scalar(None, pa.string()), digits)
    return numbers.cast(pa.uint64()).view(pa.int64())
