"""Positions of Oracle: the system change number of the commit.

Transactions come in the order of their commits. Several may have one number, and a change's own number says nothing of
their order; so within one number Kafka's order counts.
"""

# pyarrow.compute makes its functions when it is imported, so a type checker sees none of them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import pyarrow.compute as pc

from jobs.transform.changes.fixed_text import joined_digits, number_digits
from jobs.transform.changes.positions.position import Positions, no_positions, null_unless
from jobs.transform.changes.source_block import SourceBlock
from jobs.transform.masks import mask_of


def oracle_positions(source: SourceBlock) -> Positions:
    """`commit`, 16 digits; of a row of a snapshot the number at which it was read."""
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
