"""Uploads to S3 that a killed writer leaves unfinished: the removal of orphans aborts old ones."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from botocore.config import Config
from botocore.session import Session
from pyiceberg.table import Table

from jobs.catalog import connect_catalog
from jobs.maintain.orphan_removal import remove_orphans
from jobs.maintain.plan import Step
from jobs.maintain.results import StepResult
from jobs.maintain.table_context import TableContext
from jobs.maintain.unfinished_uploads import unfinished_uploads
from jobs.spec.catalog import CatalogSettings
from jobs.spec.maintenance_policy import Policy
from jobs.spec.settings import Settings
from tests.helpers.catalogs import bucket_folder, objects_properties
from tests.helpers.object_server import BUCKET, KEY, SECRET, ObjectServer
from tests.unit.maintain.contexts import spark

pytestmark = pytest.mark.integration
ROWS = pa.table({"id": [1]})


class Bucket:
    """Tables in S3, and uploads that are begun there."""

    def __init__(self, home: Path, objects: ObjectServer) -> None:
        self.properties = {
            "type": "sql",
            "uri": f"sqlite:///{home}/catalog.db",
            "warehouse": bucket_folder(),
            **objects_properties(objects),
        }
        catalog = CatalogSettings.model_validate({"name": "lake", "properties": self.properties})
        self.settings = Settings.embedded(home).model_copy(update={"catalog": catalog})
        self.catalog = connect_catalog(self.settings)
        self.catalog.create_namespace("lake")
        self.client: Any = Session().create_client(
            "s3",
            endpoint_url=objects.endpoint,
            region_name="us-east-1",
            aws_access_key_id=KEY,
            aws_secret_access_key=SECRET,
            config=Config(s3={"addressing_style": "path"}),
        )

    def table(self, name: str, **options: Any) -> Table:
        made = self.catalog.create_table(f"lake.{name}", ROWS.schema, **options)
        made.append(ROWS)
        return made

    def begin(self, table: Table, within: str) -> str:
        """Begin an upload and send a part of it; returns its key."""
        key = f"{table.location().removeprefix(f's3://{BUCKET}/')}/{within}"
        upload = self.client.create_multipart_upload(Bucket=BUCKET, Key=key)["UploadId"]
        self.client.upload_part(Bucket=BUCKET, Key=key, UploadId=upload, PartNumber=1, Body=b"x" * 1000)
        return key

    def begun(self) -> set[str]:
        found = self.client.list_multipart_uploads(Bucket=BUCKET).get("Uploads", ())
        return {each["Key"] for each in found}

    def sweep(self, table: Table, days: int, settings: Settings | None = None) -> StepResult:
        """Remove orphans as it would be done so many days from now."""
        now = datetime.now(UTC) + timedelta(days=days)
        name = ".".join(table.name())
        given = (self.catalog, settings or self.settings, [], name, Policy(), spark)
        return remove_orphans(TableContext(*given, now=lambda: now), Step("orphans", "", None, ""))


@pytest.fixture
def bucket(tmp_path: Path, objects: ObjectServer) -> Bucket:
    return Bucket(tmp_path, objects)


def test_old_ones_are_aborted_and_young_ones_and_those_of_others_stay(bucket: Bucket) -> None:
    table, other = bucket.table("payments"), bucket.table("payments_dead")
    own = bucket.begin(table, "data/day=2026-11-01/half.parquet")
    others = {bucket.begin(other, "data/half.parquet")}
    done = bucket.sweep(table, days=6)
    assert (done.done, done.detail["aborted_uploads"]) == (False, 0), "it is young"
    assert {own, *others} <= bucket.begun()
    # No Spark is started for it.
    done = bucket.sweep(table, days=8)
    assert (done.done, done.detail["aborted_uploads"], done.detail["orphan_files"]) == (True, 1, 0)
    assert "uploads" not in done.detail
    assert own not in bucket.begun() and others <= bucket.begun()
    assert bucket.catalog.load_table("lake.payments").scan().to_arrow().num_rows == 1
    assert bucket.sweep(table, days=8).detail["aborted_uploads"] == 0


def test_one_that_is_finished_meanwhile_is_no_harm(bucket: Bucket) -> None:
    table = bucket.table("payments")
    bucket.begin(table, "data/half.parquet")
    found = unfinished_uploads(table, datetime.now(UTC) + timedelta(days=8))
    assert found is not None and len(found.found) == 1
    ((key, upload),) = found.found
    bucket.client.abort_multipart_upload(Bucket=BUCKET, Key=key, UploadId=upload)
    found.abort()
    assert found.unknown == ""


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda them: them | {"s3.role-arn": "arn:aws:iam::1:role/lake"}, "with s3.role-arn they are not looked for"),
        (lambda them: them | {"s3.secret-access-key": "another"}, "SignatureDoesNotMatch"),
        (lambda them: them | {"s3.endpoint": "http://127.0.0.1:9"}, "Could not connect to the endpoint"),
    ],
)
def test_a_store_that_does_not_tell_is_named_and_keeps_nobody_from_the_rest(
    bucket: Bucket, change: Callable[[dict[str, str]], dict[str, str]], words: str
) -> None:
    table = bucket.table("payments")
    table.io.properties = change({key: str(value) for key, value in table.io.properties.items()})
    found = unfinished_uploads(table, datetime.now(UTC))
    assert found is not None
    assert words in found.unknown
    assert (list(found.found), found.aborted) == ([], 0)


def test_a_table_on_a_disk_has_none(tmp_path: Path) -> None:
    catalog = connect_catalog(Settings.embedded(tmp_path))
    catalog.create_namespace("lake")
    assert unfinished_uploads(catalog.create_table("lake.t", ROWS.schema), datetime.now(UTC)) is None
