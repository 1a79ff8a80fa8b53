"""Sensor `frazil_halts`: a run that fails when streams halt, and again twice a day while they are halted."""

# No `from __future__ import annotations` here: Dagster looks at the parameters' types as they are.

import time

import dagster as dg
import msgspec

from jobs.clients.state_store.stream_folder import state_store
from jobs.config.documents.validation import SpecError
from orchestration.jobs.halted import AGAIN_SECONDS, JOB, HaltedStream, halted_run
from orchestration.reconcile.cursor import StreamsCursor, checksum, due
from orchestration.reconcile.supervisor_heartbeat import HALTED, SupervisorHeartbeat, read_supervisor_heartbeat
from resources.deployment_resource import DeploymentResource

SENSOR = "frazil_halts"
INTERVAL_SECONDS = 30
_MOST_SENTENCE = 1000


class KnownHalt(msgspec.Struct, omit_defaults=True):
    """State that the sensor keeps of a halted stream.

    Attributes:
        code: A checksum of what a person has to do.
        at: When a run was requested; seconds since 1970, 0 before the first.
    """

    code: int = msgspec.field(default=0, name="c")
    at: int = msgspec.field(default=0, name="a")


class HaltsCursor(StreamsCursor[KnownHalt]):
    """The cursor of the sensor. Where it is lost, streams that are halted are reported once more."""


def new_halts(supervisor: SupervisorHeartbeat | None, memory: HaltsCursor, now: float) -> list[HaltedStream]:
    """The halted streams that a run has to report now; the memory notes them.

    A halt is reported once two looks in a row have seen it. A store that did not answer for a moment, or a folder that
    was being replaced, would otherwise report every stream as halted.

    Args:
        supervisor: The reconcile sensor's newest tick; None before the first.
        now: Seconds since 1970.
    """
    if supervisor is None or supervisor.is_silent(now):
        # Nothing is known of any stream, so nothing is forgotten either.
        return []
    halted = {stream: each for stream, each in sorted(supervisor.decisions.items()) if each.get(HALTED)}
    memory.keep_only(halted)
    found: list[HaltedStream] = []
    for stream, each in halted.items():
        # The sentence may hold a time that passes.
        code = checksum(f"halted {each['fix']}")
        known = memory.streams.get(stream)
        if known is None or known.code != code:
            memory.streams[stream] = KnownHalt(code)
            continue
        if not due(now, known.at, AGAIN_SECONDS):
            continue
        memory.streams[stream] = KnownHalt(code, int(now))
        found.append(HaltedStream(stream=stream, sentence=each["sentence"][:_MOST_SENTENCE], fix=each["fix"]))
    return found


def _why_none(memory: HaltsCursor) -> str:
    before = [stream for stream, known in memory.streams.items() if known.at]
    new = [stream for stream, known in memory.streams.items() if not known.at]
    lines = [f"Halted: {', '.join(before)}; reported before."] if before else []
    lines += [f"Halted: {', '.join(new)}; reported by the next tick if it lasts."] if new else []
    return "\n".join(lines) or "No stream is halted."


def halts_sensor() -> dg.SensorDefinition:
    """The sensor; it reads one document, and asks for one run for all streams that have halted."""

    @dg.sensor(
        name=SENSOR,
        job_name=JOB,
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=(
            "Starts a run of `frazil_halted`, which fails, when streams halt: their driver has ended, and none is "
            "started before a person acts. So Dagster's first page and alerts on failed runs show it. It repeats "
            "twice a day while they are halted. Switch it off if another alert reports halts."
        ),
    )
    def frazil_halts(context: dg.SensorEvaluationContext, deployment: DeploymentResource) -> dg.SensorResult:
        memory, now = HaltsCursor.from_cursor(context.cursor), time.time()
        try:
            supervisor = read_supervisor_heartbeat(state_store(deployment.settings()))
        except SpecError as problem:
            return dg.SensorResult(skip_reason=problem.message)
        found = new_halts(supervisor, memory, now)
        return dg.SensorResult(
            run_requests=[halted_run(found, now)] if found else [],
            skip_reason=None if found else _why_none(memory),
            cursor=memory.to_cursor(),
        )

    return frazil_halts
