"""What runs of Spark are told of a batch, and which steps their answers belong to. No Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any
from unittest import mock

import pytest
from py4j.protocol import Py4JNetworkError

from jobs.base.errors import FrazilError
from jobs.maintenance.plan.compaction import batches, compact, step_shares
from jobs.maintenance.plan.iceberg_procedures import (
    LostToOthersError,
    ProcedureError,
    Procedures,
    RewriteResult,
)
from jobs.maintenance.plan.plan import Step
from jobs.maintenance.plan.results import StepResult
from tests.helpers.lake import NAME, Lake
from tests.unit.maintenance.contexts import (
    GB,
    MB,
    rewritten,
    step,
    table_context,
)


def test_what_a_single_step_took_along_of_other_specs_is_not_its_own() -> None:
    of_partition, earlier = rewritten("a"), rewritten(None, 7 * MB)
    (only,) = step_shares([step("a")], [of_partition, earlier], 9.0, 0)
    assert (only.groups, only.beside) == ([of_partition], 7 * MB)
    # Of an earlier spec: the group without a key is its own, those of the present spec are not.
    (only,) = step_shares([step("a")], [of_partition, earlier], 9.0, 1)
    assert (only.groups, only.beside) == ([earlier], MB)


def test_files_of_other_specs_count_and_are_nobodys() -> None:
    steps = [step("a"), step(Decimal("1.50"))]
    first, second = step_shares(steps, [rewritten("a"), rewritten(None, 7 * MB), rewritten(Decimal("1.50"))], 9.0)
    assert (len(first.groups), first.beside, len(second.groups), second.beside) == (1, 7 * MB, 1, 0)
    # Of one step everything is its own.
    (only,) = step_shares(steps[:1], [rewritten(1.25), rewritten(None)], 9.0)
    assert (len(only.groups), only.beside, only.seconds) == (2, 0, 9.0)


@pytest.mark.parametrize(
    ("values", "together"),
    [
        ((1, 2), True),
        (("a", None), True),
        ((True, False), True),
        ((Decimal(1), Decimal(2)), True),
        ((1.100000023841858, 2.5), False),
        ((b"a", b"b"), False),
        ((1, 2.5), False),
    ],
)
def test_only_what_java_writes_alike_goes_together(values: tuple[object, object], together: bool) -> None:
    found = batches([step(value) for value in values], 0)
    assert len(found) == (1 if together else 2)


def test_of_an_earlier_spec_each_goes_alone() -> None:
    assert len(batches([step(1), step(2)], 1)) == 2


@pytest.mark.parametrize(("most", "sizes"), [(None, [3]), (3 * MB, [3]), (2 * MB, [2, 1]), (1, [1, 1, 1])])
def test_a_turn_is_no_larger_than_it_may_be(most: int | None, sizes: list[int]) -> None:
    steps = [step(value) for value in range(3)]
    assert {each.bytes for each in steps} == {MB}
    assert [len(batch) for batch in batches(steps, 0, most)] == sizes


DELETES = {"delete_file_threshold": 1, "remove_dangling_deletes": 1}


class Answers(Procedures):
    """Answers as Spark might, round by round; and notes what it was told."""

    def __init__(self, *rounds: Sequence[RewriteResult] | Exception) -> None:
        self.rounds: Iterator[Sequence[RewriteResult] | Exception] = iter(rounds)
        self.told: list[tuple[list[str], dict[str, object]]] = []

    @property
    def cores(self) -> int:
        return 2

    def rewrite_data_files(self, partitions: Any, strategy: str, sort_by: Any, options: Any) -> list[RewriteResult]:
        self.told.append(([partition.name for partition in partitions], dict(options)))
        answer = next(self.rounds)
        if isinstance(answer, Exception):
            raise answer
        return list(answer)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return Lake(tmp_path_factory.mktemp("home"))


def carried_out(lake: Lake, answers: Answers, *steps: Step, budget: str = "50GB") -> list[StepResult]:
    return compact(table_context(lake, {"budget": budget}, answers), steps)


def test_what_lost_its_commits_is_tried_again(lake: Lake) -> None:
    answers = Answers([rewritten("a")], [rewritten("b")])
    results = carried_out(lake, answers, step("a"), step("b"))
    assert [(each.error, each.done, each.files_after) for each in results] == [(None, True, 1)] * 2
    assert [names for names, _ in answers.told] == [["p=a", "p=b"], ["p=b"]]


def test_what_a_round_did_is_told_though_the_next_one_fails(lake: Lake) -> None:
    answers = Answers([rewritten("a")], ProcedureError("table t: rewrite_data_files failed: disk full"))
    first, second = carried_out(lake, answers, step("a"), step("b"))
    assert (first.done, first.error, first.bytes) == (True, None, MB)
    assert not second.done and second.error is not None and "disk full" in second.error
    with pytest.raises(FrazilError, match="disk full"):
        carried_out(lake, Answers(ProcedureError("disk full")), step("a"))


def test_rounds_end_where_the_budget_does(lake: Lake) -> None:
    answers = Answers([], [], [])
    (result,) = carried_out(lake, answers, step("a", 300 * MB), budget="700MB")
    assert len(answers.told) == 2
    assert result.error is not None and "others changed its files meanwhile" in result.error


def test_what_a_stream_has_brought_meanwhile_counts_as_before(lake: Lake) -> None:
    (result,) = carried_out(lake, Answers([RewriteResult(("a",), rewritten=7, added=1, bytes=MB)]), step("a"))
    assert (result.files_before, result.files_after) == (7, 1)


def test_deletes_of_files_that_are_gone_leave_nothing_to_rewrite(lake: Lake) -> None:
    (result,) = carried_out(lake, Answers([], [], []), step("a", **DELETES))
    # What drops them comes after it, and only after what did not fail.
    assert (result.error, result.done) == (None, False)


@pytest.mark.parametrize(
    ("sizes", "commits"),
    [([MB], 1), ([MB] * 5, 1), ([MB] * 6, 2), ([MB] * 50, 10), ([3 * GB], 1), ([9 * GB], 4), ([50 * GB], 10)],
)
def test_how_often_a_batch_is_committed(lake: Lake, sizes: list[int], commits: int) -> None:
    answers = Answers([rewritten(number) for number in range(len(sizes))])
    carried_out(lake, answers, *(step(number, size) for number, size in enumerate(sizes)))
    ((_, options),) = answers.told
    assert options["partial-progress.max-commits"] == commits


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("ValidationException: Deleted manifest a.avro could not be found in the latest snapshot 3", LostToOthersError),
        ("CommitFailedException: Cannot commit: stale table metadata", LostToOthersError),
        ("ValidationException: Cannot commit, missing data files: [a.parquet]", ProcedureError),
        ("IOException: No space left on device", ProcedureError),
    ],
)
def test_what_was_lost_to_others_is_told_from_failures(lake: Lake, said: str, kind: type[ProcedureError]) -> None:
    procedures = Answers()
    procedures._table, procedures._settings = NAME, lake.settings
    assert type(procedures._problem("rewrite_manifests", RuntimeError(said))) is kind


@pytest.mark.parametrize("dies", ["before", "meanwhile"])
def test_a_jvm_that_dies_is_a_problem_of_the_procedure(lake: Lake, dies: str) -> None:
    """Setting the caller's session again fails then, too, and must not stand for what happened."""
    procedures = Answers()
    procedures._table, procedures._settings = NAME, lake.settings
    jvm = mock.MagicMock()
    sessions = jvm.org.apache.spark.sql.classic.SparkSession
    sessions.setActiveSession.side_effect = Py4JNetworkError("gone") if dies == "before" else [None, Py4JNetworkError()]
    procedures._session, procedures._theirs = mock.Mock(_jvm=jvm), mock.Mock()
    with pytest.raises(ProcedureError, match="rewrite_data_files failed"), procedures._active("rewrite_data_files"):
        raise Py4JNetworkError("gone")


def test_files_that_an_earlier_step_took_along_are_no_failure(lake: Lake) -> None:
    context = table_context(lake, {}, Answers([], [], []), spec_id=1, mixed_specs=True)
    (result,) = compact(context, [step("a")])
    assert (result.error, result.done, result.detail["taken_along"]) == (None, False, 1)
