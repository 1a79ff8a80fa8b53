"""Why files that nobody names stay all the same. No Spark: what is refused, or not there, never starts it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from pyiceberg.table import Table

from jobs.base.errors import FrazilError
from jobs.config.services.catalog import CatalogSettings
from jobs.config.services.maintenance_policy import Orphans, Policy
from jobs.maintenance.plan.plan import Step
from jobs.maintenance.plan.results import StepResult
from jobs.maintenance.plan.table_context import TableContext
from jobs.maintenance.run.orphan_removal import (
    OrphanScan,
    OrphansRefusedError,
    foreign_content,
    list_files,
    referenced_files,
    refuse_too_many,
    refuse_two_names,
    refuse_unknown_place,
    remove_orphans,
    store_of,
    without_store,
)
from tests.helpers.lake import NAME, Lake
from tests.unit.maintenance.contexts import (
    Started,
    listed,
    spark,
    table_context,
)

STEP = Step("orphans", "", None, "")


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    made = Lake(tmp_path / "home")
    made.land(days=1, rows=1)
    return made


def look(lake: Lake) -> StepResult:
    return remove_orphans(table_context(lake, {}), STEP)


def test_everything_is_named_that_is_there(lake: Lake) -> None:
    table = lake.table()
    named = {without_store(path) for path in referenced_files(table)}
    assert {str(path) for path in lake.files()} == named
    assert {listed.path for listed in list_files(table)} == set(referenced_files(table))


def test_nothing_to_delete_starts_no_spark(lake: Lake) -> None:
    lake.old_file("data/.hidden.parquet")
    lake.old_file("data/young.parquet", days=6)
    pending = lake.old_file("data/pending.parquet")
    lake.pend(pending)
    found = look(lake)
    assert (found.done, found.detail["orphan_files"], pending.exists()) == (False, 0, True)


def test_an_orphan_is_handed_to_iceberg(lake: Lake) -> None:
    lake.old_file("data/orphan.parquet")
    with pytest.raises(Started):
        look(lake)


@pytest.mark.parametrize(
    ("within", "words"),
    [
        ("checkpoints/offsets/12", r"a checkpoint \(checkpoints\) lies within its location"),
        ("chk-7/part", r"a checkpoint"),
        ("inner/metadata/00001-a.metadata.json", r"another table \(inner\) lies within its location"),
    ],
)
def test_what_lies_beneath_is_recognised(lake: Lake, within: str, words: str) -> None:
    lake.old_file("data/orphan.parquet")
    path = lake.old_file(within)
    with pytest.raises(OrphansRefusedError, match=words):
        look(lake)
    assert path.exists()


def test_another_table_of_the_catalog_beneath_or_above(lake: Lake) -> None:
    lake.old_file("data/orphan.parquet")
    # Its metadata kept elsewhere: only the catalog knows where it lies.
    properties = {"write.metadata.path": f"file://{lake.settings.home}/elsewhere"}
    location = f"{lake.table().location()}/data/inner"
    lake.catalog.create_namespace("other")
    lake.catalog.create_table("other.inner", lake.table().schema(), location=location, properties=properties)
    with pytest.raises(OrphansRefusedError, match=r"other.inner lies within lake.payments"):
        look(lake)


def test_a_table_that_cannot_be_loaded_may_lie_anywhere(lake: Lake) -> None:
    lake.old_file("data/orphan.parquet")
    dead = lake.table(f"{NAME}_dead")
    Path(dead.metadata_location.removeprefix("file://")).unlink()
    with pytest.raises(OrphansRefusedError, match=r"lake.payments_dead cannot be loaded"):
        look(lake)


def test_the_state_folder_beneath(lake: Lake) -> None:
    state = Path(lake.table().location().removeprefix("file://")) / "state"
    lake.settings = lake.settings.model_copy(update={"state": state})
    with pytest.raises(OrphansRefusedError, match="Nothing was deleted"):
        look(lake)


def test_an_old_or_unreadable_pending_record(lake: Lake) -> None:
    lake.old_file("data/orphan.parquet")
    note = lake.pend(age=timedelta(days=8))
    with pytest.raises(OrphansRefusedError, match="its batch is not finished") as refused:
        look(lake)
    assert refused.value.fix == "frazil run payments, which finishes it"
    for damaged in (b"{", b'{"targets": {"\xff": {}}}'):
        note.write_bytes(damaged)
        with pytest.raises(FrazilError, match="cannot be read"):
            look(lake)


def test_a_batch_that_lands_meanwhile_is_named_by_its_record_or_by_the_table(lake: Lake) -> None:
    note = lake.pend(lake.old_file("data/pending.parquet"))

    class Landing(TableContext):
        def load(self) -> Table:
            loaded = super().load()
            # Its driver ends the batch: this table does not name the file yet, and the record is gone.
            note.unlink()
            return loaded

    work = Landing(lake.catalog, lake.settings, [lake.spec], NAME, Policy(), spark)
    assert remove_orphans(work, STEP).detail["orphan_files"] == 0


def test_a_store_that_knows_none_of_the_files_by_their_names(lake: Lake) -> None:
    lake.old_file("other/data/orphan.parquet")

    class Elsewhere(TableContext):
        def load(self) -> Table:
            loaded = super().load()
            loaded.metadata = loaded.metadata.model_copy(update={"location": f"{loaded.location()}/other"})
            return loaded

    with pytest.raises(OrphansRefusedError, match=r"of the 1 files that are listed at .*, its metadata name not one"):
        remove_orphans(Elsewhere(lake.catalog, lake.settings, [lake.spec], NAME, Policy(), spark), STEP)
    # Nothing is there of what the metadata name, and nothing else.
    with pytest.raises(OrphansRefusedError, match="of the 0 files"):
        refuse_unknown_place(NAME, "s3://lake/t", ["/t/data/a"], OrphanScan(0, 0, ()))
    # All its files are elsewhere by its own word, and nothing lies here.
    refuse_unknown_place(NAME, "s3://lake/t", ["/other/a"], OrphanScan(0, 0, ()))


def test_secrets_are_taken_out_of_what_a_store_says(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORE_SECRET", "hunter2")
    properties = {**lake.settings.catalog.properties, "s3.secret-access-key": "${env:STORE_SECRET}"}
    catalog = CatalogSettings.model_validate({"properties": properties})
    lake.settings = lake.settings.model_copy(update={"catalog": catalog})

    class Talkative(TableContext):
        def load(self) -> Table:
            loaded = super().load()
            loaded.metadata = loaded.metadata.model_copy(update={"location": "hunter2://x/" + "y" * 2000})
            return loaded

    with pytest.raises(FrazilError) as told:
        remove_orphans(Talkative(lake.catalog, lake.settings, [lake.spec], NAME, Policy(), spark), STEP)
    said = told.value.message.split("cannot be listed: ")[1]
    assert "hunter2" not in said and len(said) <= 600


def test_gc_is_not_enabled(lake: Lake) -> None:
    with lake.table().transaction() as transaction:
        transaction.set_properties({"gc.enabled": "false"})
    with pytest.raises(FrazilError, match=r"gc.enabled=false"):
        look(lake)


@pytest.mark.parametrize(
    ("orphans", "all_", "words"),
    [
        (20, 40, None),
        (21, 200, None),
        (21, 100, r"21 of 100 files \(21%\) would be deleted, more than orphans.max_share \(20%\)"),
        (51, 1000, r"more than orphans.max_files \(50\)"),
    ],
)
def test_too_many(orphans: int, all_: int, words: str | None) -> None:
    found = OrphanScan(all_, all_ - orphans, tuple(listed(f"data/{n}.parquet") for n in range(orphans)))
    if words is None:
        refuse_too_many("t", found, Orphans(max_files=50))
        return
    with pytest.raises(OrphansRefusedError, match=words):
        refuse_too_many("t", found, Orphans(max_files=50))


def test_two_styles_of_one_place() -> None:
    refuse_two_names(
        "t", "s3://lake/t", ["s3a://lake/t/data/a", "s3://other/elsewhere/data/a", "gs://lake/elsewhere/a"]
    )
    refuse_two_names("t", "/lake/t", ["file:///lake/t/data/a", "file:/lake/t/data/b", "/lake/t/c"])
    for other in ("gs://lake/t/data/a", "s3://backup/t/data/a", "/t/data/a"):
        with pytest.raises(OrphansRefusedError, match="two styles of one place"):
            refuse_two_names("t", "s3://lake/t", [other])


@pytest.mark.parametrize("within", ["data/state=CA/a.parquet", "data/offsets/a.parquet", "metadata/1.metadata.json"])
def test_ordinary_files_are_no_checkpoints(within: str) -> None:
    assert foreign_content([listed(within)]) is None


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("file:///a/b", (("file", ""), "/a/b")),
        ("file:/a/b", (("file", ""), "/a/b")),
        ("/a/b", (("file", ""), "/a/b")),
        ("s3a://lake/a/b%20c", (("s3", "lake"), "/a/b%20c")),
        ("hdfs://host:8020/a", (("hdfs", "host:8020"), "/a")),
    ],
)
def test_paths_without_their_store(path: str, expected: tuple[tuple[str, str], str]) -> None:
    assert (store_of(path), without_store(path)) == expected


def test_hidden_names_are_those_that_iceberg_passes_over() -> None:
    assert [listed(path).hidden for path in ("a/_b", ".a/b", "_a/b", "_a=1/b", "a/b")] == [
        True,
        True,
        True,
        False,
        False,
    ]
