"""Survey of JSON records: what they need of their table, found fast, by a task that is going to run again anyway.

The first run of a batch's tasks need not say what becomes of each record once one needs a wider column, or one that may
be null: the driver makes that change, and they run again. So from the first block with such a need on a survey decodes
by the columns as they will be, and tells nothing but what the records need beyond them. It finds all that the exact
decoder finds, without explaining each failed record.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from jobs.formats.decoder import DECODE_VALUE, Decoded, Failure, ValueDecoder
from jobs.formats.json.block import JsonBlockDecoder
from jobs.formats.json.healing import Heal, healed
from jobs.formats.json.reference import JsonReferenceDecoder
from jobs.formats.problems import MISSING_FIELD, NULL_IN_REQUIRED, OUT_OF_RANGE
from jobs.schema.declared import StructType
from jobs.schema.needs import Need

_SAMPLE = 64
_MANY = 1_000
_CURABLE = frozenset({MISSING_FIELD, NULL_IN_REQUIRED, OUT_OF_RANGE})
_UNDECIDED = "undecided"
_NONE = np.zeros(0, np.int64)

MakeBlock: TypeAlias = Callable[..., JsonBlockDecoder]
Stack: TypeAlias = Callable[[StructType, MakeBlock], ValueDecoder]
"""Makes the decoder of some columns that tells what the table lacks, around the one that it is given."""


class SurveyingJsonDecoder:
    """Decodes JSON objects as the exact decoder does, up to the first block that needs a wider or an optional column.

    That block and all behind it are `Decoded.undecided`: they have needs, and neither rows nor failures.

    Args:
        declared: The columns.
        stack: Makes the exact decoder.
    """

    def __init__(self, declared: StructType, stack: Stack) -> None:
        self._stack: Stack = stack
        self._undecided: bool = False
        self._adopt(declared)

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decodes a block; a bad record becomes a failure, it never raises.

        Args:
            values: One value per record; null is a tombstone.
        """
        needs: list[Need] = []
        while True:
            self._sampled.left = False
            decoded = self._decoder.decode(values)
            needs += decoded.needs
            columns = healed(self._columns, [Heal.of(need) for need in decoded.needs if need.change != "add"])
            if columns != self._columns:
                self._undecided = True
                self._adopt(columns)
            elif self._sampled.left:
                # What the first ones have is no need, or one that is met: each has to be looked at.
                self._sampled.whole = True
            else:
                break
        if not self._undecided:
            return decoded
        return Decoded(decoded.rows.slice(0, 0), _NONE, [], _NONE, {}, tuple(needs), undecided=True)

    def _adopt(self, columns: StructType) -> None:
        self._columns: StructType = columns
        self._decoder: ValueDecoder = self._stack(columns, self._block)

    def _block(self, columns: StructType, **options: Any) -> JsonBlockDecoder:
        self._sampled: _Sampled = _Sampled(JsonReferenceDecoder(columns, **options))
        return JsonBlockDecoder(columns, reference=self._sampled, **options)


class _Sampled:
    """The reference decoder, which of many records that fail for want of a change decodes the first ones alone.

    Args:
        inner: The reference decoder.

    Attributes:
        left: Set once records are left that were not decoded: failures with no reason.
        whole: Decode all, whatever the first ones are.
    """

    def __init__(self, inner: ValueDecoder) -> None:
        self._inner: ValueDecoder = inner
        self.left: bool = False
        self.whole: bool = False

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decodes a block; a bad record becomes a failure, it never raises.

        Args:
            values: One value per record; null is a tombstone.
        """
        if self.whole or len(values) < _MANY:
            return self._inner.decode(values)
        first = self._inner.decode(values.slice(0, _SAMPLE))
        if 2 * sum(each.error_class in _CURABLE for each in first.failures) < _SAMPLE:
            return self._inner.decode(values)
        self.left = True
        rest = [Failure(row, DECODE_VALUE, _UNDECIDED, "", None) for row in range(_SAMPLE, len(values))]
        return replace(first, failures=[*first.failures, *rest])
