"""A changed file that the stream's table cannot hold ends no driver, and keeps no stream down."""

from __future__ import annotations

import os
import signal
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyiceberg.types import StringType

from jobs.base.errors import FrazilError
from jobs.clients.catalog.catalog import connect_catalog
from jobs.config.documents.validation import SpecError
from jobs.config.settings.loading import load_stream
from jobs.config.settings.settings import load_settings
from jobs.streaming.driver.opening.opening import ensure_tables
from orchestration.cli.main import main
from tests.helpers.problem_places import without_columns
from tests.helpers.waiting import wait_for
from tests.unit.streaming.supervision.worlds import WHY, World

ROW = {
    "id": "a",
    "amount": Decimal("1.00"),
    "created_at": datetime(2026, 1, 1, tzinfo=UTC),
    "_kafka_topic": "payments.v1",
    "_kafka_partition": 0,
    "_kafka_offset": 0,
    "_kafka_timestamp": datetime(2026, 1, 1, tzinfo=UTC),
}
COLUMN = "amount decimal(12,2) not null"


@pytest.fixture
def landed(world: World) -> World:
    """A stream whose driver runs, and whose tables are there as its file declares them."""
    with connect_catalog(load_settings(None, home=world.home)) as catalog:
        ensure_tables(load_stream(world.write("payments")), catalog)
        table = catalog.load_table("orders.payments")
        table.append(pa.Table.from_pylist([ROW], schema=table.schema().as_arrow()))
    world.control().start(*WHY)
    return world


def add_column(world: World) -> Path:
    """Declare one column more, in a schema of several lines."""
    path = world.write("payments")
    text = path.read_text().replace("schema: id", "schema: |\n    id").replace(COLUMN, f"{COLUMN},\n    note string")
    path.write_text(text)
    return path


def alter_table(world: World) -> None:
    catalog = connect_catalog(load_settings(None, home=world.home))
    with catalog, catalog.load_table("orders.payments").update_schema() as change:
        change.add_column("note", StringType())


def test_a_column_that_the_table_lacks_ends_no_driver_and_is_told_with_its_line(landed: World) -> None:
    before = landed.beat()
    path = add_column(landed)
    (line,) = [n for n, text in enumerate(path.read_text().splitlines(), 1) if "note string" in text]
    with pytest.raises(SpecError) as caught:
        landed.control().roll(*WHY)
    assert tuple(map(without_columns, caught.value.problems)) == (
        f"{path}:{line}: decode.schema: table orders.payments cannot hold what is declared: Column note is declared, "
        "but the table has no such column.",
    )
    assert caught.value.fix is not None
    assert "frazil validate payments" in caught.value.fix
    for action in (landed.control().start, landed.control().ensure_running):
        assert f"runs already: process {before.pid}" in action(*WHY).sentence
        assert "note is declared" in action(*WHY).sentence
    after = landed.beat()
    assert (after.pid, after.attempt, after.generation) == (before.pid, 1, before.generation)

    alter_table(landed)
    landed.control().roll(*WHY)
    after = landed.beat()
    assert after.attempt == 2
    assert after.generation != before.generation


def test_the_command_that_is_named_lets_the_change_be_rolled_out(landed: World) -> None:
    before = landed.beat()
    add_column(landed)
    with pytest.raises(SpecError) as caught:
        landed.control().roll(*WHY)
    assert "frazil schema apply payments" in (caught.value.fix or "")
    said = CliRunner().invoke(main, ["--home", str(landed.home), "schema", "apply", "payments", "--yes"])
    assert said.exit_code == 0, said.output
    assert "  add column note string\n" in said.stdout
    assert (landed.beat().attempt, landed.beat().pid) == (1, before.pid)
    landed.control().roll(*WHY)
    assert landed.beat().attempt == 2
    assert landed.beat().generation != before.generation


@pytest.mark.parametrize("action", ["ensure_running", "start", "restart"])
def test_one_that_has_died_is_started_as_it_was(landed: World, action: str) -> None:
    before = landed.beat()
    path = add_column(landed)
    os.killpg(before.pid, signal.SIGKILL)
    wait_for(lambda: not landed.living(), "its end")
    done = getattr(landed.control(), action)(*WHY)
    after = landed.beat()
    assert (after.attempt, after.generation) == (2, before.generation)
    assert f"{path} has problems, so the configuration that was launched last is used" in done.sentence
    assert "note string" not in (landed.folder() / "launched.yaml").read_text()


def test_a_struct_of_keys_that_the_table_lacks_is_told_with_its_line(landed: World) -> None:
    path = landed.write("payments")
    text = path.read_text().replace("schema: id", "key: {format: json, schema: table, into: key}\n  schema: id")
    head, _, tail = text.partition("schema: id")
    path.write_text(f"{head}schema: table\n{tail.partition(chr(10))[2]}")
    (line,) = [n for n, each in enumerate(path.read_text().splitlines(), 1) if "into: key" in each]
    with pytest.raises(SpecError) as caught:
        landed.control().roll(*WHY)
    assert tuple(map(without_columns, caught.value.problems)) == (
        f"{path}:{line}: decode.key.schema: the table has no column key, whose fields would be those of a key",
    )


def test_a_catalog_that_does_not_answer_holds_the_change_back(landed: World, monkeypatch: pytest.MonkeyPatch) -> None:
    before = landed.beat()
    add_column(landed)
    alter_table(landed)

    def away(settings: object) -> None:
        raise FrazilError("catalog frazil: it is away")

    with monkeypatch.context() as patched:
        patched.setattr("jobs.streaming.supervision.state.spec_check.quick_catalog", away)
        with pytest.raises(SpecError, match="not known whether the stream's table can hold it: catalog frazil: it is"):
            landed.control().roll(*WHY)
        landed.control().stop(*WHY)
        landed.control().start(*WHY)
    assert (landed.beat().attempt, landed.beat().generation) == (2, before.generation)
    landed.control().roll(*WHY)
    assert (landed.beat().attempt, landed.beat().generation == before.generation) == (3, False)


def test_a_table_without_rows_is_made_anew_by_the_start_so_the_change_is_rolled_out(world: World) -> None:
    with connect_catalog(load_settings(None, home=world.home)) as catalog:
        ensure_tables(load_stream(world.write("payments")), catalog)
    world.control().start(*WHY)
    add_column(world)
    world.control().roll(*WHY)
    assert world.beat().attempt == 2


def test_a_stream_that_was_never_launched_is_not_judged(world: World) -> None:
    """Its driver says what is wrong, as there is nothing that it could run as instead."""
    with connect_catalog(load_settings(None, home=world.home)) as catalog:
        ensure_tables(load_stream(world.write("payments")), catalog)
    add_column(world)
    world.control().start(*WHY)
    assert world.beat().attempt == 1
