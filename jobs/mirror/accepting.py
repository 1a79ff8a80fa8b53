"""Accepting: an operator says that a mirror's source was restored, and that positions begin anew from there."""

from __future__ import annotations

from dataclasses import replace

from pyiceberg.catalog import Catalog

from jobs.catalog import find_table
from jobs.commit.accept import signed_answer
from jobs.errors import FrazilError
from jobs.mirror.errors import TooManyGenerationsError
from jobs.mirror.merge_plan import LAST_GENERATION
from jobs.mirror.mirror_stamp import MirrorStamp, mirrored
from jobs.mirror.session import mirror_session
from jobs.spec.mirror import Mirror
from jobs.spec.models import StreamSpec
from jobs.spec.settings import Settings
from jobs.steps import step


def accept_new_generation(
    spec: StreamSpec, mirror: Mirror, settings: Settings, catalog: Catalog, note: str
) -> MirrorStamp:
    """Begin a new generation: what the changelog has from the mirror's offsets on is later than all that it has.

    Args:
        note: Who decides, and why; it is kept in the stamp.

    Returns:
        What the mirror says now.

    Raises:
        FrazilError: Nothing was merged yet, or somebody merged at the same moment.
        TooManyGenerationsError: There is no number for another one.
    """
    table = find_table(catalog, mirror.table)
    if table is None:
        raise _nothing(spec, mirror)
    with mirror_session(spec, mirror, settings, catalog, table) as session:
        newest = session.read()
        known = mirrored(newest, spec.stream, mirror.table)
        if newest is None or known is None:
            raise _nothing(spec, mirror)
        session.refuse_twin(newest)
        if known.state.newest_generation >= LAST_GENERATION:
            raise TooManyGenerationsError(spec.stream)
        said = replace(known, state=known.state.accepted())
        answer = replace(newest.decided(None), mirror=said.to_json())
        step("answer_before_commit")
        session.target.restamp(signed_answer(answer, session.epoch, note))
        step("answer_after_commit")
        return said


def _nothing(spec: StreamSpec, mirror: Mirror) -> FrazilError:
    return FrazilError(
        f"stream {spec.stream}: nothing was merged into mirror {mirror.table} yet, so there is nothing to accept.",
        fix=f"frazil mirror run {spec.stream}",
    )
