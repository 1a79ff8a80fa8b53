"""A whole certificate from its settings to its outcome: make what it needs, carry it out, take it all away again."""

from __future__ import annotations

import logging
import secrets
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from jobs.catalog import connect_catalog
from jobs.certify.certificate import carry_out
from jobs.certify.load import Load
from jobs.certify.plan import Trial
from jobs.certify.results import Outcome
from jobs.certify.sight import Looking
from jobs.certify.stage import OnProgress, Stage
from jobs.certify.things import create, remove
from jobs.certify.workspace import PARTITIONS, Workspace, prepare
from jobs.spec.settings import Settings

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Certified:
    """What came of it.

    Attributes:
        kept: Whether everything was left as it is, to be looked at.
        left: What could not be removed, as sentences.
    """

    workspace: Workspace
    outcome: Outcome
    kept: bool = False
    left: list[str] = field(default_factory=list)


def new_id() -> str:
    """A certificate's id: when, and something that no other one has."""
    return f"{datetime.now(UTC):%Y%m%d_%H%M%S}_{secrets.token_hex(2)}"


def certify(
    settings: Settings,
    run: str,
    trials: list[Trial],
    *,
    seed: int,
    records: int,
    keep: bool = False,
    on_progress: OnProgress = lambda *_: None,
    on_cleaning: Callable[[], None] = lambda: None,
) -> Certified:
    """Carry out a certificate against the catalog and the brokers of the settings.

    Whatever ends it, an interrupt included, no driver of it is left. Its topic, tables and files are removed unless it
    failed, or is to keep them.

    Args:
        settings: The user's.
        run: Its id.
        trials: What to do.
        seed: Of the records.
        records: How many are produced before every start.
        keep: Leave topic, tables and files in any case.
        on_progress: As `Stage` has it.
        on_cleaning: Called before anything is ended or removed, which takes some seconds and is not to be interrupted.

    Raises:
        FrazilError: It may not create what it needs, or nobody answers.
    """
    with connect_catalog(settings) as catalog:
        workspace = prepare(settings, run)
        stage: Stage | None = None
        failed = False
        try:
            create(workspace, catalog)
            load = Load(workspace.settings.kafka, workspace.name, PARTITIONS, seed)
            looking = Looking(workspace, catalog)
            stage = Stage(workspace, load, looking, records, on_progress)
            outcome = carry_out(stage, trials)
            failed = not outcome.passed
            done = Certified(workspace, outcome, kept=keep or failed)
        finally:
            on_cleaning()
            if stage is not None:
                stage.drivers.end_all()
            left = [] if keep or failed else remove(workspace, catalog)
            if sys.exc_info()[0] is not None:
                # An interrupt, or what went wrong, is what the caller hears of.
                for each in left:
                    log.warning("not removed: %s", each)
        done.left = left
        return done
