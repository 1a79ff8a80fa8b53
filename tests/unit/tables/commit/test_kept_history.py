"""A catalog that shows a table's newest snapshot alone is found out by a claim, and no other catalog is asked twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from jobs.clients.catalog.rest_catalog import BoundedRestCatalog
from jobs.streaming.driver.opening.takeover import NoHistoryError, refuse_forgetful_catalog
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.stamp.offsets import TopicPartition
from jobs.tables.commit.stamp.stamps import Stamp
from tests.helpers.rest_catalog import RestStandIn
from tests.helpers.rest_proxy import RestProxy, rest_proxy
from tests.unit.tables.commit.conftest import NAME

P0 = TopicPartition("payments", 0)


@pytest.fixture
def proxy(catalog: SqlCatalog, new_catalog: Callable[[], SqlCatalog]) -> Iterator[RestProxy]:
    """Before a REST catalog with a new table."""
    with RestStandIn(new_catalog) as stand_in, rest_proxy(stand_in.port) as made:
        yield made


def claim(target: Target, epoch: int = 1) -> Callable[[], Stamp]:
    def make(newest: Stamp | None) -> Stamp:
        first = Stamp("payments", "claim", -1, epoch, "c", start={P0: 0}, position={P0: 0})
        return newest.claimed(epoch) if newest else first

    return lambda: target.claim(epoch, make, again=True)


def test_a_catalog_that_forgets_is_refused_whatever_a_table_has(proxy: RestProxy, catalog: SqlCatalog) -> None:
    proxy.headless = True
    target = Target(BoundedRestCatalog("rest", uri=proxy.uri), NAME, "payments")
    claim(target)()
    with pytest.raises(NoHistoryError, match=r"catalog rest shows no snapshot of table orders\.payments but"):
        refuse_forgetful_catalog(target, claim(target))
    # The table was there all the time.
    assert len(catalog.load_table(NAME).metadata.snapshots) == 3
    proxy.headless = False
    again = claim(target)
    again()
    refuse_forgetful_catalog(target, again)


def test_a_new_table_takes_one_claim_more_and_an_old_one_none(proxy: RestProxy, catalog: SqlCatalog) -> None:
    target = Target(BoundedRestCatalog("rest", uri=proxy.uri), NAME, "payments")
    claim(target)()
    refuse_forgetful_catalog(target, claim(target))
    assert len(catalog.load_table(NAME).metadata.snapshots) == 2
    claim(target)()
    refuse_forgetful_catalog(target, claim(target))
    assert len(catalog.load_table(NAME).metadata.snapshots) == 3


def test_a_catalog_whose_metadata_pyiceberg_writes_is_not_asked(catalog: SqlCatalog) -> None:
    target = Target(catalog, NAME, "payments")
    claim(target)()
    refuse_forgetful_catalog(target, claim(target))
    assert len(catalog.load_table(NAME).metadata.snapshots) == 1
