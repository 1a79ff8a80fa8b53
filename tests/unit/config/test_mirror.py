"""`mirrors:` in a stream's file: what they need, and that they change no row of the changelog."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.base.errors import FrazilError
from jobs.config.settings.generation import generation
from jobs.config.settings.loading import load_stream, load_streams
from jobs.config.settings.maintained_tables import maintained_tables
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec

MIRROR = {"table": "shop.customers"}
KEPT = {"envelope": "debezium", "keep": "30d"}


def spec(tmp_path: Path, stream: str = "customers", **more: Any) -> StreamSpec:
    file = tmp_path / f"{stream}.yaml"
    document = {
        "stream": stream,
        "source": {"topics": [stream]},
        "decode": {
            "value": "connect_json",
            "schema": "infer",
            "key": {"format": "connect_json", "schema": "id long", "into": "_change_key"},
        },
        "changes": {"envelope": "debezium"},
        "table": {"name": f"shop.{stream}_changes"},
        **more,
    }
    file.write_text(yaml.safe_dump({key: value for key, value in document.items() if value is not None}))
    return load_stream(file)


def test_what_a_mirror_is_by_itself(tmp_path: Path) -> None:
    (found,) = spec(tmp_path, mirrors=[MIRROR]).mirrors
    assert (found.key, found.every, found.deletes, found.where, found.buckets) == ((), None, "hard", None, 8)


def test_no_row_changes_by_mirrors_and_a_driver_takes_them_up(tmp_path: Path) -> None:
    settings = Settings.embedded(tmp_path)
    bare, mirrored = spec(tmp_path), spec(tmp_path, mirrors=[{**MIRROR, "every": "30s"}])
    assert bare.config_hash == mirrored.config_hash
    assert generation(bare, settings) != generation(mirrored, settings)
    assert generation(bare, settings) == generation(spec(tmp_path, mirrors=[]), settings)
    # How long changes stay makes no other rows, and starts no driver anew.
    kept = spec(tmp_path, mirrors=[{**MIRROR, "every": "30s"}], changes={"envelope": "debezium", "keep": "30d"})
    assert kept.config_hash == mirrored.config_hash and generation(kept, settings) == generation(mirrored, settings)


def test_they_are_maintained(tmp_path: Path) -> None:
    tables = maintained_tables(Settings.embedded(tmp_path), [spec(tmp_path, mirrors=[MIRROR])])
    assert {each.name: each.role for each in tables}["shop.customers"] == "mirror"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"changes": None}, "mirrors.*needs changes"),
        ({"mirrors": [{"table": "shop.customers_changes"}]}, r"mirrors\[0\].table.*another table than those"),
        ({"mirrors": [{"table": "shop.customers_changes_dead"}]}, r"mirrors\[0\].table.*another table than those"),
        ({"mirrors": [MIRROR, MIRROR]}, r"mirrors\[1\].table.*is another mirror of this stream"),
        ({"mirrors": [{**MIRROR, "every": "1s"}]}, r"mirrors\[0\].every.*at least 5s"),
        ({"mirrors": [{**MIRROR, "key": ["id", "id"]}]}, r"mirrors\[0\].key.*twice"),
        ({"mirrors": [{**MIRROR, "where": "id >"}]}, r"mirrors\[0\].where"),
        ({"mirrors": [{**MIRROR, "where": "at > now() - INTERVAL '1 day'"}]}, r"mirrors\[0\].where.*not ask for now"),
        ({"mirrors": [{**MIRROR, "buckets": 0}]}, r"mirrors\[0\].buckets"),
        ({"mirrors": [{**MIRROR, "buckets": 5000}]}, r"mirrors\[0\].buckets.*at most 1,024"),
        ({"mirrors": [{**MIRROR, "deletes": "never"}]}, r"mirrors\[0\].deletes"),
        ({"mirrors": [{**MIRROR, "keys": ["id"]}]}, r"mirrors\[0\].keys"),
        ({"changes": {**KEPT, "keep": "6d"}}, r"changes.keep.*at least 7d"),
        ({"changes": KEPT, "mirrors": []}, r"changes.keep.*goes with mirrors"),
        (
            {"changes": KEPT, "mirrors": [{**MIRROR, "where": "id > 1"}]},
            r"mirrors\[0\].where.*does not go with changes.keep",
        ),
        ({"table": {"name": "shop.customers_changes", "branch": "ingest"}}, "table.branch.*must be main beside"),
    ],
)
def test_what_is_refused(tmp_path: Path, more: dict[str, Any], said: str) -> None:
    with pytest.raises(FrazilError, match=said):
        spec(tmp_path, **{"mirrors": [MIRROR], **more})


def test_two_streams_have_no_mirror_in_common(tmp_path: Path) -> None:
    spec(tmp_path, mirrors=[MIRROR])
    spec(tmp_path, "clients", mirrors=[MIRROR])
    _, errors = load_streams(tmp_path)
    assert len(errors) == 2 and "table 'shop.customers' is claimed by" in str(errors[0])


LANES: dict[str, Any] = {
    "source": {"topics_pattern": r"shop\.public\..*"},
    "table": {"name": "raw.stream"},
    "route": {"by": "regexp_replace(_topic, '^.*[.]', '')", "to": "raw.{value}"},
}


def test_one_for_each_changelog_of_a_database(tmp_path: Path) -> None:
    found = spec(tmp_path, **LANES, mirrors=[{"table": "shop.{table}"}, {"table": "{namespace}.{table}_soft"}])
    assert found.mirrored == ()
    known = found.with_named_tables(["raw.customers", "raw.orders"])
    assert [(changelog, mirror.table) for changelog, mirror in known.mirrored] == [
        ("raw.customers", "shop.customers"),
        ("raw.customers", "raw.customers_soft"),
        ("raw.orders", "shop.orders"),
        ("raw.orders", "raw.orders_soft"),
    ]
    assert known.for_table("raw.orders").table.name == "raw.orders"
    roles = {each.name: each.role for each in maintained_tables(Settings.embedded(tmp_path), [known])}
    assert roles["shop.orders"] == "mirror"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({**LANES, "mirrors": [MIRROR]}, r"mirrors\[0\].table.*must have {table}"),
        ({"mirrors": [{"table": "shop.{table}"}]}, r"mirrors\[0\].table.*has one changelog"),
        ({**LANES, "mirrors": [{"table": "shop.{topic}"}]}, r"mirrors\[0\].table.*may name {table} and {namespace}"),
        ({**LANES, "mirrors": [{"table": "{table}"}]}, r"mirrors\[0\].table.*must be namespace.table"),
        (
            {"route": {"by": "region", "to": "shop.{value}"}, "mirrors": [MIRROR]},
            "mirrors.*goes with a route by topic alone",
        ),
    ],
)
def test_what_is_refused_with_a_route(tmp_path: Path, more: dict[str, Any], said: str) -> None:
    with pytest.raises(FrazilError, match=said):
        spec(tmp_path, **more)
