"""Operator's answer that a mirror's source was restored, with the offsets where positions start again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pyiceberg.catalog import Catalog

from jobs.base.errors import FrazilError
from jobs.base.failpoints import step
from jobs.clients.catalog.catalog import find_table
from jobs.config.settings.settings import Settings
from jobs.config.stream.mirror import Mirror
from jobs.config.stream.models import StreamSpec
from jobs.mirrors.model.merge_plan import MirrorState
from jobs.mirrors.model.mirror_stamp import answers_alone, mirrored, state_to_begin_with
from jobs.mirrors.model.session import mirror_session
from jobs.tables.commit.recovery.accept import signed_answer
from jobs.tables.commit.stamp.offsets import TopicPartition


def accept_new_generation(
    spec: StreamSpec,
    mirror: Mirror,
    settings: Settings,
    catalog: Catalog,
    note: str,
    at: Mapping[TopicPartition, int] | None = None,
    *,
    dry_run: bool = False,
) -> MirrorState | None:
    """Record where positions of the source start again: changes from there on are later than all before.

    The mirror's stamp keeps the answer, and so does each rebuild.

    Args:
        note: Who decides, and why; the stamp keeps it.
        at: First offset of the restored source by partition, as the error named it. In other partitions positions start
            again with the next change that the mirror lacks.
        dry_run: Whether to record nothing.

    Returns:
        The mirror's new state. None if the mirror has other topics, or has no table yet: its first merge asks by
        itself.

    Raises:
        FrazilError: Nothing was merged and no offset is given, or another process merged at the same time.
    """
    table = find_table(catalog, mirror.table)
    if table is None:
        # A stream over a whole database may have tables without a primary key, which never get a mirror.
        if at:
            return None
        raise _nothing(spec, mirror)
    with mirror_session(spec, mirror, settings, catalog, table) as session:
        newest = session.read()
        known = mirrored(newest, spec.stream, mirror.table)
        if known is None and not at:
            raise _nothing(spec, mirror)
        if known is not None and at and {each.topic for each in at}.isdisjoint(_topics(known.state)):
            return None
        if dry_run:
            return (known.state if known else state_to_begin_with(newest)).accepted(at)
        # The first merge into a mirror may have ended before the mirror had a stamp.
        session.refuse_twin(newest)
        if newest is None:
            session.claim(None)
            newest = session.target.newest
        assert newest is not None, "it is claimed"
        state = (known.state if known else state_to_begin_with(newest)).accepted(at)
        said = replace(known, state=state).to_json() if known else answers_alone(state)
        step("answer_before_commit")
        session.target.restamp(signed_answer(replace(newest.decided(None), mirror=said), session.epoch, note))
        step("answer_after_commit")
        return state


def _topics(state: MirrorState) -> set[str]:
    return {each.topic for each in state.partitions}


def _nothing(spec: StreamSpec, mirror: Mirror) -> FrazilError:
    return FrazilError(
        f"stream {spec.stream}: nothing was merged into mirror {mirror.table} yet, so there is nothing to accept.",
        fix=f"frazil mirror run {spec.stream}",
    )
