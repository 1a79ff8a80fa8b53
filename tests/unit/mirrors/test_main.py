"""Merges beside a driver: when each mirror is merged into, and what becomes of a merge that fails or has to wait."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from jobs.clients.state_store.mirror_problem import note_problem, noted_problem
from jobs.maintenance.run.table_lock import TableBusyError, table_lock
from jobs.mirrors import main as mirror_main
from jobs.mirrors.main import Due, merge_while
from jobs.mirrors.model.errors import KeylessChangelogError, RestoredSourceError
from jobs.mirrors.model.merge_plan import MergePlan, MergeResult
from jobs.mirrors.model.mirror_stamp import abandoned_branches
from jobs.mirrors.run.merging import Merged, Merger
from jobs.mirrors.run.mirror_run import run_mirror
from jobs.mirrors.run.mirror_status import MirrorStatus, mirror_status
from tests.unit.mirrors.mirror_world import (
    CHANGELOG,
    MIRROR,
    Change,
    MirrorWorld,
)
from tests.unit.mirrors.plain_merger import P0, PlainMerger


@pytest.fixture
def world(tmp_path: Path) -> MirrorWorld:
    return MirrorWorld(tmp_path)


def run(world: MirrorWorld, merger: Merger | None = None) -> Merged:
    return run_mirror(world.spec, world.mirror, world.settings, world.catalog(), merger or PlainMerger())


def status(world: MirrorWorld) -> MirrorStatus:
    return mirror_status(world.spec, world.mirror, world.settings, world.catalog())


def test_a_mirror_that_is_maintained_is_no_problem(world: MirrorWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    world.document["mirrors"][0]["every"] = "5s"
    world.write()
    world.land(Change(1, "ann"))
    run(world)
    world.land(Change(1, "anna"))
    table = world.table()
    with table_lock(world.settings, MIRROR, str(table.metadata.table_uuid)):
        with pytest.raises(TableBusyError, match="nothing is merged into mirror") as busy:
            run_mirror(world.spec, world.mirror, world.settings, world.catalog(), PlainMerger(), wait_seconds=0)
        assert busy.value.fix is not None and "frazil mirror run customers" in busy.value.fix
        ending = threading.Event()
        monkeypatch.setattr(mirror_main, "WAIT_SECONDS", 0.0)
        ending.wait = lambda _: ending.set() or True  # pyright: ignore[reportAttributeAccessIssue]
        merge_while(world.spec, world.settings, PlainMerger(), ending)
    assert status(world).problem is None


class Stopping(PlainMerger):
    """Merges, but for as many times as it is told, and ends the process after the last."""

    def __init__(self, ending: threading.Event, *before: Callable[[], None]) -> None:
        self.ending, self.before = ending, list(before)

    def merge(
        self, changelog: Table, files: Sequence[DataFile], mirror: Table, branch: str, plan: MergePlan
    ) -> MergeResult:
        action = self.before.pop(0)
        if not self.before:
            self.ending.set()
        action()
        return super().merge(changelog, files, mirror, branch, plan)


def test_beside_a_driver_what_fails_is_noted_and_tried_again(world: MirrorWorld) -> None:
    world.document["mirrors"][0]["every"] = "5s"
    world.write()
    world.land(Change(1, "ann"))

    def fails() -> None:
        raise RestoredSourceError("customers", P0, 1, "0", "1")

    ending = threading.Event()
    merge_while(world.spec, world.settings, Stopping(ending, fails), ending)
    found = status(world)
    assert found.problem is not None and "restored" in found.problem.message
    assert found.problem.fix is not None and "--new-generation" in found.problem.fix
    assert not abandoned_branches(world.table().metadata)
    ending = threading.Event()
    merge_while(world.spec, world.settings, Stopping(ending, lambda: None), ending)
    assert status(world).problem is None
    assert world.rows() == {1: "ann"}


def test_beside_a_driver_merges_begin_as_often_as_the_file_says_however_long_each_takes(world: MirrorWorld) -> None:
    world.document["mirrors"][0]["every"] = "5s"
    world.write()
    world.land(Change(1, "ann"))
    now, began, ending = [0.0], list[float](), threading.Event()

    class Slow(PlainMerger):
        def merge(
            self, changelog: Table, files: Sequence[DataFile], mirror: Table, branch: str, plan: MergePlan
        ) -> MergeResult:
            began.append(now[0])
            now[0] += 3
            found = super().merge(changelog, files, mirror, branch, plan)
            world.land(Change(len(began) + 1, "more"))
            if len(began) == 3:
                ending.set()
            return found

    def passed(timeout: float | None = None) -> bool:
        now[0] += timeout or 0
        return ending.is_set()

    ending.wait = passed
    merge_while(world.spec, world.settings, Slow(), ending, lambda: now[0])
    assert began == [0, 5, 10]


def test_beside_a_driver_whose_stream_has_landed_nothing(world: MirrorWorld) -> None:
    world.document["mirrors"][0]["every"] = "5s"
    world.write()
    world.catalog().drop_table(CHANGELOG)
    ending = threading.Event()
    later = threading.Timer(0.5, ending.set)
    later.start()
    merge_while(world.spec, world.settings, PlainMerger(), ending)
    later.join()
    assert status(world).problem is None
    with pytest.raises(NoSuchTableError):
        world.table()


@pytest.mark.parametrize("several", [True, False])
def test_beside_a_driver_a_changelog_without_a_key_is_a_problem_only_of_a_single_mirror(
    world: MirrorWorld, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, several: bool
) -> None:
    world.document["mirrors"] = [{"table": MIRROR, "every": "5s"}]
    if several:
        world.document["mirrors"].append({"table": "shop.others"})
    world.write()
    note_problem(world.settings, "customers", MIRROR, "an earlier release noted it", None)
    now, ending, tries = [0.0], threading.Event(), list[str]()

    def keyless(*given: object, **more: object) -> Merged:
        tries.append(MIRROR)
        if len(tries) == 3:
            ending.set()
        raise KeylessChangelogError("customers", MIRROR, CHANGELOG)

    def passed(timeout: float | None = None) -> bool:
        now[0] += timeout or 0
        return ending.is_set()

    monkeypatch.setattr(mirror_main, "run_mirror", keyless)
    ending.wait = passed
    with caplog.at_level("INFO", "jobs.mirrors.main"):
        merge_while(world.spec, world.settings, PlainMerger(), ending, lambda: now[0])
    assert len(tries) == 3
    said = [(each.levelname, "has no column _change_key" in each.getMessage()) for each in caplog.records]
    assert said == ([("INFO", True)] if several else [("WARNING", True)] * 3)
    noted = noted_problem(world.settings, "customers", MIRROR)
    assert noted is None if several else (noted is not None and "_change_key" in noted.problem)


@pytest.mark.parametrize(("every", "pauses"), [(5.0, [5, 10, 20, 40, 80, 160, 300]), (3600.0, [3600, 3600, 3600])])
def test_what_fails_is_tried_again_for_as_long_as_it_fails(every: float, pauses: list[float]) -> None:
    due = Due(0.0)
    due.after(0.0, every, failed=False)
    found = [due.at]
    for _ in range(2_000):
        due.after(0.0, every, failed=True)
        found.append(due.at)
    assert found[: len(pauses)] == pauses
    assert {*found[len(pauses) :]} == {pauses[-1]}
    due.after(0.0, every, failed=False)
    assert due.at == every
