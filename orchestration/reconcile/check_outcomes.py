"""Outcomes of a stream's checks: pure, from the same facts as the decision."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from assets.dead_letters import SURE_RECORDS, allowed_ratio
from assets.published_check import PUBLISHED
from assets.stream_checks import CheckOutcome
from jobs.base.errors import FrazilError
from jobs.config.services.trigger import longest_pause
from jobs.config.stream.error_handling import exceeds_ratio
from jobs.config.stream.models import StreamSpec
from jobs.quality.publishing.main_freshness import MainFreshness
from jobs.streaming.driver.context.unknown_fields import UnknownFields
from jobs.streaming.supervision.documents.stall import find_stall
from jobs.streaming.supervision.processes.actual import SILENT_SECONDS, ActualState
from jobs.streaming.supervision.state.desired import DesiredState
from orchestration.reconcile.decide import UNHELD_SECONDS, Action, Decision
from orchestration.reconcile.lag import Lag, by_event_time

DEFAULT_LAG_TIME = timedelta(minutes=15)
DEFAULT = "default"
_SHOWN_FIELDS = 20


def check_outcomes(
    desired: DesiredState,
    actual: ActualState,
    decision: Decision,
    unknown: UnknownFields | None,
    lag: Lag | None,
    now: float,
    main: MainFreshness | None = None,
) -> list[CheckOutcome]:
    """Outcomes of all checks, in the order of `assets.stream_checks.DESCRIPTIONS`; that of publication comes first.

    Args:
        unknown: Keys that the schema does not declare, as the newest configuration met them.
        lag: The lag that the heartbeat reports, or that was looked up for a stream without a driver.
        now: Seconds since 1970.
        main: What main lacks of the branch of a write-audit-publish stream, as it was looked up.
    """
    spec = desired.spec
    return [
        *_published(spec, main),
        _driver_alive(desired, actual, decision),
        _batch_not_stalled(desired, actual),
        _lag_within_slo(spec, actual, decision, lag, now, main),
        _dead_letter_ratio(spec, actual, decision),
        _unknown_fields(spec, unknown),
        _configuration(desired, actual, decision),
    ]


def _published(spec: StreamSpec | None, main: MainFreshness | None) -> Iterator[CheckOutcome]:
    """Whether anything of a write-audit-publish stream is quarantined; the same outcome as when a run publishes.

    A run is asked for only where there is something to publish. Without this, what is quarantined for long would read
    as not evaluated.
    """
    if spec is None or spec.publish is None or main is None or (main.rows is None and not main.held):
        return
    figures: dict[str, float | int | str] = {} if main.rows is None else {"unpublished_rows": main.rows}
    if main.held:
        sentence = with_next_command(main.held, main.held_fix)
        yield CheckOutcome(PUBLISHED, False, sentence, f"held:{main.held}", figures=figures)
        return
    waits = f"{main.rows:,} rows wait to be published." if main.rows else "Main has all that the stream has landed."
    yield CheckOutcome(PUBLISHED, True, waits, "fine", figures=figures)


def with_next_command(sentence: str, fix: str | None) -> str:
    """A check's sentence, and the next command if there is one. A path, a setting or a name keeps its first letter."""
    first = sentence.partition(" ")[0].rstrip(",;:")
    sentence = sentence[:1].upper() + sentence[1:] if first.isalpha() else sentence
    sentence = sentence if sentence.endswith((".", "!", "?")) else f"{sentence}."
    return f"{sentence} Next: {fix}" if fix else sentence


def _driver_alive(desired: DesiredState, actual: ActualState, decision: Decision) -> CheckOutcome:
    beat = actual.heartbeat
    # One that works without the lease lands nothing.
    useful = not (actual.unheld and actual.unheld_for > UNHELD_SECONDS)
    lives = actual.driver_lives and actual.fresh and useful
    retrying = lives and beat is not None and beat.state == "retrying"
    figures: dict[str, float | int | str] = {"action": decision.action.value, "failures_in_a_row": decision.failures}
    if beat is not None:
        figures |= {
            "state": beat.state,
            "attempt": beat.attempt,
            "generation": beat.generation,
            "pid": beat.pid,
            "host": beat.host,
            "log": beat.log,
        }
        if beat.error is not None:
            figures["last_error"] = beat.error.message
            if beat.error.fix:
                figures["next"] = beat.error.fix
    launched = actual.launched_process
    if launched is not None and launched.remote:
        figures |= {"launcher": launched.launcher, "handle": launched.handle}
    silent = actual.driver_lives and not actual.fresh
    passed = lives or decision.action is Action.IDLE or (decision.action is Action.WAIT and not silent)
    # A first start is due at once, and no failure of anything.
    passed = passed or (decision.action is Action.START and beat is None and not decision.failures)
    # The state is as the operator wants it, yet nothing lands: the table must not read as kept up to date.
    held = passed and desired.control.mode != "running"
    sentence = f"{decision.sentence}{_whose_wish(desired)}" if held else decision.sentence
    sentence = with_next_command(sentence, decision.fix if held or retrying or not lives else None)
    code = f"{decision.action}:{beat.state if beat else ''}:{beat.attempt if beat else 0}:{lives}"
    passed = passed and not retrying and not held
    return CheckOutcome("driver_alive", passed, sentence, code, warn=retrying or held, figures=figures)


def _whose_wish(desired: DesiredState) -> str:
    control = desired.control
    by = f" by {control.by}" if control.by else ""
    reason = f" ({control.reason})" if control.reason else ""
    return f"; {control.mode}{by}{reason}" if by or reason else ""


def _batch_not_stalled(desired: DesiredState, actual: ActualState) -> CheckOutcome:
    name, beat = "batch_not_stalled", actual.heartbeat
    if beat is None or not actual.driver_lives:
        return CheckOutcome(name, True, "No driver runs.", "none")
    log = f"tail {beat.log}" if beat.log else None
    fix = f"{log}; then frazil restart {desired.stream}" if log else f"frazil restart {desired.stream}"
    if not actual.fresh:
        sentence = f"The driver has sent no heartbeat for more than {SILENT_SECONDS:.0f} s"
        return CheckOutcome(name, False, with_next_command(sentence, fix), "silent", at=beat.beat_wall)
    if stall := find_stall(beat, desired.stalled_after):
        sentence, figures = f"The driver {stall.sentence}", {"stalled_seconds": round(stall.seconds)}
        return CheckOutcome(
            name, False, with_next_command(sentence, fix), "stalled", figures=figures, at=beat.beat_wall
        )
    figures = {"batches": beat.work.batches}
    return CheckOutcome(name, True, "The driver gets on.", "fine", figures=figures, at=beat.beat_wall)


def _lag_within_slo(
    spec: StreamSpec | None,
    actual: ActualState,
    decision: Decision,
    lag: Lag | None,
    now: float,
    main: MainFreshness | None,
) -> CheckOutcome:
    name = "lag_within_slo"
    if lag is None:
        return CheckOutcome(name, True, "The lag has not been looked up yet.", "unknown")
    most = spec.slo.lag_records if spec else None
    longest, said_by = lag_time(spec)
    through = lag.judged_through(spec)
    behind = max(0.0, now - through) if through is not None else None
    figures: dict[str, float | int | str] = {}
    if lag.records is not None:
        figures["consumer_lag_records"] = lag.records
    if actual.heartbeat is not None and actual.driver_lives:
        figures["records_per_second"] = round(actual.heartbeat.work.recent.rate, 1)
    if behind is not None:
        figures["behind_seconds"] = round(behind)
    if most is not None:
        figures["allowed_records"] = most
    if longest is not None:
        figures |= {"allowed_seconds": round(longest.total_seconds()), "allowed_by": said_by}
    at = f"{datetime.fromtimestamp(lag.at, UTC):%H:%M:%S} UTC"
    unknown = f"how many records wait has not been known since {at}"
    waits = unknown if lag.records is None else f"{lag.records:,} records wait as of {at}"
    if lag.branch is not None:
        if lag.branch.unpublished is not None:
            figures["unpublished_rows"] = lag.branch.unpublished
        landed = lag.branch.watermark if by_event_time(spec) else lag.branch.valid_through
        if landed is not None:
            figures["branch_behind_seconds"] = round(max(0.0, now - landed))
        waits += f", and {lag.branch.unpublished:,} rows are not published" if lag.branch.unpublished else ""
    many = most is not None and lag.unread > most
    wrong = [f"{waits}; slo.lag_records allows {most:,}" if many else waits]
    late = False
    if longest is not None and behind is not None and behind > longest.total_seconds():
        late = True
        what = "its watermark" if by_event_time(spec) else "the table"
        what += ", as main has it," if lag.branch is not None else ""
        wrong.append(f"{what} is {behind:.0f} s behind; {longest.total_seconds():.0f} s are allowed ({said_by})")
    stream = spec.stream if spec else ""
    if decision.action is Action.HALT and not actual.driver_lives and lag.records:
        # Reported at once: nobody reads the records before a person acts.
        sentence = with_next_command(f"{waits}, and the stream is halted", decision.fix or f"frazil status {stream}")
        return CheckOutcome(name, False, sentence, "halted", figures=figures, at=lag.at)
    if many or late:
        # Nobody promised the default, so nobody has to get up for it.
        warn = said_by == DEFAULT and not many
        held_up = lag.branch is not None and lag.branch.unpublished
        fix = (main.held_fix if main else "") or f"frazil {'publish' if held_up else 'status'} {stream}"
        sentence = with_next_command("; ".join(wrong), fix)
        return CheckOutcome(name, False, sentence, f"behind:{many}:{late}", warn=warn, figures=figures, at=lag.at)
    if lag.records is None:
        error = actual.heartbeat.error if actual.heartbeat is not None and actual.driver_lives else None
        sentence = with_next_command(f"{waits}: {error.message}" if error else waits, error.fix if error else None)
        return CheckOutcome(name, False, sentence, "away", warn=True, figures=figures)
    return CheckOutcome(name, True, f"{waits}.", "fine", figures=figures, at=lag.at)


def lag_time(spec: StreamSpec | None) -> tuple[timedelta | None, str]:
    """Limit of the lag check, None for no limit; and the setting that it comes from.

    The default applies if neither `slo` nor `freshness` sets a limit. A stream with one-off runs only has no limit.
    """
    if spec is None:
        return None, ""
    if spec.slo.lag_time is not None:
        return spec.slo.lag_time, "slo.lag_time"
    if spec.freshness is not None:
        return spec.freshness.fail, "freshness.fail"
    if spec.slo.lag_records is not None or not spec.continuous:
        return None, ""
    return DEFAULT_LAG_TIME + longest_pause(spec.trigger) + (spec.source.max_delay or timedelta()), DEFAULT


def _dead_letter_ratio(spec: StreamSpec | None, actual: ActualState, decision: Decision) -> CheckOutcome:
    name = "dead_letter_ratio"
    recent = actual.heartbeat.work.recent if actual.heartbeat else None
    at = actual.heartbeat.beat_wall if actual.heartbeat else None
    stop = actual.heartbeat.error if actual.heartbeat and actual.heartbeat.state == "failed" else None
    if stop is not None and stop.failed and decision.action is Action.HALT:
        # The batch is not committed, so none of what the driver has counted says so.
        figures = {"dead_letter_ratio": round(stop.failed / stop.read, 6), "records": stop.read, "dead": stop.failed}
        text = with_next_command(f"{stop.failed:,} of {stop.read:,} records of the next batch failed", stop.fix)
        return CheckOutcome(name, False, text, "stopped", figures=figures, at=at)
    if recent is None or recent.read == 0:
        return CheckOutcome(name, True, "Nothing was read within the last minutes.", "fine")
    ratio, allowed = recent.dead / recent.read, allowed_ratio(spec)
    figures = {"dead_letter_ratio": round(ratio, 6), "allowed": allowed, "records": recent.read, "dead": recent.dead}
    sentence = f"{recent.dead} of the newest {recent.read} records became dead letters ({ratio:.2%}"
    if exceeds_ratio(recent.dead, recent.read, allowed, SURE_RECORDS):
        fix = f"frazil letters {spec.stream}" if spec else None
        text = with_next_command(f"{sentence}; {allowed:.2%} are allowed)", fix)
        return CheckOutcome(name, False, text, "above", figures=figures, at=at)
    return CheckOutcome(name, True, f"{sentence}).", "fine", figures=figures, at=at)


def _unknown_fields(spec: StreamSpec | None, known: UnknownFields | None) -> CheckOutcome:
    """The outcome for undeclared keys: new ones are reported at once, known ones only with all checks."""
    name = "unknown_fields"
    if spec is None or known is None or known.config != spec.config_hash:
        return CheckOutcome(name, True, "No record of this configuration had a key that is not declared.", "fine")
    left_out = known.unexpected(spec.slo)
    figures: dict[str, float | int | str] = {"unknown_fields": len(left_out), "records_landed": known.landed}
    if not left_out:
        return CheckOutcome(
            name, True, "The keys that are left out are left out on purpose.", "expected", figures=figures
        )
    figures |= {path: known.fields[path].records for path in left_out[:_SHOWN_FIELDS]}
    sentences = "; ".join(known.sentence(path) for path in left_out[:3])
    more = f"; and {len(left_out) - 3} more" if len(left_out) > 3 else ""
    since = datetime.fromtimestamp(known.since, UTC).isoformat(timespec="minutes")
    sentence = f"Keys that the schema does not declare are left out since {since}: {sentences}{more}"
    text = with_next_command(sentence, known.advice(left_out[0], spec.stream))
    return CheckOutcome(name, False, text, f"fields:{sorted(left_out)}", warn=True, figures=figures)


def _configuration(desired: DesiredState, actual: ActualState, decision: Decision) -> CheckOutcome:
    name = "configuration"
    beat = actual.heartbeat if actual.driver_lives else None
    if actual.problem:
        return CheckOutcome(name, False, with_next_command(actual.problem, actual.fix), "state")
    if desired.file in ("invalid", "unsure"):
        runs = f" Generation {beat.generation} runs on." if beat else ""
        fix = "frazil validate" if desired.file == "invalid" else None
        return CheckOutcome(
            name, False, with_next_command(f"{desired.problem.rstrip('.')}.{runs}", fix), f"file:{desired.problem}"
        )
    if desired.file == "none":
        return CheckOutcome(name, False, "No file in streams/ names the stream.", "none", warn=True)
    figures: dict[str, float | int | str] = {"generation": desired.generation or ""}
    if beat is not None and desired.generation != beat.generation:
        figures["running"] = beat.generation
        sentence = f"Generation {beat.generation} runs, its file has {desired.generation}; {decision.sentence}."
        return CheckOutcome(name, False, sentence, f"rolls:{desired.generation}", warn=True, figures=figures)
    return CheckOutcome(name, True, "Its file is valid, and it is what runs.", "fine", figures=figures)


def settings_outcome(problem: FrazilError) -> CheckOutcome:
    """The outcome for every stream while its state cannot be found."""
    sentence = with_next_command(f"The settings cannot be read: {problem.message.rstrip('.')}", problem.fix)
    return CheckOutcome("configuration", False, sentence, f"settings:{problem.message}")
