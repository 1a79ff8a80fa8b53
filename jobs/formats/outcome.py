"""What comes out of a decoder: good rows, failed rows with their reason, tombstones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Failure:
    """Why one row failed.

    Attributes:
        row: Index of the row in the block.
        stage: The stage that refused it, such as `decode_value`.
        error_class: Stable identifier of the reason.
        message: One sentence that names what was found and what is needed.
        field: JSON path such as `$.a.b[2]`; None when the whole record is at fault.
    """

    row: int
    stage: str
    error_class: str
    message: str
    field: str | None


@dataclass(frozen=True, slots=True)
class Decoded:
    """One decoded block. `positions`, the rows of `failures` and `tombstones` partition `range(len(block))`.

    Attributes:
        rows: The good rows only.
        positions: `positions[i]` is the index in the block of `rows[i]`, ascending.
        failures: One for each row that failed, ascending by row.
        tombstones: Indices in the block of null values, ascending.
        unknown_fields: For each JSON path that is not declared (`$.items[].x`), in how many good rows it was met.
    """

    rows: pa.RecordBatch
    positions: npt.NDArray[np.int64]
    failures: list[Failure]
    tombstones: npt.NDArray[np.int64]
    unknown_fields: dict[str, int]
