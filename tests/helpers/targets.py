"""Targets of a stream, and what stands in for its file where only they matter."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from types import SimpleNamespace
from typing import Any

from pyiceberg.table.refs import MAIN_BRANCH

from jobs.config.values.targets import TargetSpec
from jobs.records.schema.needs import NO_EVOLUTION
from jobs.records.transforms.transform import Chain


def pair(table: str, dead_letters: str) -> tuple[TargetSpec, TargetSpec]:
    """The targets of a stream that routes nothing."""
    return TargetSpec(table, "rows", coordinator=True), TargetSpec(dead_letters, "dead_letters")


def spec_with(
    stream: str,
    targets: Sequence[TargetSpec],
    *,
    nameable: Sequence[TargetSpec] = (),
    parkable: Collection[str] = (),
    **more: Any,
) -> Any:
    """A stream's file as far as its targets go, under any configuration hash; its table is left alone.

    Args:
        nameable: The tables that values of records may name.
        parkable: The targets that are suspended where they are gone or refuse their commit.
    """
    given = {"nameable": nameable, "parkable": parkable, **more}

    def with_named_tables(names: Iterable[str]) -> Any:
        known, new = {target.name for target in targets}, set(names)
        found = [each for each in nameable if each.name in new - known]
        return spec_with(stream, (*targets, *found), **given)

    def without_named_tables(names: Collection[str]) -> Any:
        left = [each for each in targets if each not in nameable or each.name not in names]
        return spec_with(stream, left, **given)

    route = more.get("route")
    made = SimpleNamespace(
        stream=stream,
        targets=tuple(targets),
        target_names=tuple(target.name for target in targets),
        coordinator=next(target.name for target in targets if target.coordinator),
        named_tables=tuple(target.name for target in targets if target in nameable),
        with_named_tables=with_named_tables,
        without_named_tables=without_named_tables,
        branch_of=lambda table: MAIN_BRANCH,
        parks=lambda table: table in parkable,
        disagreements_with=lambda schema, name=None, properties=None: [],
        grows=route is not None and route.to is not None,
        own_columns=False,
        tables_follow=False,
        coordinator_has_rows=True,
        **{
            "evolution": NO_EVOLUTION,
            "event_time": None,
            "route": None,
            "shapes": False,
            "transform": (),
            "chain": Chain(),
            "changes": None,
            "rules": (),
            **more,
        },
    )
    made.for_table = lambda name: made
    made.with_present_tables = lambda names: made
    return made
