"""Tolerance for failed records: whether a batch has too many, decided on the counts before anything is committed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from jobs.commit.errors import ToleranceError
from jobs.commit.stamp_fields import Counts
from jobs.formats.problems import LATE, UNROUTED
from jobs.spec.error_handling import DEFAULT_STOP, MOST_BY_CHANCE, StopAbove, exceeds_ratio
from jobs.spec.models import StreamSpec
from jobs.spec.units import format_duration
from jobs.task.tally import Example, Tally


class WindowToleranceError(ToleranceError):
    """Too many records failed within the window of several batches."""


def check_tolerance(
    spec: StreamSpec, counts: Counts, tallies: Sequence[Tally], earlier: Counts | None = None, *, proved: bool = True
) -> None:
    """Stop the stream if its spec does not allow this many failed records.

    Messages name records by their coordinates; what stands in them is in the dead letters only.

    Args:
        spec: The stream.
        counts: Of the batch; late records among its dead letters are not counted.
        tallies: Of its slices.
        earlier: Of the batches before it in the window, if there is one.
        proved: Whether the stream has landed a record before.

    Raises:
        ToleranceError: Naming a failed record by its coordinates, or the three most frequent reasons with examples.
    """
    # A late record is none that failed: the stream's file says what becomes of it.
    late = sum(tally.reasons.get(LATE, 0) for tally in tallies)
    counts = replace(counts, dead=counts.dead - late)
    if not counts.dead:
        return
    batch = {"failed": counts.dead, "read": counts.read}
    if spec.errors.tolerance == "none":
        first = first_failed(tallies)
        raise ToleranceError(
            f"stream {spec.stream} tolerates no failed record, and {counts.dead} of {counts.read} failed; "
            f"{_described(first)}. Nothing of the batch is committed.",
            fix="correct the producer or decode.schema, or set errors.tolerance: data",
            **batch,
        )
    if spec.route is not None and spec.route.unmatched == "fail":
        unrouted = sum(tally.reasons.get(UNROUTED, 0) for tally in tallies)
        if unrouted:
            raise ToleranceError(
                f"stream {spec.stream}: route.unmatched is fail, and no table of the route takes {unrouted} of "
                f"{counts.read} records; {_described(_examples(tallies)[UNROUTED])}. "
                "Nothing of the batch is committed.",
                fix=f"add a table for them to route.tables in streams/{spec.stream}.yaml, or say route.unmatched: "
                "dead_letter",
                **batch,
            )
    unexpected = [tally.unexpected for tally in tallies if tally.unexpected]
    if unexpected and spec.errors.tolerance != "all":
        raise ToleranceError(
            f"stream {spec.stream}: frazil itself fails at a record; {_described(unexpected[0])}. "
            "Nothing of the batch is committed.",
            fix="report the fault with that record, and set errors.tolerance: all to keep it as a dead letter",
            **batch,
        )
    unset = ", or stop_above: off for no limit" if spec.errors.stop_above == DEFAULT_STOP else ""
    for error, sentence, key in _exceeded(spec, counts, earlier or Counts(), proved):
        raise error(
            f"stream {spec.stream}: {sentence}. Nothing of the batch is committed. "
            f"Most frequent in the batch:{_frequent(tallies)}",
            fix=f"correct the producer, or decode.schema in streams/{spec.stream}.yaml, or raise {key} there{unset}; "
            f"then {'frazil start' if spec.continuous else 'frazil run'} {spec.stream}",
            **batch,
        )


def first_failed(tallies: Sequence[Tally]) -> Example:
    """The record that a stream without tolerance names when it stops."""
    return min(_examples(tallies).values(), key=lambda example: (example.topic, example.partition, example.offset))


def _exceeded(
    spec: StreamSpec, batch: Counts, earlier: Counts, proved: bool
) -> Iterator[tuple[type[ToleranceError], str, str]]:
    """The limits that are exceeded: the error, a sentence, and the key to raise."""
    limit = spec.errors.stop_above
    if limit is None:
        return
    first = "" if proved else ", and the stream has landed none before"
    of_batch = f"{batch.dead} of {batch.read} records of a batch failed{first}, more than"
    key = "errors.stop_above"
    enough = limit.min_records if proved else limit.first_min_records or limit.min_records
    if _is_above(limit, limit.ratio, batch, enough):
        yield ToleranceError, f"{of_batch} {key}.ratio = {limit.ratio}", f"{key}.ratio"
    if limit.count is not None and batch.dead > limit.count:
        yield ToleranceError, f"{of_batch} {key}.count = {limit.count}", f"{key}.count"
    if (window := limit.window) is None:
        return
    total = batch + earlier
    of_window = f"{total.dead} of {total.read} records within {format_duration(window.of)} failed, more than"
    if _is_above(limit, window.ratio, total, limit.min_records):
        yield WindowToleranceError, f"{of_window} {key}.window.ratio = {window.ratio}", f"{key}.window.ratio"
    if window.count is not None and total.dead > window.count:
        yield WindowToleranceError, f"{of_window} {key}.window.count = {window.count}", f"{key}.window.count"


def _is_above(limit: StopAbove, ratio: float | None, counts: Counts, enough: int | None) -> bool:
    if ratio is None or (limit.min_records is not None and counts.read < (enough or 0)):
        return False
    return exceeds_ratio(counts.dead, counts.read, ratio, enough or MOST_BY_CHANCE)


def _frequent(tallies: Sequence[Tally]) -> str:
    """The three most frequent reasons, a line each, with an example."""
    reasons: dict[str, int] = {}
    for tally in tallies:
        for reason, count in tally.reasons.items():
            if reason != LATE:
                reasons[reason] = reasons.get(reason, 0) + count
    examples = _examples(tallies)
    frequent = sorted(reasons, key=lambda reason: (-reasons[reason], reason))[:3]
    return "".join(f"\n  {reasons[reason]} × {reason}: {_described(examples[reason])}" for reason in frequent)


def _examples(tallies: Sequence[Tally]) -> dict[str, Example]:
    examples: dict[str, Example] = {}
    for tally in tallies:
        for reason, example in tally.examples.items():
            if reason != LATE:
                examples.setdefault(reason, example)
    return examples


def _described(example: Example) -> str:
    field = f", field {example.field}" if example.field else ""
    detail = f" ({example.detail})" if example.detail else ""
    needs = f": {example.needs}" if example.needs else ""
    return (
        f"topic {example.topic}, partition {example.partition}, offset {example.offset}: "
        f"{example.error_class} in {example.stage}{detail}{field}{needs}"
    )
