"""What a stream's YAML file under ``streams/`` says, field by field."""

from __future__ import annotations

from typing import Annotated

from pydantic import PrivateAttr
from pyiceberg.schema import Schema

from jobs.schema.evolution_policy import EvolutionPolicy
from jobs.schema.kafka_columns import KafkaColumns
from jobs.spec.changes import Changes, hashed_changes, row_chain
from jobs.spec.config_hash import ChangesRows
from jobs.spec.contract import Contract
from jobs.spec.decode import Decode
from jobs.spec.error_handling import Errors
from jobs.spec.event_time import EventTime
from jobs.spec.evolve import Evolve
from jobs.spec.fields import StreamId
from jobs.spec.groups import GroupName
from jobs.spec.kafka_columns import kafka_columns
from jobs.spec.maintenance_policy import StreamMaintenance
from jobs.spec.mirror import Mirror
from jobs.spec.publish import Publish, gated_policy
from jobs.spec.restart import Restart
from jobs.spec.route import RouteField
from jobs.spec.slo import Freshness, Slo
from jobs.spec.source import Source
from jobs.spec.table import Table
from jobs.spec.table_columns import LaneColumns
from jobs.spec.transform.key_places import WithKeyColumns
from jobs.spec.transform.rules import RowRule, hashed_rules
from jobs.spec.transform.smt_step import Predicates, WithPredicates
from jobs.spec.transform.steps import Step, hashed_steps
from jobs.spec.trigger import Every, Trigger
from jobs.transform.chain import Chain


class StreamFile(WithPredicates, WithKeyColumns):
    """A stream's file: its fields, and what follows from them alone."""

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

    @property
    def declared_rows(self) -> Schema:
        """The columns that the stream's file declares, without those that say where rows came from; else none."""
        return declared.schema if (declared := self.decode.declared) else Schema()

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
