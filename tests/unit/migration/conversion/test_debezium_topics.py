"""Topics of Debezium sources, and the sinks that read them."""

from __future__ import annotations

import re

import pytest

from jobs.migration.connectors.model import Connector, Place, Sources, settings_of
from jobs.migration.conversion.change_form import change_form, changes_of_source
from jobs.migration.conversion.debezium_topics import change_source, change_topics, is_debezium_source, sinks_of

POSTGRES = "io.debezium.connector.postgresql.PostgresConnector"
MYSQL = "io.debezium.connector.mysql.MySqlConnector"
SQLSERVER = "io.debezium.connector.sqlserver.SqlServerConnector"
MONGO = "io.debezium.connector.mongodb.MongoDbConnector"
UNWRAP = "io.debezium.transforms.ExtractNewRecordState"


def connector(connector_class: str, name: str = "c", **keys: str) -> Connector:
    place = Place("test")
    pairs = [(key.replace("__", "-").replace("_", "."), value, place) for key, value in keys.items()]
    settings, _ = settings_of([("connector.class", connector_class, place), *pairs])
    return Connector(name, connector_class, settings, place)


@pytest.mark.parametrize(
    ("connector_class", "keys", "topics"),
    [
        (
            POSTGRES,
            {"topic_prefix": "crm", "table_include_list": "public.a, public.b"},
            ["crm.public.a", "crm.public.b"],
        ),
        (POSTGRES, {"database_server_name": "crm", "table_whitelist": "public\\.a"}, ["crm.public.a"]),
        (MYSQL, {"topic_prefix": "my", "topic_delimiter": "-", "table_include_list": "shop.a"}, ["my-shop-a"]),
        (MYSQL, {"topic_prefix": "my", "table_include_list": "shop.a$b#c"}, ["my.shop.a_b_c"]),
        (MONGO, {"mongodb_name": "m", "collection_whitelist": "store.carts"}, ["m.store.carts"]),
        (
            SQLSERVER,
            {"topic_prefix": "s", "database_names": "x,y", "table_include_list": "dbo.a"},
            ["s.x.dbo.a", "s.y.dbo.a"],
        ),
        (SQLSERVER, {"database_server_name": "s", "database_names": "x", "table_whitelist": "dbo.a"}, ["s.dbo.a"]),
    ],
)
def test_names_topics_of_listed_tables(connector_class: str, keys: dict[str, str], topics: list[str]) -> None:
    found = change_topics(connector(connector_class, **keys))

    assert found is not None
    assert list(found.topics) == topics
    assert found.pattern is None
    assert not found.open_end


@pytest.mark.parametrize(
    ("keys", "inside", "outside"),
    [
        ({"table_include_list": "public\\..*"}, "crm.public.a", "crm.audit.a"),
        ({"table_include_list": "public.a,audit.[ab]"}, "crm.audit.b", "crm.audit.c"),
        ({"schema_include_list": "public,audit"}, "crm.audit.x", "crm.other.x"),
        ({}, "crm.public.a", "other.public.a"),
    ],
)
def test_makes_a_pattern_of_tables_that_a_pattern_chooses(keys: dict[str, str], inside: str, outside: str) -> None:
    found = change_topics(connector(POSTGRES, topic_prefix="crm", **keys))

    assert found is not None
    assert found.topics == ()
    assert found.pattern is not None
    assert re.fullmatch(found.pattern, inside)
    assert not re.fullmatch(found.pattern, outside)


@pytest.mark.parametrize(
    ("transform", "regex", "replacement", "topics"),
    [
        ("org.apache.kafka.connect.transforms.RegexRouter", r"crm\.public\.(.*)", "crm_$1", ("crm_a", "crm_b")),
        ("org.apache.kafka.connect.transforms.RegexRouter", "other", "x", ("crm.public.a", "crm.public.b")),
        ("io.debezium.transforms.ByLogicalTableRouter", "(.*)[ab]", "$1all", ("crm.public.all",)),
        ("io.debezium.transforms.ByLogicalTableRouter", "(?<head>.*)[ab]", "${head}all", ("crm.public.all",)),
    ],
)
def test_routers_of_the_source_rename_topics(
    transform: str, regex: str, replacement: str, topics: tuple[str, ...]
) -> None:
    keys = ("topic_regex", "topic_replacement") if "ByLogical" in transform else ("regex", "replacement")
    chain = {f"transforms_r_{key}": value for key, value in zip(keys, (regex, replacement), strict=True)}

    found = change_topics(
        connector(
            POSTGRES,
            topic_prefix="crm",
            table_include_list="public.a,public.b",
            transforms="r",
            transforms_r_type=transform,
            **chain,
        )
    )

    assert found is not None
    assert found.topics == topics


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"topic_naming_strategy": "example.Own"}, "topic.naming.strategy"),
        ({"table_include_list": "public.*", "transforms": "r"}, "transforms.r"),
        ({"table_include_list": "public.a", "transforms": "r", "transforms_r_regex": r"\p{Alpha}"}, "transforms.r"),
        ({"transforms": "o", "transforms_o_type": "io.debezium.transforms.outbox.EventRouter"}, "outbox"),
    ],
)
def test_says_why_topics_are_unknown(keys: dict[str, str], reason: str) -> None:
    router = {"transforms_r_type": "org.apache.kafka.connect.transforms.RegexRouter", "transforms_r_replacement": "x"}

    found = change_topics(connector(POSTGRES, topic_prefix="crm", **router, **keys))

    assert found is not None
    assert found.topics == ()
    assert found.pattern is None
    assert reason in found.open_end


@pytest.mark.parametrize(
    ("tables", "sink", "reads"),
    [
        ("public.a,public.b", {"topics": "crm.public.b,else"}, True),
        ("public.a,public.b", {"topics": "crm.public.c"}, False),
        ("public.a,public.b", {"topics_regex": r"crm\..*"}, True),
        ("public.a,public.b", {"topics_regex": r"crm\.public\.x.*"}, False),
        ("public.a,public.b", {"topics_regex": r"\p{Lower}+"}, False),
        (r"public\..*", {"topics": "crm.public.z"}, True),
        (r"public\..*", {"topics": "crm.audit.z"}, False),
        (r"public\..*", {"topics_regex": r"crm\.public\.[a-f].*"}, True),
        (r"public\..*", {"topics_regex": "crm.*"}, True),
        (r"public\..*", {"topics_regex": r"erp\.public\..*"}, False),
        (r"public\..*", {"topics_regex": r"(crm|erp)\.public\..*"}, False),
    ],
)
def test_finds_the_sinks_of_a_source(tables: str, sink: dict[str, str], reads: bool) -> None:
    source = connector(POSTGRES, "source", topic_prefix="crm", table_include_list=tables)
    reader = connector("org.apache.iceberg.connect.IcebergSinkConnector", "sink", **sink)
    sources = Sources((source, reader))
    topics = change_topics(source)

    assert topics is not None
    assert sinks_of(sources, topics) == ([reader] if reads else [])
    assert (change_source(sources, reader) is not None) is reads


def test_knows_debezium_sources_by_class() -> None:
    assert is_debezium_source(connector(POSTGRES))
    assert not is_debezium_source(connector("io.debezium.connector.jdbc.JdbcSinkConnector"))
    assert change_topics(connector("FileStreamSource")) is None


@pytest.mark.parametrize(
    ("source", "changes"),
    [
        ({}, {"envelope": "debezium"}),
        ({"unavailable_value_placeholder": "__gone"}, {"envelope": "debezium", "unavailable": "__gone"}),
        ({"unavailable_value_placeholder": "__debezium_unavailable_value"}, {"envelope": "debezium"}),
        ({"transforms": "u", "transforms_u_type": UNWRAP}, {"envelope": "upsert"}),
        (
            {
                "transforms": "u",
                "transforms_u_type": UNWRAP,
                "transforms_u_add_fields": "op, ts_ms",
                "transforms_u_delete_tombstone_handling_mode": "rewrite",
            },
            {"envelope": "columns", "op": "__op"},
        ),
        (
            {
                "transforms": "u",
                "transforms_u_type": UNWRAP,
                "transforms_u_add_fields": "op",
                "transforms_u_add_fields_prefix": "_",
                "transforms_u_delete_handling_mode": "rewrite",
            },
            {"envelope": "columns", "op": "_op"},
        ),
    ],
)
def test_says_the_form_of_the_changes_that_a_source_writes(source: dict[str, str], changes: dict[str, str]) -> None:
    topics = change_topics(connector(POSTGRES, topic_prefix="crm", table_include_list="public.a", **source))

    assert topics is not None
    assert changes_of_source(topics) == changes


@pytest.mark.parametrize(
    ("transform", "envelope", "replaced", "assumed"),
    [
        (None, "upsert", (), True),
        (UNWRAP, "debezium", ("t",), False),
        ("io.tabular.iceberg.connect.transforms.DebeziumTransform", "debezium", ("t",), False),
        ("org.apache.iceberg.connect.transforms.MongoDebeziumTransform", "mongo", ("t",), False),
        ("org.apache.kafka.connect.transforms.Flatten$Value", "upsert", (), True),
    ],
)
def test_says_the_form_of_changes_by_the_sink_alone(
    transform: str | None, envelope: str, replaced: tuple[str, ...], assumed: bool
) -> None:
    chain = {} if transform is None else {"transforms": "t", "transforms_t_type": transform}
    sink = connector("io.confluent.connect.jdbc.JdbcSinkConnector", topics="x", **chain)

    form = change_form(Sources((sink,)), sink)

    assert (form.block["envelope"], form.replaced, form.assumed) == (envelope, replaced, assumed)
