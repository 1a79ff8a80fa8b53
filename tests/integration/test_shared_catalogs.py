"""The whole way on catalogs that several machines share: PostgreSQL, Hive, and REST with tables in S3.

Each is a stream that lands, is audited, replayed, compacted, expired and swept. The REST catalog also answers commits
wrongly, and hides a table's history once.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from jobs.base.system.processes import session_members
from jobs.maintenance.plan.iceberg_procedures import Procedures
from jobs.maintenance.run.orphan_removal import list_files
from jobs.records.schema.decoded_columns import PART_PREFIX
from jobs.streaming.driver.opening.takeover import NoHistoryError
from jobs.tables.commit.stamp.errors import RolledBackError
from orchestration.cli.main import main
from tests.helpers.catalogs import database_catalog, hive_catalog, rest_settings, with_jars
from tests.helpers.database_server import PASSWORD, DatabaseServer
from tests.helpers.hive_server import HiveServer
from tests.helpers.object_server import SECRET, ObjectServer
from tests.helpers.rest_proxy import CREDENTIAL, RestProxy, rest_proxy
from tests.helpers.rest_server import RestServer
from tests.integration.faults import die
from tests.integration.maintained import left_behind, maintain
from tests.integration.pipeline import GOOD, NULL_AMOUNT, ROOT, SCHEMA, TOMBSTONE, TRUNCATED, Pipeline
from tests.integration.test_spark_reads import with_catalog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


pytestmark = [pytest.mark.integration, pytest.mark.spark]

MIX = {GOOD: 120, NULL_AMOUNT: 4, TRUNCATED: 3, TOMBSTONE: 2}
CUT = 0
# What the next commits are answered with, and whether they are carried out, in each of two batches.
ANSWERS = [[(503, True), (CUT, True), (409, False)], [(409, True), (CUT, False), (408, True)]]


def command(one: Pipeline, *words: str, secrets: tuple[str, ...] = ()) -> str:
    """What a command prints, in this process; it ends well and shows no secret."""
    result = CliRunner().invoke(main, ["--home", str(one.home), *words])
    assert result.exit_code == 0, result.output
    assert not [each for each in secrets if each in result.output]
    return result.output


def drained_twice(one: Pipeline, spark: SparkSession) -> None:
    """Two batches with dead letters."""
    for _ in range(2):
        one.produce(MIX)
        one.drain(spark)


def arguments(pid: int) -> bytes:
    """What any user of the machine sees of a driver and its children."""
    shown = b""
    for each in session_members(pid):
        with contextlib.suppress(OSError):
            shown += Path(f"/proc/{each}/cmdline").read_bytes()
    assert b"java" in shown
    return shown


def landed_by_a_driver(one: Pipeline) -> None:
    """Two batches with dead letters, by a driver whose command line shows no secret."""
    one.write_spec(trigger={"every": "1s"})
    one.control().start("the test begins", "tester")
    try:
        one.wait_until_landed()
        shown = arguments(one.beat().pid)
        assert not [each for each in (SECRET, CREDENTIAL.partition(":")[2]) if each.encode() in shown]
        one.produce(MIX)
        one.wait_until_landed()
    finally:
        one.control().stop("the test ends", "tester")


def gone_on(one: Pipeline, spark: SparkSession, proxy: RestProxy | None = None) -> None:
    """Two more batches, each a file, whatever the proxy answers to their commits."""
    for answers in ANSWERS:
        one.produce({GOOD: 40})
        if proxy is not None:
            proxy.answers.extend(answers)
        one.drain(spark)
        assert proxy is None or not proxy.answers, f"nobody asked again after {answers}"
    one.assert_exactly_once()


def rolled_back(one: Pipeline, spark: SparkSession) -> None:
    """Spark takes a batch out of the table; the stream stops, and lands it again when it is told to."""
    before = one.table().metadata.current_snapshot_id
    one.produce({GOOD: 30})
    one.drain(spark)
    session, _ = with_catalog(spark, one)
    procedure = f"{one.settings().catalog.name}.system.rollback_to_snapshot"
    session.sql(f"CALL {procedure}('{one.table_name}', {before})").collect()
    with pytest.raises(RolledBackError):
        one.drain(spark)
    one.accept(rollback="reland")
    one.drain(spark)
    one.assert_exactly_once()


def replayed(one: Pipeline, spark: SparkSession) -> None:
    """The letters that an optional column takes come back, once, and the books agree."""
    dead = sum(one.dead().values())
    one.write_spec(SCHEMA.replace("decimal(12,2) not null", "decimal(12,2)"))
    command(one, "schema", "apply", one.stream, "--yes")
    command(one, "replay", one.stream)
    assert sum(one.landed().values()) == 2 * (MIX[GOOD] + 40 + MIX[NULL_AMOUNT])
    assert dead == 2 * (MIX[NULL_AMOUNT] + MIX[TRUNCATED])
    audited = json.loads(command(one, "audit", one.stream, "--json"))
    assert audited["problems"] == []


def maintained(one: Pipeline, spark: SparkSession, *, files: int = 4) -> None:
    """Spark compacts at least so many data files, expires snapshots with their files, and removes an orphan."""
    rows = one.landed()
    (compacted,) = maintain(one, spark, "compact").done
    assert compacted.detail["added_files"] == 1
    assert int(compacted.detail["rewritten_files"]) >= files
    (expired,) = maintain(one, spark, "expire").done
    assert (expired.files_after, expired.done) == (1, True)
    table = one.table()
    with table.io.new_output(f"{table.location()}/data/nobody-knows-me.parquet").create() as stream:
        stream.write(b"garbage")
    before = {file.path for file in list_files(table)}
    (swept,) = maintain(one, spark, "orphans").done
    gone = before - {file.path for file in list_files(table)}
    assert f"{table.location()}/data/nobody-knows-me.parquet" in gone
    assert swept.detail["deleted_files"] == len(gone)
    assert one.landed() == rows
    session = Procedures(spark, one.settings(), one.table_name)._session
    name = f"{one.settings().catalog.name}.{one.table_name}"
    assert session.sql(f"SELECT count(*) FROM {name}").collect()[0][0] == sum(rows.values())
    one.produce({GOOD: 10})
    one.drain(spark)
    assert sum(one.landed().values()) == sum(rows.values()) + 10
    audited = json.loads(command(one, "audit", one.stream, "--json"))
    assert audited["problems"] == []


def test_a_catalog_in_postgresql(
    pipeline: Callable[..., Pipeline],
    spark: SparkSession,
    database: DatabaseServer,
    tmp_path: Path,
    long_ago: None,
) -> None:
    one = pipeline(catalog_settings=database_catalog(database, tmp_path / "warehouse"))
    with_jars(spark, one.settings())
    drained_twice(one, spark)
    gone_on(one, spark)
    replayed(one, spark)
    maintained(one, spark)
    told = command(one, "validate", secrets=(PASSWORD,))
    assert "catalog" in told
    # A process of its own starts Spark with the driver that the catalog needs. Nothing that is left has the secret.
    done = subprocess.run(
        [
            *(sys.executable, "-m", "orchestration.cli.main", "--home", str(one.home)),
            *("maintain", one.table_name, "--only", "manifests"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert left_behind(one, PASSWORD) == []


def test_a_hive_metastore(
    pipeline: Callable[..., Pipeline],
    spark: SparkSession,
    hive: HiveServer,
    long_ago: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Stamps that are split over several properties, a driver that dies between two tables, rollback, maintenance."""
    one = pipeline(catalog_settings=hive_catalog(hive, "s3://lake/warehouse"), partitions=300)
    # The metastore creates the folder of a database, and this one has no client of S3.
    with pytest.raises(Exception, match="No FileSystem for scheme"):
        one.drain(spark)
    one = pipeline(catalog_settings=hive_catalog(hive), partitions=300, topic=False)
    one.produce({GOOD: 600})
    drained_twice(one, spark)
    assert f"{hive.warehouse}/tests.db/" in one.table().location()
    assert [key for key in one.table().properties if key.startswith(PART_PREFIX)], "a stamp needs two properties"
    one.produce({GOOD: 30, TRUNCATED: 2})
    die(one, spark, monkeypatch, "after_anchor_commit")
    one.lose_state()
    one.drain(spark)
    one.assert_exactly_once()
    rolled_back(one, spark)
    one.write_spec(SCHEMA.replace("note string", "note string, more string"))
    command(one, "schema", "apply", one.stream, "--yes")
    assert "more" in one.table().schema().column_names
    maintained(one, spark, files=3)


def test_a_rest_catalog_that_hands_out_keys_of_s3(
    pipeline: Callable[..., Pipeline],
    spark: SparkSession,
    objects: ObjectServer,
    rest_catalog: RestServer,
    monkeypatch: pytest.MonkeyPatch,
    long_ago: None,
) -> None:
    """Behind a proxy that asks for tokens, each good for some requests."""
    monkeypatch.setenv("FRAZIL_TEST_CREDENTIAL", CREDENTIAL)
    with rest_proxy(rest_catalog.port) as proxy:
        proxy.lifetime = 40
        access = {"credential": "${env:FRAZIL_TEST_CREDENTIAL}", "oauth2-server-uri": f"{proxy.uri}/v1/oauth/tokens"}
        one = pipeline(catalog_settings=rest_settings(proxy.uri, objects, **access))
        with_jars(spark, one.settings())
        one.produce(MIX)
        proxy.headless = True
        with pytest.raises(NoHistoryError, match=r"shows no snapshot of table .* but the newest"):
            one.drain(spark)
        proxy.headless = False
        landed_by_a_driver(one)
        gone_on(one, spark, proxy)
        assert one.table().location().startswith("s3://")
        replayed(one, spark)
        maintained(one, spark)
        assert proxy.tokens > 10
    assert left_behind(one, SECRET, CREDENTIAL.partition(":")[2], "token-of-the-tests") == []
