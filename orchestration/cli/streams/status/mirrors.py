"""Mirrors in `frazil status`: each one's progress, and the reason why merges stop."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from jobs.base.errors import FrazilError
from jobs.clients.state_store.mirror_problem import MirrorProblem, noted_problem
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from orchestration.formatting import span

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from jobs.mirrors.run.mirror_status import MirrorStatus

_SHOWN = 10


def mirror_lines(spec: StreamSpec, settings: Settings, catalog: Catalog | FrazilError) -> Iterator[str]:
    """Yield a line for each mirror of a stream, from the metadata of its tables.

    Args:
        spec: Spec of the stream.
        settings: Settings of the deployment.
        catalog: The catalog, or the reason why it does not answer.
    """
    if not spec.mirrors:
        return
    # Imported here: most streams have no mirrors.
    from jobs.clients.catalog.catalog import NoCatalogYet
    from jobs.clients.catalog.translate import translate_errors
    from jobs.mirrors.run.mirror_run import chosen_mirrors
    from jobs.mirrors.run.mirror_status import mirror_status

    if isinstance(catalog, NoCatalogYet):
        return
    if isinstance(catalog, FrazilError):
        yield "mirrors: ?"
        return
    try:
        with translate_errors(settings, spec.stream):
            found = [mirror_status(of, each, settings, catalog) for of, each in chosen_mirrors(spec, catalog)]
    except FrazilError as problem:
        yield f"mirrors: ? {problem.message}"
        return
    now, shown = datetime.now(UTC), [*filter(_remarkable, found)]
    fine = [each for each in found if not _remarkable(each)]
    shown += fine if len(fine) <= _SHOWN else []
    for each in shown:
        if each.problem is not None:
            yield f"mirror {each.table}: {each.problem.message}"
            yield f"  Next: {each.problem.fix or f'frazil mirror status {spec.stream} --table {each.table}'}"
            continue
        behind = f"it lacks {each.lag_rows:,} changes, for {span(each.lag_seconds(now) or 0.0)}"
        said = behind if each.lag_rows else "it lacks no change" if each.stamp else "nothing is merged yet"
        more = f"; somebody else has changed its rows: frazil mirror status {spec.stream}" if each.others else ""
        yield f"mirror {each.table}: {said}{more}"
    if len(fine) > _SHOWN:
        yield f"mirrors: {len(fine):,} more, which lack nothing"


def _remarkable(found: MirrorStatus) -> bool:
    return bool(found.problem or found.others or found.lag_rows or not found.stamp)


def mirror_troubles(spec: StreamSpec, settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield noted reasons why merges beside the driver failed, with the next command; no table is read."""
    for _, each in spec.mirrored:
        noted: MirrorProblem | None = noted_problem(settings, spec.stream, each.table)
        if noted is not None:
            fix = noted.fix or f"frazil mirror status {spec.stream} --table {each.table}"
            yield f"mirror {each.table}: {noted.problem}", fix
