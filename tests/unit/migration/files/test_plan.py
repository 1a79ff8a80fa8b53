"""Files of an import: validated before they are written, and edits of people survive."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.base.errors import FrazilError
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
