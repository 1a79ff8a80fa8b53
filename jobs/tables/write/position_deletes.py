"""Position delete files (Iceberg v2): written and read.

One file has the positions for all data files of a partition. So a merge that touches many data files leaves one delete
file for each partition.
"""

# pyarrow.compute makes its functions when it is imported, so a type checker sees none of them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import struct
import uuid
from collections.abc import Collection, Mapping
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Record

from jobs.tables.write.column_statistics import ColumnStatistics
from jobs.tables.write.pyiceberg_files import (
    PartitionDirectory,
    locations,
    new_data_file,
    parquet_options,
)

PATH_ID, POSITION_ID = 2147483546, 2147483545
"""Field ids of the columns, reserved by Iceberg's specification."""
_SCHEMA = pa.schema(
    [
        # The file has text; in memory the path is a dictionary index per position.
        pa.field(
            "file_path",
            pa.dictionary(pa.int32(), pa.string()),
            nullable=False,
            metadata={"PARQUET:field_id": str(PATH_ID)},
        ),
        pa.field("pos", pa.int64(), nullable=False, metadata={"PARQUET:field_id": str(POSITION_ID)}),
    ]
)
_READ_AT_ONCE = 65_536

Positions = np.ndarray[Any, np.dtype[np.int64]]


def write_position_deletes(
    metadata: TableMetadata, io: FileIO, partition: Record, positions: Mapping[str, Positions], *, prefix: str
) -> DataFile:
    """Write one position delete file.

    Args:
        metadata: The table's metadata; the data files have its current partition spec.
        positions: Positions by the path of a data file, ascending; at least one.

    Returns:
        The file for a commit. Its bounds are whole paths, by which readers find the data files concerned.

    Raises:
        OSError: The file cannot be written; nothing references what is left.
    """
    paths = sorted(positions, key=str.encode)
    counts = [len(positions[path]) for path in paths]
    rows = sum(counts)
    named = pa.DictionaryArray.from_arrays(np.repeat(np.arange(len(paths), dtype=np.int32), counts), pa.array(paths))
    every = np.concatenate([positions[path] for path in paths])
    table = pa.Table.from_arrays([named, pa.array(every)], schema=_SCHEMA)
    spec = metadata.spec()
    directory = None if spec.is_unpartitioned() else PartitionDirectory(partition, spec, metadata.schema())
    path = locations(metadata).new_data_location(f"{prefix}-{uuid.uuid4()}-deletes.parquet", directory)
    options = parquet_options(metadata.properties)
    with io.new_output(path).create(overwrite=True) as stream:
        with pq.ParquetWriter(
            cast(Any, stream),
            _SCHEMA,
            compression=options["compression"],
            compression_level=options["compression_level"],
            use_dictionary=cast(Any, ["file_path"]),
            store_schema=False,
        ) as writer:
            writer.write_table(table)
        size = stream.tell()
    bounds = {PATH_ID: (paths[0].encode(), paths[-1].encode())}
    bounds[POSITION_ID] = (struct.pack("<q", int(every.min())), struct.pack("<q", int(every.max())))
    return new_data_file(
        path=path,
        size=size,
        partition=partition,
        spec_id=metadata.default_spec_id,
        content=DataFileContent.POSITION_DELETES,
        statistics=ColumnStatistics(
            record_count=rows,
            value_counts=dict.fromkeys(bounds, rows),
            null_value_counts=dict.fromkeys(bounds, 0),
            lower_bounds={each: least for each, (least, _) in bounds.items()},
            upper_bounds={each: greatest for each, (_, greatest) in bounds.items()},
        ),
    )


def read_position_deletes(io: FileIO, file: DataFile, wanted: Collection[str]) -> dict[str, Positions]:
    """Positions in a delete file for some data files, ascending; data files without any are left out.

    Raises:
        OSError, pa.ArrowException: The file is missing or damaged.
    """
    paths = [*wanted]
    asked = pa.array(paths, pa.string())
    found: dict[str, list[Positions]] = {}
    with io.new_input(file.file_path).open() as stream:
        # The path repeats for each position. As a dictionary it is not one text for each.
        parquet = pq.ParquetFile(cast(Any, stream), read_dictionary=["file_path"])
        for batch in parquet.iter_batches(_READ_AT_ONCE, columns=["file_path", "pos"]):
            named = batch["file_path"]
            place = pc.fill_null(pc.index_in(named.dictionary.cast(pa.string()), value_set=asked), -1).to_numpy()
            codes = place[named.indices.to_numpy()]
            every = batch["pos"].to_numpy()
            for code in map(int, np.unique(codes[codes >= 0])):
                found.setdefault(paths[code], []).append(every[codes == code])
    return {path: np.unique(np.concatenate(parts)) for path, parts in found.items()}
