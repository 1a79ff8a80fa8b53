"""Tables of topics: no two topics share one unless their sink made it so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jobs.migration.connectors.reading import read_sources
from jobs.migration.conversion.conversion import convert
from jobs.migration.conversion.topic_tables import distinct_tables, table_of_topic

AVRO = {
    f"{side}.converter{more}": value
    for side in ("key", "value")
    for more, value in (("", "io.confluent.connect.avro.AvroConverter"), (".schema.registry.url", "http://registry"))
}
DEBEZIUM = {
    "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
    "topic.prefix": "srv",
    "table.include.list": "inv.orders,sales.orders",
}
JDBC = {"connector.class": "io.confluent.connect.jdbc.JdbcSinkConnector", "topics": "db1.orders,db2.orders"}
S3 = {"connector.class": "io.confluent.connect.s3.S3SinkConnector", "topics": "a-b,a_b,A_B"}


def test_names_that_would_be_one_are_told_apart() -> None:
    found = distinct_tables(["a-b", "a_b", "A.B", "x.A_b", "c"], lambda topic: table_of_topic(topic, "raw"))
    assert found == {"a-b": "raw.a_b", "a_b": "raw.a_b_2", "A.B": "raw.A_B_3", "x.A_b": "raw.x_A_b", "c": "raw.c"}


@pytest.mark.parametrize("config", [DEBEZIUM, JDBC, JDBC | {"insert.mode": "upsert", "pk.mode": "record_key"}, S3])
def test_each_topic_has_a_table_of_its_own(config: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text(json.dumps(config | AVRO))
    (one,) = convert(read_sources([str(tmp_path / "c.json")])).connectors
    tables = [
        entry["table"]
        for stream in one.streams
        for entry in stream.get("route", {}).get("tables", [{"table": stream["table"]["name"]}])
    ]
    assert len(tables) == len({table.casefold() for table in tables}) > 1


def test_tables_of_several_schemas_that_only_a_pattern_names_are_asked_for(tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text(json.dumps(DEBEZIUM | AVRO | {"table.include.list": "inv[.].*,sales[.].*"}))
    (one,) = convert(read_sources([str(tmp_path / "c.json")])).connectors
    assert any(question.blocks and "two schemas" in question.text for question in one.questions)
