from __future__ import annotations

import json
from pathlib import Path

import pytest

from jobs.migration.takeover.sink import Sink, UnknownSinkError, sink_of, sink_of_config, sink_of_report, with_options
from jobs.tables.commit.history.sink_record import tag_name

APACHE = "org.apache.iceberg.connect.IcebergSinkConnector"
TABULAR = "io.tabular.iceberg.connect.IcebergSinkConnector"


def test_apaches_sink_by_its_defaults() -> None:
    sink = sink_of_config("orders", {"connector.class": APACHE, "topics": "a, b,"})
    assert sink == Sink(
        "orders", "apache", "connect-orders", "connect-orders", "connect-orders", "control-iceberg", ("a", "b")
    )
    assert sink.floor_key == "kafka.connect.offsets.control-iceberg.connect-orders"
    assert sink.coordinator_group == "connect-orders-coord"


def test_apaches_sink_by_its_own_settings() -> None:
    config = {
        "connector.class": APACHE,
        "iceberg.connect.group-id": "own",
        "iceberg.control.topic": "control",
        "iceberg.tables.dynamic-enabled": "True",
        "iceberg.tables.default-commit-branch": "b",
        "iceberg.table.db.t.commit-branch": "c",
        "iceberg.table.db.t.route-regex": "x",
        "consumer.override.group.id": "members",
    }
    sink = sink_of_config("orders", config)
    assert (sink.member_group, sink.offset_group, sink.event_group) == ("members", "members", "own")
    assert (sink.control_topic, sink.dynamic) == ("control", True)
    assert (sink.branch_of("db.t"), sink.branch_of("db.u")) == ("c", "b")


@pytest.mark.parametrize(
    ("servers", "addresses"),
    [
        ("", set[str]()),
        ("Kafka, b.example.com:9094", {"kafka:9092", "b.example.com:9094"}),
        ("SSL://k1:9093,SSL://k2", {"k1:9093", "k2:9092"}),
        ("${file:/kafka.properties:servers}", set[str]()),
    ],
)
def test_brokers_by_the_connectors_own_settings(servers: str, addresses: set[str]) -> None:
    config = {"connector.class": APACHE, "iceberg.kafka.bootstrap.servers": servers}
    assert sink_of_config("orders", config).control_brokers == addresses
    config = {"connector.class": APACHE, "consumer.override.bootstrap.servers": servers}
    assert sink_of_config("orders", config).source_brokers == addresses


@pytest.mark.parametrize(("config", "group"), [({}, "cg-control-orders"), ({"iceberg.control.group-id": "g"}, "g")])
def test_tabulars_sink_keeps_its_offsets_in_its_own_group(config: dict[str, str], group: str) -> None:
    sink = sink_of_config("orders", {"connector.class": TABULAR, **config})
    assert (sink.member_group, sink.offset_group, sink.event_group) == ("connect-orders", group, group)
    assert sink.coordinator_group == f"{group}-coord"


@pytest.mark.parametrize("class_", [{}, {"connector.class": "io.confluent.connect.s3.S3SinkConnector"}])
def test_other_connectors_are_refused(class_: dict[str, str]) -> None:
    with pytest.raises(UnknownSinkError, match="no Iceberg sink"):
        sink_of_config("orders", class_)


def test_the_report_of_the_import_describes_the_sink(tmp_path: Path) -> None:
    path = tmp_path / "import-report.json"
    assert sink_of_report("orders", path) is None
    entries = [
        {"name": "orders", "takeover": {"group": "connect-orders", "control_topic": "c"}},
        {"name": "old", "generation": "tabular", "takeover": {"group": "cg-control-old", "control_topic": "d"}},
        {"name": "files", "takeover": {"group": "connect-files", "control_topic": None}},
        {"name": "source"},
        {"name": "open", "family": "iceberg-sink", "takeover": {"group": "connect-open", "control_topic": None}},
    ]
    path.write_text(json.dumps({"connectors": entries}))
    assert sink_of_report("orders", path) == sink_of("orders", "apache", group=None, control_topic="c")
    assert sink_of_report("old", path) == sink_of("old", "tabular", group=None, control_topic="d")
    assert sink_of_report("unknown", path) is None
    for name in ("files", "source"):
        with pytest.raises(UnknownSinkError, match="no Iceberg sink"):
            sink_of_report(name, path)
    with pytest.raises(UnknownSinkError, match="the group or the control topic of connector open is a template"):
        sink_of_report("open", path)
    path.write_text("[]")
    with pytest.raises(UnknownSinkError, match="cannot be read"):
        sink_of_report("orders", path)


def test_options_name_what_a_worker_has_as_references() -> None:
    config = {"connector.class": APACHE, "iceberg.control.topic": "${env:TOPIC}"}
    sink = sink_of_config("orders", config)
    with pytest.raises(UnknownSinkError, match=r"the worker has \$\{env:TOPIC\} .* does not resolve") as unknown:
        with_options(sink, None, None)
    assert unknown.value.fix == "the same command with --control-topic NAME"
    assert with_options(sink, None, "c") == sink_of_config("orders", config | {"iceberg.control.topic": "c"})
    groups = {"consumer.override.group.id": "${file:/x:group}"}
    found = with_options(sink_of_config("orders", {"connector.class": APACHE, **groups}), "g", None)
    assert (found.member_group, found.offset_group, found.event_group) == ("g", "g", "connect-orders")


@pytest.mark.parametrize(("group", "topic"), [("other", None), (None, "other")])
def test_options_that_contradict_the_worker_are_refused(group: str | None, topic: str | None) -> None:
    sink = sink_of_config("orders", {"connector.class": APACHE})
    assert with_options(sink, "connect-orders", "control-iceberg") == sink
    with pytest.raises(UnknownSinkError, match="other is not what the worker has for connector orders"):
        with_options(sink, group, topic)


def test_a_tag_is_named_after_the_connector() -> None:
    assert tag_name("orders_sink-1.a") == "connect-orders_sink-1.a"
    assert tag_name("ordérs sink/1") == "connect-ord-rs-sink-1"
