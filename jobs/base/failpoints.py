"""Failpoints: named points between durable effects where `frazil certify` or a test kills or stops the process.

Without `FRAZIL_STEPS` a failpoint costs a look at an empty dictionary. `FRAZIL_STEPS='after_anchor_commit=kill'` sends
SIGKILL to the process on its first pass of that failpoint, `=stop` sends SIGSTOP, and `@3` after the action waits for
the third pass.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from dataclasses import dataclass
from typing import Literal

from jobs.base.errors import FrazilError

Kind = Literal[
    "take over",
    "recovery",
    "commit",
    "dead letters",
    "schema",
    "opening",
    "stop",
    "roll",
    "keeper",
    "executor",
    "group",
    "reset",
    "replay",
    "return",
    "outbox",
    "maintenance",
    "backfill",
    "offset backfill",
    "branch",
    "publish",
    "check",
    "route",
    "followers",
    "named tables",
    "dropped tables",
    "parking",
    "event time",
    "tag",
    "mirror",
    "sink takeover",
    "plan",
]


@dataclass(frozen=True, slots=True)
class Step:
    """A failpoint.

    Attributes:
        kind: The part of the protocol that it belongs to.
        holds: State that must hold there, and what follows for the next process.
        process: Process that dies there: the stream's driver, its watchdog (`keeper`), an action of an operator or of
            the supervisor, or an executor of the driver's application on a cluster.
    """

    kind: Kind
    holds: str
    process: Literal["driver", "action", "keeper", "executor"] = "driver"


STEPS: dict[str, Step] = {
    "before_lease": Step(
        "take over", "The tables were looked at; lease and tables are as the driver before left them."
    ),
    "after_opening_change": Step(
        "opening", "The table has what the stream's file makes of its records, and no lease is taken; it stays so."
    ),
    "before_claim": Step("take over", "The lease is taken, no table knows it; the driver before may still commit."),
    "inside_claim": Step("take over", "A claim's manifests are written, and nothing refers to them."),
    "after_former_branch_claim": Step(
        "branch", "The branch that the stream wrote before is claimed, the one it is to write is not."
    ),
    "after_anchor_claim": Step("take over", "The table is claimed, the dead letters are not; no record has moved."),
    "before_dropped_tables": Step(
        "dropped tables",
        "Dynamic tables were dropped, and the coordinator still names them; no record has moved.",
    ),
    "after_dropped_tables": Step(
        "dropped tables", "The coordinator no longer names the dropped tables; a record that names one recreates it."
    ),
    "before_parking": Step(
        "parking",
        "A table takes no commits, and the coordinator does not record that yet; the next driver suspends it.",
    ),
    "between_parking": Step(
        "parking",
        "The table's placeholder begins among the dead letters; the coordinator still names the table itself.",
    ),
    "after_parking": Step(
        "parking", "The coordinator records that the table is suspended; records that it may lack become dead letters."
    ),
    "after_unpark_claim": Step(
        "parking", "The table is claimed and still counts as suspended; the same answer is given again.", "action"
    ),
    "after_claims": Step("take over", "No driver of an older epoch can commit any more; no record has moved."),
    "before_recovery": Step("recovery", "A pending record was found; nothing was committed from it here."),
    "after_recovery_commit": Step("recovery", "One target got the batch from the record; the others still can."),
    "before_record_goes": Step("recovery", "All targets have the record's batch; it still exists, and is found again."),
    "after_recovery": Step(
        "recovery", "All targets have the same batches and no record exists; reading has not begun."
    ),
    "after_tasks": Step("commit", "Data files exist and are referenced nowhere; the batch runs again."),
    "before_schema_commit": Step(
        "schema", "Data files exist that lack what the table is to get; the schema is as it was, the batch runs again."
    ),
    "after_schema_commit": Step(
        "schema", "The table has its new schema and nothing of the batch, which runs again; the old files are orphans."
    ),
    "after_plan_alteration": Step(
        "plan",
        "A table matches the stream's file, and the driver still runs as before; the same command continues.",
        "action",
    ),
    "before_follower_change": Step(
        "followers",
        "The main table has columns that a dependent one lacks; it gets them before the next tasks run.",
    ),
    "after_follower_change": Step(
        "followers", "One dependent table has the main table's columns, others may lack them; they get them as well."
    ),
    "before_new_tables": Step(
        "named tables", "Values name tables that do not exist, and nothing of the batch is written; it runs again."
    ),
    "after_new_tables": Step(
        "named tables", "The tables exist, and are no targets yet; the batch runs again, and takes them as they are."
    ),
    "before_commit": Step(
        "commit", "The pending record is durable, no target has the batch; it is committed from the record."
    ),
    "after_lease_check": Step(
        "commit", "The driver believes it holds the lease; if it does not, the tables refuse it."
    ),
    "inside_anchor_commit": Step("commit", "The manifests for the table are written; the catalog has not been asked."),
    "after_anchor_commit": Step(
        "dead letters", "The table has the batch, the dead letters do not; they get it from the record."
    ),
    "after_table_commit": Step(
        "route", "A further table of the stream has the batch, others do not; they get it from the record."
    ),
    "inside_dead_letters_commit": Step(
        "dead letters", "The manifests for the dead letters are written; the table has the batch already."
    ),
    "after_commits": Step("commit", "All targets have the batch and its record still exists; there is nothing to do."),
    "before_spark_notes": Step(
        "commit", "All targets have the batch, Spark has not recorded it; it is never read again."
    ),
    "after_stop_asked": Step("stop", "The driver knows that it is to end; a batch may be under way."),
    "before_release": Step("stop", "The query has ended and the lease is held; it counts no more with its process."),
    "before_last_word": Step("stop", "The lease is given back; how the driver ended is not reported."),
    "after_wish": Step("roll", "The desired state is written; the running driver ends by itself.", "action"),
    "between_drivers": Step("roll", "The old driver has ended and no new one is launched.", "action"),
    "after_launch_note": Step("roll", "The launch is recorded, and no process was started for it.", "action"),
    "before_first_beat": Step(
        "roll", "The new driver is started and recorded; it goes on without the action.", "action"
    ),
    "before_taken_up": Step(
        "group", "A stream's launch is recorded, and its group's driver has not taken it up; the next one does."
    ),
    "keeper_saw_death": Step(
        "keeper",
        "The driver is dead, and nothing was done about it; the next watchdog or supervisor starts another.",
        "keeper",
    ),
    "keeper_before_launch": Step(
        "keeper", "The control lock is held and nothing is written; the lock goes with its process.", "keeper"
    ),
    "keeper_after_launch": Step(
        "keeper",
        "The next driver is started and recorded; it goes on alone, and starts a watchdog of its own.",
        "keeper",
    ),
    "inside_tasks": Step(
        "executor",
        (
            "A task has written its files and not reported them; Spark gives it to another executor, and the "
            "files are orphans."
        ),
        "executor",
    ),
    "after_reset_claims": Step(
        "reset", "The tables are claimed for a reset; the old positions are in force.", "action"
    ),
    "after_reset_stamp": Step(
        "reset", "A stamp of the reset is committed; until the last one is, the old positions are in force.", "action"
    ),
    "before_backfill_pass": Step(
        "offset backfill", "A backfill is open; its positions are where the pass before ended.", "action"
    ),
    "after_backfill_pass": Step(
        "offset backfill", "A backfill is at the beginning of a pass; nothing of it is landed.", "action"
    ),
    "replay_before_claim": Step(
        "replay", "The lease of the replays is taken, no table knows it; the replay before may still commit.", "action"
    ),
    "replay_after_claims": Step(
        "replay", "No earlier replay can commit any more; what one left is still to be finished.", "action"
    ),
    "replay_before_recovery": Step(
        "replay", "A record of an earlier replay was found; whether its batch landed is not looked up yet.", "action"
    ),
    "replay_after_files": Step(
        "replay", "Data files exist and are referenced nowhere; the dead letters are unchanged.", "action"
    ),
    "replay_before_commit": Step(
        "replay",
        "The record names the batch's dead letters and files; the table lacks the batch, and never gets it.",
        "action",
    ),
    "replay_between_tables": Step(
        "replay",
        "The main table has the batch, and perhaps others; the next table of its route lacks it.",
        "action",
    ),
    "replay_after_commit": Step(
        "replay", "The table has the batch, its dead letters are not marked; they are marked from the record.", "action"
    ),
    "inside_life_change": Step(
        "replay",
        "The dead letters are rewritten, and nothing refers to the new files; the catalog has not been asked.",
        "action",
    ),
    "replay_after_life": Step(
        "replay", "Table and dead letters agree, the record still exists; there is nothing to do.", "action"
    ),
    "return_before_produce": Step(
        "return",
        "The dead letters that go back are recorded, the topic has none of them; they are selected again.",
        "action",
    ),
    "return_before_commit": Step(
        "return", "The topic holds dead letters of an open transaction; the next return aborts it.", "action"
    ),
    "return_after_commit": Step(
        "return",
        "The topic has the dead letters, and they are not marked; Kafka's group shows it, and the note names them.",
        "action",
    ),
    "return_after_life": Step(
        "return", "Topic and dead letters agree, the note still exists; there is nothing to do.", "action"
    ),
    "outbox_before_produce": Step(
        "outbox",
        ("The table has dead letters that the topic lacks, and Kafka's group shows it; they are published again."),
    ),
    "outbox_before_commit": Step(
        "outbox", "The topic holds dead letters of an open transaction; the next publisher aborts it."
    ),
    "outbox_after_commit": Step(
        "outbox",
        (
            "Dead letters and position are committed in Kafka, and recorded nowhere else; the group is asked at "
            "the start."
        ),
    ),
    "maintain_after_lock": Step(
        "maintenance",
        "The table's lock is held, nothing is changed; the lock counts no more with its process.",
        "action",
    ),
    "maintain_before_action": Step(
        "maintenance", "The results of the run's earlier actions stay; this one has not begun.", "action"
    ),
    "maintain_after_action": Step(
        "maintenance",
        "The table has the action's result, and no run has recorded it; the next run measures again.",
        "action",
    ),
    "maintain_before_expiry": Step(
        "maintenance", "The snapshots to keep are known, and recorded in the ledger; no snapshot has expired.", "action"
    ),
    "maintain_before_removal": Step(
        "maintenance", "Orphan files were found, and not one is deleted; the next run looks for them again.", "action"
    ),
    "backfill_before_commit": Step(
        "backfill",
        "Data files with the column filled exist and are referenced nowhere; the rows are as they were.",
        "action",
    ),
    "backfill_after_commit": Step(
        "backfill", "Some files have the column filled, the others have it in `_extra`; the next run goes on.", "action"
    ),
    "publish_before_verdict": Step(
        "publish", "What the branch has that main lacks is known, and not judged; nothing is written.", "action"
    ),
    "publish_after_verdict": Step(
        "publish",
        "The unpublished snapshots are checked, and the verdict is not reported; they are checked again.",
        "action",
    ),
    "inside_hold": Step(
        "publish",
        (
            "The unpublished snapshots fail their contract, or are of other streams only; the catalog has not "
            "been asked to record it."
        ),
        "action",
    ),
    "publish_after_hold": Step(
        "publish", "The table names the quarantined snapshots and the reasons; main has none of them.", "action"
    ),
    "publish_before_commit": Step(
        "publish", "What the branch has that main lacks is known; nothing is written.", "action"
    ),
    "inside_publish": Step("publish", "The manifests for main are written; the catalog has not been asked.", "action"),
    "publish_after_commit": Step(
        "publish",
        "main has the snapshots, and records it; the result is not reported. They are never published again.",
        "action",
    ),
    "remake_before_commit": Step(
        "publish", "What the branch becomes is known, nothing is written; the branch is as it was.", "action"
    ),
    "inside_remake": Step(
        "publish", "The manifests of the rebased branch are written, and nothing refers to them.", "action"
    ),
    "remake_after_commit": Step(
        "publish",
        "The branch is rebased, and that is not reported; the next run finds nothing to do.",
        "action",
    ),
    "mirror_before_merge": Step(
        "mirror",
        "The mirror has a branch for this attempt, and nothing is merged there; it goes at the next opening.",
        "action",
    ),
    "mirror_after_merge": Step(
        "mirror", "The attempt's branch has the merge, main does not; it is dropped, and merged again.", "action"
    ),
    "mirror_before_publish": Step(
        "mirror", "The manifests that make the merge main's are written; the catalog has not been asked.", "action"
    ),
    "mirror_after_publish": Step(
        "mirror",
        "main has the merge, and records how far; the result is not reported. It is never merged again.",
        "action",
    ),
    "discard_after_mark": Step(
        "publish",
        (
            "main records what is being discarded, and no dead letter is written; nothing is published until "
            "that is finished."
        ),
        "action",
    ),
    "discard_before_letters": Step(
        "publish", "Files with the dead letters exist and are referenced nowhere; they are written again.", "action"
    ),
    "discard_after_letters": Step(
        "publish",
        "The dead letters are committed, main's position is not past them yet; they are found there.",
        "action",
    ),
    "discard_after_commit": Step(
        "publish",
        ("main's position is past the rows, and has none of them; the result is not reported. There is nothing to do."),
        "action",
    ),
    "answer_before_commit": Step(
        "publish", "An operator's answer to a rollback is decided, and not committed.", "action"
    ),
    "inside_answer": Step("publish", "The manifests of an answer are written; the catalog was not asked.", "action"),
    "answer_after_commit": Step("publish", "The table has the answer; nothing is to be answered any more.", "action"),
    "idle_before_stamp": Step("event time", "A quiet stream's watermark is to move on; no table records it."),
    "idle_after_stamp": Step("event time", "The table has the watermark; the next driver reads it there."),
    "closed_before_report": Step(
        "event time", "The closed partitions are known, and not reported to Dagster.", "action"
    ),
    "tag_before_commit": Step("tag", "Which snapshot gets, or loses, the name is known; nothing is changed.", "action"),
    "tag_after_commit": Step("tag", "The table has it, with author and reason; the result is not reported.", "action"),
    "check_before_record": Step(
        "check",
        "Rows are checked and the history has it, how far is not recorded; the next check looks at them again.",
        "action",
    ),
    "takeover_before_files": Step(
        "sink takeover", "The sink has stopped and its position is known; no table is changed.", "action"
    ),
    "takeover_after_files": Step(
        "sink takeover",
        "A table has the files that the sink had announced, with the sink's own key; others may lack theirs.",
        "action",
    ),
    "takeover_before_stamp": Step(
        "sink takeover", "The sink's tables are complete and tagged; the stream has no position yet.", "action"
    ),
    "takeover_after_claim": Step(
        "sink takeover",
        "The stream's tables are claimed at the sink's offsets, without where they come from.",
        "action",
    ),
    "takeover_after_stamp": Step(
        "sink takeover", "The stream starts where the sink ended; nothing is reported yet.", "action"
    ),
    "hand_back_after_floor": Step(
        "sink takeover", "A table has the sink's floor; the group is at the sink's end.", "action"
    ),
    "hand_back_after_offsets": Step(
        "sink takeover", "The group has the stream's positions; nothing is reported yet.", "action"
    ),
    "maintain_before_release": Step(
        "maintenance", "All of it is done and noted; the lock counts no more with its process.", "action"
    ),
}


@dataclass(slots=True)
class _Armed:
    signal: signal.Signals
    passes_left: int


_SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}


def _armed(text: str) -> dict[str, _Armed]:
    armed: dict[str, _Armed] = {}
    for part in filter(None, text.split(",")):
        name, _, action = part.partition("=")
        action, _, count = action.partition("@")
        if name not in STEPS or action not in _SIGNALS:
            known = ", ".join(STEPS)
            raise FrazilError(f"FRAZIL_STEPS: {part!r} is not STEP=kill or STEP=stop, with STEP one of {known}")
        armed[name] = _Armed(_SIGNALS[action], int(count or 1))
    return armed


# Several threads commit to tables.
_GUARD = threading.Lock()
_ARMED = _armed(os.environ.get("FRAZIL_STEPS", ""))


def step(name: str) -> None:
    """Pass a failpoint; `STEPS` says what must hold there."""
    if _ARMED and (strikes := _come_to(name)) is not None:
        os.kill(os.getpid(), strikes)


def dies_elsewhere(name: str) -> bool:
    """Pass a failpoint for a process on another machine; True if that process has to be killed there."""
    return bool(_ARMED) and _come_to(name) is signal.SIGKILL


def _come_to(name: str) -> signal.Signals | None:
    """Return and print the signal that is armed for this pass of a failpoint; None for any other pass."""
    armed = _ARMED.get(name)
    if armed is None:
        return None
    with _GUARD:
        armed.passes_left -= 1
        come = armed.passes_left == 0
    if not come:
        return None
    print(f"step {name}: {armed.signal.name}", file=sys.stderr, flush=True)
    return armed.signal
