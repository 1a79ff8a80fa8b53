"""What is reported of a subject, and what somebody can do before its records come."""

from __future__ import annotations

import pytest

from jobs.config.stream.models import StreamSpec
from jobs.quality.schema_checks.subjects import (
    SubjectContract,
    advice,
    subject_contract,
    subject_sentences,
)
from jobs.records.formats.interface.writer_schema import RegistrySchema, WriterSchema
from tests.unit.quality.schema_checks.test_forecast import metadata, spec_of

PROTO = 'syntax = "proto3"; message M { string id = 1; int32 n = 2; string note = 3;%s }'


def held(spec: StreamSpec, text: str) -> SubjectContract:
    schema = RegistrySchema("PROTOBUF", WriterSchema(text))
    return subject_contract(spec, metadata(spec, "id string, n int, note string"), "t-value", 7, schema)


@pytest.mark.parametrize(
    ("evolve", "text", "said", "step"),
    [
        ({}, PROTO % "", "Table n.s takes what t-value version 7 brings.", None),
        (
            {},
            PROTO % " int64 a = 4; bytes b = 5;",
            "Table n.s takes what t-value version 7 brings. The first record of it changes the table: add column a "
            "long; add column b binary.",
            None,
        ),
        (
            {"add": "propose", "widen": "ignore"},
            PROTO.replace("int32", "int64") % " int64 a = 4;",
            "Records of t-value version 7 would become dead letters: n: long is wider than the table's int, and "
            "would become dead letters until somebody decides: a: long is not in the table.",
            "set evolve.add: auto, evolve.widen: auto in streams/s.yaml; or with the first record the change is "
            "proposed: frazil schema apply s",
        ),
        (
            {"add": "fail"},
            PROTO.replace("string note", "bool note") % " int64 a = 4;",
            "Records of t-value version 7 would stop the stream: a: long is not in the table, and would become dead "
            "letters: note: boolean is another type than the table's string.",
            "set evolve.add: auto in streams/s.yaml; or keep its records from being produced",
        ),
    ],
)
def test_what_would_happen_and_what_can_be_done(evolve: dict[str, str], text: str, said: str, step: str | None) -> None:
    spec = spec_of(evolve)
    found = held(spec, text)
    assert subject_sentences(found, "n.s") == said
    assert advice(spec, found) == step


def test_a_schema_that_no_record_can_be_read_with() -> None:
    found = held(spec_of(), "no schema")
    assert subject_sentences(found, "n.s").startswith(
        "Records of t-value version 7 would become dead letters: it cannot be read: "
    )
    assert advice(spec_of(), found) == "keep its records from being produced"
