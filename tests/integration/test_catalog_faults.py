"""Catalogs that answer wrongly: whatever they say of a commit, records land once, and one that forgets is refused.

A REST catalog behind a proxy, with tables in S3. Nothing dies but connections.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from jobs.commit.kept_history import NoHistoryError
from tests.helpers.catalogs import rest_settings
from tests.helpers.object_server import ObjectServer
from tests.helpers.rest_proxy import rest_proxy
from tests.helpers.rest_server import RestServer
from tests.integration.pipeline import GOOD, NULL_AMOUNT, TRUNCATED, Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.spark]

MIX = {GOOD: 20, NULL_AMOUNT: 1, TRUNCATED: 1}
LETTERS = MIX[NULL_AMOUNT] + MIX[TRUNCATED]
CUT = 0
# What the next commits are answered with, and whether they are carried out.
ANSWERS = (
    [(500, True)],
    [(502, True), (503, True), (504, True)],
    [(503, False), (504, True)],
    [(CUT, True), (CUT, False)],
    [(409, False), (409, True), (409, False), (409, False)],
    [(401, False), (429, False), (408, True)],
)


def test_a_rest_catalog_that_says_what_is_not_so(
    pipeline: Callable[..., Pipeline], spark: SparkSession, objects: ObjectServer, rest_catalog: RestServer
) -> None:
    with rest_proxy(rest_catalog.port) as proxy:
        one = pipeline(catalog_settings=rest_settings(proxy.uri, objects))
        one.produce(MIX)
        one.drain(spark)
        for answers in ANSWERS:
            one.produce(MIX)
            proxy.answers.extend(answers)
            one.drain(spark)
            assert not proxy.answers, f"nobody asked again after {answers}"
        proxy.every, proxy.often = 2, (409, False)
        one.produce(MIX)
        one.drain(spark)
        one.assert_exactly_once()
        assert sum(one.dead().values()) == LETTERS * (len(ANSWERS) + 2)


def test_a_catalog_that_forgets_snapshots_is_refused(
    pipeline: Callable[..., Pipeline], spark: SparkSession, objects: ObjectServer, rest_catalog: RestServer
) -> None:
    """As Nessie's: before anything is landed, and also of a stream that has landed before."""
    with rest_proxy(rest_catalog.port) as proxy:
        one = pipeline(catalog_settings=rest_settings(proxy.uri, objects))
        one.produce(MIX)
        proxy.headless = True
        with pytest.raises(NoHistoryError, match=r"shows no snapshot of table .* but the newest"):
            one.drain(spark)
        proxy.headless = False
        assert sum(one.landed().values()) == 0
        one.drain(spark)
        one.produce(MIX)
        proxy.headless = True
        with pytest.raises(NoHistoryError):
            one.drain(spark)
        proxy.headless = False
        one.drain(spark)
        one.assert_exactly_once()
