"""Source topics of a stream at its opening: at least one topic of its file has to exist."""

from __future__ import annotations

from collections.abc import Sequence

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH

from jobs.base.errors import FrazilError
from jobs.config.stream.models import StreamSpec
from jobs.tables.commit.history.branch import existing_table, stream_table
from jobs.tables.commit.history.stamp_history import history
from jobs.tables.commit.protocol.refusals import is_forbidden
from jobs.tables.commit.stamp.log_state import LogState
from jobs.tables.commit.stamp.stamps import Stamp


class TopicsAwaitedError(FrazilError):
    """None of the stream's topics exists yet.

    Safe: Nothing was read.
    Next: create the topic, or correct `source.topics`; a driver waits
    """


def require_topics(spec: StreamSpec, state: LogState, catalog: Catalog) -> None:
    """Raise unless at least one topic of the spec exists.

    Raises:
        TopicsAwaitedError: None exists, and the stream has read nothing of them yet.
        FrazilError: None exists any more.
    """
    named = spec.source.topics or ()
    missing = [topic for topic in named if topic not in state.topics]
    if len(missing) < max(len(named), 1):
        return
    local = f"`frazil generate {spec.stream}` makes it on the local broker"
    fix = f"create the topic ({local}), or correct source.topics in streams/{spec.stream}.yaml"
    if _has_read(spec, missing, catalog):
        raise FrazilError(f"stream {spec.stream}: topic {', '.join(missing)} does not exist any more.", fix=fix)
    raise TopicsAwaitedError(f"stream {spec.stream}: topic {', '.join(missing)} does not exist.", fix=fix)


def _has_read(spec: StreamSpec, topics: Sequence[str], catalog: Catalog) -> bool:
    """Whether the stream's stamps contain one of these topics."""
    newest = coordinator_stamp(spec, catalog)
    return newest is not None and any(partition.topic in topics for partition in newest.position)


def parked_tables(spec: StreamSpec, catalog: Catalog) -> frozenset[str]:
    """The stream's suspended tables."""
    newest = coordinator_stamp(spec, catalog) if spec.route is not None else None
    return frozenset(newest.parked) if newest else frozenset()


def readable_table(spec: StreamSpec, catalog: Catalog, name: str, branch: str = MAIN_BRANCH) -> Table | None:
    """A table seen from a branch; None if it does not exist, or is suspended and not readable for this user."""
    try:
        return existing_table(catalog, name, branch)
    except Exception as problem:
        if is_forbidden(problem) and name in parked_tables(spec, catalog):
            return None
        raise


def coordinator_stamp(spec: StreamSpec, catalog: Catalog) -> Stamp | None:
    """The coordinator's newest stamp, read before any table is created; None without one."""
    if not catalog.table_exists(spec.coordinator):
        return None
    return history(stream_table(catalog, spec, spec.coordinator).metadata, spec.stream).newest
