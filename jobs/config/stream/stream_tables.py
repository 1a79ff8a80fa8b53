"""Model of a stream's file with the tables that it commits to, including dynamic tables."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Annotated, Self

from pydantic import PrivateAttr
from pyiceberg.schema import Schema

from jobs.config.contract.contract import Contract
from jobs.config.documents.base import ChangesRows
from jobs.config.services.maintenance_policy import StreamMaintenance
from jobs.config.services.trigger import (
    Every,
    GroupName,
    Restart,
    Trigger,
)
from jobs.config.steps.smt_step import Predicates, WithKeyColumns, WithPredicates
from jobs.config.steps.steps import (
    RowRule,
    Step,
    hashed_rules,
    hashed_steps,
)
from jobs.config.stream.changes import Changes, hashed_changes, row_chain
from jobs.config.stream.error_handling import Errors
from jobs.config.stream.event_time import EventTime, Freshness, Slo
from jobs.config.stream.evolve import Evolve, Publish, gated_policy
from jobs.config.stream.mirror import Mirror
from jobs.config.stream.route import RouteField
from jobs.config.stream.source import Source
from jobs.config.stream.stream_targets import (
    LateTables,
    branch_in,
    late_tables,
    parks,
    stream_targets,
    table_settings,
)
from jobs.config.stream.table import Table, kafka_columns
from jobs.config.stream.topic_route import decided_by_topic
from jobs.config.values.decode import Decode
from jobs.config.values.fields import StreamId
from jobs.config.values.table_columns import LaneColumns
from jobs.config.values.targets import TargetSpec, value_of_table
from jobs.records.schema.kafka_columns import KafkaColumns
from jobs.records.schema.needs import EvolutionPolicy
from jobs.records.transforms.transform import Chain


class StreamFile(WithPredicates, WithKeyColumns):
    """A stream's file: its fields, and what follows from them alone.

    Args:
        stream: Identity of the stream: it names the stamps, the state folder and Dagster's assets. Another name is
            another stream.
        description: Text that Dagster shows with the stream's assets.
        owner: Owner in Dagster, an e-mail address or ``team:name``. Any other text is shown in the description.
        source: The topics that are read, and where reading starts.
        decode: How bytes become typed columns.
        changes: Says that records are changes of a source. The table is then their changelog.
        transform: Steps that rows pass between decoding and the table, in order.
        predicates: Predicates of Kafka Connect by alias. A step of type ``smt`` names them.
        rules: Conditions that every row has to meet.
        table: The stream's main table.
        errors: What happens to records that fail.
        trigger: When batches run: ``{every: 60s}``, ``as_fast_as_possible`` or, on demand only, ``available_now``.
        group: Driver group whose driver runs the stream; ``own`` gives it a driver of its own. Without it,
            ``groups.default`` of the settings counts.
        freshness: Freshness policy of the table in Dagster.
        slo: Limits that Dagster's checks hold the stream to.
        restart: How a driver that failed is started again.
        maintenance: How the stream's tables are kept healthy, over ``maintenance`` of the settings.
        evolve: Policy for schema changes that records need.
        event_time: The column with the time of the event, and what follows from it.
        contract: What rows are expected to be, as expectations of Great Expectations.
        publish: Write-audit-publish: rows land on a branch, and the contract decides when ``main`` gets them.
        route: Routes rows to several tables. Without it, all rows go to the stream's main table.
        mirrors: Tables that are merged from the changelog and equal the source's present state.
    """

    example = "{transform: [{drop: [note]}], predicates: {shop: {type: TopicNameMatches, pattern: 'shop[.].*'}}}"

    stream: StreamId
    description: str = ""
    owner: str | None = None
    source: Source
    decode: Decode
    changes: Annotated[Changes | None, ChangesRows(written=hashed_changes, unless=None)] = None
    transform: Annotated[tuple[Step, ...], ChangesRows(written=hashed_steps, unless=())] = ()
    predicates: Predicates
    rules: Annotated[tuple[RowRule, ...], ChangesRows(written=hashed_rules, unless=())] = ()
    table: Table
    errors: Errors = Errors()
    trigger: Trigger = Every()
    group: GroupName | None = None
    freshness: Freshness | None = None
    slo: Slo = Slo()
    restart: Restart = Restart()
    maintenance: StreamMaintenance = StreamMaintenance()
    evolve: Evolve = Evolve()
    event_time: EventTime | None = None
    contract: Contract | None = None
    publish: Publish | None = None
    route: RouteField = None
    mirrors: tuple[Mirror, ...] = ()
    _named: tuple[str, ...] = PrivateAttr(())
    _absent: frozenset[str] = PrivateAttr(frozenset())
    _lane: LaneColumns | None = PrivateAttr(None)
    _read_by_topic: bool = PrivateAttr(True)
    _apply_option: str = PrivateAttr("")

    @property
    def declared_rows(self) -> Schema:
        """Columns of values that the stream's file declares, without Kafka's; empty if it declares none."""
        return declared.schema if (declared := self.decode.declared) else Schema()

    @property
    def apply_command(self) -> str:
        """The command that changes the table as the stream's rows need it."""
        return f"frazil schema apply {self.stream}{self._apply_option}"

    @property
    def chain(self) -> Chain:
        """Steps that rows pass between decoding and the table, in their order."""
        return row_chain(self.changes, self.decode, self.transform)

    @property
    def evolution(self) -> EvolutionPolicy:
        """Policy for changes of the table that records need."""
        policy = self.evolve.policy(self.decode)
        return gated_policy(policy, self.evolve) if self.publish else policy

    @property
    def kafka_columns(self) -> KafkaColumns:
        """Columns with Kafka's metadata."""
        return kafka_columns(self.table.kafka_columns)

    @property
    def dead_letter_table(self) -> str:
        """Name of the dead-letter table: the one in the file, else the main table's name with ``_dead``."""
        letters = self.errors.dead_letters
        return (letters.table if letters else None) or f"{self.table.name}_dead"

    @property
    def coordinator(self) -> str:
        """Name of the coordinator: the target that is committed first, and stamped in every batch."""
        return self.table.name

    @property
    def continuous(self) -> bool:
        """Whether a driver runs the stream permanently; otherwise it has one-off runs on demand."""
        return self.trigger != "available_now"


class StreamTables(StreamFile):
    """A stream's file, with the tables that it commits to."""

    @property
    def targets(self) -> tuple[TargetSpec, ...]:
        """Tables that the stream commits to, in the order of a batch's commits: the coordinator first."""
        of_file = (self.table, self.dead_letter_table, self.publish, self.route, self._named, self.late_tables)
        return stream_targets(*of_file, self._absent)

    def with_named_tables(self, tables: Iterable[str]) -> Self:
        """Return the stream with further tables among its targets: those that records have created.

        These are dynamic tables. If each table has its own columns, tables in the file are included, because their
        first records create them.

        Args:
            tables: Known tables; those that are targets already, or not of the route, are ignored.
        """
        to, known = self.route.to if self.route else None, tuple(tables)
        given = {self.table.name, self.dead_letter_table, *(self.route.table_names if self.route else ())}
        others = [each for each in known if each not in given and not self.has_late_rows(each)]
        named = [each for each in others if to and value_of_table(to, each) is not None]
        made = self.model_copy()
        made._named = tuple(dict.fromkeys([*self._named, *named]))
        made._absent = self._absent.difference(known)
        return made

    def with_present_tables(self, tables: Collection[str]) -> Self:
        """Return the stream with only those tables of its file among its targets that exist.

        Args:
            tables: Targets in the coordinator's newest stamp. A table of the file may be missing only if each table has
                its own columns.
        """
        if not self.own_columns or self.route is None:
            return self
        made = self.model_copy()
        made._absent = frozenset({*self.route.table_names} - {self.table.name, *tables})
        return made

    @property
    def own_columns(self) -> bool:
        """Whether each table of rows has its own columns: no file declares them, and the topic decides the table."""
        return self._read_by_topic and self.topics_decide

    @property
    def topics_decide(self) -> bool:
        """Whether, by the file, each table of rows has its own columns, even if headers decide where records go."""
        return self.route is not None and not self.decode.declares_all and decided_by_topic(self.route)

    def read_by_headers(self) -> Self:
        """Return the stream with headers of records, instead of the topics that are read, as the route's input."""
        made = self.model_copy()
        made._read_by_topic = False
        return made

    @property
    def tables_follow(self) -> bool:
        """Whether all tables of rows depend on the main table for their columns: neither file nor topics decide them.

        These dependent tables are those of a route, and the one of late rows. A Connect queue of the stream has the
        same dependent tables, although headers decide where its records go.
        """
        if self.decode.declares_all or self.topics_decide:
            return False
        return self.route is not None or self.late_table is not None

    @property
    def grows(self) -> bool:
        """Whether records create further targets."""
        return self.route is not None and (self.route.to is not None or self.own_columns)

    @property
    def coordinator_has_rows(self) -> bool:
        """Whether rows may go to the main table."""
        return self.route is None or self.table.name in self.route.table_names

    def without_named_tables(self, tables: Collection[str]) -> Self:
        """Return the stream without some dynamic tables among its targets."""
        made = self.model_copy()
        made._named = tuple(each for each in self._named if each not in tables)
        return made

    @property
    def named_tables(self) -> tuple[str, ...]:
        """The known dynamic tables among the targets."""
        return self._named

    def table_settings(self, name: str) -> Table:
        """Return the `table` block with which one of the stream's tables of rows is created."""
        return table_settings(self.table, self.route, self.late_tables, name)

    @property
    def mirrored(self) -> tuple[tuple[str, Mirror], ...]:
        """Each changelog with a mirror of it, as far as the stream's tables are known."""
        if self.route is None:
            return tuple((self.table.name, each) for each in self.mirrors)
        rows = [each.name for each in self.targets if each.role == "rows" and not self.has_late_rows(each.name)]
        changelogs = [each for each in rows if each != self.coordinator or self.coordinator_has_rows]
        return tuple((name, each.of_changelog(name)) for name in changelogs for each in self.mirrors)

    @property
    def late_table(self) -> str | None:
        """The table of all late rows; None if the stream has none, or one for each table."""
        return late.beside(late.own) if (late := self.late_tables) and late.route is None else None

    @property
    def late_tables(self) -> LateTables | None:
        """The tables of late rows; None if the stream has none."""
        return late_tables(self.table.name, self.event_time, self.route, each=self.topics_decide)

    def late_rows_of(self, table: str) -> str | None:
        """Return the table of the timely rows for a table of late rows; the main table, if all share one. Else None."""
        return late.table_of(table) if (late := self.late_tables) else None

    def has_late_rows(self, table: str) -> bool:
        """Whether a table is a table of late rows."""
        return self.late_rows_of(table) is not None

    def parks(self, table: str) -> bool:
        """Whether a routed table is suspended (`park`) if it is dropped or refuses a commit."""
        if self.route is None or table in (self.coordinator, self.dead_letter_table) or self.has_late_rows(table):
            return False
        return table in (*self.route.table_names, *self._named) and parks(self.route, table)

    @property
    def target_names(self) -> tuple[str, ...]:
        """Names of the targets, in their order."""
        return tuple(target.name for target in self.targets)

    def branch_of(self, table: str) -> str:
        """Return the branch of a table that the stream writes; main for an unknown table."""
        if self.publish and table == self.table.name:
            return self.publish.branch
        return branch_in(self.table, self.dead_letter_table, self.route, self.late_tables, table)
