"""Join settings of a merge: how Spark joins the changes with the rows of the mirror, by how many there are of each.

A row of the mirror that no change meets is of no use behind the scan, and in a large mirror nearly all of them are
such. So the keys of the changes go before the join as a Bloom filter, and what it leaves is little to sort. A merge
that inserts is an outer join, of which Spark broadcasts the mirror's side alone: it does so where that is small.
"""

from __future__ import annotations

ROWS_IN_A_PARTITION = 1_000_000
"""Of the mirror and the changes, in one task of the join."""
FEW_ROWS = 250_000
"""A mirror of less rows is joined as it is."""
ROWS_TO_A_KEY = 4
"""The keys of the changes are a filter where the mirror has so many rows for each of them."""
_MOST_KEYS = 4_000_000
FILTER = "spark.sql.optimizer.runtime.bloomFilter"
BROADCAST = "spark.sql.autoBroadcastJoinThreshold"


def join_conf(there: int, keys: int, cores: int, *, may_filter: bool = True) -> dict[str, str]:
    """Settings of Spark's session for one MERGE.

    Args:
        there: Rows of the mirror, about.
        keys: Rows that are merged.
        cores: Tasks that run at once.
        may_filter: Whether Spark may make a filter of the keys; not where rows that no change meets are written anew.
    """
    filtered = may_filter and there >= FEW_ROWS and keys * ROWS_TO_A_KEY <= there and keys <= _MOST_KEYS
    joined = (0 if filtered else there) + keys
    return {
        "spark.sql.shuffle.partitions": str(max(cores, 1 + joined // ROWS_IN_A_PARTITION)),
        f"{FILTER}.enabled": str(filtered).lower(),
        # Spark has its own reasons not to make the filter: too small a table, a source that is not known to be small
        # enough, a join that might broadcast.
        f"{FILTER}.applicationSideScanSizeThreshold": "0",
        f"{FILTER}.creationSideThreshold": str((1 << 63) - 1),
        f"{FILTER}.expectedNumItems": str(max(10_000, keys)),
        f"{FILTER}.numBits": str(1 << max(17, min(26, (16 * keys).bit_length()))),
        # It prunes no bucket that literals have not pruned, and where it might there is no filter either.
        "spark.sql.optimizer.dynamicPartitionPruning.enabled": str(not filtered).lower(),
        BROADCAST: "-1" if filtered else str(10 * 1024**2),
    }
