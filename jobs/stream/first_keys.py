"""First keys of a stream that infers their columns: what its first records are told apart by."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from pyiceberg.schema import Schema

from jobs.commit.log_state import LogState
from jobs.commit.offsets import Positions
from jobs.formats.connect_json.inference import SeenEnvelopes
from jobs.formats.connect_types import AS_SENT
from jobs.formats.json.inference import first_columns
from jobs.formats.json.seen_values import Place, SeenValues, parsed
from jobs.kafka.topic_sample import SampleRecord
from jobs.schema.iceberg_schema import fresh_schema, iceberg_schema
from jobs.spec.models import StreamSpec
from jobs.spec.settings import Settings
from jobs.stream.first_records import RecordsAwaitedError, first_sample


def inferred_key(spec: StreamSpec, settings: Settings, log: LogState, begin: Positions | None = None) -> Schema:
    """The columns of the keys of a stream's first records, none if these are changes of a table without a key.

    Arguments as of `inferred_rows`.

    Raises:
        RecordsAwaitedError: None of them has a key with fields.
        KafkaUnavailableError: Nothing came within the time-out for requests.
    """
    key = spec.decode.key
    connect = key is not None and key.format == "connect_json"
    as_sent = key.options.get(AS_SENT, ()) if key is not None else ()
    sample = first_sample(spec, settings, log, begin)
    found = key_columns(sample, connect=connect, events=spec.changes is not None, as_sent=as_sent)
    if found is None or not (found.fields or may_be_keyless(spec)):
        raise RecordsAwaitedError(
            f"stream {spec.stream}: its topics hold no record yet whose key says which columns table {spec.table.name} "
            "has of it.",
            fix=f"produce records with keys, or declare them in decode.key.schema of streams/{spec.stream}.yaml",
        )
    return found


def may_be_keyless(spec: StreamSpec) -> bool:
    """Whether records without keys land where the file leaves the columns of keys open: changes that say of what they
    are. A file may ask for keys (`into: _change_key not null`).
    """
    key, changes = spec.record_columns.key, spec.changes
    asked = key is not None and key.required
    return spec.shapes and changes is not None and not changes.needs_keys and not asked


def are_keyless(sample: Iterable[Sequence[SampleRecord]]) -> bool:
    """Whether records are changes of a table without a key."""
    found = key_columns(sample, connect=False, events=True)
    return found is not None and not found.fields


def key_columns(
    sample: Iterable[Sequence[SampleRecord]], *, connect: bool, events: bool, as_sent: Collection[str] = ()
) -> Schema | None:
    """The columns of the keys of records, none if no record of a row has a key; None if that cannot be said.

    Args:
        sample: The records.
        connect: Whether keys say their schema themselves, in Connect's envelope.
        events: Whether the records are changes of a source: the keys of those that are of no row do not count.
        as_sent: Names of logical types whose values stay texts, numbers or bytes.
    """
    envelopes, values, keys, bare = SeenEnvelopes(as_sent=as_sent), SeenValues(), 0, 0
    for records in sample:
        for each in records:
            if events and _of_no_row(each.value):
                continue
            keys, bare = keys + (each.key is not None), bare + (each.key is None and each.value is not None)
            if each.key is None:
                continue
            place = Place(each.partition.topic, each.partition.partition, each.offset)
            if connect:
                envelopes.add([(place, each.key)])
            elif (value := parsed(each.key)) is not None:
                values.add(value, place)
    if bare and not keys:
        return Schema()
    if connect:
        merged = [each.field for each, _ in envelopes.merged()]
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
