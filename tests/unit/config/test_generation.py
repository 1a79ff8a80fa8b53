import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobs.config.settings.generation import generation, generation_of_errors, settings_of_generation
from jobs.config.settings.settings import Settings, SettingsFile, load_settings
from jobs.config.stream.models import StreamSpec

BASE: dict[str, Any] = {
    "stream": "payments",
    "source": {"topics": ["payments"]},
    "decode": {"value": "json", "schema": "id string not null, n long"},
    "table": {"name": "orders.payments"},
}


def spec_with(change: Callable[[dict[str, Any]], Any] = lambda _: None) -> StreamSpec:
    data = copy.deepcopy(BASE)
    change(data)
    return StreamSpec.model_validate(data)


@pytest.mark.parametrize(
    "more",
    [
        {"trigger": {"every": "10s"}},
        {"trigger": {"every": "1m", "while_red": "5m"}},
        {"trigger": "available_now"},
        {"source": {"topics": ["payments"], "max_records_per_batch": 5}},
        {"source": {"topics": ["payments"], "group": "dashboards"}},
        {"errors": {"stop_above": {"ratio": 0.5}}},
        {"errors": {"stop_above": {"count": 5}}},
        {"errors": {"stop_above": "off"}},
        {"errors": {"stop_above": {"window": {"of": "1h", "count": 5}}}},
        {"errors": {"tolerance": "all"}},
        {"restart": {"max_restarts": 1}},
        {"errors": {"retry": {"timeout": "5m"}}},
        {"event_time": {"column": "_kafka_timestamp"}},
        {"errors": {"dead_letters": {"topic": "dead"}}},
        {"errors": {"dead_letters": {"topic": {"name": "dead", "stops": True}}}},
        {"errors": {"dead_letters": {"mask": {"headers": ["h"]}}}},
        {"decode": {"value": "json", "schema": "id string"}},
        {"table": {"name": "orders.payments", "properties": {"a": "b"}}},
    ],
    ids=str,
)
def test_it_changes_with_what_a_driver_is_started_anew_for(more: dict[str, Any], tmp_path: Path) -> None:
    settings = Settings.embedded(tmp_path)
    assert generation(spec_with(lambda data: data.update(more)), settings) != generation(spec_with(), settings)


@pytest.mark.parametrize(
    "more",
    [
        {"description": "words"},
        {"owner": "team:payments"},
        {"freshness": {"warn": "1h", "fail": "2h"}},
        {"slo": {"lag_records": 5}},
        {"contract": {"expectations": [{"expect_table_row_count_to_be_between": {"min_value": 1}}]}},
        {"errors": {"replay": {"automatic": True}}},
        {"errors": {"retry": {"timeout": "0s", "max_delay": "1m"}}},
        {"decode": {"value": "json", "schema": "id  string  not null,\nn bigint"}},
        {"trigger": {"every": "1m"}},
        {"trigger": {"every": "1m", "while_red": None}},
        # Steps that name one have it in them.
        {"predicates": {"isTest": {"type": "RecordIsTombstone"}}},
    ],
    ids=str,
)
def test_it_stays_with_what_only_describes_or_watches(more: dict[str, Any], tmp_path: Path) -> None:
    settings = Settings.embedded(tmp_path)
    assert generation(spec_with(lambda data: data.update(more)), settings) == generation(spec_with(), settings)


def test_what_a_file_of_an_earlier_version_says_gives_the_generation_that_it_had() -> None:
    spec = spec_with(lambda data: data.update(errors={"dead_letters": {"topic": "dead"}}))
    topic = {
        "name": "dead",
        "create": False,
        "partitions": None,
        "replication_factor": None,
        "publish": "new",
        "kafka": None,
    }
    assert generation_of_errors(spec_with().errors) == {"tolerance": "data", "stop_above": None, "dead_letters": None}
    assert generation_of_errors(spec.errors)["dead_letters"] == {"table": None, "topic": topic}
    ratio, least = (spec_with(lambda data, more=more: data.update(errors={"stop_above": more})) for more in (
        {"ratio": 0.1}, {"ratio": 0.1, "min_records": 1000}
    ))  # fmt: skip
    assert generation_of_errors(ratio.errors)["stop_above"] == {"ratio": 0.1, "min_records": 1000}
    assert generation_of_errors(least.errors) == generation_of_errors(ratio.errors), "it was the default once"


def test_how_long_letters_stay_is_no_matter_of_the_driver_s(tmp_path: Path) -> None:
    settings = Settings.embedded(tmp_path)
    letters = {"table": "orders.dead"}
    with_keep, without = (
        spec_with(lambda data, more=more: data.update(errors={"dead_letters": letters | more}))
        for more in ({"keep": "90d"}, {})
    )
    assert generation(with_keep, settings) == generation(without, settings)


def test_settings_count_but_not_where_the_local_broker_is_just_now(tmp_path: Path) -> None:
    before = generation(spec_with(), Settings.embedded(tmp_path))
    (tmp_path / ".frazil" / "broker").mkdir(parents=True)
    (tmp_path / ".frazil" / "broker" / "address").write_text("127.0.0.1:4711")
    assert generation(spec_with(), Settings.embedded(tmp_path)) == before
    (tmp_path / "frazil.yaml").write_text("spark: {driver_memory: 2g}\n")
    assert generation(spec_with(), load_settings(None, home=tmp_path)) != before


def test_a_registry_counts_only_where_records_name_their_schemas(tmp_path: Path) -> None:
    before = generation(spec_with(), Settings.embedded(tmp_path))
    (tmp_path / ".frazil" / "registry").mkdir(parents=True)
    assert Settings.embedded(tmp_path).registry is not None
    assert generation(spec_with(), Settings.embedded(tmp_path)) == before

    avro = spec_with(lambda data: data.update(decode={"value": "avro", "schema": "registry"}, table={"name": "a.b"}))
    (tmp_path / "frazil.yaml").write_text("registry: {url: http://one:8081}\n")
    one = load_settings(None, home=tmp_path)
    (tmp_path / "frazil.yaml").write_text("registry: {url: http://two:8081}\n")
    two = load_settings(None, home=tmp_path)
    assert generation(avro, one) != generation(avro, two)
    assert generation(spec_with(), one) == generation(spec_with(), two)


def test_a_secret_s_value_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "frazil.yaml").write_text("spark: {conf: {spark.x.password: '${env:A_SECRET}'}}\n")
    hashes = set()
    for value in ("one", "two"):
        monkeypatch.setenv("A_SECRET", value)
        hashes.add(generation(spec_with(), load_settings(None, home=tmp_path)))
    assert len(hashes) == 1


def test_where_the_ui_listens_counts_only_once_it_is_said(tmp_path: Path) -> None:
    """Deployments of earlier versions keep the generation that they have, so that no driver is started anew."""
    before = generation(spec_with(), Settings.embedded(Path("/opt/x")))
    assert before == "9904a3eba09b"
    (tmp_path / "frazil.yaml").write_text("spark: {ui_address: 127.0.0.1}\n")
    assert generation(spec_with(), load_settings(None, home=tmp_path)) == generation(
        spec_with(), Settings.embedded(tmp_path)
    )
    (tmp_path / "frazil.yaml").write_text("spark: {ui_address: 0.0.0.0}\n")
    assert generation(spec_with(), load_settings(None, home=tmp_path)) != generation(
        spec_with(), Settings.embedded(tmp_path)
    )


def test_a_routed_stream_keeps_the_generation_that_an_earlier_release_gave_it() -> None:
    route = {"by": "type", "tables": [{"match": "INS", "table": "orders.changes"}]}

    def routed(data: dict[str, Any]) -> None:
        data["decode"]["schema"] = "id long, type string"
        data["route"] = route

    settings = Settings.embedded(Path("/x"))
    assert generation(spec_with(routed), settings) == "2ce889f2bfe7"
    named = {"by": "id", "to": "orders.{value}", "recreate": True}
    plain = {"by": "id", "to": "orders.{value}"}
    told = [generation(spec_with(lambda data, r=r: data.update(route=r)), settings) for r in (named, plain)]
    assert told[0] != told[1]


def test_the_settings_of_a_generation_have_the_names_of_the_file_and_no_secret(tmp_path: Path) -> None:
    file = tmp_path / "frazil.yaml"
    file.write_text(
        "catalog: {name: lake, properties: {type: sql, warehouse: /lake, uri: 'postgresql+psycopg://me@db/lake?sslpassword=hunter2'}}\n"
        "state: {store: 'postgresql://me@db/state?sslpassword=hunter3'}\n"
        "spark: {conf: {spark.x: '${env:WORD}'}}\n"
    )
    settings = load_settings(file, home=tmp_path)
    text = json.dumps(settings_of_generation(spec_with(), settings))
    assert "hunter" not in text
    assert '"spark.x": "${env:WORD}"' in text
    assert set(json.loads(text)) <= {*SettingsFile.model_fields}
