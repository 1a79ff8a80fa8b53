"""Checks of a stream's mirrors: reasons in changelog and tables why the next merge would stop."""

from __future__ import annotations

from collections.abc import Iterator

from pyiceberg.catalog import Catalog

from jobs.base.errors import FrazilError
from jobs.clients.catalog.catalog import NoCatalogYet, find_table
from jobs.clients.catalog.translate import translate_errors
from jobs.config.settings.settings import Settings
from jobs.config.stream.mirror import Mirror
from jobs.config.stream.models import StreamSpec
from jobs.tables.commit.stamp.table_properties import MIRROR_PROPERTY
from orchestration.cli.stream_files.validate.findings import Finding

_SHOWN = 10


def check_mirrors(spec: StreamSpec, settings: Settings, catalog: Catalog | NoCatalogYet) -> Iterator[Finding]:
    """Check that each mirror of a stream can be built from its changelog."""
    if not spec.mirrors:
        return
    # Imported here: most streams have no mirrors.
    from jobs.mirrors.model.errors import KeylessChangelogError
    from jobs.mirrors.run.mirror_run import chosen_mirrors

    for each in spec.mirrors:
        if spec.decode.key is None and not each.key:
            sentence = f"mirror {each.table} has no key: neither the records (decode.key) nor the mirror (key) has one"
            fix = f"write decode.key with into: _change_key, or mirrors: key, into streams/{spec.stream}.yaml"
            yield Finding(spec.stream, "mirror", "wrong", sentence, fix)
            return
    if isinstance(catalog, NoCatalogYet):
        return
    try:
        with translate_errors(settings, spec.stream):
            chosen = chosen_mirrors(spec, catalog)
    except FrazilError as problem:
        yield Finding(spec.stream, "mirror", "unchecked", problem.message, problem.fix)
        return
    good = list[Finding]()
    for of, mirror in chosen:
        try:
            with translate_errors(settings, spec.stream):
                found = _found(of, mirror, settings, catalog)
        except FrazilError as problem:
            # A captured database may have some tables without keys, which the stream's file cannot change.
            keyless = isinstance(problem, KeylessChangelogError) and len(chosen) > 1
            verdict = "unchecked" if keyless else "wrong"
            found = Finding(spec.stream, "mirror", verdict, problem.message, problem.fix)
        if found is not None and found.verdict == "ok":
            good.append(found)
        elif found is not None:
            yield found
    if len(good) > _SHOWN:
        good = [Finding(spec.stream, "mirror", "ok", f"{len(good):,} mirrors go with their changelogs")]
    yield from good


def _found(spec: StreamSpec, mirror: Mirror, settings: Settings, catalog: Catalog) -> Finding | None:
    """Finding about a mirror; None if its changelog does not exist yet.

    Raises:
        FrazilError: The next merge stops.
    """
    from jobs.mirrors.run.mirror_status import mirror_status

    if find_table(catalog, spec.table.name) is None:
        return None
    status = mirror_status(spec, mirror, settings, catalog)
    if status.problem is not None:
        raise status.problem
    table = find_table(catalog, mirror.table)
    if table is None:
        sentence = f"mirror {mirror.table} does not exist yet; the first merge makes it"
        return Finding(spec.stream, "mirror", "unchecked", sentence)
    if MIRROR_PROPERTY not in table.metadata.properties:
        sentence = (
            f"table {mirror.table} exists and is no mirror yet; the first merge takes its rows for older than all "
            "others"
        )
        return Finding(spec.stream, "mirror", "unchecked", f"{sentence} changes")
    if status.others:
        sentence = f"somebody else has changed rows of mirror {mirror.table}"
        fix = f"frazil mirror rebuild {spec.stream} --table {mirror.table}"
        return Finding(spec.stream, "mirror", "wrong", sentence, fix)
    return Finding(spec.stream, "mirror", "ok", f"mirror {mirror.table} goes with changelog {spec.table.name}")
