"""Differences of files: by key, with secrets as references, and nothing for two ways to write the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.config.documents.validation import load_model
from jobs.config.settings.loading import load_stream
from jobs.config.settings.settings import Settings, SettingsFile
from jobs.config.stream.models import StreamSpec
from orchestration.deployment_plan.change import Change, ChangeClass, Doer
from orchestration.deployment_plan.file_changes import (
    dagster_changes,
    differences,
    file_changes,
    settings_changes,
    shown_pair,
)

STREAM: dict[str, Any] = {
    "stream": "shop",
    "source": {"topics": ["shop.customers"]},
    "decode": {"value": "json", "schema": "id long not null, name string"},
    "table": {"name": "shop.changes"},
}
CHANGES: dict[str, Any] = {
    "decode": {
        "value": "json",
        "schema": "op string, after struct<id: long, name: string>, source struct<lsn: long>, ts_ms long",
        "key": {"format": "json", "into": "_change_key", "schema": "id long not null"},
    },
    "changes": {"envelope": "debezium"},
}


def stream(folder: Path, **more: Any) -> StreamSpec:
    path = folder / "shop.yaml"
    path.write_text(yaml.safe_dump(STREAM | more))
    return load_stream(path)


def settings_file(folder: Path, document: dict[str, Any]) -> dict[str, Any]:
    path = folder / "frazil.yaml"
    path.write_text(yaml.safe_dump(document))
    return load_model(path, SettingsFile, show_values=False)[0].model_dump(mode="json", by_alias=True)


def told(changes: list[Change]) -> list[tuple[str, ChangeClass, Doer]]:
    return [(each.place, each.kind, each.doer) for each in changes]


@pytest.mark.parametrize("schema", ["id   bigint not null,name string", "id long not null, name string  "])
def test_two_ways_to_write_the_same_are_no_change(tmp_path: Path, schema: str) -> None:
    decode = STREAM["decode"] | {"schema": schema}
    assert file_changes(stream(tmp_path), stream(tmp_path, decode=decode), live=True) == []


def test_a_default_that_is_written_out_is_no_change(tmp_path: Path) -> None:
    written = stream(tmp_path, trigger={"every": "60s"}, evolve={}, slo={})
    assert file_changes(stream(tmp_path), written, live=False) == []


MIRROR = {"table": "shop.customers", "every": "1m"}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ([], [MIRROR], [("shop.customers", ChangeClass.RESTART, Doer.FRAZIL)]),
        ([], [{"table": "shop.customers"}], [("shop.customers", ChangeClass.RESTART, Doer.OPERATOR)]),
        ([MIRROR], [], [("shop.customers", ChangeClass.RESTART, Doer.APPLY)]),
        ([MIRROR], [MIRROR | {"every": "5m"}], [("mirrors.every", ChangeClass.RESTART, Doer.APPLY)]),
        ([MIRROR], [MIRROR | {"deletes": "soft"}], [("mirrors.deletes", ChangeClass.REWRITE, Doer.OPERATOR)]),
        ([MIRROR], [MIRROR | {"where": "id > 1"}], [("mirrors.where", ChangeClass.REWRITE, Doer.OPERATOR)]),
        ([MIRROR], [MIRROR | {"key": ["name"]}], [("mirrors.key", ChangeClass.BREAKING, Doer.OPERATOR)]),
        ([MIRROR], [MIRROR | {"buckets": 4}], [("mirrors.buckets", ChangeClass.NOTHING, Doer.NOBODY)]),
    ],
)
def test_mirrors_are_compared_by_their_tables(
    tmp_path: Path, before: list[Any], after: list[Any], expected: list[Any]
) -> None:
    former, spec = stream(tmp_path, **CHANGES, mirrors=before), stream(tmp_path, **CHANGES, mirrors=after)
    changes = file_changes(former, spec, live=True)
    assert told(changes) == expected
    rebuilt = [each.fix for each in changes if each.kind is ChangeClass.REWRITE]
    assert rebuilt == ["frazil mirror rebuild shop --table shop.customers"] * len(rebuilt)


def test_secrets_of_the_settings_are_compared_by_their_references(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OLD_WORD", "hush-old")
    monkeypatch.setenv("NEW_WORD", "hush-new")

    def with_word(name: str) -> dict[str, Any]:
        login = {"protocol": "SASL_SSL", "mechanism": "PLAIN", "user": "me", "password": f"${{env:{name}}}"}
        return settings_file(tmp_path, {"kafka": {"bootstrap_servers": "b:9092", "security": login}})

    assert settings_changes(with_word("OLD_WORD"), with_word("OLD_WORD")) == []
    (change,) = settings_changes(with_word("OLD_WORD"), with_word("NEW_WORD"))
    assert (change.place, change.before, change.after) == (
        "kafka.security.password",
        "${env:OLD_WORD}",
        "${env:NEW_WORD}",
    )
    assert "hush" not in str(change.facts)


def test_a_password_that_stands_in_a_url_is_not_shown(tmp_path: Path) -> None:
    def with_uri(password: str) -> dict[str, Any]:
        uri = f"postgresql+psycopg://me@db/lake?sslpassword={password}"
        catalog = {"name": "lake", "properties": {"type": "sql", "uri": uri, "warehouse": "s3://lake"}}
        return settings_file(tmp_path, {"catalog": catalog})

    found = settings_changes(with_uri("hush-old"), settings_file(tmp_path, {}))
    assert [each.place for each in found] == ["catalog"]
    assert "hush" not in str([each.facts for each in found])
    assert "hush" not in str(settings_changes(with_uri("hush-old"), with_uri("hush-new")))


@pytest.mark.parametrize(
    ("after", "place", "kind"),
    [
        ({"spark": {"master": "local[4]"}}, "spark.master", ChangeClass.RESTART),
        ({"lease_ttl": "1m"}, "lease_ttl", ChangeClass.RESTART),
        ({"maintenance": {"enabled": False}}, "maintenance.enabled", ChangeClass.METADATA),
        ({"state": "elsewhere"}, "state", ChangeClass.BREAKING),
        (
            {"catalog": {"name": "lake", "properties": {"type": "sql", "uri": "sqlite:///x.db", "warehouse": "w"}}},
            "catalog",
            ChangeClass.BREAKING,
        ),
    ],
)
def test_settings_have_classes(tmp_path: Path, after: dict[str, Any], place: str, kind: ChangeClass) -> None:
    (change,) = settings_changes(settings_file(tmp_path, {}), settings_file(tmp_path, after))
    assert (change.place, change.kind, change.stops) == (place, kind, kind is ChangeClass.BREAKING)


def test_only_another_address_of_the_catalog_breaks_positions(tmp_path: Path) -> None:
    def catalog(**more: str) -> dict[str, Any]:
        properties = {"type": "rest", "uri": "http://catalog:8181"} | more
        return settings_file(tmp_path, {"catalog": {"name": "lake", "properties": properties}})

    (endpoint,) = settings_changes(catalog(), catalog(**{"s3.endpoint": "http://store:9000"}))
    assert (endpoint.place, endpoint.kind) == ("catalog.properties.s3.endpoint", ChangeClass.RESTART)
    (address,) = settings_changes(catalog(), catalog(uri="http://other:8181"))
    assert (address.place, address.kind) == ("catalog.properties.uri", ChangeClass.BREAKING)


def test_dagster_shows_what_the_files_make(tmp_path: Path) -> None:
    settings, plain = Settings.embedded(tmp_path), stream(tmp_path, **CHANGES)
    more = stream(
        tmp_path,
        **CHANGES,
        mirrors=[MIRROR],
        freshness={"warn": "5m", "fail": "9m"},
        contract={"expectations": [{"expect_column_values_to_not_be_null": {"column": "id"}}]},
    )
    (change,) = dagster_changes(plain, more, settings, live=False)
    assert "+ asset frazil/shop/customers" in change.sentence
    assert "+ freshness policy of shop.changes" in change.sentence
    assert "+ check " in change.sentence
    assert (change.doer, change.kind) == (Doer.FRAZIL, ChangeClass.METADATA)
    (gone,) = dagster_changes(more, None, settings, live=True)
    assert "- asset frazil/shop/changes" in gone.sentence
    assert gone.doer is Doer.NOBODY
    assert dagster_changes(more, more, settings, live=True) == []
    assert dagster_changes(None, None, settings, live=True) == []


def test_lists_are_compared_as_a_whole_and_keys_that_come_or_go_are_told() -> None:
    before, after = {"a": {"b": 1}, "c": [1, 2], "d": 1}, {"a": {"b": 1}, "c": [2, 1], "e": 2}
    assert list(differences(before, after)) == [("c", [1, 2], [2, 1]), ("d", 1, None), ("e", None, 2)]


def test_of_long_values_the_part_that_differs_is_shown() -> None:
    before = ", ".join(f"column_{number} string" for number in range(40))
    old, new = shown_pair(before, f"{before}, note string")
    assert old == "…ng, column_39 string"
    assert new == "…ng, column_39 string, note string"
    assert shown_pair(None, "x" * 90) == ("none", "x" * 60 + "…")
    assert shown_pair(["a"], {"b": 1}) == ('["a"]', '{"b": 1}')
