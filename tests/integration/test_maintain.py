"""Maintenance with real Spark on a real catalog: what is rewritten, what is deleted, and what must not be."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.config.services.maintenance_policy import Policy
from jobs.config.settings.maintained_tables import MaintainedTable
from jobs.config.stream.models import StreamSpec
from jobs.maintenance.backfill.backfill import backfill
from jobs.maintenance.backfill.promotion import parse_type, promotion
from jobs.maintenance.measure.health_measurement import measure_health
from jobs.maintenance.plan.compaction import rewrite_position_deletes
from jobs.maintenance.plan.iceberg_procedures import Procedures
from jobs.maintenance.plan.plan import Step
from jobs.maintenance.plan.results import StepProgress, TableResult
from jobs.maintenance.plan.table_context import TableContext
from jobs.maintenance.run.table_maintenance import maintain_table
from jobs.maintenance.run.table_metadata import rewrite_manifests
from jobs.proof.audit.audit import audit
from jobs.proof.audit.ledger_fill import fill_ledger
from jobs.proof.lookup.tags import delete_tag, tag_snapshot
from jobs.quality.schema_checks.alteration import alter_table
from jobs.records.formats.json.reference import JsonReferenceDecoder
from jobs.records.formats.json.rescued_json import RescuingJsonDecoder
from jobs.records.schema.parser import parse_schema
from jobs.tables.commit.history.stamp_history import history
from jobs.tables.commit.protocol.pyiceberg_commit import commit_once
from jobs.tables.commit.schema.operations import Append
from jobs.tables.commit.stamp.errors import RolledBackError
from jobs.tables.write.target_writer import TargetWriter
from tests.helpers.evolving_stream import SINK, EvolvingStream
from tests.helpers.lake import NAME, P0, STREAM, Lake, Writer, later, spec_of
from tests.helpers.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.spark]

COMPACT = {"compact": {"min_files": 2}}
EXPIRE = {"expire": {"min_snapshots": 1}}


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "home")


def data(lake: Lake) -> set[Path]:
    return {path for path in lake.files() if path.suffix == ".parquet"}


def test_compaction_beside_a_writer_then_expiry_of_everything(lake: Lake, spark: SparkSession) -> None:
    for _ in range(5):
        lake.land()
    before = data(lake)
    told: list[StepProgress] = []

    def beside(progress: StepProgress) -> None:
        """The writer lands a batch between what was planned and what is rewritten, of every partition."""
        told.append(progress)
        landed = writer.batches
        if progress.result is None:
            wait_for(lambda: writer.batches > landed or writer.problem is not None, "a batch of the writer")

    first = lake.table().metadata.snapshots[1].snapshot_id
    with Writer(lake) as writer:
        # A tag is made beside the writer as well, who does not notice.
        tag_snapshot(lake.catalog, NAME, "q3", first, keep=timedelta(days=90), note="the audit of Q3", by="ada")
        result = lake.maintain(lambda: spark, COMPACT, only={"compact"}, on_progress=beside)
    assert result.errors == ()
    assert writer.batches >= 4
    # Two days in two buckets each.
    assert [
        (each.done, int(each.detail["rewritten_files"]) >= 5, each.detail["added_files"]) for each in result.done
    ] == [(True, True, 1)] * 4
    assert [each.result is None for each in told] == [True] * 4 + [False] * 4
    assert result.after is not None
    assert lake.ids() == dict.fromkeys(range(lake.rows), 1)
    assert data(lake) > before

    reached = lake.rows
    (planned,) = lake.maintain(lambda: spark, EXPIRE, only={"expire"}, now=later, dry_run=True).plan.steps
    assert "stay, for tag q3 (snapshot" in planned.reason and "the audit of Q3" in planned.reason
    result = lake.maintain(lambda: spark, EXPIRE, only={"expire"}, now=later)
    assert result.errors == ()
    (expired,) = result.done
    assert (expired.files_after, expired.done) == (2, True)
    assert "tag q3" in str(expired.detail["held_by"]) and expired.files_after == planned.files_after
    # What the tag names is all there; of all else only the head is left.
    assert len(before & data(lake)) == 4
    assert lake.ids(first) == dict.fromkeys(range(8), 1)
    session, name = Procedures(spark, lake.settings, NAME)._session, f"{lake.settings.catalog.name}.{NAME}"
    by_tag = session.sql(f"SELECT id FROM {name} VERSION AS OF 'q3'").collect()
    assert sorted(row.id for row in by_tag) == list(range(8))
    lake.land()
    assert lake.ids() == dict.fromkeys(range(lake.rows), 1)
    reached = lake.rows
    delete_tag(lake.catalog, NAME, "q3")
    result = lake.maintain(lambda: spark, EXPIRE, only={"expire"}, now=later)
    (expired,) = result.done
    assert (expired.files_after, expired.done, "held_by" in expired.detail) == (1, True, False)
    assert not before & data(lake)
    # The head is all that is left, and it may be a compaction: the property says where the stream stands.
    past = history(lake.table().metadata, STREAM).newest
    assert past is not None and past.position[P0] == reached
    lake.take_over()
    assert lake.rows == reached
    lake.land()
    assert lake.ids() == dict.fromkeys(range(lake.rows), 1)

    # The ledger lies in a namespace that is called as the catalog is.
    fill_ledger(lake.catalog, lake.settings, [lake.spec])
    result = lake.maintain(lambda: spark, EXPIRE, name="frazil.ledger", only={"expire"}, now=later)
    assert result.errors == ()
    assert [(each.files_after, each.done) for each in result.done] == [(1, True)]


def test_a_backfill_behind_a_compaction(tmp_path: Path, spark: SparkSession) -> None:
    """What Spark has written is written anew for a kept field that became a column."""
    schema = (
        "id long not null, created_at timestamptz not null, u uuid, amount decimal(12,2), at timestamp, day date, "
        "items list<struct<sku string, n int>>, m map<string, decimal(5,2)>, o struct<a string, raw binary>, f float"
    )
    given = spec_of().model_dump(mode="json", by_alias=True)
    given["decode"] = {"value": "json", "schema": schema, "unknown_fields": "keep"}
    given["table"]["partition_by"] = ["day(created_at)"]
    spec = StreamSpec.model_validate(given)
    lake = Lake(tmp_path / "home", spec)
    declared = parse_schema(schema)
    decoder = RescuingJsonDecoder(JsonReferenceDecoder(declared), declared, column=True)

    def land(batch: int) -> None:
        records: list[bytes] = []
        for n in range(batch * 5, batch * 5 + 5):
            items = [None, [], [{"sku": "a", "n": n}, None]][n % 3]
            more: dict[str, Any] = {
                "u": str(UUID(int=n)),
                "amount": n / 4,
                "at": "2026-03-01T01:02:03.4",
                "items": items,
            }
            more |= {"day": "2026-03-01", "m": {"k": 1.5}, "o": {"a": None, "raw": "AA==", "note": f"n{n}"}, "f": 0.1}
            record = {"id": n, "created_at": f"2026-03-0{n % 2 + 1}T12:00:00Z", **(more if n % 4 else {})}
            records.append(msgspec.json.encode(record))
        table = lake.table()
        writer = TargetWriter(table.metadata, table.io, file_prefix="b")
        writer.write(decoder.decode(pa.array(records, pa.binary())).rows)
        commit_once(table, Append(writer.close()), summary={}, properties={})

    def rows() -> list[dict[str, Any]]:
        """As the data files have them: PyIceberg's reader makes empty lists of nulls."""
        found: list[dict[str, Any]] = []
        for task in lake.table().scan().plan_files():
            found += pq.ParquetFile(task.file.file_path.removeprefix("file://")).read().to_pylist()
        return sorted(found, key=lambda row: row["id"])

    for batch in range(4):
        land(batch)
    before = rows()
    assert lake.maintain(lambda: spark, COMPACT, only={"compact"}).errors == ()
    assert repr(rows()) == repr(before)
    path, metadata = ("o", "note"), lake.table().metadata
    promoted = promotion(spec, metadata.schema(), path, parse_type("string", path))
    assert promoted is not None
    alter_table(lake.catalog, spec, lambda now: promoted.alteration(now, spec), metadata.current_schema_id, "me")
    done = backfill(lake.table(), promoted, spec.kafka_columns.coordinates, verify=lambda: None)
    assert (done.rows, done.left, done.skipped) == (15, 0, {})
    for was, now in zip(before, rows(), strict=True):
        note = f"n{was['id']}" if was["o"] else None
        expected = was | {"_extra": None, "o": was["o"] and was["o"] | {"note": note}}
        assert repr(sorted(now.items())) == repr(sorted(expected.items()))


def test_a_table_that_spark_replaced_while_its_stream_rested_is_a_reason_to_stop(
    lake: Lake, spark: SparkSession
) -> None:
    lake.land()
    lake.land()
    procedures = Procedures(spark, lake.settings, NAME)
    session, name = procedures._session, f"{lake.settings.catalog.name}.{NAME}"
    uuid = lake.table().metadata.table_uuid
    session.sql(f"CREATE OR REPLACE TABLE {name} USING iceberg AS SELECT * FROM {name} WHERE id % 2 = 0").collect()
    assert lake.table().metadata.table_uuid == uuid, "nothing but the snapshots tells"
    procedures.call("expire_snapshots", older_than=later(), retain_last=1)
    assert len(lake.table().metadata.snapshots) == 1
    with pytest.raises(RolledBackError, match=r"was rolled back to before .*p\w*-0 \[(0|8), 16\)") as stopped:
        lake.take_over()
    assert "--rollback reland" in str(stopped.value)


def test_one_partition_fails_and_the_others_go_on(lake: Lake, spark: SparkSession) -> None:
    for _ in range(3):
        lake.land()
    (lost, *_) = sorted(path for path in data(lake) if "2026-03-01" in str(path) and "bucket=0" in str(path))
    content = lost.read_bytes()
    lost.unlink()
    policy = COMPACT | EXPIRE
    result = lake.maintain(lambda: spark, policy, only={"compact", "expire"}, now=later)
    failed = [each for each in result.done if each.error]
    assert [each.step.scope for each in failed] == ["created_at_day=2026-03-01/payer_bucket=0"]
    assert failed[0].error is not None and "3 data files could not be rewritten" in failed[0].error
    assert [each.step.action for each in result.done if each.done] == ["compact"] * 3 + ["expire"]
    lost.parent.mkdir(exist_ok=True)
    lost.write_bytes(content)
    # What failed before is all that is left to do.
    result = lake.maintain(lambda: spark, policy, only={"compact"}, now=later)
    assert [(each.step.scope, each.done) for each in result.done] == [
        ("created_at_day=2026-03-01/payer_bucket=0", True)
    ]
    assert lake.ids() == dict.fromkeys(range(lake.rows), 1)


def test_rows_are_laid_out_once_their_writers_have_left(lake: Lake, spark: SparkSession) -> None:
    lake.land(days=1)
    lake.land(days=1)
    policy: dict[str, Any] = {"compact": {"strategy": "zorder", "sort_by": ["payer", "id"]}}
    result = lake.maintain(lambda: spark, policy, only={"compact"}, now=later)
    assert result.errors == ()
    assert [each.step.detail["strategy"] for each in result.done] == ["zorder"] * 2
    assert lake.ids() == dict.fromkeys(range(lake.rows), 1)
    again = lake.maintain(lambda: spark, policy, only={"compact"}, now=later, dry_run=True)
    assert again.plan.steps == ()


def test_deletes_and_manifests_of_a_table_whose_partitioning_changed(tmp_path: Path, spark: SparkSession) -> None:
    lake = Lake(tmp_path / "home", spec_of(("truncate(2, payer)", "id")))
    lake.land(days=1, rows=8)
    with lake.table().update_spec() as update:
        update.remove_field("id")
    lake.land(days=1, rows=8)
    lake.land(days=1, rows=8)
    policy = Policy()
    work = TableContext(lake.catalog, lake.settings, [lake.spec], NAME, policy, lambda: spark)
    procedures = work.procedures()
    session = procedures._session
    session.sql(
        f"ALTER TABLE frazil.{NAME} SET TBLPROPERTIES ('write.delete.mode'='merge-on-read', "
        "'write.delete.granularity'='partition')"
    )
    for number in (8, 16):
        session.sql(f"DELETE FROM frazil.{NAME} WHERE id = {number}")
    facts = measure_health(lake.table(), policy, work.now(), deep=True)
    assert facts.mixed_specs and facts.partitions
    deleted = [each for each in facts.partitions if each.position_deletes]
    assert len(deleted) == 1
    steps = [Step("position_deletes", each.name, each, "", files_before=each.delete_files) for each in deleted]
    assert [(each.files_before, each.files_after) for each in rewrite_position_deletes(work, steps)] == [(2, 1)]
    before = facts.manifests
    rewritten = rewrite_manifests(work, Step("manifests", "", None, ""))
    assert rewritten.files_before >= before and rewritten.files_after < rewritten.files_before
    assert lake.ids() == dict.fromkeys(set(range(lake.rows)) - {8, 16}, 1)

    # Somebody else applies them, and leaves what they say of files that are gone: nothing is to be rewritten for it.
    procedures.call("rewrite_data_files", options={"rewrite-all": "true"})
    session.sql(f"DELETE FROM frazil.{NAME} WHERE id = 9")
    procedures.call("rewrite_data_files", options={"rewrite-all": "true"})
    assert measure_health(lake.table(), policy, work.now(), deep=True).delete_files == 1
    result = lake.maintain(lambda: spark, {}, only={"compact", "position_deletes"}, now=later)
    assert result.errors == ()
    # Iceberg 1.12 drops them with the compaction already, which rewrites nothing; earlier releases left that to the
    # second.
    assert [each.step.action for each in result.done] == ["compact", "position_deletes"]
    assert result.after is not None and result.after.delete_files == 0
    assert lake.ids() == dict.fromkeys(set(range(lake.rows)) - {8, 9, 16}, 1)


def test_a_procedure_that_does_not_exist_is_told_in_a_sentence(lake: Lake, spark: SparkSession) -> None:
    with pytest.raises(Exception, match=r"^table lake.payments: rewrite_everything failed: ") as told:
        Procedures(spark, lake.settings, NAME).call("rewrite_everything")
    assert "\n\tat " not in str(told.value)


def test_a_table_whose_files_have_several_schemas(tmp_path: Path, spark: SparkSession) -> None:
    """Columns come, widen and take null, at the top and below, before, while and after the table is maintained."""
    columns = "id string not null, n int, d decimal(4,2), s struct<m int not null>, l list<struct<x float>>"
    one = EvolvingStream(tmp_path / "home", columns=columns)
    table = MaintainedTable(SINK, Policy.model_validate(COMPACT | EXPIRE), "payments", "sink")

    def maintain(*only: str, **options: Any) -> TableResult:
        options = {"specs": [one.spec], "only": set(only), "now": later, **options}
        return maintain_table(one.catalog, one.settings, table, spark=lambda: spark, **options)

    plain = {"id": "a", "n": 1, "d": 1.25, "s": {"m": 1}, "l": [{"x": 0.5}]}
    batches: list[list[dict[str, Any]]] = [
        [plain, plain],
        [plain | {"n": 2**40, "d": 12345.5}, plain | {"s": {"m": None, "new": {"deep": "t"}}}],
        [plain | {"l": [{"x": 1e300, "y": 1}, {"y": 2}]}, {"n": 2, "colour": "red"}],
    ]
    for number, documents in enumerate(batches):
        one.land(*documents, batch=number)
    schemas = {each.schema_id for each in one.table.snapshots()}
    assert len(schemas) >= 3
    whole, files = one.rows, len(list(one.table.scan().plan_files()))

    def change(progress: StepProgress) -> None:
        """The table changes again between what was planned and what is rewritten."""
        if progress.result is None and len(one.log) == len(whole):
            one.land(plain | {"late": {"r": 7}, "s": {"m": 2**33}}, batch=len(batches))

    result = maintain("compact", on_progress=change)
    assert result.errors == ()
    assert len(one.log) == len(whole) + 1
    assert len(list(one.table.scan().plan_files())) < files + 1
    whole = [*whole, one.rows[-1]]
    assert one.rows[-1]["late"] == {"r": 7} and one.rows[-1]["s"] == {"m": 2**33, "new": None}
    assert one.rows == whole
    # Once more, so that files of every schema become one.
    assert maintain("compact").errors == ()
    assert one.rows == whole
    assert maintain("expire").errors == ()
    assert len(one.table.snapshots()) == 1
    past = history(one.table.metadata, "payments").newest
    assert past is not None and past.position[one.at] == len(one.log)
    fill_ledger(one.catalog, one.settings, [one.spec])
    assert audit(one.spec, one.settings, one.catalog, full=True).problems == []
    after = EvolvingStream(tmp_path / "home", columns=columns, epoch=2)
    after.log = one.log
    after.land(plain | {"last": 1}, batch=9)
    assert after.rows[:-1] == whole and after.rows[-1]["last"] == 1
    assert after.history[-1].changes == ("add column last long",)
