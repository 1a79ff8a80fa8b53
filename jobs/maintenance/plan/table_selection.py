"""Table selection: the tables to maintain, by settings, streams and catalog, and wrong names among them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError

from jobs.base.errors import FrazilError, first_line
from jobs.base.system.deadline import within
from jobs.clients.catalog.catalog import CATALOG_SECONDS
from jobs.config.redaction import redacted
from jobs.config.settings.maintained_tables import (
    MaintainedTable,
    maintained_table,
    maintained_tables,
    namespaces_to_list,
)
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.maintenance.plan.plan import ACTIONS
from jobs.tables.commit.protocol.named_tables import all_with_named_tables

_CLOSE = 0.5


class ExistingTables:
    """The catalog's tables, listed once per namespace.

    If a namespace cannot be listed, other namespaces are not affected. Each table in it counts as existing, and loading
    it shows the error.
    """

    def __init__(self, catalog: Catalog, settings: Settings, seconds: float = CATALOG_SECONDS) -> None:
        self._catalog: Catalog = catalog
        self._seconds: float = seconds
        self._settings: Settings = settings
        self._known: dict[str, set[str]] = {}
        self._missing: set[str] = set()
        self._problems: dict[str, FrazilError] = {}

    def of(self, namespace: str) -> set[str]:
        """Full names of the tables in a namespace; empty if it does not exist, or cannot be listed."""
        if namespace not in self._known:
            self._known[namespace] = set()
            parts = tuple(namespace.split("."))
            whom = f"catalog {self._settings.catalog.name}"
            try:
                listed = within(self._seconds, whom, lambda: self._catalog.list_tables(parts))
            except NoSuchNamespaceError:
                self._missing.add(namespace)
            except Exception as problem:
                said = redacted(self._settings, first_line(problem))
                self._problems[namespace] = FrazilError(
                    f"namespace {namespace} of {whom} could not be listed: {type(problem).__name__}: {said}",
                    fix="see that frazil may list it, or name its tables one by one in maintenance.tables",
                )
            else:
                self._known[namespace] = {".".join(identifier) for identifier in listed}
        return self._known[namespace]

    def unlisted(self, namespace: str) -> FrazilError | None:
        """Error of listing a namespace; None if it was listed, or does not exist."""
        self.of(namespace)
        return self._problems.get(namespace)

    def has_namespace(self, namespace: str) -> bool:
        """Whether a namespace exists, as far as known."""
        self.of(namespace)
        return namespace not in self._missing

    def __contains__(self, name: str) -> bool:
        namespace = name.rpartition(".")[0]
        return bool(namespace) and (name in self.of(namespace) or namespace in self._problems)

    def nearest_table(self, name: str, others: Iterable[str]) -> str | None:
        """The most likely intended table: in its namespace, in the namespace with the nearest name, or of others."""
        namespace = name.rpartition(".")[0]
        near = namespace if self.has_namespace(namespace) else self.nearest_namespace(namespace, others)
        return _nearest(name, [*(self.of(near) if near else ()), *others])

    def nearest_namespace(self, namespace: str, tables: Iterable[str]) -> str | None:
        """The most likely intended namespace: of its siblings, or of those with the tables."""
        parent = tuple(namespace.split("."))[:-1]
        whom = f"catalog {self._settings.catalog.name}"
        try:
            listed = within(self._seconds, whom, lambda: self._catalog.list_namespaces(parent))
        except Exception:
            # Only a hint is lost.
            listed = []
        return _nearest(namespace, [*(".".join(each) for each in listed), *map(_namespace, tables)])


def all_maintained(
    settings: Settings, specs: Sequence[StreamSpec], existing: ExistingTables
) -> Iterator[MaintainedTable]:
    """Every table that streams or settings name, and each missing namespace of which the settings name all tables.

    Tables that a stream or the ledger has yet to create are left out. A missing table that only the settings name
    stays, as its name is wrong.
    """
    listed = [name for namespace in namespaces_to_list(settings) for name in sorted(existing.of(namespace))]
    for table in maintained_tables(settings, specs, listed):
        if table.role == "other" or table.name in existing:
            yield table
    for namespace in namespaces_to_list(settings):
        problem = existing.unlisted(namespace) or missing_namespace(settings, specs, existing, namespace)
        if problem is not None:
            name = f"{namespace}.*"
            policy = maintained_table(settings, specs, name).policy
            yield MaintainedTable(name, policy, problem=problem.message, fix=problem.fix or "")


def missing_namespace(
    settings: Settings, specs: Sequence[StreamSpec], existing: ExistingTables, namespace: str
) -> FrazilError | None:
    """Error about a missing namespace of which the settings name all tables; None if it exists."""
    theirs = own_tables(settings, specs)
    # The first run of a stream creates its table's namespace.
    if existing.has_namespace(namespace) or namespace in map(_namespace, theirs):
        return None
    near = existing.nearest_namespace(namespace, theirs)
    return FrazilError(
        f"maintenance.tables names {namespace}.*, and there is no such namespace in catalog {settings.catalog.name}.",
        fix=name_correction(f"{near}.*" if near else None),
    )


def own_tables(settings: Settings, specs: Sequence[StreamSpec]) -> list[str]:
    """Tables that frazil creates: those of streams, and the ledger."""
    return [table.name for table in maintained_tables(settings, specs) if table.role != "other"]


def name_correction(near: str | None) -> str:
    """Next step for a selected table's name that does not exist, if another one is likely meant."""
    if near is None:
        return "correct the name in frazil.yaml, or take it out"
    return f"did you mean {near}? Correct it in frazil.yaml, or take it out"


def _nearest(name: str, names: Iterable[str]) -> str | None:
    close = difflib.get_close_matches(name, sorted(set(names) - {name}), n=1, cutoff=_CLOSE)
    return close[0] if close else None


def _namespace(name: str) -> str:
    return name.rpartition(".")[0]


def selected_actions(named: Sequence[str]) -> frozenset[str] | None:
    """Selected maintenance actions; None for all.

    Raises:
        FrazilError: A name is no action.
    """
    for name in named:
        if name not in ACTIONS:
            close = difflib.get_close_matches(name, ACTIONS, n=1)
            raise FrazilError(
                f"'{name}' is no action; there are {', '.join(ACTIONS)}.",
                fix=f"did you mean {close[0]}?" if close else "name one of these, or none for all",
            )
    return frozenset(named) or None


def chosen_tables(
    settings: Settings, specs: Sequence[StreamSpec], catalog: Catalog, named: Sequence[str]
) -> list[MaintainedTable]:
    """Selected tables, in the order of the streams, or of the names.

    Tables that streams have yet to create are left out. Wrong names in the settings stay, so that they are reported
    like each table's problem.

    Args:
        named: Tables, or streams' ids for their tables and dead letters; empty for all of streams and settings.

    Raises:
        FrazilError: A name is neither.
    """
    specs = all_with_named_tables(specs, catalog)
    existing = ExistingTables(catalog, settings)
    every = list(all_maintained(settings, specs, existing))
    if not named:
        return every
    chosen: dict[str, MaintainedTable] = {}
    for name in named:
        found = [table for table in every if name in (table.name, table.stream)]
        if not found and name in existing:
            found = [maintained_table(settings, specs, name)]
        if not found:
            raise _unknown(name, settings, specs, [table.name for table in every if table.name in existing])
        chosen |= {table.name: table for table in found}
    return list(chosen.values())


def _unknown(name: str, settings: Settings, specs: Sequence[StreamSpec], tables: Sequence[str]) -> FrazilError:
    for spec in specs:
        if name in (spec.stream, *spec.target_names):
            return FrazilError(
                f"stream {spec.stream}: table {name if '.' in name else spec.table.name} does not exist yet.",
                fix=f"frazil run {spec.stream}",
            )
    known = [*tables, *(spec.stream for spec in specs)]
    # People usually mistype the part after the dot.
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return FrazilError(
        f"'{name}' is neither a table of catalog {settings.catalog.name} nor a stream.",
        fix=f"did you mean {close[0]}?" if close else "frazil maintain --plan, which lists them",
    )
