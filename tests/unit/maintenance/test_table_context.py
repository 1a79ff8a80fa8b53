"""A table that is loaded: not there, not the same any more, or of a catalog that does not answer."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import cast

import pytest
from pyiceberg.catalog import Catalog

from jobs.base.errors import FrazilError
from tests.helpers.lake import Lake
from tests.unit.maintenance.contexts import spark, table_context


def test_tables_that_are_not_there_or_of_an_unknown_format(lake: Lake) -> None:
    with pytest.raises(FrazilError, match=r"table lake.nothing is not in the catalog frazil"):
        lake.maintain(spark, {}, name="lake.nothing")
    metadata = Path(lake.table().metadata_location.removeprefix("file://"))
    metadata.write_text(metadata.read_text().replace('"format-version":2', '"format-version":9'))
    with pytest.raises(FrazilError, match=r"table lake.payments is of a format version"):
        lake.maintain(spark, {})
    metadata.unlink()
    with pytest.raises(FrazilError, match="the metadata that the catalog names are not there"):
        lake.maintain(spark, {})


def test_a_table_that_is_made_anew_meanwhile(lake: Lake) -> None:
    at = table_context(lake)
    at.uuid = "another"
    with pytest.raises(FrazilError, match="was dropped and created again"):
        at.load()


def test_a_catalog_that_hangs_is_not_waited_for(lake: Lake) -> None:
    answer = threading.Event()

    class Hanging:
        def load_table(self, name: str) -> None:
            answer.wait(30)

    at = table_context(lake, load_seconds=0.05)
    at.catalog = cast("Catalog", Hanging())
    with pytest.raises(FrazilError, match=r"table lake.payments: catalog frazil did not answer within") as told:
        at.load()
    answer.set()
    assert "frazil maintain lake.payments" in (told.value.fix or "")
