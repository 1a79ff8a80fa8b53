"""A store over TLS whose authority nobody knows but the settings: of tasks, of commits, of the state, and of Spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from jobs.base.errors import FrazilError
from jobs.clients.catalog.translate import translate_errors
from tests.helpers.catalogs import bucket_folder, objects_properties, with_jars
from tests.helpers.object_server import ObjectServer
from tests.helpers.services import objects_state
from tests.helpers.tls import make_tls
from tests.helpers.tls_proxy import tls_proxy
from tests.integration.maintained import maintain
from tests.integration.pipeline import GOOD, TRUNCATED, Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.spark]

MIX = {GOOD: 20, TRUNCATED: 1}


def trusting(one: Pipeline, of: str, authorities: Path | None) -> None:
    """Have the `catalog` or the `state` trust these alone; None: nobody is named."""
    file = one.home / "frazil.yaml"
    settings: dict[str, Any] = yaml.safe_load(file.read_text())
    settings[of]["properties"].pop("s3.ssl.cabundle", None)
    if authorities is not None:
        settings[of]["properties"]["s3.ssl.cabundle"] = str(authorities)
    file.write_text(yaml.safe_dump(settings))


def test_all_clients_trust_the_authority_that_the_settings_name(
    pipeline: Callable[..., Pipeline], spark: SparkSession, objects: ObjectServer, tmp_path: Path
) -> None:
    own, other = make_tls(tmp_path / "tls"), make_tls(tmp_path / "other")
    with tls_proxy(objects.port, own) as port:
        endpoint = f"https://127.0.0.1:{port}"
        properties = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": bucket_folder()}
        # Iceberg shares a JVM's HTTP clients by their options. One that another test has left had made its mind up whom
        # to trust before these settings were read, so this test's clients have a timeout that no other test names.
        store = objects_properties(objects, endpoint=endpoint) | {"s3.connect-timeout": "11"}
        one = pipeline(catalog_settings={"name": "lake", "properties": properties | store})
        file = one.home / "frazil.yaml"
        state = objects_state(objects, endpoint=endpoint, timeout="5s").model_dump(mode="json", exclude_none=True)
        file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | {"state": state}))
        for each in ("catalog", "state"):
            trusting(one, each, own.ca)
        for _ in range(2):
            one.produce(MIX)
            one.drain(spark)
        one.assert_exactly_once()
        assert one.table().location().startswith("s3://")

        for authority in (other.ca, None):
            trusting(one, "catalog", authority)
            with pytest.raises(FrazilError, match=r"(?s)SSL.*s3\.ssl\.cabundle"), told(one):
                one.table().inspect.files()
            trusting(one, "catalog", own.ca)
            trusting(one, "state", authority)
            with pytest.raises(OSError, match=r"(?i)certificate verify failed"):
                one.folder().store.get("nothing")
            trusting(one, "state", own.ca)

        with_jars(spark, one.settings())
        try:
            (compacted,) = maintain(one, spark, "compact").done
        finally:
            # Of the JVM that other tests use as well.
            jvm: Any = spark.sparkContext._jvm
            for name in ("trustStore", "trustStoreType", "trustStorePassword"):
                jvm.java.lang.System.clearProperty(f"javax.net.ssl.{name}")
        assert compacted.detail["added_files"] == 1
        one.assert_each_once()


def told(one: Pipeline) -> Any:
    """Errors as a person is told of them."""
    return translate_errors(one.settings(), one.stream)
