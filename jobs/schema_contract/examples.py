"""Example records held against a stream: what its own decoder says of each, without Kafka."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import pyarrow as pa
from pyiceberg.table.metadata import TableMetadata

from jobs.formats.decoder import Failure
from jobs.formats.known_formats import FORMATS
from jobs.schema.rename import RenameSuggestion
from jobs.spec.models import StreamSpec


@dataclass(frozen=True, slots=True)
class ExamplesContract:
    """What becomes of example records.

    Attributes:
        records: How many there are; tombstones are none of them.
        failures: Why some become dead letters; `row` counts from zero.
        left_out: Fields that no column takes, by path, with how many records have them.
        renames: Columns that may be called otherwise in the records.
    """

    records: int
    failures: tuple[Failure, ...] = ()
    left_out: Counter[str] = field(default_factory=Counter)
    renames: tuple[RenameSuggestion, ...] = ()


def examples_contract(spec: StreamSpec, metadata: TableMetadata, lines: list[bytes]) -> ExamplesContract:
    """Decode records as the stream's reference decoder does.

    Args:
        spec: A stream whose records name no writer schema.
        metadata: Of the stream's table.
        lines: A record each.
    """
    decoder = spec.resolved_for(metadata.schema(), metadata.properties).decoder
    decoded = FORMATS[decoder.kind].reference(decoder).decode(pa.array(lines, pa.binary()))
    renames = dict.fromkeys(RenameSuggestion(each.former, each.path) for each in decoded.needs if each.former)
    return ExamplesContract(len(lines), tuple(decoded.failures), Counter(decoded.unknown_fields), tuple(renames))
