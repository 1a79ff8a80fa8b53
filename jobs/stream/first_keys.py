"""First keys of a stream that infers their columns: what its first records are told apart by."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyiceberg.schema import Schema

from jobs.commit.log_state import LogState
from jobs.commit.offsets import Positions
from jobs.formats.connect_json.inference import SeenEnvelopes
from jobs.formats.json.first_columns import first_columns
from jobs.formats.json.seen_values import Place, SeenValues, parsed
from jobs.kafka.topic_sample import SampleRecord
from jobs.schema.field_ids import fresh_schema
from jobs.schema.iceberg_schema import iceberg_schema
from jobs.spec.models import StreamSpec
from jobs.spec.settings import Settings
from jobs.stream.first_records import RecordsAwaitedError, first_sample


def inferred_key(spec: StreamSpec, settings: Settings, log: LogState, begin: Positions | None = None) -> Schema:
    """The columns of the keys of a stream's first records; arguments as of `inferred_rows`.

    Raises:
        RecordsAwaitedError: None of them has a key with fields.
        KafkaUnavailableError: Nothing came within the time-out for requests.
    """
    key = spec.decode.key
    connect = key is not None and key.format == "connect_json"
    found = key_columns(first_sample(spec, settings, log, begin), connect=connect, events=spec.changes is not None)
    if found is None:
        raise RecordsAwaitedError(
            f"stream {spec.stream}: its topics hold no record yet whose key says which columns table {spec.table.name} "
            "has of it.",
            fix=f"produce records with keys, or declare them in decode.key.schema of streams/{spec.stream}.yaml",
        )
    return found


def key_columns(sample: Iterable[Sequence[SampleRecord]], *, connect: bool, events: bool) -> Schema | None:
    """The columns of the keys of records; None if none has a key with fields.

    Args:
        sample: The records.
        connect: Whether keys say their schema themselves, in Connect's envelope.
        events: Whether the records are changes of a source: the keys of those that are of no row do not count.
    """
    envelopes, values = SeenEnvelopes(), SeenValues()
    for records in sample:
        for each in records:
            if each.key is None or (events and _of_no_row(each.value)):
                continue
            place = Place(each.partition.topic, each.partition.partition, each.offset)
            if connect:
                envelopes.add([(place, each.key)])
            elif (value := parsed(each.key)) is not None:
                values.add(value, place)
    if connect:
        merged = [each.field for each in envelopes.merged()]
        return fresh_schema(merged) if merged else None
    columns = first_columns(values)
    return None if columns is None else iceberg_schema(columns)


def _of_no_row(value: bytes | None) -> bool:
    """Whether a value is a heartbeat, a message or the like; not what cannot be told."""
    found = parsed(value) if value is not None else None
    if found is None:
        return False
    payload = found["payload"] if found.keys() == {"schema", "payload"} else found
    return isinstance(payload, dict) and ("ts_ms" in payload and payload.get("op") in (None, "m"))
