"""The stream of a topic whose records are JSON objects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

from jobs.errors import FrazilError
from jobs.formats.json.inference import InferenceRules, inferred
from jobs.formats.json.seen_values import Place, SeenValues, example_values, parsed
from jobs.kafka.topic_sample import SampleRecord
from orchestration.cli.schema.inferred_columns import column_lines, time_column
from orchestration.cli.schema.stream_yaml import NewStream


class LookedAtJson:
    """What was seen of a sample of JSON records.

    Args:
        show_values: Whether comments have values.
    """

    def __init__(self, *, show_values: bool) -> None:
        self.seen: SeenValues = SeenValues()
        self.examples: dict[str, list[Any]] = {}
        self._show_values: bool = show_values
        self._records: int = 0
        self._tombstones: int = 0
        self._others: int = 0
        self._first_other: SampleRecord | None = None

    def add(self, records: Iterable[SampleRecord]) -> None:
        """Look at some records."""
        for record in records:
            self._records += 1
            if record.value is None:
                self._tombstones += 1
            elif (value := parsed(record.value)) is not None:
                self.seen.add(value, Place(record.partition.topic, record.partition.partition, record.offset))
                if self._show_values:
                    example_values(value, self.examples)
            else:
                self._others += 1
                self._first_other = self._first_other or record

    def stream(self, topic: str, end: str, stream: str, table: str, rules: InferenceRules) -> NewStream:
        """The stream of the topic.

        Raises:
            FrazilError: No value is a JSON object, or none has a field.
        """
        self._require(topic)
        found = inferred(self.seen, rules)
        if found.schema is None:
            problem = f"topic {topic}: no record that was looked at has a field."
            raise FrazilError(problem, fix="produce some, or --oldest")
        columns = list(column_lines(found, self.examples))
        return NewStream(stream, topic, "json", columns, table, list(self._told(topic, end)), time_column(found.schema))

    def _require(self, topic: str) -> None:
        if self.seen.count:
            return
        first = self._first_other
        if first is None:
            raise FrazilError(f"topic {topic} has no record with a value.", fix=f"frazil schema infer {topic} --oldest")
        where = f"the first one at {Place(topic, first.partition.partition, first.offset)}"
        raise FrazilError(
            f"topic {topic}: no value is a JSON object; {where} has {len(first.value or b''):,} bytes.",
            fix="write the stream with another decode.value, such as string or bytes",
        )

    def _told(self, topic: str, end: str) -> Iterator[str]:
        yield (
            f"Inferred on {datetime.now(UTC):%Y-%m-%d} from the {end} {self._records:,} records of topic {topic}, "
            f"of which {self.seen.count:,} are JSON objects."
        )
        if self._tombstones:
            yield f"Tombstones: {self._tombstones:,}; they are counted and not landed."
        if first := self._first_other:
            yield (
                f"Of another form: {self._others:,}, which would become dead letters; the first at "
                f"{Place(topic, first.partition.partition, first.offset)}."
            )
        yield "Records that were not looked at may differ. `not null` behind a column refuses records without it."
