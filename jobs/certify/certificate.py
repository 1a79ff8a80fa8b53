"""A certificate: real drivers, killed at every step of the plan, and after each kill the tables looked at.

Whatever the tables hold at the moment of a kill has to be what their stamps say, record by record. The look itself
waits until the next driver has committed, so that it does not slow the recovery that is being timed; it is at the
tables as they were, which Iceberg keeps.
"""

from __future__ import annotations

import contextlib
import logging
import time
import traceback
from collections.abc import Iterator

from jobs.certify import trials
from jobs.certify.compare import stamp_problems
from jobs.certify.plan import Trial
from jobs.certify.results import Outcome, Result
from jobs.certify.stage import COMMIT_SECONDS, Stage, TrialFailedError
from jobs.errors import FrazilError
from jobs.redaction import redacted
from jobs.verify.audit_words import problem_sentence, verdict_sentence

log = logging.getLogger(__name__)


def carry_out(stage: Stage, planned: list[Trial]) -> Outcome:
    """Make all trials, and compare everything; stops at the first trial that fails, for the tables may stay wrong.

    What is wrong is in the outcome; only an interrupt is raised.
    """
    outcome = Outcome(planned)
    began = time.monotonic()
    try:
        for number, trial in enumerate(planned, start=1):
            result = Result(trial)
            outcome.results.append(result)
            stage.at = (number, trial.step)
            with _noted(stage, result.problems):
                trials.make(stage, trial, result, planned[number] if number < len(planned) else None)
            if any(outcome.all_problems()):
                return outcome
        stage.at = (len(planned) + 1, "the end")
        with _noted(stage, outcome.problems):
            _finish(stage, outcome)
        return outcome
    finally:
        outcome.produced = stage.load.produced
        outcome.seconds = time.monotonic() - began


@contextlib.contextmanager
def _noted(stage: Stage, problems: list[str]) -> Iterator[None]:
    """What is raised within the block becomes a problem, without secrets; the stack trace goes to the log (DEBUG)."""
    settings = stage.workspace.settings
    try:
        yield
    except FrazilError as problem:
        problems.append(redacted(settings, problem.message))
    except Exception as problem:
        log.debug("%s", redacted(settings, traceback.format_exc()))
        problems.append(redacted(settings, f"{type(problem).__name__}: {problem}"))


def _finish(stage: Stage, outcome: Outcome) -> None:
    """Land what is left with a driver that nobody kills, stop it, and compare everything."""
    watch, floor = stage.start(None)
    stage.await_commit(floor, watch, None)
    stage.settle(watch)
    ends = stage.load.ends()

    def landed() -> bool:
        if watch.died_at is not None:
            raise TrialFailedError(stage.last_words("The last driver ended before all was landed."))
        return dict(stage.looking.now().position) == ends

    stage.wait(landed, "the rest to land", COMMIT_SECONDS)
    stage.stop()
    stage.say("everything is compared")
    sight = stage.looking.now()
    final = sight.compared(stage.load.fates())
    outcome.final = final
    problems = outcome.problems
    problems += [*final.problems, *stamp_problems(sight.stamps())]
    produced = stage.load.produced
    accounted = final.landed + final.dead + final.tombstones + final.passed_over
    if accounted != produced:
        problems.append(f"{accounted:,} records are accounted for, {produced:,} were produced")
    newest = sight.newest
    if newest is None or newest.totals.read != produced - final.passed_over:
        problems.append(f"the stamps count {newest.totals.read if newest else 0:,} records read")
    stage.say("the stream is audited")
    audited = stage.looking.audited()
    outcome.audit = verdict_sentence(audited)
    problems += [f"the audit says of {problem_sentence(problem)}" for problem in audited.problems]
    if audited.read != produced - final.passed_over:
        problems.append(f"the audit counts {audited.read:,} records read, of {produced:,} produced")
    if stage.looking.pending():
        problems.append("a pending record stands after the last stop")
    if orphans := stage.drivers.orphans():
        problems.append(f"processes of drivers are alive after the last stop: {', '.join(map(str, orphans))}")
