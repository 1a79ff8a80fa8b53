"""Definitions that Dagster loads: assets, checks, jobs, schedules and sensors of the deployment that FRAZIL_HOME names.

Loading reads files and nothing else: no connection is opened and no JVM started. A broken file does not hide the other
streams: it is logged, and is in the metadata that `dg list defs` and the code location's page show. A stream that
was launched before its file broke is shown as it was launched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jobs.base.system.pandas_import import keep_pandas_out

keep_pandas_out()

import dagster as dg

from assets import dagster_names
from assets.audit_check import audit_check
from assets.closed_partitions import closed_asset, closed_check
from assets.contract_checks import contract_checks, expectations_by_key
from assets.dead_letters import dead_letter_checks
from assets.deployment_assets import problem_assets, supervisor_asset
from assets.mirror_check import mirror_checks
from assets.mirrors import mirror_assets, named_mirrors_assets
from assets.named_tables import named_tables_asset
from assets.published_check import published_check
from assets.schema_contract import schema_contract_check
from assets.stream_checks import stream_checks
from assets.streams import stream_assets, topic_specs
from assets.table_health import health_checks
from jobs.config.documents.validation import SpecError
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from orchestration.jobs.actions import action_jobs, opened_with
from orchestration.jobs.audit import audit_job, audit_schedules, ledger_job
from orchestration.jobs.contract import contract_job, contract_schedules
from orchestration.jobs.control import control_job
from orchestration.jobs.dead_letter_expiry import expire_dead_letters_job, expire_schedule
from orchestration.jobs.discard import OP as DISCARD_OP
from orchestration.jobs.discard import discard_job
from orchestration.jobs.halted import halted_job
from orchestration.jobs.history import history_job, history_schedule
from orchestration.jobs.maintain.jobs import maintenance_jobs, maintenance_schedule
from orchestration.jobs.maintain.ops import HANDED_ON
from orchestration.jobs.mirrors import mirror_check_job, mirror_schedules
from orchestration.jobs.publish import publish_job
from orchestration.jobs.release import OP as RELEASE_OP
from orchestration.jobs.release import release_job
from orchestration.jobs.replay import OP as REPLAY_OP
from orchestration.jobs.replay import replay_job
from orchestration.jobs.reset import OP as RESET_OP
from orchestration.jobs.reset import reset_offsets_job
from orchestration.reconcile.assessment import evaluate_checks
from orchestration.reconcile.definitions_reload import DefinitionsReload, definitions_code
from orchestration.reconcile.stream_files import as_launched
from orchestration.sensors.alerts import alert_sensor
from orchestration.sensors.closed_partitions import closed_partitions_sensor
from orchestration.sensors.contracts import contract_sensor
from orchestration.sensors.halts import halts_sensor
from orchestration.sensors.mirrors import mirrors_sensor
from orchestration.sensors.publications import publication_sensor
from orchestration.sensors.reconcile import reconcile_sensor
from orchestration.sensors.replay_proposal import evaluate_dead_letters
from orchestration.sensors.replays import replay_sensor
from orchestration.sensors.schemas import schema_sensor
from resources.deployment import Deployment
from resources.deployment_resource import DeploymentResource
from resources.services import CatalogResource, KafkaResource, RegistryResource, SparkResource


def build_definitions(deployment: Deployment) -> dg.Definitions:
    """The definitions of a deployment."""
    specs, errors = deployment.streams()
    try:
        settings = deployment.settings()
        alerts = bool(settings.alerts.targets)
    except SpecError as error:
        # The sensor goes on by itself once they can be read.
        alerts = True
        # Asset keys hold the catalog's name; a run reads the settings again and reports their problems.
        settings, errors = Settings.embedded(deployment.home), [*errors, error]
    for error in errors:
        for problem in error.problems:
            dg.get_dagster_logger("frazil").warning(problem)
    reload = DefinitionsReload(definitions_code(specs, errors, settings), build_definitions)
    former = as_launched(specs, errors, settings, deployment)
    shown = [*specs, *former]
    paths = DeploymentResource.of(deployment)
    # The coordinator's key of each stream, where whatever concerns the whole stream is shown.
    keys = {spec.stream: dagster_names.target_keys(settings, spec) for spec in shown}
    audit = audit_job([of_stream[0] for of_stream in keys.values()]) if shown else None
    expected = {spec.stream: list(expectations_by_key(spec, keys[spec.stream])) for spec in shown}
    contracts = contract_job(expected)
    publications = publish_job([keys[spec.stream][0] for spec in shown if spec.publish is not None])
    mirrors = mirror_check_job(shown, settings)
    return dg.Definitions(
        assets=[
            *topic_specs(shown),
            *(stream_assets(spec, settings) for spec in shown),
            *(mirror for spec in shown for mirror in mirror_assets(spec, settings)),
            *(named for spec in shown if (named := named_tables_asset(spec, settings)) is not None),
            *(named for spec in shown for named in named_mirrors_assets(spec, settings)),
            *(closed for spec in shown if (closed := closed_asset(spec, settings)) is not None),
            *problem_assets(errors, [spec.stream for spec in former]),
            supervisor_asset(),
        ],
        asset_checks=[
            *(check for spec in shown for check in _checks(spec, settings, keys[spec.stream])),
        ],
        jobs=[
            control_job,
            *action_jobs(shown),
            *_opened_filled_in([spec.stream for spec in shown]),
            expire_dead_letters_job,
            halted_job,
            history_job,
            *maintenance_jobs,
            ledger_job,
            *([audit] if audit else []),
            *([contracts] if contracts else []),
            *([publications] if publications else []),
            *([mirrors] if mirrors else []),
        ],
        schedules=[
            *audit_schedules(audit),
            *contract_schedules(contracts, shown, expected),
            expire_schedule(),
            history_schedule(),
            maintenance_schedule(),
            *mirror_schedules(mirrors, shown),
        ],
        sensors=[
            reconcile_sensor(reload),
            halts_sensor(),
            replay_sensor(),
            schema_sensor(),
            closed_partitions_sensor(),
            *([mirrors_sensor()] if any(spec.mirrors for spec in shown) else []),
            *([contract_sensor()] if contracts else []),
            *([publication_sensor()] if publications else []),
            *([alert_sensor()] if alerts else []),
        ],
        resources={
            "deployment": paths,
            "kafka": KafkaResource(deployment=paths),
            "registry": RegistryResource(deployment=paths),
            "catalog": CatalogResource(deployment=paths),
            "spark": SparkResource(deployment=paths),
            HANDED_ON: dg.mem_io_manager,
        },
        # One Spark session per run, in the run's own process: a process per step would start a JVM for each.
        executor=dg.in_process_executor,
    )


def _checks(spec: StreamSpec, settings: Settings, keys: Sequence[dg.AssetKey]) -> Iterator[dg.AssetChecksDefinition]:
    yield stream_checks(spec, keys[0], evaluate_checks)
    yield schema_contract_check(spec, keys)
    yield audit_check(spec, keys[0])
    yield from contract_checks(spec, keys)
    yield from published_check(spec, keys[0])
    yield dead_letter_checks(
        spec, dagster_names.table_key(settings, spec.dead_letter_table), keys[0], evaluate_dead_letters
    )
    yield health_checks(spec, keys)
    yield from mirror_checks(spec, settings)
    if (closed := closed_check(spec, settings)) is not None:
        yield closed


def _opened_filled_in(streams: list[str]) -> list[dg.JobDefinition]:
    """The jobs that want a stream's name: it is filled in where there is only one.

    As they open, those whose effect cannot be taken back only show it. A replay can be repeated, and acts.
    """
    stream = streams[0] if len(streams) == 1 else ""
    asked = {"stream": stream, "dry_run": True, "reason": "asked in Dagster"}
    return [
        opened_with(reset_offsets_job, RESET_OP, {**asked, "to": "", "topics": []}),
        opened_with(discard_job, DISCARD_OP, asked),
        opened_with(release_job, RELEASE_OP, asked),
        opened_with(replay_job, REPLAY_OP, {**asked, "dry_run": False, "reasons": [], "states": [], "limit": 0}),
    ]


defs = build_definitions(Deployment.here())
