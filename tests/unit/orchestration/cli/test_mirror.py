"""`frazil mirror …`: what it prints, as far as no Spark is needed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField, StringType

from jobs.base.errors import FrazilError
from jobs.clients.state_store.mirror_problem import note_problem
from jobs.mirrors.model.merge_plan import Break, MergePlan, MergeResult
from jobs.mirrors.run.merging import Merger
from jobs.mirrors.run.mirror_run import rebuild_mirror, run_mirror
from orchestration.cli.main import main
from orchestration.cli.tables.mirror.output import merged_facts, merged_lines
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


def frazil(world: MirrorWorld, *words: str) -> Result:
    return CliRunner().invoke(main, ["--home", str(world.home), "mirror", *words])


def merge(world: MirrorWorld, merger: Merger | None = None) -> list[str]:
    done = run_mirror(world.spec, world.mirror, world.settings, world.catalog(), merger or PlainMerger())
    assert merged_facts(world.spec, world.mirror, done)["snapshot_id"] == done.snapshot_id
    return list(merged_lines(world.spec, world.mirror, done))


def test_a_run_without_anything_new_starts_no_spark(world: MirrorWorld) -> None:
    done = frazil(world, "run", "customers")
    assert done.exit_code == 0, done.output
    assert f"Mirror {MIRROR}: the changelog {CHANGELOG} has nothing yet." in done.output
    world.land(Change(1, "ann"))
    assert "1 changes are merged" in merge(world)[0]
    assert merge(world) == [f"Mirror {MIRROR} has all that changelog {CHANGELOG} has."]
    done = frazil(world, "run", "customers", "--json")
    assert json.loads(done.stdout)["mirrors"][0]["snapshot_id"] is None


def test_status_before_and_after(world: MirrorWorld) -> None:
    world.land(Change(1, "ann"), Change(2, "bob"))
    before = frazil(world, "status", "customers").output
    assert "nothing is merged yet" in before and "2 changes, for" in before
    merge(world)
    after = frazil(world, "status", "customers").output
    assert "true for    changelog snapshot" in after and "lag         none" in after
    assert "position 0000000000000002 of db" in after
    assert "offsets     customers-0 2" in after
    note_problem(world.settings, "customers", MIRROR, "It stopped.", "do this")
    again = json.loads(frazil(world, "status", "customers", "--json").stdout)["mirrors"][0]
    assert (again["problem"], again["fix"], again["lag_rows"]) == ("It stopped.", "do this", 0)


class UnresolvedMerger(PlainMerger):
    """Makes rows of which two values are not known."""

    def merge(
        self, changelog: Table, files: Sequence[DataFile], mirror: Table, branch: str, plan: MergePlan
    ) -> MergeResult:
        done = super().merge(changelog, files, mirror, branch, plan)
        return replace(done, counts=replace(done.counts, unresolved=2))


def test_values_that_were_not_sent_and_are_not_known_are_told(
    world: MirrorWorld, caplog: pytest.LogCaptureFixture
) -> None:
    world.land(Change(1, "ann"))
    lines = merge(world, UnresolvedMerger())
    assert "2 values that no change in the changelog has" in lines[1]
    assert "2 values were not sent" in caplog.text
    after = frazil(world, "status", "customers").output
    assert "not sent    2 values were not sent, and no change has them" in after
    world.land(Change(2, "bob"))
    merge(world)
    told = json.loads(frazil(world, "status", "customers", "--json").stdout)["mirrors"][0]
    assert (told["rows_waiting"], told["values_unresolved"]) == (0, 2)


def test_an_answer_begins_a_generation(world: MirrorWorld) -> None:
    said = frazil(world, "accept", "customers", "--new-generation", "--reason", "why")
    assert said.exit_code == 1 and "nothing was merged into mirror" in said.output
    assert frazil(world, "accept", "customers").exit_code == 1
    world.land(Change(1, "ann"))
    merge(world)
    said = frazil(world, "accept", "customers", "--new-generation", "--yes", "--reason", "restored")
    assert said.exit_code == 0 and "customers-0 offset 1" in said.output
    stamp = world.stamp()
    assert stamp is not None and stamp.state.breaks == {P0: (Break(1, 1),)}
    head = world.table().current_snapshot()
    assert head is not None and head.summary is not None and "restored" in str(head.summary["frazil.stamp"])
    world.land(Change(1, "anna"))
    merge(world)
    assert world.rows() == {1: "anna"}
    for places, told in ((["customers:0:7"], "customers-0 offset 7"), (["no:0:7"], "no mirror has changes of no")):
        answer = [word for place in places for word in ("--at", place)]
        said = frazil(world, "accept", "customers", "--new-generation", "--reason", "restored", "--yes", *answer)
        assert told in said.output
    said = frazil(world, "accept", "customers", "--new-generation", "--reason", "x", "--at", "customers:7")
    assert said.exit_code == 1 and "TOPIC:PARTITION:OFFSET" in said.output


def test_a_stream_without_mirrors(world: MirrorWorld) -> None:
    world.document["mirrors"] = []
    world.file.write_text(json.dumps(world.document))
    done = frazil(world, "status", "customers")
    assert done.exit_code == 1 and "stream customers has no mirrors" in done.output


def test_a_rebuild_of_a_changelog_that_lacks_rows_is_refused(world: MirrorWorld) -> None:
    world.land(Change(1, "ann"), Change(2, "bob"))
    world.changelog().delete("id = 1")
    done = frazil(world, "rebuild", "customers")
    assert done.exit_code == 1 and "--incomplete" in done.output
    with pytest.raises(FrazilError):
        merge(world)


def test_a_check_before_the_first_merge_names_the_merge(world: MirrorWorld) -> None:
    world.land(Change(1, "ann"))
    done = frazil(world, "check", "customers")
    assert done.exit_code == 0, done.output
    assert f"Nothing is merged into {MIRROR} yet." in done.output
    assert f"Next: frazil mirror run customers --table {MIRROR}" in done.output


def test_what_is_made_anew_does_not_say_that_there_was_nothing(world: MirrorWorld) -> None:
    world.land(Change(1, "ann"))
    assert "all of the changelog was read: the mirror had nothing of it yet" in "\n".join(merge(world))
    done = rebuild_mirror(world.spec, world.mirror, world.settings, world.catalog(), PlainMerger())
    assert "all of the changelog was read: it is rebuilt" in "\n".join(merged_lines(world.spec, world.mirror, done))


def other(world: MirrorWorld, *words: str) -> str:
    return CliRunner().invoke(main, ["--home", str(world.home), *words]).output.replace("\n", " ")


def test_the_status_of_a_stream_tells_its_mirrors(world: MirrorWorld) -> None:
    world.land(Change(1, "ann"), Change(2, "bob"))
    assert f"mirror {MIRROR}: it lacks 2 changes, for" in other(world, "status", "customers")
    merge(world)
    assert f"mirror {MIRROR}: it lacks no change" in other(world, "status", "customers")
    note_problem(world.settings, "customers", MIRROR, "It stopped.", "do this")
    assert f"mirror {MIRROR}: It stopped.   Next: do this".replace("   ", " ") in " ".join(
        other(world, "status", "customers").split()
    )
    assert f"! customers: mirror {MIRROR}: It stopped. Next: do this" in " ".join(other(world, "status").split())


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        ({"key": ["nope"]}, "names column nope"),
        ({"key": ["name"]}, "the records of changelog shop.customers_changes have the key id"),
        ({"where": "amount > 3"}, "there is no column 'amount'"),
        ({"deletes": "soft"}, "was made with deletes hard, and its file has soft"),
    ],
)
def test_validate_tells_what_the_next_merge_would_stop_at(
    world: MirrorWorld, said: dict[str, object], wrong: str
) -> None:
    world.land(Change(1, "ann"))
    assert f"not checked customers: mirror: mirror {MIRROR} does not exist yet" in other(world, "validate")
    merge(world)
    assert f"ok          customers: mirror: mirror {MIRROR} goes with changelog {CHANGELOG}" in other(world, "validate")
    world.document["mirrors"][0].update(said)
    world.write()
    shown = other(world, "validate")
    assert "wrong       customers: mirror: " in shown and wrong in shown


def test_validate_tells_of_a_mirror_without_a_key(world: MirrorWorld) -> None:
    del world.document["decode"]["key"]
    world.write()
    assert f"wrong       customers: mirror: mirror {MIRROR} has no key" in other(world, "validate")


def test_validate_tells_of_a_table_that_is_there_already(world: MirrorWorld) -> None:
    world.land(Change(1, "ann"))
    world.catalog().create_table(MIRROR, Schema(NestedField(1, "id", LongType(), required=True)))
    assert f"table {MIRROR} exists and is no mirror yet" in other(world, "validate")
    catalog = world.catalog()
    catalog.drop_table(MIRROR)
    catalog.create_table(MIRROR, Schema(NestedField(1, "id", StringType(), required=True)))
    shown = other(world, "validate")
    assert f"mirror {MIRROR} cannot take the columns of changelog {CHANGELOG}" in shown
    for words in (("mirror", "status", "customers"), ("status", "customers")):
        assert f"mirror {MIRROR} cannot take the columns of changelog {CHANGELOG}" in other(world, *words)


def test_status_tells_a_wrong_key_before_anything_is_merged(world: MirrorWorld) -> None:
    world.land(Change(1, "ann"))
    world.document["mirrors"][0]["key"] = ["nope"]
    world.write()
    said = frazil(world, "status", "customers").output
    assert "nothing is merged yet" in said and "names column nope" in said and "correct mirrors: key in" in said


def test_dry_runs_change_nothing(world: MirrorWorld) -> None:
    world.land(Change(1, "ann"))
    merge(world)
    world.land(Change(2, "bob"))
    before = world.table().metadata
    said = frazil(world, "run", "customers", "--dry-run").stdout
    assert said == f"Mirror {MIRROR} would get 1 changes of changelog {CHANGELOG}.\nNothing was changed.\n"
    (plan,) = json.loads(frazil(world, "run", "customers", "--dry-run", "--json").stdout)["mirrors"]
    assert (plan["table"], plan["changes"], plan["rebuild"]) == (MIRROR, 1, False)
    assert "would be rebuilt from the whole" in frazil(world, "rebuild", "customers", "--dry-run").stdout
    answer = "accept", "customers", "--new-generation"
    assert frazil(world, *answer, "--dry-run").stdout.endswith("customers-0 offset 1\nNothing was changed.\n")
    facts = json.loads(frazil(world, *answer, "--dry-run", "--json").stdout)
    begins = [{"topic": "customers", "partition": 0, "offset": 1}]
    assert facts == {"stream": "customers", "done": False, "mirrors": [{"table": MIRROR, "begins": begins}]}
    refused = frazil(world, *answer, "--reason", "restored")
    assert refused.exit_code == 2 and "--new-generation --reason restored --yes" in refused.stderr
    assert world.table().metadata == before
    refused = frazil(world, "rebuild", "customers", "--incomplete")
    assert refused.exit_code == 2 and "mirror rebuild customers --incomplete --yes" in refused.stderr
    done = json.loads(frazil(world, *answer, "--reason", "restored", "--yes", "--json").stdout)
    assert done == facts | {"done": True}
