"""Steps that carry a plan out: tables are altered first, then drivers replaced. Each may be repeated."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from pyiceberg.catalog import Catalog

from jobs.base.errors import FrazilError
from jobs.base.failpoints import step
from jobs.clients.catalog.catalog import connect_catalog
from jobs.clients.catalog.translate import translate_errors
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.quality.schema_checks.alteration import alter_table
from jobs.streaming.driver.tables.follower_tables import ensure_follower
from jobs.tables.commit.history.branch import stream_table, whole_table
from jobs.tables.commit.protocol.compare_and_swap import compare_and_swap, conflicts_as_moved_head
from jobs.tables.commit.protocol.named_tables import with_told_tables
from jobs.tables.commit.schema.followers import follower_names
from jobs.tables.commit.stamp.errors import CommitRefusedError
from jobs.tables.write.dry_run import check_writable
from orchestration.deployment_plan.change import DeploymentPlan, StepAction
from orchestration.deployment_plan.table_changes import alteration_of, properties_to_set

_ACTIONS = (StepAction.ALTER, StepAction.PROPERTIES, StepAction.END, StepAction.ROLL, StepAction.START)
_STARTING = frozenset({StepAction.ROLL, StepAction.START})
OF_TABLES = frozenset({StepAction.ALTER, StepAction.PROPERTIES})


@dataclass(frozen=True, slots=True)
class Step:
    """Step of a plan for one stream.

    Attributes:
        table: Name of the table to alter; empty for a step about a driver.
        sentences: Sentences of the changes that the step makes.
        generation: Generation of the driver that is started; None for another step.
    """

    stream: str
    action: StepAction
    table: str
    sentences: tuple[str, ...]
    generation: str | None = None

    @property
    def shown(self) -> str:
        """The step in a line."""
        return "; ".join(self.sentences)


def steps_of(plan: DeploymentPlan) -> list[Step]:
    """The steps that carry a plan out: all tables come before all drivers."""
    found: dict[tuple[str, StepAction, str], list[str]] = {}
    generations = dict[str, str]()
    for change in plan.pending:
        if change.step is not None and change.stream is not None:
            table = change.place if change.step in OF_TABLES else ""
            found.setdefault((change.stream, change.step, table), []).append(change.sentence)
            if change.step in _STARTING:
                generations[change.stream] = change.after
    steps = [
        Step(stream, action, table, tuple(said), generations[stream] if action in _STARTING else None)
        for (stream, action, table), said in found.items()
    ]
    return sorted(steps, key=lambda each: (_ACTIONS.index(each.action), each.stream, each.table))


def change_table(spec: StreamSpec, settings: Settings, wanted: Step, by: str) -> Iterator[str]:
    """Carry out what a step changes of a table, in one commit each; what is so already stays so.

    Args:
        spec: The stream as its file has it.
        wanted: One of `OF_TABLES`.
        by: Who asks for it; kept in the table.

    Yields:
        What was done, a sentence for each table.

    Raises:
        FrazilError: The catalog refuses, or somebody else changes the table at the same time.
    """
    with translate_errors(settings, spec.stream), connect_catalog(settings) as catalog:
        if wanted.action is StepAction.ALTER:
            yield from _alter(spec.for_table(wanted.table), catalog, wanted.table, by, wanted.sentences)
        else:
            yield from _set_properties(spec.for_table(wanted.table), catalog, wanted.table, wanted.sentences)
    step("after_plan_alteration")


def refuse_unshown(table: str, others: Iterable[str]) -> None:
    """Refuse to do to a table what the plan did not show, as the file or the table has changed since.

    Raises:
        FrazilError: There is something.
    """
    if said := list(others):
        raise FrazilError(
            f"table {table}: the file or the table has changed since the plan was shown: {'; '.join(said)}. "
            "The table was not changed.",
            fix="frazil plan, and then frazil apply",
        )


def _alter(spec: StreamSpec, catalog: Catalog, name: str, by: str, shown: Collection[str]) -> Iterator[str]:
    metadata = stream_table(catalog, spec, name).metadata
    decide = alteration_of(spec, name)
    if (decided := decide(metadata)).sentences:
        others = [*decided.refused, *(each for each in decided.sentences if f"table {name}: {each}" not in shown)]
        refuse_unshown(name, others)
        schema_id, done = alter_table(catalog, spec, decide, metadata.current_schema_id, by, table=name)
        yield f"table {name} has schema {schema_id}: {'; '.join(done.sentences)}"
    if spec.tables_follow and name == spec.table.name:
        own = stream_table(catalog, spec, name).metadata
        for follower in follower_names(with_told_tables(spec, own)):
            if catalog.table_exists(follower):
                made = ensure_follower(spec, catalog, own, follower)
                yield f"table {follower} has its columns, by schema {made.metadata.current_schema_id}"


def _set_properties(spec: StreamSpec, catalog: Catalog, name: str, shown: Collection[str]) -> Iterator[str]:
    wanted = dict[str, str]()

    def attempt() -> None:
        table = whole_table(stream_table(catalog, spec, name))
        wanted.clear()
        wanted.update(properties_to_set(spec, name, table.metadata))
        if not wanted:
            return
        told = [f"set property {key} to {value}" for key, value in wanted.items()]
        refuse_unshown(
            name, [each for each in told if not any(one.startswith(f"table {name}: {each}") for one in shown)]
        )
        after = table.metadata.model_copy(update={"properties": {**table.metadata.properties, **wanted}})
        check_writable(name, after, f"table.properties of streams/{spec.stream}.yaml")
        with conflicts_as_moved_head(), table.transaction() as change:
            change.set_properties(wanted)

    compare_and_swap(name, attempt, lambda said: CommitRefusedError(said, fix="try again in some minutes"))
    if wanted:
        yield f"table {name}: {', '.join(f'{key} is {value}' for key, value in sorted(wanted.items()))}"


def refuse_new_changes(new: Iterable[str], made_at: str) -> None:
    """Refuse a saved plan that lacks what would be done now.

    Args:
        new: The changes that the saved plan does not have, as sentences.
        made_at: When the plan was made.

    Raises:
        FrazilError: There are some.
    """
    if said := list(new):
        more = f"; and {len(said) - 3} more" if len(said) > 3 else ""
        raise FrazilError(
            f"The plan was made at {made_at}, and does not fit any more. Since then: {'; '.join(said[:3])}{more}. "
            "Nothing was applied.",
            fix="frazil plan --json, and read the new plan",
        )
