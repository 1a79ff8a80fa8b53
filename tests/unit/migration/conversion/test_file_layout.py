"""Partitions and rotation that take the place of folders and files."""

from __future__ import annotations

import pytest

from jobs.config.values.partitioning import parse_partition_expr
from jobs.migration.conversion.file_layout import finest_grain, layout_of, rotation_ms, template_grain
from jobs.migration.conversion.topic_tables import table_of_topic, tables_of_topics

_PACKAGE = "io.confluent.connect.storage.partitioner."


@pytest.mark.parametrize(
    ("path", "grain"),
    [
        ("'dt'=YYYY-MM-dd/'hr'=HH", "hour"),
        ("'year'=YYYY/'month'=MM/'day'=dd", "day"),
        ("YYYY/MM", "month"),
        ("yyyy", "year"),
        ("'hour'=HH/'minute'=mm", "hour"),
        ("'HH'", None),
        ("", None),
    ],
)
def test_finds_the_finest_part_of_a_path(path: str, grain: str | None) -> None:
    assert finest_grain(path) == grain


@pytest.mark.parametrize(
    ("template", "grain"),
    [
        ("{{topic}}/{{timestamp:unit=yyyy}}/{{timestamp:unit=HH}}/{{partition}}", "hour"),
        ("{{topic}}-{{partition}}-{{start_offset:padding=true}}", None),
        ("{{ timestamp : unit = MM }}", "month"),
    ],
)
def test_finds_the_finest_part_of_a_template(template: str, grain: str | None) -> None:
    assert template_grain(template) == grain


@pytest.mark.parametrize(
    ("partitioner", "keys", "partitions"),
    [
        ("", {}, ()),
        ("DefaultPartitioner", {}, ()),
        ("FieldPartitioner", {"partition.field.name": "a, b"}, ("a", "b")),
        ("DailyPartitioner", {}, ("day(_kafka_timestamp)",)),
        ("HourlyPartitioner", {"timestamp.extractor": "Record"}, ("hour(_kafka_timestamp)",)),
        ("HourlyPartitioner", {"timestamp.extractor": "RecordField", "timestamp.field": "at"}, ("hour(at)",)),
        ("HourlyPartitioner", {"timestamp.extractor": "RecordField"}, ("hour(timestamp)",)),
        ("TimeBasedPartitioner", {"path.format": "YYYY-MM-dd"}, ("day(_kafka_timestamp)",)),
        ("TimeBasedPartitioner", {"partition.duration.ms": "3600000"}, ("hour(_kafka_timestamp)",)),
        ("TimeBasedPartitioner", {"partition.duration.ms": "86400000"}, ("day(_kafka_timestamp)",)),
        ("TimeBasedPartitioner", {}, ()),
        ("HourlyPartitioner", {"timestamp.extractor": "example.Own"}, ()),
    ],
)
def test_makes_partitions_of_folders(partitioner: str, keys: dict[str, str], partitions: tuple[str, ...]) -> None:
    layout = layout_of(partitioner and _PACKAGE + partitioner, keys)

    assert layout.known
    assert layout.partition_by == partitions
    assert layout.difference
    for expression in layout.partition_by:
        parse_partition_expr(expression)


def test_does_not_guess_at_partitioners_of_others() -> None:
    layout = layout_of("example.partitioner.ByMoon", {"path.format": "YYYY"})

    assert not layout.known
    assert layout.partition_by == ()


@pytest.mark.parametrize(
    ("keys", "rotation"),
    [
        ({}, None),
        ({"rotate.interval.ms": "-1"}, None),
        ({"rotate.interval.ms": "600000"}, ("rotate.interval.ms", 600_000)),
        (
            {"rotate.interval.ms": "600000", "rotate.schedule.interval.ms": "60000"},
            ("rotate.schedule.interval.ms", 60_000),
        ),
        ({"rotate.interval.ms": "{{ rotation }}"}, None),
    ],
)
def test_takes_the_shortest_rotation(keys: dict[str, str], rotation: tuple[str, int] | None) -> None:
    assert rotation_ms(keys) == rotation


def test_names_a_table_for_each_topic() -> None:
    assert table_of_topic("site.clicks") == "site.clicks"
    assert table_of_topic("clicks") == "raw.clicks"
    assert table_of_topic("a.b-c.d e") == "a_b_c.d_e"
    assert table_of_topic("a.b", "lake") == "lake.a_b"
    assert tables_of_topics({"topics": ["a.b"]}, "s", table_of_topic) == ("a.b", None)
    own, route = tables_of_topics({"topics": ["a.b", "c"]}, "my-s", table_of_topic)
    assert own == "raw.my_s_stream"
    assert route == {
        "by": "topic",
        "tables": [{"match": ["a.b"], "table": "a.b"}, {"match": ["c"], "table": "raw.c"}],
    }
    own, route = tables_of_topics({"topics_pattern": "a.*"}, "my-s", table_of_topic)
    assert own == "my_s.my_s_stream"
    assert route is not None
    assert route["to"] == "my_s.{value}"
