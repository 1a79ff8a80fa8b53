"""Mirrors of a stream's file: tables merged from its changelog that equal the source's present tables."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from jobs.config.documents.base import Problem, Problems, SpecModel
from jobs.config.documents.units import Duration
from jobs.config.services.services import SourceName
from jobs.config.stream.table import Table
from jobs.config.values.fields import PositiveInt, table_name
from jobs.config.values.targets import MAIN_BRANCH
from jobs.records.expressions.parser import asks_batch_time, parse
from jobs.records.expressions.problem import ExpressionProblem

LEAST_PAUSE = timedelta(seconds=5)
MOST_BUCKETS = 1024
PLACEHOLDERS = ("table", "namespace")


def _name_or_pattern(value: str) -> str:
    unknown = [each for each in re.findall(r"\{([^{}]*)\}", value) if each not in PLACEHOLDERS]
    if unknown:
        raise ValueError(f"names '{{{unknown[0]}}}', and may name {{table}} and {{namespace}} of the changelog")
    table_name(_filled(value, "n.t"))
    return value


def _filled(pattern: str, changelog: str) -> str:
    namespace, _, table = changelog.rpartition(".")
    return pattern.replace("{namespace}", namespace).replace("{table}", table)


def _source_table(value: str) -> str:
    schema, dot, name = value.partition(".")
    if not dot or not schema or not name:
        raise ValueError("must be a table with its schema, such as public.customers")
    return value


class MirrorSource(SpecModel):
    """The table at the source that a mirror is compared with.

    Args:
        connection: Name of an entry of ``sources`` in the settings.
        table: Table with its schema. Without it, the last two parts of the topic's name.
        where: Condition in the source's SQL that selects the mirror's rows.
        exclude: Columns that are not compared, because the stream has changed them.
    """

    example = "{connection: shop}"

    connection: SourceName
    table: Annotated[str, AfterValidator(_source_table)] | None = None
    where: Annotated[str, Field(min_length=1)] | None = None
    exclude: tuple[Annotated[str, Field(min_length=1)], ...] = ()


class Mirror(SpecModel):
    """One mirror of the stream's changelog, or of each of its changelogs.

    Args:
        table: Name of the mirror; ``{table}`` and ``{namespace}`` stand for those of a changelog.
        key: Key columns of the mirror. Without it, those of ``_change_key``.
        every: Time between merges while the stream's driver runs, at least ``5s``. Without it, on demand.
        deletes: Deletes rows that the source has deleted, or keeps them with ``_change_deleted``.
        where: SQL condition of the rows that the mirror has.
        buckets: Buckets of the key by which the mirror is partitioned, at most 1024.
        source: Table at the source that the mirror is compared with.
    """

    example = "{table: shop.customers, every: 1m}"

    table: Annotated[str, AfterValidator(_name_or_pattern)]
    key: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    every: Duration | None = None
    deletes: Literal["hard", "soft"] = "hard"
    where: str | None = None
    buckets: PositiveInt = 8
    source: MirrorSource | None = None

    @property
    def is_pattern(self) -> bool:
        """Whether the name is a pattern, so that each changelog has a mirror."""
        return "{table}" in self.table

    def of_changelog(self, changelog: str) -> Mirror:
        """Return the mirror of one changelog, with its name made from the changelog's."""
        filled: dict[str, Any] = {"table": _filled(self.table, changelog)}
        if self.source is not None and self.source.table is not None:
            named = _filled(self.source.table, changelog)
            filled["source"] = self.source.model_copy(update={"table": named})
        return self.model_copy(update=filled)

    def _problems(self) -> Problems:
        if self.every is not None and self.every < LEAST_PAUSE:
            yield ("every",), "must be at least 5s"
        if len(set(self.key)) < len(self.key):
            yield ("key",), "names a column twice"
        if self.where is not None:
            try:
                parse(self.where)
            except ExpressionProblem as problem:
                yield ("where",), str(problem)
            if asks_batch_time(self.where):
                said = "must not ask for now(): a row would come and go without a change of it"
                yield ("where",), said
        if self.source is not None and self.where is not None and self.source.where is None:
            said = "needs where, the mirror's condition in the source's SQL: the mirror has no other rows"
            yield ("source",), said
        if self.buckets > MOST_BUCKETS:
            yield ("buckets",), f"must be at most {MOST_BUCKETS:,}"


def keep_problems(mirrors: Sequence[Mirror]) -> list[Problem]:
    """Returns the problems of `changes.keep`, which expires changes, with the mirrors of the file."""
    if not mirrors:
        return [(("changes", "keep"), "goes with mirrors: a change may go once each mirror has it")]
    said = "does not go with changes.keep: rows that fulfil it later may need expired values"
    return [(("mirrors", at, "where"), said) for at, each in enumerate(mirrors) if each.where is not None]


def mirror_problems(
    mirrors: Sequence[Mirror],
    table: Table,
    targets: Collection[str],
    *,
    changes: bool,
    routed: bool,
    lanes: bool,
    gated: bool,
) -> Iterator[Problem]:
    """Yields the problems of the mirrors, given the rest of the file.

    Args:
        mirrors: Mirrors of the file.
        table: Block `table` of the changelog.
        targets: Tables that the stream commits to.
        changes: Whether the stream lands changes.
        routed: Whether its rows go to several tables.
        lanes: Whether each of these tables has its own columns, and is a changelog.
        gated: Whether the stream uses write-audit-publish.
    """
    if not mirrors:
        return
    if not changes:
        said = "needs changes, which names the operation and the row of a record: a mirror is made from a changelog"
        yield ("mirrors",), said
    if routed and not lanes:
        said = "goes with a route by topic alone, whose tables have columns of their own: each is a changelog"
        yield ("mirrors",), said
    if gated:
        yield ("mirrors",), "goes without publish: quarantined changes would be missing among later ones"
    if table.branch != MAIN_BRANCH:
        said = f"must be {MAIN_BRANCH} beside mirrors, which are merged from that branch"
        yield ("table", "branch"), said
    names = [each.table for each in mirrors]
    for at, each in enumerate(mirrors):
        if each.is_pattern and not lanes:
            yield ("mirrors", at, "table"), "has {table}, and the stream has one changelog: give its name"
        if lanes and not each.is_pattern:
            yield ("mirrors", at, "table"), "must have {table}, of the changelog: the stream has several"
        if lanes and each.source is not None and each.source.table is not None and "{table}" not in each.source.table:
            said = (
                "must have {table}, as each table has a mirror: or leave it out, then each mirror is named "
                "after its topic"
            )
            yield ("mirrors", at, "source", "table"), said
        taken = [name for name in targets if each.of_changelog(name).table in targets] if lanes else []
        if each.table in targets or taken:
            yield ("mirrors", at, "table"), "must be another table than those that the stream lands in"
        if each.table in names[:at]:
            yield ("mirrors", at, "table"), f"'{each.table}' is another mirror of this stream already"
