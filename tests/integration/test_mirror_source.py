"""Mirrors compared with their source: PostgreSQL, its types, what is on its way, and what is certainly wrong."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyiceberg import types as ice

from jobs.base.errors import FrazilError
from jobs.mirrors.check.compared_columns import (
    INTEGER,
    TEXT,
    ComparedColumn,
    SourceColumn,
    kind_of,
    postgresql_digests,
    spark_digests,
)
from jobs.mirrors.check.source_check import check_source
from jobs.mirrors.check.source_report import SourceConsistency, source_fix, source_sentence
from orchestration.cli.main import main
from tests.helpers.compared_source import VARIABLE, ComparedSource
from tests.helpers.database_server import PASSWORD, DatabaseServer
from tests.integration.test_mirror import Merges
from tests.story.one_session import one_session
from tests.unit.mirrors.plain_merger import copy_on_write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

Row = dict[str, Any]

ROWS = """
    INSERT INTO "Customers"
    SELECT n, 'näme ☃ ' || n, left('c' || n, 6), n * 1.0001, -n / 3.0, n * 10 * '0.01'::money, n / 7.0, -n / 3.0,
           n % 2 = 0,
           DATE '1969-12-30' + n::int, TIMESTAMP '1960-01-01 00:00:00.000001' + n * interval '1 year 1 microsecond',
           TIMESTAMPTZ '2026-03-29 01:30:00.123456+02' + n * interval '1 hour', md5(n::text)::uuid,
           md5('u' || n)::uuid, ('{"b": 1,  "a": ' || n || '}')::json, jsonb_build_object('n', n, 'x', NULL),
           decode(md5(n::text), 'hex'), ARRAY['a,b', NULL, '', n::text], ARRAY[n, NULL]::int[],
           CASE WHEN n % 3 = 0 THEN 'sad' ELSE 'glad' END::mood, point(n, n), n
    FROM generate_series(1, 60) AS n
"""
ODD = """
    INSERT INTO "Customers" (id, amount, cost, ratio, raw, tags, counts, name, seen) VALUES
    (101, 0, 0.0001, '-0', '', '{}', '{}', '', '2026-01-01'),
    (102, -0.0001, -1, 'Infinity', '\\x00', NULL, '{1}', 'n', NULL),
    (-103, 1e15, 1, 1e-300, NULL, '{n}', NULL, '3:abc', '1582-01-01 12:00:00')
"""


@pytest.fixture
def world(tmp_path: Path, database: DatabaseServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[ComparedSource]:
    monkeypatch.setenv(VARIABLE, PASSWORD)
    made = ComparedSource(tmp_path, database)
    yield made
    made.connection.execute('DROP TABLE "Customers"; DROP DOMAIN price; DROP TYPE mood')
    made.close()


def compared(
    world: ComparedSource, merges: Merges, wait: float = 0.0, buckets: range | None = None
) -> SourceConsistency:
    with world.catalog() as catalog:
        found = check_source(world.spec, world.mirror, world.settings, catalog, lambda: merges.session, buckets, wait)
    assert found is not None
    return found


@pytest.mark.timeout(1200)
def test_a_mirror_is_held_against_the_rows_of_its_source(world: ComparedSource, spark: SparkSession) -> None:
    merges = Merges(world, spark)
    world.execute(ROWS, *range(1, 61))
    world.execute(ODD, 101, 102, -103)
    merges.run()
    found = compared(world, merges)
    assert found.agrees and not found.again, source_sentence(found)
    assert (found.source_rows, found.mirror_rows) == (63, 63)
    assert found.left_out == (("place", "point at the source, and string in the mirror"),)
    assert set(found.compared) >= {"id", "amount", "cost", "paid", "uid", "docb", "tags", "counts", "mood", "part"}
    assert "they are the same" in source_sentence(found) and "Not compared: place" in source_sentence(found)
    parts = [compared(world, merges, buckets=range(first, first + 32)) for first in (0, 32)]
    assert sum(each.source_rows for each in parts) == 63 and all(each.agrees for each in parts)

    # What has not landed yet disagrees, and it is not certain why, until it has been merged.
    later = world.execute("""UPDATE "Customers" SET amount = 5, born = NULL WHERE id = 3""", 3, land=False)
    later += world.execute("""DELETE FROM "Customers" WHERE id = 4""", 4, land=False)
    later += world.execute("""INSERT INTO "Customers" (id) VALUES (5000)""", 5000, land=False)
    found = compared(world, merges)
    assert not found.wrong and found.unsettled == {"missing": 1, "extra": 1, "different": 1}
    assert {(each.what, each.key["id"], each.columns) for each in found.examples} == {
        ("different", "3", ("amount", "born")), ("extra", "4", ()), ("missing", "5000", ()),
    }  # fmt: skip
    assert "perhaps by changes on their way" in source_sentence(found)
    with Meanwhile(world, merges, later):
        found = compared(world, merges, wait=60.0)
    assert found.agrees and found.again == 3, source_sentence(found)

    # What somebody does to the mirror is certain once the mirror has come past the first look.
    table = world.table()
    row = world.mirror_row(33)
    with copy_on_write():
        table.delete("id = 30")
        table.append(_changed(row, "id", 99))
        table.append(world.mirror_row(12))
        table.overwrite(_changed(row, "name", "not so"), "id = 33")
    assert compared(world, merges).unsettled == {"missing": 1, "extra": 2, "different": 1}
    # While another row changes again and again, and the mirror follows.
    with Meanwhile(world, merges, [], again=True):
        found = compared(world, merges, wait=90.0)
    assert found.wrong == {"missing": 1, "extra": 2, "different": 1}, source_sentence(found)
    wrong = {(each.what, each.key["id"], each.columns) for each in found.examples if each.certain}
    assert wrong == {("missing", "30", ()), ("extra", "99", ()), ("extra", "12", ()), ("different", "33", ("name",))}
    assert source_fix(world.spec, found, changelog_agrees=False, letters=0) == (
        "frazil mirror rebuild customers --table shop.customers"
    )
    merges.rebuild()
    assert compared(world, merges).agrees
    command = ["--home", str(world.home), "mirror", "check", "customers", "--json", "--wait", "1s"]
    with one_session(merges.session):
        result = CliRunner().invoke(main, command)
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)["mirrors"][0]
    assert told["consistent"] and told["source"]["agrees"] and told["source"]["rows_source"] == 63


def test_a_source_that_cannot_be_read_is_told(
    world: ComparedSource, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    merges = Merges(world, spark)
    world.execute("""INSERT INTO "Customers" (id) VALUES (1)""", 1)
    merges.run()
    assert PASSWORD not in repr(world.settings) + world.settings.model_dump_json()

    def said(**source: object) -> FrazilError:
        named = {"connection": "shop", "table": "public.Customers", **source}
        world.write(mirrors=[{**world.document["mirrors"][0], "source": named}])
        with pytest.raises(FrazilError) as raised:
            compared(world, merges)
        assert PASSWORD not in str(raised.value) + str(raised.value.fix)
        return raised.value

    assert "source.table" in str(said(table="public.customers").fix)
    assert "source.where" in str(said(where="nothing = 1").fix)
    assert "did you mean 'shop'" in said(connection="shp").message
    assert "by column id of its key: excluded" in said(exclude=["id"]).message
    assert "topic customers name" in said(table=None).message
    monkeypatch.setenv(VARIABLE, "wrong")
    assert "password authentication failed" in said().message


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_decimals_are_written_alike_however_spark_casts(
    spark: SparkSession, database: DatabaseServer, ansi: str
) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.ansi.enabled", ansi)
    values = "0, 0.00000001, -0.00000001, 1, -1234567890123.5, 123456789012345678901234567890.12345678"
    kind = kind_of(SourceColumn("numeric(38,8)", "numeric", scale=8), ice.DecimalType(38, 8))
    whole = kind_of(SourceColumn("numeric(9,0)", "numeric", scale=0), ice.DecimalType(38, 0))
    assert kind is not None and whole is not None
    query = f"""
        SELECT {kind.spark.format("v")} AS few, {whole.spark.format("CAST(v AS DECIMAL(38, 0))")} AS whole FROM (
            SELECT CAST(text AS DECIMAL(38, 8)) AS v
            FROM (SELECT posexplode(split('{values}', ', ')) AS (at, text)) ORDER BY at
        )
    """
    mine = [tuple(row) for row in session.sql(query).collect()]
    with psycopg.connect(database.url, password=PASSWORD) as connection:
        statement = f"""
            SELECT {kind.postgresql.format("v")}, {whole.postgresql.format("v::numeric(38, 0)")}
            FROM unnest(ARRAY[{values}]::numeric(38, 8)[]) AS v
        """
        assert connection.execute(statement.encode()).fetchall() == mine


def test_rows_of_many_columns_have_one_digest_on_both_sides(spark: SparkSession, database: DatabaseServer) -> None:
    key = [ComparedColumn("id", INTEGER)]
    columns = [ComparedColumn(f"c{n}", TEXT) for n in range(150)]
    values = ", ".join(f"'v{n}' AS c{n}" if n % 7 else f"CAST(NULL AS %s) AS c{n}" for n in range(150))
    mine, its = spark_digests(key, columns), postgresql_digests(key, columns)
    row = spark.sql(
        f"SELECT {mine.leaf}, {mine.row}, {mine.columns} FROM (SELECT 7 AS id, {values.replace('%s', 'STRING')})"
    ).first()
    assert row is not None
    with psycopg.connect(database.url, password=PASSWORD) as connection:
        made = f"(SELECT 7 AS id, {values.replace('%s', 'text')}) AS made"
        found = connection.execute(f"SELECT {its.leaf}, {its.row}, {its.columns} FROM {made}".encode()).fetchall()
    assert found == [tuple(row)]


class Meanwhile:
    """Beside a comparison: changes that come late land and are merged, and another row changes once more, or always."""

    def __init__(
        self, world: ComparedSource, merges: Merges, later: list[dict[str, Any]], *, again: bool = False
    ) -> None:
        self._over = threading.Event()
        self._problem: BaseException | None = None

        def work() -> None:
            try:
                if later:
                    world.land_changes(later)
                n = 0
                while not self._over.is_set():
                    n += 1
                    world.execute(f"""UPDATE "Customers" SET n = {n} WHERE id = 1""", 1)
                    merges.run()
                    if not again or self._over.wait(5.0):
                        break
            except BaseException as problem:
                self._problem = problem

        self._thread = threading.Thread(target=work)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self._thread.join(300)
        assert self._problem is None and not self._thread.is_alive()


def _changed(row: pa.Table, column: str, value: object) -> pa.Table:
    where = row.schema.get_field_index(column)
    return row.set_column(where, row.schema.field(where), pa.array([value], row.schema.field(where).type))
