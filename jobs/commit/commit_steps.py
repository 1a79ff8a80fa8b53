"""Steps inside a commit: where a process can be killed once the manifests are written, and the catalog is not asked."""

from __future__ import annotations

from jobs.commit.operations import Append, Operation, PublishBranch, RemakeBranch, ReplaceFiles
from jobs.commit.stamps import Stamp
from jobs.steps import step


def pass_written(operation: Operation, stamp: Stamp | None) -> None:
    """Pass the step of a commit whose manifests are written."""
    if isinstance(operation, ReplaceFiles):
        step("inside_life_change")
    elif isinstance(operation, RemakeBranch):
        step("inside_remake")
    elif isinstance(operation, PublishBranch):
        step("mirror_before_publish")
    elif stamp and stamp.kind == "claim":
        step("inside_claim")
    elif stamp and stamp.kind == "accept":
        step("inside_answer")
    elif isinstance(operation, Append) and operation.beside:
        step("inside_publish" if operation.files else "inside_hold")
    elif stamp and stamp.kind == "batch":
        # Only the anchor's stamps name the stream's tables.
        step("inside_anchor_commit" if stamp.targets else "inside_dead_letters_commit")
