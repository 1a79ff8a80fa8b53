"""The sensor that holds streams against their tables before a record shows the difference: `frazil_schemas`."""

# No `from __future__ import annotations` here: Dagster looks at the parameters' types as they are.

import contextlib
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import dagster as dg
import msgspec

from assets import dagster_names
from assets.schema_contract import asked_subjects, contract_outcome, downstream_of, open_proposals
from assets.stream_checks import evaluation
from jobs.base.errors import FrazilError
from jobs.clients.catalog.catalog import NoCatalogYet, find_table
from jobs.config.stream.models import StreamSpec
from jobs.tables.commit.protocol.named_tables import with_told_tables
from orchestration.reconcile.cursor import StreamsCursor, checksum, due
from orchestration.reconcile.stream_files import read_files
from resources.deployment import Deployment
from resources.deployment_resource import DeploymentResource
from resources.services import CatalogResource, RegistryResource

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

    from jobs.clients.registry.client import RegistryClient
    from jobs.quality.schema_checks.subjects import SubjectContract


# A tick looks at as many tables as it can in so long, those that it looked at longest ago first.
BUDGET_SECONDS = 1.5
# An unchanged result is reported again after so long, so that the page does not call it stale.
AGAIN_SECONDS = 1800
SENSOR = "frazil_schemas"
INTERVAL_SECONDS = 30


class ComparedStream(msgspec.Struct, omit_defaults=True):
    """State that the sensor keeps of one stream.

    Attributes:
        config: A checksum of its configuration hash when it was last looked at.
        at: When it was; seconds since 1970.
        result_sum: A checksum of the check's last result; `result_at`: when it was reported.
    """

    config: int = msgspec.field(default=0, name="c")
    at: int = msgspec.field(default=0, name="a")
    result_sum: int = msgspec.field(default=0, name="t")
    result_at: int = msgspec.field(default=0, name="ta")


class SchemasCursor(StreamsCursor[ComparedStream]):
    """The cursor of the sensor. If it is lost, everything is reported once more."""


@dataclass(slots=True)
class SchemasTick:
    """Result of one tick.

    Attributes:
        looked_at: Streams that it has looked at.
        sentence: The tick's message.
        unasked: Why the registry could not be asked, if it could not.
    """

    events: list[dg.AssetCheckEvaluation] = field(default_factory=list)
    looked_at: list[str] = field(default_factory=list)
    sentence: str = ""
    unasked: str | None = None


def run_schemas_tick(
    deployment: Deployment,
    catalog: "Callable[[], Catalog]",
    registry: "Callable[[], RegistryClient]",
    memory: SchemasCursor,
    downstream: Callable[[Sequence[dg.AssetKey]], Sequence[str]],
    now: float,
    budget: float = BUDGET_SECONDS,
) -> SchemasTick:
    """Hold streams against their tables: those whose files have changed first, then those not looked at for longest.

    A catalog or a registry that does not answer makes no check fail: it is said, and asked again by the next tick. Each
    subject of a stream is asked for once where the stream is looked at.

    Args:
        registry: Connects to the schema registry; asked only for streams whose records name schemas of it.
        downstream: The assets that are made from a stream's table, by the keys of its targets.
        now: Seconds since 1970.
        budget: Seconds after which no other table is asked for.
    """
    tick, began = SchemasTick(), time.monotonic()
    files, settings = read_files(deployment), deployment.settings()
    connected: Catalog | None = None
    subjects_by = _Subjects(registry)
    with contextlib.suppress(NoCatalogYet):
        connected = catalog()
    for spec in _in_turn(list(files.specs.values()), memory):
        if tick.looked_at and time.monotonic() - began > budget:
            break
        table = find_table(connected, spec.table.name) if connected is not None else None
        subjects, unasked = subjects_by(spec, table)
        keys = dagster_names.target_keys(settings, spec)
        proposed = open_proposals(spec, settings, table)
        targets = dagster_names.target_keys(settings, with_told_tables(spec, table and table.metadata))
        said = contract_outcome(spec, table, downstream(targets), subjects, proposed, unasked)
        known = memory.streams.setdefault(spec.stream, ComparedStream())
        known.config, known.at = checksum(spec.config_hash), math.floor(now)
        tick.looked_at.append(spec.stream)
        if unasked is not None:
            # The results reported before stay.
            tick.unasked = unasked
            continue
        result_sum = checksum(f"{said.code}{said.sentence}")
        if result_sum != known.result_sum or due(now, known.result_at, AGAIN_SECONDS):
            known.result_sum, known.result_at = result_sum, math.floor(now)
            tick.events.append(evaluation(said, keys[0]))
    if not files.absence:
        memory.keep_only([*files.specs, *files.claimed])
    changed = f"{len(tick.events)} reported" if tick.events else "nothing new"
    tick.sentence = f"{len(tick.looked_at)} of {len(files.specs)} streams compared with their tables; {changed}."
    if tick.unasked is not None:
        tick.sentence += f" Not asked: {tick.unasked}"
    return tick


class _Subjects:
    """Asks the registry for the subjects of streams; once it has not answered, not again in the same tick."""

    def __init__(self, registry: "Callable[[], RegistryClient]") -> None:
        self._registry: Callable[[], RegistryClient] = registry
        self._unasked: str | None = None

    def __call__(self, spec: StreamSpec, table: "Table | None") -> "tuple[list[SubjectContract], str | None]":
        if self._unasked is not None and spec.decode.needs_registry:
            return [], self._unasked
        found, unasked = asked_subjects(spec, table, self._registry)
        self._unasked = self._unasked or unasked
        return found, unasked


def _in_turn(specs: Sequence[StreamSpec], memory: SchemasCursor) -> list[StreamSpec]:
    def place(spec: StreamSpec) -> tuple[bool, int, str]:
        known = memory.streams.get(spec.stream, ComparedStream())
        return known.config == checksum(spec.config_hash), known.at, spec.stream

    return sorted(specs, key=place)


def refusal_sentence(problem: FrazilError) -> str:
    """The message of a tick that could compare no stream."""
    return f"Nothing was compared: {problem}"


def schema_sensor() -> dg.SensorDefinition:
    """The sensor; it changes nothing and starts nothing."""

    @dg.sensor(
        name=SENSOR,
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=(
            "Looks at streams whose file has changed, at all tables in turn, because they may have been altered, and "
            "at the newest schemas of the registry. Reports the check schema_contract: what would become of records "
            "before they come, and what is downstream. An unavailable catalog or registry makes no check fail."
        ),
    )
    def frazil_schemas(
        context: dg.SensorEvaluationContext,
        deployment: DeploymentResource,
        catalog: CatalogResource,
        registry: RegistryResource,
    ) -> dg.SensorResult:
        memory = SchemasCursor.from_cursor(context.cursor)
        repository = context.repository_def
        graph = repository.asset_graph if repository is not None else None
        try:
            tick = run_schemas_tick(
                deployment.deployment(),
                catalog.quick,
                registry.quick,
                memory,
                lambda keys: downstream_of(graph, keys) if graph is not None else [],
                time.time(),
            )
        except FrazilError as problem:
            return dg.SensorResult(skip_reason=refusal_sentence(problem), cursor=context.cursor)
        return dg.SensorResult(skip_reason=tick.sentence, cursor=memory.to_cursor(), asset_events=tick.events)

    return frazil_schemas
