"""The tables of a stream: those that its file names, and those that its records have named."""

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
        table: The stream's own table.
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
        route: Routes rows to several tables. Without it, all rows go to the stream's own table.
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
        """The columns that the stream's file declares, without those that say where rows came from; else none."""
        return declared.schema if (declared := self.decode.declared) else Schema()

    @property
    def apply_command(self) -> str:
        """The command that gives the table what the stream's rows need of it."""
        return f"frazil schema apply {self.stream}{self._apply_option}"

    @property
    def chain(self) -> Chain:
        """The steps that rows take between decoding and the table, in their order."""
        return row_chain(self.changes, self.decode, self.transform)

    @property
    def evolution(self) -> EvolutionPolicy:
        """What becomes of changes that records need of the table."""
        policy = self.evolve.policy(self.decode)
        return gated_policy(policy, self.evolve) if self.publish else policy

    @property
    def kafka_columns(self) -> KafkaColumns:
        """The columns that rows have of Kafka's own."""
        return kafka_columns(self.table.kafka_columns)

    @property
    def dead_letter_table(self) -> str:
        """The table of failed records: the one given, else the stream's table with ``_dead`` behind its name."""
        letters = self.errors.dead_letters
        return (letters.table if letters else None) or f"{self.table.name}_dead"

    @property
    def coordinator(self) -> str:
        """The name of the target that is stamped in every batch, before all others."""
        return self.table.name

    @property
    def continuous(self) -> bool:
        """Whether a driver runs it for as long as it is wanted; if not, it is drained when somebody asks for it."""
        return self.trigger != "available_now"


class StreamTables(StreamFile):
    """A stream's file, with the tables that it commits to."""

    @property
    def targets(self) -> tuple[TargetSpec, ...]:
        """The tables that the stream commits to, in the order of a batch's commits: the coordinator first."""
        of_file = (self.table, self.dead_letter_table, self.publish, self.route, self._named, self.late_tables)
        return stream_targets(*of_file, self._absent)

    def with_named_tables(self, tables: Iterable[str]) -> Self:
        """The same stream with tables among its targets that have become some as records came.

        These are tables that values of its records have named. Where each table has columns of its own, also those of
        the file: they are made with the columns of their first records.

        Args:
            tables: Those that are known; what is a target anyway, or none of the route, is left aside.
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
        """The same stream with those tables of its file among its targets that are some, beside those that it has.

        Args:
            tables: The targets by the coordinator's newest stamp. Only where each table has columns of its own one of
                the file may be none yet.
        """
        if not self.own_columns or self.route is None:
            return self
        made = self.model_copy()
        made._absent = frozenset({*self.route.table_names} - {self.table.name, *tables})
        return made

    @property
    def own_columns(self) -> bool:
        """Whether each table of rows has columns of its own: no file declares them, and the topic says the table."""
        return self._read_by_topic and self.topics_decide

    @property
    def topics_decide(self) -> bool:
        """Whether each table of rows has columns of its own by the file, whatever says where records go."""
        return self.route is not None and not self.decode.declares_all and decided_by_topic(self.route)

    def read_by_headers(self) -> Self:
        """The same stream, of which the headers of records, and not the topics that are read, say where they go."""
        made = self.model_copy()
        made._read_by_topic = False
        return made

    @property
    def tables_follow(self) -> bool:
        """Whether the stream's own table says the columns of all its tables of rows: neither file nor topics do.

        They are those of a route, and that of late rows. Those of a queue of a stream do so as the stream's do, though
        headers say where its records go.
        """
        if self.decode.declares_all or self.topics_decide:
            return False
        return self.route is not None or self.late_table is not None

    @property
    def grows(self) -> bool:
        """Whether tables become targets as records come for them."""
        return self.route is not None and (self.route.to is not None or self.own_columns)

    @property
    def coordinator_has_rows(self) -> bool:
        """Whether rows may go to the stream's own table."""
        return self.route is None or self.table.name in self.route.table_names

    def without_named_tables(self, tables: Collection[str]) -> Self:
        """The same stream without tables among its targets that values of its records have named."""
        made = self.model_copy()
        made._named = tuple(each for each in self._named if each not in tables)
        return made

    @property
    def named_tables(self) -> tuple[str, ...]:
        """The tables among the targets that values of records have named, as far as they are known."""
        return self._named

    def table_settings(self, name: str) -> Table:
        """What the file says of one of the stream's tables of rows, with which it is created."""
        return table_settings(self.table, self.route, self.late_tables, name)

    @property
    def mirrored(self) -> tuple[tuple[str, Mirror], ...]:
        """Each mirror behind the changelog that it is made from, as far as the stream's tables are known."""
        if self.route is None:
            return tuple((self.table.name, each) for each in self.mirrors)
        rows = [each.name for each in self.targets if each.role == "rows" and not self.has_late_rows(each.name)]
        changelogs = [each for each in rows if each != self.coordinator or self.coordinator_has_rows]
        return tuple((name, each.of_changelog(name)) for name in changelogs for each in self.mirrors)

    @property
    def late_table(self) -> str | None:
        """The table that all late rows have of their own; None of a stream that has none, or one for each table."""
        return late.beside(late.own) if (late := self.late_tables) and late.route is None else None

    @property
    def late_tables(self) -> LateTables | None:
        """The tables of late rows; None of a stream that has none."""
        return late_tables(self.table.name, self.event_time, self.route, each=self.topics_decide)

    def late_rows_of(self, table: str) -> str | None:
        """The table whose late rows one has, of one for all the stream's own; None of one that has no late rows."""
        return late.table_of(table) if (late := self.late_tables) else None

    def has_late_rows(self, table: str) -> bool:
        """Whether a table is one of late rows."""
        return self.late_rows_of(table) is not None

    def parks(self, table: str) -> bool:
        """Whether a table that rows are routed to is parked where it is gone or refuses its commit."""
        if self.route is None or table in (self.coordinator, self.dead_letter_table) or self.has_late_rows(table):
            return False
        return table in (*self.route.table_names, *self._named) and parks(self.route, table)

    @property
    def target_names(self) -> tuple[str, ...]:
        """The names of the targets, in their order."""
        return tuple(target.name for target in self.targets)

    def branch_of(self, table: str) -> str:
        """The branch of a table that the stream writes; main of one that it does not name."""
        if self.publish and table == self.table.name:
            return self.publish.branch
        return branch_in(self.table, self.dead_letter_table, self.route, self.late_tables, table)
