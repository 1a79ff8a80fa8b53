"""Keys of S3 that a REST catalog hands out for seconds: a driver that runs and Spark's maintenance take others in time.

The settings hold no keys. Those of each answer are good for one table's files, and the store refuses them when they
have ended.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from tests.helpers.catalogs import rest_settings, with_jars
from tests.helpers.object_server import BUCKET, ObjectServer, s3_client
from tests.helpers.rest_proxy import rest_proxy
from tests.helpers.rest_server import RestServer
from tests.helpers.secret_places import in_bucket, in_files
from tests.helpers.session_keys import SessionKeys, session_keys
from tests.helpers.store_policy import documented_policy
from tests.helpers.waiting import wait_for
from tests.integration.faults import DriverHere
from tests.integration.maintained import maintain
from tests.integration.pipeline import GOOD, TRUNCATED, Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.spark]

MIX = {GOOD: 20, TRUNCATED: 1}
SECONDS = 4


@dataclass
class Vault:
    """Hands out keys.

    Attributes:
        told: Whether it says when they end.
        given: All that were handed out.
    """

    told: bool = True
    given: list[SessionKeys] = field(default_factory=list)

    def vend(self, location: str) -> dict[str, str]:
        """Of one table's files, with what docs/how-to/least-privilege.md grants."""
        made = session_keys(SECONDS, documented_policy("tables", location))
        self.given.append(made)
        return made.properties(told=self.told)

    @property
    def secrets(self) -> dict[str, str]:
        """Every secret that was handed out, by a name."""
        return {
            f"{kind} {number}": value
            for number, each in enumerate(self.given)
            for kind, value in (("secret", each.secret), ("token", each.token))
        }


def test_keys_of_seconds_are_renewed_by_a_driver_and_by_spark(
    pipeline: Callable[..., Pipeline],
    spark: SparkSession,
    objects: ObjectServer,
    rest_catalog: RestServer,
    caplog: pytest.LogCaptureFixture,
) -> None:
    vault = Vault()
    with rest_proxy(rest_catalog.port) as proxy:
        proxy.vend = vault.vend
        one = pipeline(catalog_settings=rest_settings(proxy.uri, objects))
        one.write_spec(trigger={"every": "1s"})
        one.produce(MIX)
        with caplog.at_level(logging.INFO), DriverHere(one, spark) as driver:
            one.wait_until_landed()
            epoch = driver.heartbeat.current().epoch
            # The first keys say when they end, and those that follow them do not.
            for told in (False, True):
                vault.told = told
                ended = vault.given[-1].ends
                wait_for(lambda ended=ended: time.time() > ended, "the keys to end", 30)
                one.produce(MIX)
                one.wait_until_landed()
            assert driver.heartbeat.current().epoch == epoch
        driver.end()
        assert "is asked again with new keys of the catalog" in caplog.text
        one.assert_exactly_once()
        with_jars(spark, one.settings())
        (compacted,) = maintain(one, spark, "compact").done
        assert compacted.detail["added_files"] == 1
        assert proxy.renewed > 0
        location = one.table().location()
    assert not in_files(vault.secrets, one.home)
    count, found = in_bucket(vault.secrets, s3_client(objects), BUCKET, location.partition(f"//{BUCKET}/")[2])
    assert count > 10 and not found
