"""Discarded rows, as replays see them: they stand on the branch for good, main never gets them, and letters have them.

So the rows that tell whether the record of such a letter has landed again are those of main, and those of the branch
that are still to be published.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.manifest import ManifestContent
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from jobs.commit.branch import TableOnBranch
from jobs.commit.discards import Discards, is_discarded
from jobs.commit.publications import published_through
from jobs.deadletter.row_json import DISCARDED_ROW
from jobs.formats.problems import DISCARDED
from jobs.replay.landed import already_landed, landed_among, near


def are_discarded(letters: pa.RecordBatch) -> np.ndarray:
    """Which letters are of discarded rows: a mask over them."""
    return _equal(letters, "error_class", DISCARDED)


def are_rows(letters: pa.RecordBatch) -> np.ndarray:
    """Which letters have a row as JSON for their value: a mask over them."""
    return _equal(letters, "stage", DISCARDED_ROW)


def _equal(letters: pa.RecordBatch, column: str, value: str) -> np.ndarray:
    return np.array([each == value for each in letters.column(column).to_pylist()], dtype=bool)


def stand_in_table(
    sink: Table, letters: pa.RecordBatch, stream: str, *, columns: tuple[str, str, str, str]
) -> np.ndarray:
    """Which letters are of records that have a row in the table, one that was discarded not counted: a mask over them.

    Args:
        sink: The stream's table, as the branch has it that the stream writes.
        letters: Of any reason.
        stream: The stream's id.
        columns: What the table calls topic, partition, offset and timestamp.
    """
    discarded = are_discarded(letters)
    if not discarded.any():
        return already_landed(sink, letters, columns=columns)
    found = np.zeros(letters.num_rows, dtype=bool)
    found[~discarded] = already_landed(sink, letters.filter(pa.array(~discarded)), columns=columns)
    found[discarded] = _landed_again(sink, letters.filter(pa.array(discarded)), stream, columns=columns)
    return found


def _landed_again(
    sink: Table, letters: pa.RecordBatch, stream: str, *, columns: tuple[str, str, str, str]
) -> np.ndarray:
    """Which records of discarded rows have another row, in main or on the way there: a mask over their letters."""
    if not letters.num_rows or not isinstance(sink, TableOnBranch):
        return already_landed(sink, letters, columns=columns)
    main = Table(sink.name(), sink.whole, sink.metadata_location, sink.io, sink.catalog, sink.config)
    found = already_landed(main, letters, columns=columns)
    ahead = _paths_ahead(sink, stream)
    if not ahead:
        return found
    wanted = near(letters, columns)
    tasks = [each for each in sink.scan(row_filter=wanted).plan_files() if each.file.file_path in ahead]
    schema: Schema = sink.schema().select(*columns)
    rows = ArrowScan(sink.metadata, sink.io, schema, wanted).to_record_batches(tasks)
    return found | landed_among(rows, letters, columns=columns)


def _paths_ahead(sink: TableOnBranch, stream: str) -> frozenset[str]:
    """The data files of the branch that came after what main has of it, and that are not about to be discarded."""
    head = sink.metadata.current_snapshot()
    after = published_through(sink.whole, stream, sink.branch) or 0
    discards = Discards.of(sink.whole.properties, stream).on(sink.branch)
    paths: set[str] = set()
    for manifest in head.manifests(sink.io) if head else ():
        if manifest.content != ManifestContent.DATA or manifest.sequence_number <= after:
            continue
        entries = manifest.fetch_manifest_entry(sink.io, discard_deleted=True)
        numbered = ((each.sequence_number or 0, each.data_file.file_path) for each in entries)
        paths.update(path for number, path in numbered if number > after and not is_discarded(discards, number))
    return frozenset(paths)
