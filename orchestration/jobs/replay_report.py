"""A replay as people and Dagster are told of it: numbers, reasons and coordinates, never a value."""

from __future__ import annotations

from typing import Any

import dagster as dg

from jobs.replay.result import Reason, ReplayResult


def replay_sentences(result: ReplayResult) -> list[str]:
    """What a replay came to, and what next."""
    stream = result.stream
    if not result.selected and not result.unreadable:
        there_is = result.there_is.sentence() if result.there_is else "others"
        return [f"{stream}: no letter fits the selection; nothing to do. There is: {there_is}"]
    if result.dry_run:
        first = f"{stream}: of {result.selected:,} letters {result.replayed:,} would come back; nothing was changed"
    else:
        first = f"{stream}: {result.replayed:,} of {result.selected:,} letters came back ({result.replay})"
    told = [first]
    if result.standing:
        told.append(f"{result.standing:,} whose record stands in the table already")
    told += [f"{each.count:,} × {each.error_class} in {each.stage}, such as {place(each)}" for each in result.reasons]
    if result.parked:
        told.append(f"{result.parked:,} of them are parked now, and are only tried again if the state is asked for")
    return [*told, *result.problems]


def place(reason: Reason) -> str:
    """Where the example of a reason is."""
    topic, partition, offset = reason.example
    return f"topic {topic}, partition {partition}, offset {offset}"


def replay_metadata(result: ReplayResult) -> dict[str, Any]:
    """A replay's result; numbers are letters, each of them there every time, so that they plot."""
    metadata: dict[str, Any] = {
        "dry_run": result.dry_run,
        "result": replay_sentences(result)[0],
        "letters_selected": result.selected,
        "letters_landed": result.replayed,
        "letters_standing": result.standing,
        "letters_failed_again": result.failed_again,
        "letters_parked": result.parked,
        "letters_unreadable": result.unreadable,
        "duration_s": round(result.seconds, 3),
        "letters_per_second": round(result.selected / result.seconds) if result.seconds else 0,
    }
    if result.replay:
        metadata["replay"] = result.replay
    if result.reasons:
        metadata["failed_by_reason"] = dg.MetadataValue.table([dg.TableRecord(row) for row in _rows(result)])
    if result.snapshots:
        # As text: a snapshot id is greater than what JavaScript can count to.
        metadata["snapshot_id"] = str(result.snapshots[-1])
        metadata["snapshots"] = len(result.snapshots)
    if result.correction:
        metadata["correction"] = dg.MetadataValue.md(f"```yaml\n{result.correction.rstrip()}\n```")
    if result.problems:
        metadata["problems"] = "\n".join(result.problems)
    if result.dry_run and result.replayed:
        metadata["next"] = "launch it again with dry_run: false"
    elif result.failed:
        metadata["next"] = f"frazil letters {result.stream}"
    return metadata


def _rows(result: ReplayResult) -> list[dict[str, Any]]:
    return [
        {"reason": each.error_class, "stage": each.stage, "letters": each.count, "such_as": place(each)}
        for each in result.reasons
    ]
