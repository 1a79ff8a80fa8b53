"""A dead-letter table gets the columns of a letter's life, once, and one that was altered is refused."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.update.schema import UpdateSchema
from pyiceberg.types import LongType, StringType

from jobs.tables.dead_letter_table.table import (
    DEAD_LETTER_PARTITIONS,
    DEAD_LETTER_SCHEMA,
    REPLAY_STATE_FIELDS,
    AlteredTableError,
    check_dead_letter_table,
    ensure_replay_state_columns,
)
from jobs.tables.write.partitioning import partition_spec
from jobs.tables.write.table_creation import create_table_properties
from tests.helpers.dead_letters import BROKEN, GOOD, DeadLetterWorld

LIFE = [field.name for field in REPLAY_STATE_FIELDS]
NAME = "orders.payments_dead"


def make_former(dead_letters: DeadLetterWorld) -> Table:
    """The table as it was made before letters had a life."""
    dead_letters.catalog.drop_table(NAME)
    schema = Schema(*(field for field in DEAD_LETTER_SCHEMA.fields if field.name not in LIFE))
    by = partition_spec(DEAD_LETTER_PARTITIONS, schema)
    return dead_letters.catalog.create_table(NAME, schema, partition_spec=by, properties=create_table_properties({}))


def test_a_former_table_gets_the_columns_and_keeps_its_letters(dead_letters: DeadLetterWorld) -> None:
    make_former(dead_letters)
    dead_letters.add([GOOD, BROKEN])
    assert dead_letters.dry_run().replayed == 1
    assert "state" not in dead_letters.dead().schema().column_names
    assert dead_letters.replay().replayed == 1
    assert dead_letters.dead().schema().column_names == DEAD_LETTER_SCHEMA.column_names
    assert dead_letters.states() == {"replayed": 1, "failed_again": 1}


def test_several_that_add_them_at_once_all_succeed(dead_letters: DeadLetterWorld) -> None:
    make_former(dead_letters)
    problems: list[BaseException] = []
    together = threading.Barrier(4)

    def add(catalog: Any) -> None:
        try:
            together.wait(30)
            ensure_replay_state_columns(catalog, NAME)
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=add, args=(dead_letters.connect(),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert problems == []
    names = dead_letters.dead().schema().column_names
    assert [name for name in names if name in LIFE] == LIFE


@pytest.mark.parametrize(
    ("alter", "said"),
    [
        (lambda update: update.delete_column("headers"), "column headers is missing"),
        (lambda update: update.rename_column("state", "condition"), None),
        (lambda update: update.update_column("partition", field_type=LongType()), None),
        (lambda update: update.add_column("comment", StringType()), None),
        (
            lambda update: update.delete_column("state").add_column(("note2",), StringType()),
            None,
        ),
    ],
)
def test_what_was_altered_is_named_if_it_matters(
    dead_letters: DeadLetterWorld, alter: Callable[[UpdateSchema], Any], said: str | None
) -> None:
    dead_letters.add([GOOD])
    with dead_letters.dead().update_schema() as update:
        alter(update)
    if said is None:
        check_dead_letter_table(dead_letters.dead())
        assert dead_letters.replay().replayed == 1
        return
    with pytest.raises(AlteredTableError, match=said):
        dead_letters.replay()


def test_a_column_of_another_type_is_named(dead_letters: DeadLetterWorld) -> None:
    with dead_letters.dead().update_schema() as update:
        update.delete_column("attempts")
    with dead_letters.dead().update_schema() as update:
        update.add_column("attempts", StringType())
    with pytest.raises(AlteredTableError, match="column attempts is string, where int is needed"):
        ensure_replay_state_columns(dead_letters.catalog, NAME)
