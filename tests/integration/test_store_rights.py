"""Least privilege on S3: exactly what docs/how-to/least-privilege.md grants to the users of tables and of the state."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from jobs.clients.state_store.shared_store import SharedStore
from tests.helpers.catalogs import bucket_folder, with_jars
from tests.helpers.object_server import BUCKET, ObjectServer, s3_client
from tests.helpers.session_keys import session_keys
from tests.helpers.store_policy import documented_policy
from tests.integration.maintained import left_behind, maintain
from tests.integration.pipeline import GOOD, TRUNCATED, Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.spark]

MIX = {GOOD: 20, TRUNCATED: 1}


def user(of: Any, folder: str, objects: ObjectServer, patch: pytest.MonkeyPatch) -> tuple[dict[str, str], list[str]]:
    """Properties of somebody who may do what the page says, and his secrets."""
    keys = session_keys(3600, documented_policy(of, folder))
    patch.setenv(f"STORE_SECRET_{of.upper()}", keys.secret)
    patch.setenv(f"STORE_TOKEN_{of.upper()}", keys.token)
    properties = {
        "s3.endpoint": objects.endpoint,
        "s3.region": "us-east-1",
        "s3.access-key-id": keys.access,
        "s3.secret-access-key": f"${{env:STORE_SECRET_{of.upper()}}}",
        "s3.session-token": f"${{env:STORE_TOKEN_{of.upper()}}}",
    }
    return properties, [keys.secret, keys.token]


def test_the_documented_rights_are_enough(
    pipeline: Callable[..., Pipeline],
    spark: SparkSession,
    objects: ObjectServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    long_ago: None,
) -> None:
    warehouse, state = bucket_folder(), f"{bucket_folder()}-state"
    of_tables, table_secrets = user("tables", warehouse, objects, monkeypatch)
    of_state, state_secrets = user("state", state, objects, monkeypatch)
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": warehouse, **of_tables}
    one = pipeline(catalog_settings={"name": "lake", "properties": catalog})
    file = one.home / "frazil.yaml"
    settings = yaml.safe_load(file.read_text()) | {"state": {"store": state, "properties": of_state}}
    file.write_text(yaml.safe_dump(settings))

    for _ in range(2):
        one.produce(MIX)
        one.drain(spark)
    one.assert_exactly_once()
    assert isinstance(one.folder().store, SharedStore)

    admin = s3_client(objects)
    within = one.table().location().removeprefix(f"s3://{BUCKET}/")
    admin.put_object(Bucket=BUCKET, Key=f"{within}/data/nobody-knows-me.parquet", Body=b"garbage")
    with_jars(spark, one.settings())
    (compacted,) = maintain(one, spark, "compact").done
    assert compacted.detail["added_files"] == 1
    (expired,) = maintain(one, spark, "expire").done
    assert (expired.files_after, expired.done) == (1, True)
    (swept,) = maintain(one, spark, "orphans").done
    assert swept.done
    assert not admin.list_objects_v2(Bucket=BUCKET, Prefix=f"{within}/data/nobody").get("Contents")
    one.assert_each_once()
    assert left_behind(one, *table_secrets, *state_secrets) == []

    # Either may not do what the other may.
    with pytest.raises(OSError, match="ACCESS_DENIED"):
        one.table().io.new_output(f"{state}/a").create()
