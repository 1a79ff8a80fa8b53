"""Mirrors of a stream's file: tables that are made from its changelog, and are what the source is now."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Annotated, Literal

from pydantic import Field, model_validator

from jobs.schema.kafka_columns import KafkaColumns
from jobs.spec.base import Location, SpecModel, problems_at
from jobs.spec.fields import PositiveInt, TableName
from jobs.spec.units import Duration

LEAST_PAUSE = timedelta(seconds=5)
MOST_BUCKETS = 1024


class Mirror(SpecModel):
    """One mirror of the stream's changelog.

    Args:
        table: Its name.
        key: The columns that tell its rows apart; without it those of the changelog's `_change_key`.
        every: How often what is new in the changelog is merged while the stream's driver runs; without it when somebody
            asks for it.
        deletes: Whether rows that the source has deleted go, or stay with `_change_deleted` true.
        where: A condition over the row's columns; other rows are not in the mirror.
        buckets: Of the key's first column, by which the table is partitioned.
    """

    table: TableName
    key: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    every: Duration | None = None
    deletes: Literal["hard", "soft"] = "hard"
    where: str | None = None
    buckets: PositiveInt = 8

    @model_validator(mode="after")
    def _sound(self) -> Mirror:
        problems: list[tuple[Location, str]] = []
        if self.every is not None and self.every < LEAST_PAUSE:
            problems.append((("every",), "must be at least 5s"))
        if len(set(self.key)) < len(self.key):
            problems.append((("key",), "names a column twice"))
        if self.buckets > MOST_BUCKETS:
            problems.append((("buckets",), f"must be at most {MOST_BUCKETS:,}"))
        if problems:
            raise problems_at(problems)
        return self


def mirror_problems(
    mirrors: Sequence[Mirror], *, changes: bool, kafka: KafkaColumns, targets: Collection[str], branch: str, main: str
) -> list[tuple[Location, str]]:
    """Returns what is wrong with the mirrors, given the rest of the file.

    Args:
        mirrors: As the file has them.
        changes: Whether the stream lands changes.
        kafka: The columns that rows have of Kafka's own.
        targets: The tables that the stream commits to.
        branch: Of the changelog, that the stream writes.
        main: What the main branch is called.
    """
    problems: list[tuple[Location, str]] = []
    if mirrors and not changes:
        said = "needs changes, which says what a record did to which row: a mirror is made from a changelog"
        problems.append((("mirrors",), said))
    if mirrors and None in kafka.coordinates_or_none:
        said = "must not leave out topic, partition or offset: mirrors go by them where two changes are to be ordered"
        problems.append((("table", "kafka_columns"), said))
    if mirrors and branch != main:
        said = f"must be {main}, which is what mirrors are made from"
        problems.append((("table", "branch"), said))
    names = [each.table for each in mirrors]
    for at, each in enumerate(mirrors):
        if each.table in targets:
            problems.append((("mirrors", at, "table"), "must be another table than those that the stream lands in"))
        if each.table in names[:at]:
            problems.append((("mirrors", at, "table"), f"'{each.table}' is another mirror of this stream already"))
    return problems
