"""A stream whose branch is changed in its file after it has landed: whoever wrote the former one is fenced."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from jobs.tables.commit.protocol.proposals import ProposalOutcome
from jobs.tables.commit.protocol.pyiceberg_commit import commit_once
from jobs.tables.commit.stamp.errors import FencedError, RolledBackError
from tests.unit.tables.commit.branch_targets import (
    Connect,
    branch_target,
    point,
    rows_on,
)
from tests.unit.tables.commit.conftest import NAME
from tests.unit.tables.commit.test_target import first, land, prepare


@pytest.fixture
def connect(catalog: SqlCatalog, new_catalog: Callable[[], SqlCatalog]) -> Connect:
    return branch_target(new_catalog)


def test_a_new_branch_goes_on_from_main(catalog: SqlCatalog, connect: Connect) -> None:
    before = connect("main")
    before.claim(1, first(1))
    land(before, 1, 0, 3)
    after = connect("ingest")
    assert after.read() is not None
    after.claim(2, first(2))
    assert land(after, 2, 3, 6) is ProposalOutcome.LANDED
    assert (rows_on(catalog, "main"), rows_on(catalog, "ingest")) == (3, 6)


def test_the_driver_of_the_former_branch_is_fenced(catalog: SqlCatalog, connect: Connect) -> None:
    """A claim on the new branch alone would leave it the old one, whose head stood still."""
    before = connect("main")
    before.claim(1, first(1))
    commit = prepare(before, 1, 0, 3)
    connect("ingest").claim(2, first(2))
    with pytest.raises(FencedError):
        commit()
    assert (rows_on(catalog, "main"), rows_on(catalog, "ingest")) == (0, 0)


def test_so_it_is_back_on_main(catalog: SqlCatalog, connect: Connect) -> None:
    before = connect("ingest")
    before.claim(1, first(1))
    land(before, 1, 0, 3)
    assert before.snapshot_id is not None
    point(catalog, "main", before.snapshot_id)
    commit = prepare(before, 1, 3, 6)
    after = connect("main")
    after.claim(2, first(2))
    with pytest.raises(FencedError):
        commit()
    assert land(after, 2, 3, 6) is ProposalOutcome.LANDED
    assert (rows_on(catalog, "main"), rows_on(catalog, "ingest")) == (6, 3)


def test_a_branch_without_the_stream_s_rows_is_refused(catalog: SqlCatalog, connect: Connect) -> None:
    before = connect("ingest")
    before.claim(1, first(1))
    land(before, 1, 0, 3)
    with pytest.raises(RolledBackError, match="landed last, on branch ingest"):
        connect("main").read()


def test_a_claim_that_dies_between_the_two_is_made_again(catalog: SqlCatalog, connect: Connect) -> None:
    before = connect("main")
    before.claim(1, first(1))
    land(before, 1, 0, 3)
    done: list[int] = []

    def dies(*args, **kwargs) -> int:
        if done:
            raise KeyboardInterrupt
        done.append(1)
        return commit_once(*args, **kwargs)

    with pytest.raises(KeyboardInterrupt):
        connect("ingest", commit_once=dies).claim(2, first(2))
    assert "ingest" not in catalog.load_table(NAME).metadata.refs
    after = connect("ingest")
    after.claim(3, first(3))
    assert land(after, 3, 3, 6) is ProposalOutcome.LANDED
    assert rows_on(catalog, "ingest") == 6
