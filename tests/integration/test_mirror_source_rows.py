"""Rows of a source in PostgreSQL as they are read: wide tables, odd names, hidden rows, and what takes too long."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, LiteralString

import psycopg
import pytest

from jobs.base.errors import FrazilError
from jobs.config.services.services import SourceSettings
from jobs.mirrors.check.compared_columns import (
    INTEGER,
    LEAVES,
    TEXT,
    ComparedColumn,
    postgresql_digests,
)
from jobs.mirrors.check.compared_rows import SourceTable, source_table
from tests.helpers.database_server import PASSWORD, DatabaseServer, backed_up, database_server

pytestmark = pytest.mark.integration

VARIABLE = "FRAZIL_TEST_ROWS_PASSWORD"
ID = ComparedColumn("id", INTEGER)
ONLY_ID = postgresql_digests([ID], [])


@pytest.fixture
def owner(database: DatabaseServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[psycopg.Connection[Any]]:
    monkeypatch.setenv(VARIABLE, PASSWORD)
    with psycopg.connect(database.url, password=PASSWORD, autocommit=True) as connection:
        yield connection


def settings(url: str, **more: timedelta) -> SourceSettings:
    return SourceSettings.model_validate({"url": url, "properties": {"password": f"${{env:{VARIABLE}}}"}, **more})


def test_a_table_of_many_columns_with_odd_names_is_read(
    database: DatabaseServer, owner: psycopg.Connection[Any]
) -> None:
    names = ["50% off", 'a"b', "%s", *(f"c{n}" for n in range(147))]
    declared = ", ".join('"' + name.replace('"', '""') + '" text' for name in names)
    owner.execute(f'CREATE TABLE "wide%" (id bigint PRIMARY KEY, {declared})'.encode())
    values = {n: [f"näme {n} {at}" if at % 3 else None for at in range(150)] for n in range(1, 6)}
    for n, row in values.items():
        made = ", ".join(["%s"] * 151)
        owner.execute(f'INSERT INTO "wide%%" VALUES ({made})'.encode(), [n, *row])
    columns = [ComparedColumn(name, TEXT) for name in names]
    digests = postgresql_digests([ID], columns)
    with source_table("shop", settings(database.url), "public.wide%", "id % 2 = 1 AND id <> 5") as look:
        assert set(look.columns()) == {"id", *names}
        leaves = look.leaves(digests, None)
        found = dict(look.rows(digests, sorted(leaves)))
        parts = [look.leaves(digests, range(first, first + 32)) for first in (0, 32)]
    assert leaves == parts[0] | parts[1] and sum(count for count, _ in leaves.values()) == 2
    assert sorted(found) == [("1",), ("3",)]
    for n in (1, 3):
        items = ["n" if each is None else f"{len(each)}:{each}" for each in values[n]]
        row = int(_md5(f"1:{n}" + "".join(items))[:15], 16)
        assert found[f"{n}",].columns == ",".join(_md5(each)[:16] for each in items)
        assert leaves[int(_md5(f"1:{n}")[:15], 16) % LEAVES] == (1, row)


def test_the_types_of_columns_are_those_that_domains_are_made_of(
    database: DatabaseServer, owner: psycopg.Connection[Any]
) -> None:
    owner.execute(
        """
        CREATE TYPE rows_hue AS ENUM ('red');
        CREATE DOMAIN rows_amount AS numeric(12, 4); CREATE DOMAIN rows_price AS rows_amount;
        CREATE DOMAIN rows_shade AS rows_hue; CREATE DOMAIN rows_words AS text[];
        CREATE TABLE typed (id bigint PRIMARY KEY, a rows_price, b rows_amount, c numeric(9, 2), d numeric,
                            e rows_shade, f rows_hue[], g rows_words, h numeric(5, 1)[], i varchar(9))
        """
    )
    with source_table("shop", settings(database.url), "public.typed", None) as look:
        found = {name: (each.kind, each.element, each.scale) for name, each in look.columns().items()}
    assert found == {
        "id": ("int8", None, None),
        "a": ("numeric", None, 4),
        "b": ("numeric", None, 4),
        "c": ("numeric", None, 2),
        "d": ("numeric", None, None),
        "e": ("enum", None, None),
        "f": ("_rows_hue", "enum", None),
        "g": ("_text", "text", None),
        "h": ("_numeric", "numeric", 1),
        "i": ("varchar", None, None),
    }


def test_rows_of_a_partitioned_table_have_versions(database: DatabaseServer, owner: psycopg.Connection[Any]) -> None:
    owner.execute("CREATE TABLE parts (id bigint PRIMARY KEY) PARTITION BY RANGE (id)")
    owner.execute("CREATE TABLE low PARTITION OF parts FOR VALUES FROM (0) TO (2)")
    owner.execute("CREATE TABLE high PARTITION OF parts FOR VALUES FROM (2) TO (9); INSERT INTO parts VALUES (1), (3)")
    with source_table("shop", settings(database.url), "public.parts", None) as look:
        rows = dict(look.rows(ONLY_ID, list(look.leaves(ONLY_ID, None))))
    assert sorted(rows) == [("1",), ("3",)] and all(row.version for row in rows.values())


def test_many_leaves_are_asked_for_by_a_hash(database: DatabaseServer, owner: psycopg.Connection[Any]) -> None:
    owner.execute("CREATE TABLE many AS SELECT n::bigint AS id FROM generate_series(1, 100_000) AS n; ANALYZE many")
    quick = settings(database.url, statement_timeout=timedelta(seconds=20))
    with source_table("shop", quick, "public.many", None) as look:
        assert sum(1 for _ in look.rows(ONLY_ID, range(0, LEAVES, 2))) > 40_000


def test_rows_that_a_policy_hides_are_an_error(database: DatabaseServer, owner: psycopg.Connection[Any]) -> None:
    owner.execute("CREATE TABLE hidden (id bigint PRIMARY KEY); INSERT INTO hidden VALUES (1), (2)")
    owner.execute("ALTER TABLE hidden ENABLE ROW LEVEL SECURITY; CREATE POLICY odd ON hidden USING (id % 2 = 1)")
    _make_reader(owner, "hidden")
    reader = settings(database.url.replace("frazil@", "rows_reader@"))

    def read() -> int:
        with source_table("shop", reader, "public.hidden", None) as look:
            return sum(count for count, _ in look.leaves(ONLY_ID, None).values())

    with pytest.raises(FrazilError, match="row-level security") as raised:
        read()
    assert raised.value.fix is not None and raised.value.fix.startswith("ALTER ROLE rows_reader BYPASSRLS")
    owner.execute("ALTER ROLE rows_reader BYPASSRLS")
    assert read() == 2


def test_what_takes_too_long_names_its_setting(database: DatabaseServer, owner: psycopg.Connection[Any]) -> None:
    owner.execute("CREATE TABLE slow (id bigint PRIMARY KEY); INSERT INTO slow VALUES (1)")
    short = settings(database.url, timeout=timedelta(seconds=1), statement_timeout=timedelta(seconds=2))

    def said(where: str | None) -> FrazilError:
        with pytest.raises(FrazilError) as raised, source_table("shop", short, "public.slow", where) as look:
            look.leaves(ONLY_ID, None)
        return raised.value

    long = said("pg_sleep(60) IS NOT NULL")
    assert "after 2s at the most (sources.shop.statement_timeout)" in long.message
    assert "sources.shop.statement_timeout" in str(long.fix)
    with psycopg.connect(database.url, password=PASSWORD) as other:
        other.execute("LOCK TABLE slow")
        held = said(None)
    assert "within 1s (sources.shop.timeout)" in held.message and "ALTER TABLE" in str(held.fix)


def test_where_the_log_is_and_how_a_session_is_bound(database: DatabaseServer, owner: psycopg.Connection[Any]) -> None:
    owner.execute("CREATE TABLE placed (id bigint PRIMARY KEY)")
    with source_table("shop", settings(database.url), "public.placed", None) as look:
        assert look.before > 0
        assert {name: _shown(look, name) for name in ("statement_timeout", "lock_timeout", "client_encoding")} == {
            "statement_timeout": "10min",
            "lock_timeout": "10s",
            "client_encoding": "UTF8",
        }
        assert _shown(look, "transaction_isolation") == "repeatable read"
        assert _shown(look, "max_parallel_workers_per_gather") == "0"


def test_a_standby_is_refused(database: DatabaseServer, owner: psycopg.Connection[Any], tmp_path: Path) -> None:
    owner.execute("CREATE TABLE copied (id bigint PRIMARY KEY)")
    copy = backed_up(database, tmp_path / "backup")
    (copy / "standby.signal").touch()
    with (
        database_server(backup=copy) as standby,
        pytest.raises(FrazilError, match="recovery is in progress") as refused,
        source_table("shop", settings(standby.url), "public.copied", None),
    ):
        pass
    assert refused.value.fix == "name the primary, not a standby, in sources.shop.url of frazil.yaml"


def _shown(look: SourceTable, name: LiteralString) -> str:
    ((value,),) = look._connection.execute(f"SHOW {name}").fetchall()
    return value


def _make_reader(owner: psycopg.Connection[Any], table: LiteralString) -> None:
    owner.execute(f"CREATE ROLE rows_reader LOGIN PASSWORD '{PASSWORD}'".encode())
    owner.execute(f"GRANT SELECT ON {table} TO rows_reader")


def _md5(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()
