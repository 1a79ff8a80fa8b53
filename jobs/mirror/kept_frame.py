"""Kept frame: rows that several statements of a merge read, computed once.

What Spark persists it finds again in queries, but not in a MERGE, which would read the changes and fold them anew. So
the rows are checkpointed where they are computed. An executor that is lost meanwhile fails the merge, which is made
again like any other that failed.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def kept_frame(frame: DataFrame, until: contextlib.ExitStack) -> DataFrame:
    """The same rows, computed now; their space is given back at the end of `until`."""
    kept = frame.localCheckpoint(eager=True)
    until.callback(_given_back, kept)
    return kept


def _given_back(kept: Any) -> None:
    # A JVM that has ended has given it back, and its end is told by what went before.
    with contextlib.suppress(Exception):
        # As RDD.unpersist does it, which warns that it is checkpointed.
        checkpointed = kept._jdf.queryExecution().analyzed().rdd().id()
        kept.sparkSession.sparkContext._jsc.sc().unpersistRDD(checkpointed, False)
