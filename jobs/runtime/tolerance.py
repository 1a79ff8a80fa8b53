"""Whether a batch's failed records are too many: decided on the counts, before anything is committed."""

from __future__ import annotations

from collections.abc import Sequence

from jobs.commit.errors import ToleranceError
from jobs.commit.stamp_parts import Counts
from jobs.runtime.slice_plan import Example, Tally
from jobs.spec.models import StreamSpec


def check_tolerance(spec: StreamSpec, counts: Counts, tallies: Sequence[Tally]) -> None:
    """Stop the stream if its spec does not allow this many failed records.

    Raises:
        ToleranceError: Naming a failed record by its coordinates, or the three most frequent reasons with examples.
    """
    if not counts.dead:
        return
    if spec.errors.tolerance == "none":
        first = min(_examples(tallies).values(), key=lambda example: (example.topic, example.partition, example.offset))
        raise ToleranceError(
            f"stream {spec.stream} tolerates no failed record, and {counts.dead} of {counts.read} failed; "
            f"{_described(first)}. Nothing of the batch is committed.",
            fix="correct the producer or decode.schema, or set errors.tolerance: data",
        )
    limit = spec.errors.stop_above
    if limit and counts.read >= limit.min_records and counts.dead > limit.ratio * counts.read:
        reasons: dict[str, int] = {}
        for tally in tallies:
            for reason, count in tally.reasons.items():
                reasons[reason] = reasons.get(reason, 0) + count
        examples = _examples(tallies)
        frequent = sorted(reasons, key=lambda reason: (-reasons[reason], reason))[:3]
        named = "".join(f"\n  {reasons[reason]} × {reason}: {_described(examples[reason])}" for reason in frequent)
        raise ToleranceError(
            f"stream {spec.stream}: {counts.dead} of {counts.read} records of a batch failed, more than "
            f"errors.stop_above.ratio = {limit.ratio}. Nothing of the batch is committed. Most frequent:{named}",
            fix=f"correct the producer or decode.schema in streams/{spec.stream}.yaml, or raise the ratio",
        )


def _examples(tallies: Sequence[Tally]) -> dict[str, Example]:
    examples: dict[str, Example] = {}
    for tally in tallies:
        for reason, example in tally.examples.items():
            examples.setdefault(reason, example)
    return examples


def _described(example: Example) -> str:
    return (
        f"topic {example.topic}, partition {example.partition}, offset {example.offset}: "
        f"{example.error_class} in {example.stage}: {example.message}"
    )
