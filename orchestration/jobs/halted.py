"""Job `frazil_halted`: a run that fails when streams halt, so that Dagster's first page and its alerts show it."""

# No `from __future__ import annotations` here: Dagster looks at the parameters' types as they are.

from collections.abc import Sequence

import dagster as dg
from pydantic import Field

from orchestration.jobs.runs import MAX_RUNTIME_TAG, run_config

JOB = "frazil_halted"
OP = "halted"
# Dagster's first page shows the runs of twelve hours; a halted stream is to have one among them.
AGAIN_SECONDS = 11 * 3600


class HaltedStream(dg.Config):
    """A stream that waits for a person."""

    stream: str = Field(description="The stream's id, as in its file.")
    sentence: str = Field(description="Why it is halted.")
    fix: str = Field(default="", description="The next command.")


class HaltedConfig(dg.Config):
    """The streams that have halted."""

    streams: list[HaltedStream] = Field(description="Those that this run reports.")


@dg.op(name=OP, description="Fails with the reason and the next command of each stream that has halted.")
def halted_op(context: dg.OpExecutionContext, config: HaltedConfig) -> None:
    """Fail with what there is to say of the streams."""
    lines = [_line(each) for each in config.streams]
    for line in lines:
        context.log.error(line)
    names = ", ".join(each.stream for each in config.streams)
    raise dg.Failure(
        description="\n".join(lines),
        metadata={
            "streams": names,
            "next": dg.MetadataValue.md("\n".join(f"- `{each.fix}`" for each in config.streams if each.fix) or "–"),
        },
        allow_retries=False,
    )


def _line(halted: HaltedStream) -> str:
    sentence = halted.sentence.rstrip(".")
    return f"Stream {halted.stream} is halted: {sentence}." + (f" Next: {halted.fix}" if halted.fix else "")


@dg.job(
    name=JOB,
    executor_def=dg.in_process_executor,
    tags={"dagster/max_retries": "0", MAX_RUNTIME_TAG: "300"},
    description="Fails once when streams halt, and again twice a day while they are, with why and the next command. "
    "The sensor `frazil_halts` asks for it; it changes nothing. An alert on failed runs is an alert on halted streams.",
)
def halted_job() -> None:
    """See `halted_op`."""
    halted_op()


def halted_run(streams: Sequence[HaltedStream], now: float) -> dg.RunRequest:
    """The request for the run that reports halted streams.

    Args:
        now: Seconds since 1970.
    """
    return dg.RunRequest(
        run_key=f"halted:{','.join(each.stream for each in streams)[:200]}:{now:.0f}",
        run_config=run_config(OP, HaltedConfig(streams=[*streams])),
        tags={"frazil/halted": ", ".join(each.stream for each in streams)[:200]},
    )
