"""Former branch of a stream: claimed before the one that its file names, for an older driver may still commit there."""

from __future__ import annotations

from typing import Protocol, TypeVar

from pyiceberg.table.metadata import TableMetadata

from jobs.commit.errors import RolledBackError
from jobs.commit.proposals import Propose
from jobs.commit.stamp_history import written_branch
from jobs.steps import step

T = TypeVar("T")


class Swaps(Protocol):
    """A target, as far as it commits what is proposed."""

    def swap(self, propose: Propose[T], *, epoch: int, below: int | None = None) -> T:
        """Commit what is proposed for the table as it is."""
        ...


def former_branch(metadata: TableMetadata, stream: str, branch: str) -> str | None:
    """The branch that the stream wrote before, if it is another one and is there."""
    former = written_branch(metadata, stream) or branch
    return None if former == branch or former not in metadata.refs else former


def claim_former_branch(former: Swaps, claim: Propose[T], epoch: int) -> bool:
    """Claim a former branch.

    Args:
        former: The stream's target there.
        claim: The claim's proposal.
        epoch: This driver's.

    Returns:
        Whether it is claimed; one that was rolled back is left alone.

    Raises:
        FencedError: A driver of a later epoch, or of the same one, was there.
    """
    try:
        former.swap(claim, epoch=epoch, below=epoch)
    except RolledBackError:
        return False
    step("after_former_branch_claim")
    return True
