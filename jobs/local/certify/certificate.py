"""A certificate: fixtures are made, every scenario is run, everything is compared, and removed again.

Whatever the tables hold at the moment of a kill has to be what their stamps say, record by record. They are compared
once the next driver has committed, so that the recovery that is being timed is not slowed down; Iceberg keeps them as
they were.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial

from jobs.base.errors import FrazilError
from jobs.clients.catalog.catalog import connect_catalog
from jobs.config.redaction import redacted
from jobs.config.settings.settings import Settings
from jobs.local.certify.changes import change_to_load, partition_of
from jobs.local.certify.comparison import main_problems, stamp_problems
from jobs.local.certify.fixtures import (
    create_fixtures,
    remove_fixtures,
    remove_folder,
    require_absent,
)
from jobs.local.certify.harness import (
    COMMIT_SECONDS,
    Harness,
    OnProgress,
    ScenarioFailedError,
)
from jobs.local.certify.load import Load
from jobs.local.certify.mirror_reader import MirrorReader
from jobs.local.certify.observation import Observer
from jobs.local.certify.results import CertificateResults, ScenarioResult
from jobs.local.certify.scenario_plan import Scenario
from jobs.local.certify.scenario_run import await_merge, finish_merges, run_scenario
from jobs.local.certify.shapes import SHAPES, Shape
from jobs.local.certify.workspace import PARTITIONS, Workspace, prepare_workspace
from jobs.proof.audit.audit_result import problem_sentence, verdict_sentence

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Certificate:
    """A certificate: what its scenarios came to, and what there is left of it.

    Attributes:
        settings: Certified settings.
        tables_in: Store of the tables' files: `file`, `s3` and the like; empty without tables.
        kept: Workspaces that were left for inspection.
        left: Sentences about remains that could not be removed.
    """

    settings: Settings
    outcome: CertificateResults
    tables_in: str = ""
    kept: list[Workspace] = field(default_factory=list)
    left: list[str] = field(default_factory=list)


def new_id() -> str:
    """A certificate's id: when, and something that no other one has."""
    return f"{datetime.now(UTC):%Y%m%d_%H%M%S}_{secrets.token_hex(2)}"


def certify(
    settings: Settings,
    run: str,
    scenarios: list[Scenario],
    *,
    seed: int,
    records: int,
    keep: bool = False,
    on_progress: OnProgress = lambda *_: None,
    on_cleaning: Callable[[], None] = lambda: None,
) -> Certificate:
    """Carry out a certificate against the catalog and the brokers of the settings.

    Each shape of a stream that a scenario needs has a workspace of its own, one after the other. Whatever ends it, an
    interrupt included, no driver of it is left. Its topics, tables and files are removed unless it failed there, or is
    to keep them.

    Args:
        settings: The user's.
        run: Id of the certificate.
        scenarios: Planned scenarios.
        seed: Seed of the records.
        records: Number of records produced before every start.
        keep: Leave topic, tables and files in any case.
        on_progress: Callback, see `Harness`.
        on_cleaning: Called before anything is ended or removed, which takes some seconds and is not to be interrupted.

    Raises:
        FrazilError: The user may not create topics or tables, or a service does not answer.
    """
    done = Certificate(settings, CertificateResults(scenarios))
    shapes: list[Shape] = [shape for shape in SHAPES if any(scenario.shape == shape for scenario in scenarios)]
    with connect_catalog(settings) as catalog:
        for shape in shapes:
            # The first bears the certificate's id, whatever its shape.
            workspace = prepare_workspace(settings, run if shape == shapes[0] else f"{run}_{shape}", shape)
            harness: Harness | None = None
            keeps = keep
            try:
                require_absent(workspace, catalog)
            except BaseException:
                remove_folder(workspace)
                raise
            try:
                done.tables_in = create_fixtures(workspace, catalog)
                load = _load(workspace, seed)
                observer = Observer(workspace, catalog, partial(_type_names, load))
                reader = MirrorReader(workspace.mirror, catalog, load) if workspace.mirror else None
                harness = Harness(workspace, load, observer, records, on_progress, reader)
                _carry_out(harness, [each for each in scenarios if each.shape == shape], done.outcome)
                keeps = keep or any(done.outcome.all_problems())
            finally:
                if shape == shapes[-1] or keeps or sys.exc_info()[0] is not None:
                    on_cleaning()
                if harness is not None:
                    harness.drivers.end_all()
                left = [] if keeps else remove_fixtures(workspace, catalog)
                if sys.exc_info()[0] is not None:
                    # An interrupt, or what went wrong, is what the caller hears of.
                    for each in left:
                        log.warning("not removed: %s", each)
            done.settings = workspace.settings
            done.left += left
            done.kept += [workspace] if keeps else []
            if any(done.outcome.all_problems()):
                break
    return done


def _load(workspace: Workspace, seed: int) -> Load:
    if workspace.mirror is None:
        return Load(workspace.settings.kafka, workspace.name, PARTITIONS, seed)
    return Load(workspace.settings.kafka, workspace.name, PARTITIONS, seed, change_to_load, partition_of)


def _type_names(load: Load) -> tuple[str, ...]:
    return load.type_names


def _carry_out(harness: Harness, planned: list[Scenario], outcome: CertificateResults) -> None:
    """Run all scenarios, and compare everything; stops at the first that fails, for the tables may stay wrong.

    What is wrong is in the outcome; only an interrupt is raised.
    """
    began = time.monotonic()
    try:
        for number, scenario in enumerate(planned, start=1):
            result = ScenarioResult(scenario)
            outcome.results.append(result)
            harness.at = (scenario.number, scenario.step)
            with _noted(harness, result.problems):
                run_scenario(harness, scenario, result, planned[number] if number < len(planned) else None)
            if any(outcome.all_problems()):
                return
        harness.at = (planned[-1].number + 1, "the end")
        with _noted(harness, outcome.problems):
            _finish(harness, outcome)
    finally:
        outcome.produced += harness.load.produced
        outcome.seconds += time.monotonic() - began


@contextlib.contextmanager
def _noted(harness: Harness, problems: list[str]) -> Iterator[None]:
    """Record errors of the block as problems, without secrets; the stack trace goes to the log (DEBUG)."""
    settings = harness.workspace.settings
    try:
        yield
    except FrazilError as problem:
        problems.append(redacted(settings, problem.message))
    except Exception as problem:
        log.debug("%s", redacted(settings, traceback.format_exc()))
        problems.append(redacted(settings, f"{type(problem).__name__}: {problem}"))


def _finish(harness: Harness, outcome: CertificateResults) -> None:
    """Land the rest with a driver that nobody kills, stop it, and compare everything."""
    watch, floor = harness.start(None)
    harness.await_commit(floor, watch, None)
    harness.settle(watch)
    ends = harness.load.ends()

    def landed() -> bool:
        if watch.died_at is not None:
            raise ScenarioFailedError(harness.last_words("The last driver ended before all was landed."))
        return dict(harness.observer.now().position) == ends

    harness.wait(landed, "the rest to land", COMMIT_SECONDS)
    if harness.unmerged is not None:
        await_merge(harness, watch)
    harness.stop()
    harness.say("everything is compared")
    observation = harness.observer.now()
    final = observation.compared(harness.load.expected())
    problems = outcome.problems
    if harness.workspace.shape == "gated":
        harness.act("publish")
        problems += main_problems(harness.observer.main(), observation.rows(), whole=True)
    if harness.mirror is not None:
        problems += finish_merges(harness)
        outcome.mirror_snapshots += harness.mirror.looked_at
        outcome.mirror_problems += harness.mirror.wrong
    problems += [*final.problems, *stamp_problems(observation.stamps())]
    produced = harness.load.produced
    accounted = final.landed + final.dead + final.tombstones + final.passed_over
    if accounted != produced:
        problems.append(f"{accounted:,} records are accounted for, {produced:,} were produced")
    newest = observation.newest
    if newest is None or newest.totals.read != produced - final.passed_over:
        problems.append(f"the stamps count {newest.totals.read if newest else 0:,} records read")
    harness.say("the stream is audited")
    audited = harness.observer.audited()
    outcome.finished(final, verdict_sentence(audited))
    problems += [f"the audit says of {problem_sentence(problem)}" for problem in audited.problems]
    if audited.read != produced - final.passed_over:
        problems.append(f"the audit counts {audited.read:,} records read, of {produced:,} produced")
    if harness.observer.pending():
        problems.append("a pending record exists after the last stop")
    if orphans := harness.drivers.orphans():
        problems.append(f"processes of drivers are alive after the last stop: {', '.join(map(str, orphans))}")
