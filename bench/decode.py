"""Decoding benchmark, the cost of each decoder: `python -m bench.decode`.

Decodes the same blocks of payments by the reference decoder and by the block decoder, in turn, in one process, so that
what else the machine does meets both alike. Records per CPU-second of the decoding alone, minimum, median and maximum
over the rounds, and the ratio of the two of each round. The payments are those of the comparison with Kafka Connect;
bad ones are cut off, have a wrong type, lack a field, have too many digits, or no time, in turn.

`--avro` and `--protobuf` measure the same payments as Avro records and as Protobuf messages behind the id of a schema,
in turn with JSON, both in blocks and to the same columns; bad ones are cut off. With `--schemas N` they are written by
N schemas, chance says by which, that differ in the order of the columns that may be null; their blocks are joined as a
task does it (`jobs/streaming/task/run.py`), and measured in turn with records of the first schema.

`--others` measures the same for what could have taken the block decoder's place, each without any proof or conversion:
pyarrow's JSON reader with the columns as its schema, msgspec for each record, msgspec for a block as one JSON array.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec
import pyarrow as pa
from pyarrow.json import ParseOptions, ReadOptions, read_json

from bench.avro_payments import AvroPayments
from bench.dead_letters import bad
from bench.protobuf_payments import ProtobufPayments
from bench.versus.enveloped import enveloped
from bench.versus.records import Size, payments, schema_text
from jobs.clients.kafka.records import FetchedBlock
from jobs.records.formats.interface.decoder import ValueDecoder
from jobs.records.formats.interface.decoder_spec import DeclaredSchema, DecoderSpec
from jobs.records.formats.interface.writer_schema import RegistrySchema, SchemaId
from jobs.records.formats.json.block import JsonBlockDecoder
from jobs.records.formats.json.keys import struct_class
from jobs.records.formats.json.reference import JsonReferenceDecoder
from jobs.records.formats.known_formats import FORMATS
from jobs.records.schema.arrow_schema import arrow_schema
from jobs.records.schema.declared import StructType
from jobs.records.schema.parser import parse_schema
from jobs.streaming.task.run import joined_blocks
from jobs.tables.commit.stamp.offsets import TopicPartition

SHARES = (0.0, 0.001, 0.01, 0.1)
_SIZES: tuple[Size, Size] = ("small", "1k")


@dataclass(frozen=True, slots=True)
class Case:
    """A block of records to decode.

    Attributes:
        values: Blocks of records.
        format: Format of the records.
    """

    name: str
    declared: StructType
    values: list[pa.BinaryArray]
    format: str = "json"


def main() -> None:
    """Measure every case and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=10_000, help="in a block")
    parser.add_argument("--blocks", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--others", action="store_true")
    parser.add_argument("--avro", action="store_true")
    parser.add_argument("--protobuf", action="store_true")
    parser.add_argument("--schemas", type=int, default=1, help="with --avro or --protobuf (default: %(default)s)")
    arguments = parser.parse_args()
    for name in ("avro", "protobuf"):
        if getattr(arguments, name) and arguments.schemas > 1:
            compare_schemas(name, arguments.schemas, arguments.records, arguments.blocks, arguments.rounds)
            return
        if getattr(arguments, name):
            compare_with_json(name, arguments.records, arguments.blocks, arguments.rounds)
            return
    if arguments.others:
        compare_others(arguments.records, arguments.rounds)
        return
    print(f"{'records per CPU-second':24}{'reference':>26}{'block':>30}{'ratio':>20}")
    for case in cases(arguments.records, arguments.blocks):
        reference, block = measured(case, arguments.rounds)
        ratios = [ours / theirs for ours, theirs in zip(block, reference, strict=True)]
        print(f"{case.name:24}{_spread(reference)}{_spread(block)}{_spread(ratios, '.2f', 6)}", flush=True)


def cases(records: int, blocks: int) -> list[Case]:
    """Both sizes, with several shares of bad records, with half of the keys undeclared, and in many orders of keys."""
    found: list[Case] = []
    for size in _SIZES:
        values = [one for part in payments(size, records * blocks) for one in part.values]
        declared = parse_schema(schema_text(size))
        for share in SHARES:
            spoilt = _spoilt(values, share)
            found.append(Case(f"{size}, {share:.1%} bad", declared, _blocks(spoilt, records)))
        half = StructType(declared.fields[::2])
        found.append(Case(f"{size}, half undeclared", half, _blocks(values, records)))
        found.append(Case(f"{size}, keys in any order", declared, _blocks(_shuffled(values), records)))
        carried = _blocks(enveloped(declared, values), records)
        found.append(Case(f"{size}, connect_json", declared, carried, "connect_json"))
    return found


def measured(case: Case, rounds: int) -> tuple[list[float], list[float]]:
    """Records per CPU-second of the reference and of the block decoder, one figure for each round."""
    format_, spec = FORMATS[case.format], DecoderSpec(case.format, DeclaredSchema(case.declared.text))
    decoders: list[ValueDecoder] = [format_.reference(spec), format_.block(spec)]
    reference, block = in_turn([(decoder, case.values) for decoder in decoders], rounds)
    return reference, block


def in_turn(sides: Sequence[tuple[ValueDecoder, list[pa.BinaryArray]]], rounds: int) -> list[list[float]]:
    """Records per CPU-second of decoders, each with its blocks, one figure for each round."""
    found: list[list[float]] = [[] for _ in sides]
    for number in range(rounds + 1):
        for (decoder, blocks), rates in zip(sides, found, strict=True):
            begin = time.process_time()
            for values in blocks:
                decoder.decode(values)
            if number:
                rates.append(sum(map(len, blocks)) / (time.process_time() - begin))
    return found


def compare_with_json(format_: str, records: int, blocks: int, rounds: int) -> None:
    """Print records per CPU-second of JSON, of another format, and their ratio."""
    print(f"{'records per CPU-second':24}{'json':>26}{format_:>30}{'ratio':>20}")
    for size in _SIZES:
        payments_of = [one for part in payments(size, records * blocks) for one in part.values]
        declared = parse_schema(schema_text(size))
        written = AvroPayments(declared) if format_ == "avro" else ProtobufPayments(declared)
        messages = [written.record(one) for one in payments_of]
        options = {"unknown_fields": "ignore"}
        decoder = FORMATS[format_].block(DecoderSpec(format_, DeclaredSchema(schema_text(size)), options, written))
        for share in SHARES:
            every = round(1 / share) if share else len(messages) + 1
            cut = [one[:-1] if number % every == every - 1 else one for number, one in enumerate(messages)]
            sides = [
                (JsonBlockDecoder(declared), _blocks(_spoilt(payments_of, share), records)),
                (decoder, _blocks(cut, records)),
            ]
            json_rates, rates = in_turn(sides, rounds)
            ratios = [ours / theirs for ours, theirs in zip(rates, json_rates, strict=True)]
            name = f"{size}, {share:.1%} bad"
            print(f"{name:24}{_spread(json_rates)}{_spread(rates)}{_spread(ratios, '.2f', 6)}", flush=True)


def compare_schemas(format_: str, schemas: int, records: int, blocks: int, rounds: int) -> None:
    """Print records per CPU-second of records of one writer schema, of several, and their ratio."""
    print(f"{'records per CPU-second':24}{'one schema':>26}{f'{schemas} schemas':>30}{'ratio':>20}")
    made = AvroPayments if format_ == "avro" else ProtobufPayments
    for size in _SIZES:
        payments_of = [one for part in payments(size, records * blocks) for one in part.values]
        declared, chance = parse_schema(schema_text(size)), random.Random(7)
        writers = [made(_rotated(declared, number), number + 1) for number in range(schemas)]
        one = [writers[0].record(each) for each in payments_of]
        many = [chance.choice(writers).record(each) for each in payments_of]
        lookup = _Registry(writers)
        spec = DecoderSpec(format_, DeclaredSchema(schema_text(size)), {"unknown_fields": "ignore"}, lookup)
        decoder = FORMATS[format_].block(spec)
        fetched = (_fetched(values) for values in _blocks(many, records))
        together = [each.records.column("value") for each in joined_blocks(fetched, lambda: schemas)]
        one_rates, rates = in_turn([(decoder, _blocks(one, records)), (decoder, together)], rounds)
        ratios = [ours / theirs for ours, theirs in zip(rates, one_rates, strict=True)]
        print(f"{size:24}{_spread(one_rates)}{_spread(rates)}{_spread(ratios, '.2f', 6)}", flush=True)


def _fetched(values: pa.BinaryArray) -> FetchedBlock:
    records = pa.RecordBatch.from_arrays([values], ["value"])
    return FetchedBlock(TopicPartition("payments", 0), records, lambda rows: records.take(pa.array(rows)))


class _Registry:
    """Finds several writer schemas, whose ids are 1, 2, and so on."""

    def __init__(self, writers: Sequence[AvroPayments | ProtobufPayments]) -> None:
        self._writers: Sequence[AvroPayments | ProtobufPayments] = writers

    def find(self, schema_id: SchemaId) -> RegistrySchema:
        return self._writers[(schema_id.number or 0) - 1].find(schema_id)

    @property
    def unmet(self) -> frozenset[SchemaId]:
        """Empty set: every requested id is known here, or made up."""
        return frozenset()

    def learned(self) -> dict[SchemaId, RegistrySchema]:
        return {}


def _rotated(declared: StructType, by: int) -> StructType:
    """The columns with those that may be null in another order."""
    required = [each for each in declared.fields if each.required]
    others = [each for each in declared.fields if not each.required]
    by %= len(others)
    return StructType((*required, *others[by:], *others[:by]))


def compare_others(records: int, rounds: int) -> None:
    """Print how much of the reference's time each of the others takes."""
    for size in _SIZES:
        _compare(size, records, rounds)


def _compare(size: Size, records: int, rounds: int) -> None:
    values = [one for part in payments(size, records) for one in part.values]
    block = pa.array(values, pa.binary())
    declared = parse_schema(schema_text(size))
    columns = pa.schema([_parsed(one) for one in arrow_schema(declared)])
    parse = ParseOptions(explicit_schema=columns, unexpected_field_behavior="error")
    kind = struct_class(declared, forbid_unknown=True, extras={})
    one_by_one, array = msgspec.json.Decoder(kind).decode, msgspec.json.Decoder(list[kind]).decode
    lines, text = pa.py_buffer(b"\n".join(values)), b"[" + b",".join(values) + b"]"
    read = ReadOptions(use_threads=False, block_size=lines.size)
    reference, ours = JsonReferenceDecoder(declared), JsonBlockDecoder(declared)
    ways: dict[str, Callable[[], object]] = {
        "reference": lambda: reference.decode(block),
        "block": lambda: ours.decode(block),
        "pyarrow": lambda: read_json(pa.BufferReader(lines), read, parse),
        "msgspec": lambda: [one_by_one(value) for value in values],
        "msgspec, one array": lambda: array(text),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, way in ways.items():
            begin = time.process_time()
            way()
            if number:
                times[name].append(time.process_time() - begin)
    for name, spent in times.items():
        shares = [mine / theirs for mine, theirs in zip(spent, times["reference"], strict=True)]
        print(f"{f'{size}, {name}':24}{_spread(shares, '.2f', 6)} of the reference's time", flush=True)


def _parsed(field: pa.Field) -> pa.Field:
    """The column as the reader can read it: a text where the reference converts one."""
    if pa.types.is_struct(field.type):
        return pa.field(field.name, pa.struct([_parsed(field.type.field(i)) for i in range(field.type.num_fields)]))
    plain = pa.string() if pa.types.is_temporal(field.type) or pa.types.is_binary(field.type) else field.type
    return pa.field(field.name, plain)


def _blocks(values: list[bytes], records: int) -> list[pa.BinaryArray]:
    return [pa.array(values[at : at + records], pa.binary()) for at in range(0, len(values), records)]


def _spoilt(values: list[bytes], share: float) -> list[bytes]:
    every = round(1 / share) if share else len(values) + 1
    return [
        bad(json.loads(value), number // every % 5) if number % every == every - 1 else value
        for number, value in enumerate(values)
    ]


def _shuffled(values: list[bytes]) -> list[bytes]:
    chance = random.Random(7)
    pairs = (list(json.loads(value).items()) for value in values)
    return [json.dumps(dict(chance.sample(one, len(one))), separators=(",", ":")).encode() for one in pairs]


def _spread(figures: list[float], form: str = ",.0f", width: int = 10) -> str:
    return "".join(f"{one:>{width}{form}}" for one in (min(figures), statistics.median(figures), max(figures)))


if __name__ == "__main__":
    main()
