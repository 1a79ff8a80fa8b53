"""Files of an import: validated before they are written, and edits of people survive."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.base.errors import FrazilError
from jobs.config.documents import validation
from jobs.config.settings import loading
from jobs.migration.connectors.reading import read_sources
from jobs.migration.conversion.conversion import Conversion, convert
from jobs.migration.files.plan import ImportPlan, plan_import, write_import

CONFIG = {
    "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
    "topics": "orders",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
    "iceberg.tables": "shop.orders",
    "iceberg.catalog.type": "rest",
    "iceberg.catalog.uri": "http://catalog:8181",
    "iceberg.catalog.token": "hunter2-token",
}


def conversion(tmp_path: Path, **connectors: dict[str, Any]) -> Conversion:
    path = tmp_path / "connectors.json"
    path.write_text(json.dumps({name: {**CONFIG, **keys} for name, keys in connectors.items()}))
    return convert(read_sources([str(path)]))


def imported(tmp_path: Path, *, replace_edited: bool = False, **connectors: dict[str, Any]) -> ImportPlan:
    plan = plan_import(conversion(tmp_path, **connectors), tmp_path / "home")
    write_import(plan, replace_edited=replace_edited)
    return plan


def actions(plan: ImportPlan) -> dict[str, str]:
    return {file.path: file.action for file in plan.files}


def test_a_first_import_writes_streams_settings_and_report(tmp_path: Path) -> None:
    plan = imported(tmp_path, orders={})
    assert actions(plan) == {"streams/orders.yaml": "create", "frazil.yaml": "create"}
    home = tmp_path / "home"
    assert sorted(path.name for path in home.rglob("*") if path.is_file()) == [
        "frazil.yaml", "import-report.json", "import-report.md", "orders.yaml",
    ]  # fmt: skip
    assert yaml.safe_load((home / "streams/orders.yaml").read_text())["table"] == {"name": "shop.orders"}
    for path in home.rglob("*.*"):
        assert "hunter2" not in path.read_text()


def test_a_corrected_file_without_its_ending_stays_alone(tmp_path: Path) -> None:
    wrong = {"topics": "no/topic"}
    assert actions(imported(tmp_path, orders=wrong))["streams/orders.yaml.undecided"] == "create"
    streams = tmp_path / "home/streams"
    (streams / "orders.yaml.undecided").rename(streams / "orders.yaml")
    assert actions(imported(tmp_path, orders=wrong))["streams/orders.yaml"] == "kept"
    assert [path.name for path in streams.iterdir()] == ["orders.yaml"]
    # The connector has changed: what comes of it stands beside the corrected file.
    assert actions(imported(tmp_path, orders={"topics": "no/more"}))["streams/orders.yaml.undecided"] == "create"


def test_a_second_import_of_several_workers_changes_nothing(tmp_path: Path) -> None:
    for name in ("b", "a"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "worker.properties").write_text("bootstrap.servers=kafka:9092\n")
        (tmp_path / name / "c.json").write_text(json.dumps({"name": name, **CONFIG, "iceberg.tables": f"s.{name}"}))
    (tmp_path / "b" / "z.properties").write_text("bootstrap.servers=kafka:9092\n")
    sources = [str(tmp_path / name) for name in ("b", "a")]
    write_import(plan_import(convert(read_sources(sources)), tmp_path / "home"), replace_edited=False)
    again = plan_import(convert(read_sources(sources)), tmp_path / "home")
    assert write_import(again, replace_edited=False) == []


def test_a_second_import_changes_nothing(tmp_path: Path) -> None:
    imported(tmp_path, orders={})
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "home").rglob("*")}
    plan = plan_import(conversion(tmp_path, orders={}), tmp_path / "home")
    assert set(actions(plan).values()) == {"unchanged"}
    assert write_import(plan, replace_edited=True) == []
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "home").rglob("*")} == before


def test_a_connector_that_changed_updates_its_stream(tmp_path: Path) -> None:
    imported(tmp_path, orders={})
    plan = imported(tmp_path, orders={"topics": "orders,returns"})
    assert actions(plan)["streams/orders.yaml"] == "update"
    assert "returns" in (tmp_path / "home/streams/orders.yaml").read_text()


def test_an_edited_stream_survives_an_import_that_has_nothing_new(tmp_path: Path) -> None:
    imported(tmp_path, orders={})
    stream = tmp_path / "home/streams/orders.yaml"
    stream.write_text(stream.read_text() + "description: ours\n")
    plan = imported(tmp_path, replace_edited=True, orders={})
    assert actions(plan)["streams/orders.yaml"] == "kept"
    assert "ours" in stream.read_text()


def test_an_edited_stream_is_replaced_only_if_told(tmp_path: Path) -> None:
    imported(tmp_path, orders={})
    stream = tmp_path / "home/streams/orders.yaml"
    stream.write_text(stream.read_text() + "description: ours\n")
    plan = imported(tmp_path, orders={"topics": "returns"})
    assert actions(plan)["streams/orders.yaml"] == "edited"
    assert "ours" in stream.read_text()
    # It is asked about again, until somebody decides.
    assert actions(imported(tmp_path, replace_edited=True, orders={"topics": "returns"}))["streams/orders.yaml"] in (
        "edited",
        "kept",
    )


def test_a_stream_of_somebody_else_is_not_overwritten(tmp_path: Path) -> None:
    stream = tmp_path / "home/streams/orders.yaml"
    stream.parent.mkdir(parents=True)
    stream.write_text("stream: orders\n")
    assert actions(plan_import(conversion(tmp_path, orders={}), tmp_path / "home"))["streams/orders.yaml"] == "edited"


def test_imports_of_single_connectors_share_one_report(tmp_path: Path) -> None:
    imported(tmp_path, orders={})
    imported(tmp_path, returns={"topics": "returns", "iceberg.tables": "shop.returns"})
    document = json.loads((tmp_path / "home/import-report.json").read_text())
    assert [one["name"] for one in document["connectors"]] == ["orders", "returns"]
    assert sorted(document["files"]) == ["frazil.yaml", "streams/orders.yaml", "streams/returns.yaml"]
    assert document["connectors"][0]["takeover"] == {
        "generation": "apache",
        "group": "connect-orders",
        "control_topic": "control-iceberg",
        "snapshot_key": "kafka.connect.offsets.control-iceberg.connect-orders",
        "read_uncommitted": True,
        "member_group": None,
        "topics": ["orders"],
        "dynamic": False,
        "branch": None,
        "branches": {},
    }


def test_two_connectors_of_one_table_leave_one_file_unloaded(tmp_path: Path) -> None:
    plan = imported(tmp_path, a={}, b={"topics": "other"})
    assert actions(plan) == {
        "streams/a.yaml": "create",
        "streams/b.yaml.undecided": "create",
        "frazil.yaml": "create",
    }
    (connector,) = [one for one in plan.document["connectors"] if one["name"] == "b"]
    assert connector["outcome"] == "decide"
    (question,) = [one["text"] for one in connector["questions"] if "undecided" in one["text"]]
    assert "the table 'shop.orders' is claimed by" in question


def test_a_table_of_another_stream_is_claimed_as_well(tmp_path: Path) -> None:
    streams = tmp_path / "home/streams"
    streams.mkdir(parents=True)
    (streams / "mine.yaml").write_text(
        "stream: mine\nsource: {topics: [t]}\ndecode: {value: json, schema: id string}\ntable: {name: shop.orders}\n"
    )
    assert actions(imported(tmp_path, orders={})) == {
        "streams/orders.yaml.undecided": "create",
        "frazil.yaml": "create",
    }


def test_a_table_that_values_of_another_stream_may_name_is_claimed(tmp_path: Path) -> None:
    streams = tmp_path / "home/streams"
    streams.mkdir(parents=True)
    (streams / "mine.yaml").write_text(
        "stream: mine\nsource: {topics: [t]}\ndecode: {value: json, schema: id string}\n"
        "table: {name: shop.all}\nroute: {by: id, to: 'shop.{value}'}\n"
    )
    plan = imported(tmp_path, orders={})
    assert "streams/orders.yaml.undecided" in actions(plan)
    (connector,) = plan.conversion.connectors
    assert "table.name: the table 'shop.orders' may be named by route.to of streams/mine.yaml" in " ".join(
        question.text for question in connector.questions
    )


def test_a_stream_is_left_out_only_for_one_that_is_written(tmp_path: Path) -> None:
    """B is left out for a table of a; c shares a table with b alone."""
    tables = {"iceberg.tables.route-field": "way", "iceberg.table.shop.x.route-regex": "x"}
    plan = imported(
        tmp_path,
        a={"iceberg.tables": "shop.a,shop.x", **tables, "iceberg.table.shop.a.route-regex": "a"},
        b={"iceberg.tables": "shop.b,shop.x", **tables, "iceberg.table.shop.b.route-regex": "b"},
        c={"iceberg.tables": "shop.b"},
    )
    assert [path for path in actions(plan) if path.endswith(".undecided")] == ["streams/b.yaml.undecided"]


def test_each_file_is_read_once_however_many_do_not_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def load_model(path: Path, *arguments: Any, **options: Any) -> Any:
        read.append(path.name)
        return validation.load_model(path, *arguments, **options)

    monkeypatch.setattr(loading, "load_model", load_model)
    unnamed = {"iceberg.tables": "no name"}
    plan = imported(tmp_path, same={}, same2={}, same3={}, wrong=unnamed, worse=unnamed)
    assert sum(path.endswith(".undecided") for path in actions(plan)) == 4
    assert sorted(read) == [f"{name}.yaml" for name in ("same", "same2", "same3", "worse", "wrong")]


def test_settings_that_would_not_validate_stop_before_anything_is_written(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home/frazil.yaml").write_text("kafka:\n  isolation: maybe\n")
    with pytest.raises(FrazilError, match=r"frazil\.yaml would not be valid.*kafka\.isolation"):
        imported(tmp_path, orders={})
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["frazil.yaml"]


def test_a_report_that_is_none_stops(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home/import-report.json").write_text("[")
    with pytest.raises(FrazilError, match="is no report of an import"):
        imported(tmp_path, orders={})


def test_new_settings_that_are_not_valid_are_written_beside_their_place(tmp_path: Path) -> None:
    source = tmp_path / "sink.json"
    config = {
        "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
        "topics": "a",
        "iceberg.tables": "lake.a",
        "iceberg.catalog.type": "rest",
        "iceberg.catalog.uri": "catalog.example",
    }
    source.write_text(json.dumps({"name": "sink", "config": config}))
    conversion = convert(read_sources([str(source)]))

    plan = plan_import(conversion, tmp_path / "lake")

    assert [file.path for file in plan.files] == ["streams/sink.yaml", "frazil.yaml.undecided"]
    (one,) = plan.conversion.connectors
    assert any("catalog.properties.uri" in question.text and question.blocks for question in one.questions)
    write_import(plan, replace_edited=False)
    assert write_import(plan_import(conversion, tmp_path / "lake"), replace_edited=False) == []

    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "frazil.yaml").write_text("spark: {master: 'local[2]'}\n")
    with pytest.raises(FrazilError, match=r"would not be valid.*catalog\.properties\.uri"):
        plan_import(conversion, tmp_path / "kept")


def test_a_connector_with_a_name_like_another_does_not_take_its_stream(tmp_path: Path) -> None:
    imported(tmp_path, Orders={})
    with pytest.raises(FrazilError, match=r"streams/orders\.yaml is the stream of the connector Orders"):
        imported(tmp_path, orders={"topics": "other", "iceberg.tables": "shop.other"})
    # Both at once have streams of their own.
    imported(tmp_path, Orders={}, orders={"topics": "other", "iceberg.tables": "shop.other"})
    assert sorted(path.name for path in (tmp_path / "home/streams").iterdir()) == ["orders-2.yaml", "orders.yaml"]
    with pytest.raises(FrazilError, match="is the stream of the connector Orders"):
        imported(tmp_path, orders={"topics": "other", "iceberg.tables": "shop.other"})


@pytest.mark.parametrize(
    "report", [{}, {"version": 2}, {"version": 1, "files": []}, {"version": 1, "connectors": [{"name": "x"}]}]
)
def test_a_report_that_is_none_stops_the_import(report: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home/import-report.json").write_text(json.dumps(report))
    with pytest.raises(FrazilError, match="is no report of an import that this release reads"):
        imported(tmp_path, orders={})
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["import-report.json"]
