"""Tables that a stream without a position does not begin in: those of an Iceberg sink, and mirrors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog

from jobs.clients.catalog.catalog import connect_catalog
from jobs.config.settings.settings import load_settings
from jobs.config.stream.models import StreamSpec
from jobs.streaming.driver.tables.former_sink import refuse_rows_of_a_sink
from jobs.streaming.driver.tables.previous_targets import refuse_mirrors
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.stamp.errors import GapError, MirrorTableError
from jobs.tables.commit.stamp.stamps import Stamp
from jobs.tables.commit.stamp.table_properties import MIRROR_PROPERTY
from tests.helpers.sink_table import SINK_ROWS, sink_table

NAME = "orders.payments"


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return connect_catalog(load_settings(None, home=tmp_path))


def stream(start: Any, **table: Any) -> StreamSpec:
    return StreamSpec.model_validate(
        {
            "stream": "payments",
            "source": {"topics": ["payments"], "start": start},
            "decode": {"value": "json", "schema": "table"},
            "table": {"name": NAME, **table},
        }
    )


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_an_end_of_the_topics_is_refused_with_the_takeover(catalog: Catalog, start: str) -> None:
    sink_table(catalog, NAME, SINK_ROWS)
    with pytest.raises(GapError, match=rf"kafka\.connect\.offsets\..+, {start}, records would land twice") as refused:
        refuse_rows_of_a_sink(stream(start), {NAME: Target(catalog, NAME, "payments")})
    assert (refused.value.fix or "").startswith("frazil takeover payments --from-connect NAME")


@pytest.mark.parametrize("start", [{"offsets": {"payments": {0: 12}}}, {"timestamp": "2026-03-01T00:00:00Z"}])
def test_offsets_and_times_are_a_decision(catalog: Catalog, start: Any) -> None:
    sink_table(catalog, NAME, SINK_ROWS)
    refuse_rows_of_a_sink(stream(start), {NAME: Target(catalog, NAME, "payments")})


def test_a_table_without_a_sink_and_a_branch_of_its_own_are_begun(catalog: Catalog) -> None:
    sink_table(catalog, NAME)
    refuse_rows_of_a_sink(stream("earliest"), {NAME: Target(catalog, NAME, "payments")})
    sink_table(catalog, "orders.other", SINK_ROWS)
    on_branch = stream("earliest", branch="trial").model_copy()
    targets = {"orders.other": Target(catalog, "orders.other", "payments")}
    assert on_branch.branch_of(NAME) == "trial"
    refuse_rows_of_a_sink(on_branch, {NAME: Target(catalog, NAME, "payments")})
    with pytest.raises(GapError):
        refuse_rows_of_a_sink(stream("earliest"), targets)


def test_a_branch_that_exists_or_is_published_is_no_trial(catalog: Catalog) -> None:
    table = sink_table(catalog, NAME, SINK_ROWS)
    document = stream("earliest").model_dump(by_alias=True, exclude_unset=True)
    contract = {"expectations": [{"expect_column_values_to_not_be_null": {"column": "id"}}]}
    gated = {"publish": {"gate": "contract", "branch": "audit"}, "contract": contract}
    published = StreamSpec.model_validate(document | gated)
    assert published.branch_of(NAME) == "audit"
    with pytest.raises(GapError, match="records would land twice"):
        refuse_rows_of_a_sink(published, {NAME: Target(catalog, NAME, "payments", branch="audit")})
    head = table.metadata.current_snapshot_id
    assert head is not None
    table.manage_snapshots().create_branch(head, "audit").commit()
    with pytest.raises(GapError, match="records would land twice"):
        refuse_rows_of_a_sink(stream("earliest", branch="audit"), {NAME: Target(catalog, NAME, "payments")})


def test_a_mirror_is_no_table_of_a_stream(catalog: Catalog) -> None:
    sink_table(catalog, NAME, properties={MIRROR_PROPERTY: '{"stream":"orders","changelog":"shop.orders_changes"}'})
    with pytest.raises(MirrorTableError, match=rf"table {NAME} is a mirror, of .*orders_changes") as refused:
        refuse_mirrors(stream("earliest"), {NAME: Target(catalog, NAME, "payments")})
    assert (refused.value.table, refused.value.fix) == (NAME, "name another table in streams/payments.yaml")


def test_a_stream_that_has_landed_in_a_table_goes_on_there(catalog: Catalog) -> None:
    sink_table(catalog, NAME, properties={MIRROR_PROPERTY: "of an earlier release"})
    target = Target(catalog, NAME, "payments")
    target.newest = Stamp("payments", "batch", 0, 1, "c", start={}, position={})
    refuse_mirrors(stream("earliest"), {NAME: target})
