"""What becomes of a commit that a catalog answers with an error: over HTTP, as REST catalogs do, and on SQLite."""

from __future__ import annotations

import contextlib
import itertools
import random
import sqlite3
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    BadRequestError,
    CommitFailedException,
    CommitStateUnknownException,
    ForbiddenError,
    ServerError,
    ServiceUnavailableError,
    TooManyRequestsError,
    UnauthorizedError,
    ValidationException,
)
from pyiceberg.table import Table

from jobs.base.errors import StreamStopped
from jobs.streaming.driver.batch.retry import is_unavailable
from jobs.tables.commit.protocol.compare_and_swap import (
    MAX_REFUSALS,
    Backoff,
    compare_and_swap,
    conflicts_as_moved_head,
)
from jobs.tables.commit.protocol.proposals import ProposalOutcome
from jobs.tables.commit.protocol.pyiceberg_commit import commit_once
from jobs.tables.commit.protocol.refusals import is_denied, refusal
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.schema.operations import Append
from jobs.tables.commit.stamp.errors import (
    CatalogFailedError,
    CommitDeniedError,
    CommitRefusedError,
    GapError,
    HeadMovedError,
    OffsetsLostError,
    TargetRecreatedError,
    TopicLostError,
    TopicRecreatedError,
)
from tests.helpers.rest_catalog import RestStandIn
from tests.unit.tables.commit.conftest import (
    NAME,
    data_file,
    files_of,
    rows_of,
)
from tests.unit.tables.commit.test_target import first, land, prepare


@pytest.fixture
def rest(catalog: SqlCatalog, new_catalog: Callable[[], SqlCatalog]) -> Iterator[RestStandIn]:
    with RestStandIn(new_catalog) as made:
        yield made


@pytest.fixture
def target(rest: RestStandIn) -> Target:
    made = Target(rest.client(), NAME, "s")
    made.claim(1, first(1))
    return made


def manifests(catalog: SqlCatalog) -> set[str]:
    return files_of(catalog.load_table(NAME), "*.avro")


def append(table: Table) -> int:
    return commit_once(table, Append([data_file(table)]), summary={"frazil.stamp": "s"}, properties={})


def test_over_http_a_batch_lands(target: Target, catalog: SqlCatalog) -> None:
    assert land(target, 1, 0, 3) is ProposalOutcome.LANDED
    assert rows_of(catalog.load_table(NAME)) == 3


@pytest.mark.parametrize("status", [400, 403, 501])
def test_a_refusal_of_what_is_asked_or_of_who_asks_stops_at_once(
    target: Target, rest: RestStandIn, catalog: SqlCatalog, status: int
) -> None:
    commits = rest.commits
    rest.always = (status, False)
    with pytest.raises(CommitDeniedError, match=rf"table orders\.payments.*the stand-in says {status}") as denied:
        land(target, 1, 0, 3)
    assert rest.commits == commits + 1, "once, not fifty times"
    assert isinstance(denied.value, StreamStopped) and not is_unavailable(denied.value)
    assert "write to orders.payments" in str(denied.value.fix)
    rest.always = None
    assert land(target, 1, 0, 3) is ProposalOutcome.LANDED
    assert rows_of(catalog.load_table(NAME)) == 3


@pytest.mark.parametrize("asked", ["answers", "refuses"])
def test_a_copy_of_a_refused_request_that_lands_later_leaves_a_readable_table(
    target: Target, catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    """A proxy sends a request twice: credentials expire in between, or the table cannot be looked at any more."""
    copies: list[Callable[[], object]] = []
    commit_table = type(catalog).commit_table

    def refused(self: Any, table: Table, requirements: Any, updates: Any) -> None:
        copies.append(lambda: commit_table(catalog, catalog.load_table(NAME), requirements, updates))
        raise ForbiddenError("the token has expired")

    def not_shown(self: Any, name: Any) -> None:
        raise ForbiddenError("the token has expired")

    table = catalog.load_table(NAME)
    with monkeypatch.context() as patch:
        patch.setattr(type(catalog), "commit_table", refused)
        if asked == "refuses":
            patch.setattr(type(catalog), "load_table", not_shown)
        with pytest.raises(CommitDeniedError, match="Nothing of it has landed so far"):
            append(table)
    for late in copies:
        late()
    assert catalog.load_table(NAME).scan().to_arrow().num_rows == 3


def test_a_claim_of_a_user_who_may_only_read_stops_too(rest: RestStandIn) -> None:
    rest.always = (403, False)
    with pytest.raises(CommitDeniedError, match="ForbiddenError: StandIn: the stand-in says 403"):
        Target(rest.client(), NAME, "s").claim(1, first(1))
    assert rest.commits == 1


def test_a_refused_request_whose_table_has_moved_is_made_again(
    target: Target, rest: RestStandIn, catalog: SqlCatalog
) -> None:
    """Some catalogs answer an assertion that does not hold with 400."""
    commit = prepare(target, 1, 0, 3)
    other = catalog.load_table(NAME)
    other.append(other.scan().to_arrow())
    rest.answers.append((400, False))
    assert commit() is ProposalOutcome.LANDED
    assert rows_of(catalog.load_table(NAME)) == 3


@pytest.mark.parametrize("status", [401, 419, 429, 500, 502, 503, 504])
@pytest.mark.parametrize("lands", [False, True])
def test_what_passes_is_tried_again_and_lands_once(
    target: Target, rest: RestStandIn, catalog: SqlCatalog, status: int, lands: bool
) -> None:
    rest.answers.extend([(status, lands), (status, False)])
    assert land(target, 1, 0, 3) is ProposalOutcome.LANDED
    rest.answers.clear()
    assert land(target, 1, 3, 6) is ProposalOutcome.LANDED
    assert rows_of(catalog.load_table(NAME)) == 6


@pytest.mark.parametrize("status", [401, 503])
def test_a_catalog_that_keeps_failing_is_away(target: Target, rest: RestStandIn, status: int) -> None:
    target = Target(rest.client(), NAME, "s", partial(Backoff, failing_seconds=0.2))
    target.read()
    rest.always = (status, False)
    with pytest.raises(CommitRefusedError, match=rf"the stand-in says {status}") as failed:
        land(target, 1, 0, 3)
    assert is_unavailable(failed.value), "the driver waits, says so, and opens the stream anew"
    assert rest.commits < 12, "with pauses"


def test_a_conflict_keeps_its_manifests_for_a_copy_that_is_still_under_way(
    rest: RestStandIn, target: Target, catalog: SqlCatalog, new_catalog: Callable[[], SqlCatalog]
) -> None:
    """A proxy sends the commit twice: the second copy is refused, then the first one lands."""
    table, sent = target.table, []
    commit = rest.commit

    def first_copy_hangs(identifier: tuple[str, ...], body: bytes) -> tuple[int, Any]:
        sent.append((identifier, body))
        return 409, {"error": {"message": "another commit is under way", "type": "CommitFailedException", "code": 409}}

    rest.commit = first_copy_hangs  # type: ignore[method-assign]
    with pytest.raises(HeadMovedError) as moved:
        append(table)
    assert not moved.value.final
    status, _ = commit(*sent[0])
    assert status == 200
    landed = new_catalog().load_table(NAME)
    assert rows_of(landed) == 3, "the table can be read"
    head = landed.current_snapshot()
    assert head is not None and landed.io.new_input(head.manifest_list).exists()


def test_on_sqlite_no_copy_can_be_under_way(catalog: SqlCatalog) -> None:
    table = catalog.load_table(NAME)
    other = catalog.load_table(NAME)
    file = data_file(table)
    other.append(other.scan().to_arrow())
    before = manifests(catalog)
    with pytest.raises(HeadMovedError) as moved:
        commit_once(table, Append([file]), summary={}, properties={})
    assert moved.value.final
    assert manifests(catalog) == before


def test_a_database_that_is_locked_is_waited_for(catalog: SqlCatalog, tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/catalog.db"
    impatient = SqlCatalog("test", uri=f"{uri}?timeout=0.05", warehouse=f"file://{tmp_path}/warehouse")
    target = Target(impatient, NAME, "s", partial(Backoff, failing_seconds=0.3))
    target.claim(1, first(1))
    commit = prepare(target, 1, 0, 3)
    with contextlib.closing(sqlite3.connect(tmp_path / "catalog.db")) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(CommitRefusedError, match="database is locked") as failed:
            commit()
        assert is_unavailable(failed.value)
        other.rollback()
    assert commit() is ProposalOutcome.LANDED
    assert rows_of(catalog.load_table(NAME)) == 3
    impatient.close()


@pytest.mark.parametrize(
    ("problem", "denied"),
    [
        (BadRequestError("no"), True),
        (ForbiddenError("no"), True),
        (ValidationException("no"), True),
        (NotImplementedError("no"), True),
        (PermissionError(13, "no"), True),
        (UnauthorizedError("a token that has run out"), False),
        (AuthorizationExpiredError("the same"), False),
        (TooManyRequestsError("later"), False),
        (ServiceUnavailableError("later"), False),
        (ServerError("later"), False),
        (CommitStateUnknownException("502"), False),
        (CommitFailedException("409"), False),
        (ConnectionError("reset"), False),
        (TimeoutError(), False),
        (ValueError("an answer that is no JSON"), False),
    ],
    ids=repr,
)
def test_which_errors_are_refusals(problem: Exception, denied: bool) -> None:
    assert is_denied(problem) is denied


def test_hive_refuses_a_column_in_the_middle(catalog: SqlCatalog, target: Target) -> None:
    """The class of PyIceberg's client of Hive, which is an extra."""
    hive = type("InvalidOperationException", (Exception,), {"__module__": "hive_metastore.ttypes"})
    said = "columns have types incompatible with the existing columns in their respective positions"
    assert is_denied(hive(said))
    told = refusal(catalog.load_table(NAME), (), hive(said), lambda: None)
    assert isinstance(told, CommitDeniedError)
    assert "hive.metastore.disallow.incompatible.col.type.changes" in (told.fix or "")
    other = refusal(catalog.load_table(NAME), (), hive("no such thing"), lambda: None)
    assert isinstance(other, CommitDeniedError)
    assert "let the user" in (other.fix or "")


@pytest.mark.parametrize(("code", "denied"), [("AccessDeniedException", True), ("ThrottlingException", False)])
def test_aws_says_it_by_a_code(code: str, denied: bool) -> None:
    class ClientError(Exception):
        def __init__(self) -> None:
            self.response: Any = {"Error": {"Code": code}}

    assert is_denied(ClientError()) is denied


@pytest.mark.parametrize("answer", [BadRequestError("Cannot add snapshot"), ValidationException("sequence number")])
def test_a_commit_on_another_branch_in_between_is_no_fault_of_this_one(
    catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch, answer: Exception
) -> None:
    """It took the next sequence number, and catalogs refuse what has the same one as wrong."""
    target = Target(catalog, NAME, "s", branch="ingest", backoff=lambda: Backoff(sleep=lambda _: None))
    target.claim(1, first(1))
    commit, real = prepare(target, 1, 0, 3), catalog.commit_table

    def refuses_once(table: Table, requirements: Any, updates: Any) -> Any:
        monkeypatch.setattr(catalog, "commit_table", real)
        main = catalog.load_table(NAME)
        commit_once(main, Append([data_file(main, 2)]), summary={}, properties={})
        raise answer

    monkeypatch.setattr(catalog, "commit_table", refuses_once)
    assert commit() is ProposalOutcome.LANDED
    assert target.refusals == 1


@pytest.mark.parametrize(
    "stop", [GapError, OffsetsLostError, TargetRecreatedError, TopicLostError, TopicRecreatedError]
)
def test_lost_records_and_tables_stop_a_stream_until_an_operator_answers(stop: type[Exception]) -> None:
    """A supervisor does not start such a stream again and again."""
    assert issubclass(stop, StreamStopped)


AT_ONCE = partial(Backoff, lambda seconds: None, lambda: 0.0, lambda: 0.0)


class Attempts:
    """Attempts that are answered one after another, and at last with the same for ever."""

    def __init__(self, *answers: Exception | str) -> None:
        self.count = 0
        self._answers: Iterator[Exception | str] = itertools.chain(answers, itertools.repeat(answers[-1]))

    def __call__(self) -> str:
        self.count += 1
        answer = next(self._answers)
        if isinstance(answer, Exception):
            raise answer
        return answer


def swap(attempts: Attempts, backoff: partial[Backoff] = AT_ONCE) -> str:
    return compare_and_swap("orders.payments", attempts, lambda said: CommitRefusedError(f"stream s: {said}"), backoff)


def test_an_attempt_that_a_moved_head_refused_is_made_again() -> None:
    attempts = Attempts(HeadMovedError("moved"), CatalogFailedError("503"), "landed")
    assert swap(attempts) == "landed"
    assert attempts.count == 3


def test_after_fifty_refusals_it_gives_up_with_the_last_word() -> None:
    attempts = Attempts(HeadMovedError("first"), HeadMovedError("last"))
    said = r"stream s: the catalog refused 50 commits in a row on table orders\.payments, the last with: last"
    with pytest.raises(CommitRefusedError, match=said) as refused:
        swap(attempts)
    assert attempts.count == MAX_REFUSALS == 50
    assert isinstance(refused.value.__cause__, HeadMovedError)


def test_what_is_no_moved_head_is_not_tried_again() -> None:
    attempts = Attempts(CommitDeniedError("403"))
    with pytest.raises(CommitDeniedError):
        swap(attempts)
    assert attempts.count == 1


def test_a_conflict_of_a_change_by_pyiceberg_is_a_moved_head() -> None:
    with pytest.raises(HeadMovedError, match="409"), conflicts_as_moved_head():
        raise CommitFailedException("409")


def test_backoff_grow_and_differ() -> None:
    chance, slept = random.Random(7), []
    backoff = Backoff(slept.append, lambda: 0.0, chance.random)
    for _ in range(30):
        assert backoff.again(HeadMovedError("moved"))
    assert 0.01 <= slept[0] <= 0.02 and 1.0 <= slept[-1] <= 2.0
    assert all(before < 2 * after * 1.01 for before, after in itertools.pairwise(slept))
    assert len(set(slept)) == 30
    assert 20 < sum(slept) < 60


def test_true_conflicts_do_not_count_as_a_catalog_that_fails() -> None:
    now = [0.0]
    backoff = Backoff(lambda seconds: None, lambda: now[0], lambda: 0.0)
    assert backoff.again(CatalogFailedError("503"))
    now[0] = 9.0
    assert backoff.again(HeadMovedError("moved"))
    now[0] = 18.0
    assert backoff.again(CatalogFailedError("503"))
    now[0] = 29.0
    assert not backoff.again(CatalogFailedError("503"))
