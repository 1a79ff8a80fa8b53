"""The file of a stream that records are inferred to: valid, and with what was seen in its comments."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.base.errors import FrazilError
from jobs.clients.kafka.topic_sample import SampleRecord
from jobs.clients.registry.client import SubjectVersion
from jobs.config.services.registry import RegistrySettings
from jobs.config.stream.models import StreamSpec
from jobs.records.formats.interface.writer_schema import RegistrySchema, SchemaId, WriterSchema
from jobs.records.formats.json.inference import InferenceRules, inferred
from jobs.records.formats.json.seen_values import (
    Place,
    SeenValues,
    example_values,
    parsed,
)
from jobs.tables.commit.stamp.offsets import TopicPartition
from orchestration.cli.stream_files.schema.infer import write_stream
from orchestration.cli.stream_files.schema.infer_json import column_lines, time_column
from orchestration.cli.stream_files.schema.infer_registry import LookedAtIds, subject_stream
from orchestration.cli.stream_files.schema.stream_yaml import (
    ColumnLines,
    NewStream,
    scalar,
    stream_id,
    stream_yaml,
)


def lines(*records: dict[str, Any], times: bool = False, show: bool = False) -> list[ColumnLines]:
    seen = SeenValues()
    examples: dict[str, list[Any]] = {}
    for offset, record in enumerate(records):
        value = parsed(json.dumps(record).encode())
        seen.add(value, Place("t", 3, offset))
        if show:
            example_values(value, examples)
    return list(column_lines(inferred(seen, InferenceRules(times=times, declared=True)), examples))


def about(*records: dict[str, Any], **options: bool) -> str:
    (only,) = lines(*records, **options)
    return "; ".join(only.comments)


@pytest.mark.parametrize(
    ("records", "said"),
    [
        ([{"a": 1}, {"a": 99_000}], "in every record; 1 to 99,000"),
        ([{"a": 1}, {}], "in 1 of 2 records; 1 to 1; first at t[3]@0"),
        ([{"a": None}, {"a": True}], "in every record, null in 1"),
        (
            [{"a": 1.25}, {"a": 100.5}],
            "in every record; 1.25 to 100.5, at most 2 digits after the point; for amounts write decimal(12,2), which "
            "is exact",
        ),
        ([{"a": "secret"}, {"a": "x"}], "in every record; 1 to 6 characters"),
        (
            [{"a": "2026-01-31"}],
            "in every record; 10 characters; 2026-01-31 to 2026-01-31; all look like date: write date to land them so "
            "(--times does)",
        ),
        (
            [{"a": 1}, {"a": 2}, {"a": "x"}],
            "in every record; 1 to 2; of several types, so json takes them: most are numbers, and 1 text (first at "
            "t[3]@2); first at t[3]@0",
        ),
        (
            [*[{"a": 1}] * 19, {"a": "x"}],
            "in every record; 1 to 1; of several types: records with 1 text (first at t[3]@19) become dead letters; "
            "first at t[3]@0",
        ),
        (
            [{"a": {"b": 1, "B": 2}}],
            "in every record; json, as names within differ by case only; first at t[3]@0",
        ),
        (
            [{"a": "007"}, {"a": "-1"}],
            "in every record; 2 to 3 characters; all look like numbers: write long as text to land them so",
        ),
        (
            [{"a": "7"}, {"a": "1.50"}],
            "in every record; 1 to 4 characters; all look like numbers: write double as text, or for amounts "
            "decimal(P,S) as text, to land them so",
        ),
        (
            [{"a": "Jan 5 2026"}, {"a": "Feb 28 2026"}],
            "in every record; 10 to 11 characters; all look like date: write date as 'MMM d yyyy' to land them so "
            "(--times does)",
        ),
        ([{"a": "Feb 30 2026"}], "in every record; 11 characters"),
        ([{"a": [{"b": 1}, {}]}], "in every record; $.a[]: 2 elements; $.a[].b: in 1 of 2; 1 to 1; first at t[3]@0"),
    ],
)
def test_comments_say_what_was_seen(records: list[dict[str, Any]], said: str) -> None:
    assert about(*records) == said


def test_what_no_table_can_have_is_left_out_with_the_reason() -> None:
    one, other = lines({"_pos": 1, "1x": 1, "_1x": 2, "b": {"_pos": 1}})
    assert (one.text, other.text) == ("`1x` long", "b struct<_pos long>")
    assert one.comments[0].startswith("$._pos: in every record; 1 to 1; left out: _pos is a metadata column of Iceberg")
    assert one.comments[-1].endswith("left out: data files call it _1x, and so they call column 1x")


def test_texts_are_shown_only_if_asked() -> None:
    assert "secret" not in about({"a": "secret"})
    assert about({"a": "secret"}, show=True) == "in every record; 6 characters; such as 'secret'"


@pytest.mark.parametrize(
    ("topic", "expected"),
    [("payments", "payments"), ("Orders.V1", "orders_v1"), ("1.raw", "s_1_raw"), ("__x__", "x"), ("é", "s")],
)
def test_a_stream_is_called_like_its_topic(topic: str, expected: str) -> None:
    assert stream_id(topic) == expected


def written(columns: list[ColumnLines] | str = "", **changes: Any) -> str:
    given: dict[str, Any] = {"stream": "s", "topic": "t", "value": "json", "table": "landing.s"} | changes
    return stream_yaml(NewStream(**given, columns=columns or [ColumnLines("id string", ("always there",))]))


def test_the_file_is_one_that_frazil_takes() -> None:
    text = written(comments=["Inferred."], partition_by="at")
    assert text.startswith("# Inferred.\nstream: s\n")
    assert "    # always there\n    - id string\n" in text
    assert StreamSpec.model_validate(yaml.safe_load(text)).stream == "s"
    assert "# partition_by: [day(at)]" in text


def test_a_file_that_would_be_refused_is_not_written() -> None:
    with pytest.raises(FrazilError, match=r"(?s)such a stream would be refused.*table\.name|table"):
        written(table="no_namespace")


def test_long_comments_are_folded_and_keep_their_place() -> None:
    text = written([ColumnLines("id string", ("word " * 60 + "\x1b[31mred\nline",))])
    assert all(len(line) <= 118 for line in text.splitlines())
    assert "\x1b" not in text
    assert [line.strip()[0] for line in text.splitlines() if "word" in line] == ["#"] * 3


@given(st.text(max_size=20), st.booleans())
@settings(max_examples=300, deadline=None)
def test_a_scalar_reads_as_it_was(text: str, flow: bool) -> None:
    shown = scalar(text, flow=flow)
    assert yaml.safe_load(f"[{shown}]" if flow else f"- {shown}") == [text]


names = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=6)
leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | names
values: st.SearchStrategy[Any] = st.deferred(
    lambda: leaves | st.lists(values, max_size=2) | st.dictionaries(names, values, max_size=2)
)


@given(st.lists(st.dictionaries(names, values, min_size=1, max_size=3), min_size=1, max_size=4), st.booleans())
@settings(max_examples=150, deadline=None)
def test_whatever_records_hold_the_file_is_valid(records: list[dict[str, Any]], times: bool) -> None:
    columns = lines(*records, times=times, show=True)
    if not columns:
        return
    text = written(columns)
    declared = StreamSpec.model_validate(yaml.safe_load(text)).decode.declared
    assert declared is not None
    assert len(declared.schema.fields) == len(columns)


def test_partitions_are_suggested_by_the_first_time() -> None:
    seen = SeenValues()
    seen.add(parsed(b'{"a":"x","at":"2026-01-31T00:00:00Z","b":"2026-01-31"}'), Place("t", 0, 0))
    found = inferred(seen, InferenceRules(times=True)).schema
    assert found is not None
    assert time_column(found) == "at"


@pytest.mark.parametrize(("subject", "named"), [("t-value", None), ("payments", "payments")])
def test_a_subject_of_a_registry_gives_a_stream(subject: str, named: str | None) -> None:
    proto = 'syntax = "proto3"; message M { string id = 1; int32 n = 2; }'
    version = SubjectVersion(subject, 3, 12, RegistrySchema("PROTOBUF", WriterSchema(proto)))
    text = stream_yaml(subject_stream(version, "t", "s", "landing.s"))
    spec = StreamSpec.model_validate(yaml.safe_load(text))
    assert (spec.decode.format, spec.decode.schema_source, spec.decode.subject) == ("protobuf", "registry", named)
    assert f"# Columns are from the registry: subject {subject}, which is at version 3 (id 12):" in text
    assert " n int" in text


def test_a_subject_that_cannot_be_read_gives_none() -> None:
    for kind, said in (("PROTOBUF", "cannot be read"), ("XML", "of the type XML")):
        version = SubjectVersion("t-value", 1, 1, RegistrySchema(kind, WriterSchema("none")))
        with pytest.raises(FrazilError, match=said):
            subject_stream(version, "t", "s", "landing.s")


def test_what_spark_cannot_read_is_left_out_of_the_columns_of_an_id(monkeypatch: pytest.MonkeyPatch) -> None:
    time = {"type": "array", "items": {"type": "int", "logicalType": "time-millis"}}
    fields: list[dict[str, Any]] = [{"name": "at", "type": time}, {"name": "id", "type": "string"}]

    class Registry:
        def schema(self, _id: SchemaId) -> RegistrySchema:
            return RegistrySchema("AVRO", WriterSchema(json.dumps({"type": "record", "name": "R", "fields": fields})))

        def used_by(self, _id: SchemaId) -> list[tuple[str, int]]:
            return []

        def close(self) -> None:
            pass

    monkeypatch.setattr("orchestration.cli.stream_files.schema.infer_registry.registry_client", lambda _: Registry())
    looked = LookedAtIds()
    looked.add([SampleRecord(TopicPartition("t", 0), 0, b"\0\0\0\0\1x")])
    registry = RegistrySettings.model_validate({"url": "http://127.0.0.1:1"})
    text = stream_yaml(looked.stream(registry, "t", "newest", "s", "landing.s", None))
    assert yaml.safe_load(text)["decode"]["schema"] == ["id string not null"]
    assert "# Left out: at: Spark reads no table with a time of day" in text
    fields.pop()
    with pytest.raises(FrazilError, match="no column of the schema of id 1 can be declared"):
        looked.stream(registry, "t", "newest", "s", "landing.s", None)


@pytest.mark.parametrize(
    ("place", "move"),
    [
        ("streams/x.yaml", ""),
        ("streams/other.yml", ""),
        ("streams/x.txt", "move it to streams/x.yaml, then "),
        ("x.yaml", "move it to streams/x.yaml, then "),
        ("elsewhere/x.yaml", "move it to streams/x.yaml, then "),
    ],
)
def test_a_file_that_no_command_finds_is_to_be_moved_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], place: str, move: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("streams").mkdir()
    Path("elsewhere").mkdir()
    text = stream_yaml(NewStream("x", "t", "json", [ColumnLines("id string")], "landing.x"))
    for output in (Path(place), tmp_path / place):
        write_stream(text, output, "x", tmp_path / "streams")
        assert capsys.readouterr().err.splitlines() == [
            f"{output} is written; look at it.",
            f"  Next: {move}frazil validate x",
        ]
        output.unlink()
