"""Maintained tables and the policy of each: built in, from the settings, the stream's file, the table's own entry.

Each of them lies over those before it, key by key. An entry of the settings for all tables of a namespace lies below
the streams' files; one that names the very table lies over them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from jobs.base.errors import FrazilError
from jobs.config.documents.base import Location, field_path
from jobs.config.documents.units import parse_size
from jobs.config.services.maintenance_policy import (
    Compact,
    Policy,
    TablePolicy,
    contradictions,
    is_given,
    overlaid,
)
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.config.values.targets import Role as TargetRole

Role = Literal["sink", "dead_letters", "mirror", "ledger", "other"]
TARGET_PROPERTY = "write.target-file-size-bytes"
_ALL = ".*"
# What a stream's target is called here, the tables of rows first.
_ROLES: dict[Role, TargetRole] = {"sink": "rows", "dead_letters": "dead_letters"}


@dataclass(frozen=True, slots=True)
class MaintainedTable:
    """A table that frazil maintains.

    Attributes:
        name: `namespace.table`.
        policy: All keys, resolved.
        stream: Whose table or dead letters it is.
        role: What it is to frazil; `other` is a table that only the settings name.
        problem: Why nothing may be done to it: a policy that contradicts itself once its parts are brought together,
            or `namespace.*` in the settings for a namespace that nobody can list.
        fix: What to do about it.
    """

    name: str
    policy: Policy
    stream: str | None = None
    role: Role = "other"
    problem: str | None = None
    fix: str = "change one of the two, then frazil validate"

    def require(self) -> Policy:
        """Returns the policy.

        Raises:
            FrazilError: There is a problem with it.
        """
        if self.problem is not None:
            raise FrazilError(self.problem, fix=self.fix)
        return self.policy


def namespaces_to_list(settings: Settings) -> tuple[str, ...]:
    """The namespaces of which the settings name all tables: `lake.raw` for `lake.raw.*`."""
    named = (table.name for table in settings.maintenance.tables)
    return tuple(sorted(name.removesuffix(_ALL) for name in named if name.endswith(_ALL)))


def maintained_tables(
    settings: Settings, specs: Sequence[StreamSpec], listed: Iterable[str] = ()
) -> list[MaintainedTable]:
    """Returns every table that frazil maintains, once: the streams', the ledger, then what the settings name further.

    Tables whose policy is not enabled are among them, so that somebody can be told.

    Args:
        settings: The deployment's.
        specs: Its streams.
        listed: What the catalog has in `namespaces_to_list`, as `namespace.table`; others are left out.
    """
    roles: dict[str, tuple[StreamSpec | None, Role]] = {}
    for role, of_targets in _ROLES.items():
        for spec in specs:
            for target in spec.targets:
                if target.role == of_targets:
                    roles.setdefault(target.name, (spec, role))
    for spec in specs:
        for _, mirror in spec.mirrored:
            roles.setdefault(mirror.table, (spec, "mirror"))
    roles.setdefault(settings.ledger.table, (None, "ledger"))
    known = {*roles}
    exact = {entry.name for entry in settings.maintenance.tables if not entry.name.endswith(_ALL)}
    by_namespace = {name for name in listed if _namespace(name) in namespaces_to_list(settings)}
    for name in sorted((exact | by_namespace) - known):
        roles[name] = (None, "other")
    return [_maintained(settings, name, spec, role) for name, (spec, role) in roles.items()]


def maintained_table(settings: Settings, specs: Sequence[StreamSpec], name: str) -> MaintainedTable:
    """Returns one table by its name, whether it is among those that are maintained or not.

    One that neither a stream nor the settings name has the policy of all tables: somebody asked for it by name.
    """
    found = next((table for table in maintained_tables(settings, specs, [name]) if table.name == name), None)
    return found or _maintained(settings, name, None, "other")


def _maintained(settings: Settings, name: str, spec: StreamSpec | None, role: Role) -> MaintainedTable:
    layers = list(_layers(settings, name, spec, role))
    policy = Policy()
    for _, layer in layers:
        policy = overlaid(policy, layer)
    stream = spec.stream if spec else None
    for places, text in contradictions(policy):
        said = ", ".join(f"{field_path(place)} is {_origin(layers, place)}" for place in places)
        problem = f"The maintenance of {name} contradicts itself: {text}. ({said}.)"
        return MaintainedTable(name, policy, stream, role, problem)
    return MaintainedTable(name, policy, stream, role)


def _layers(settings: Settings, name: str, spec: StreamSpec | None, role: Role) -> Iterator[tuple[str, Policy]]:
    """The blocks that make a table's policy, the lowest first, each with what messages call it."""
    yield "from maintenance in the settings", settings.maintenance
    entries = {entry.name: entry for entry in settings.maintenance.tables}
    if (entry := entries.get(f"{_namespace(name)}{_ALL}")) is not None:
        yield _called(entry), entry
    if spec is not None and role == "sink":
        if (created := _target_at_creation(spec)) is not None:
            yield f"from table.properties of the stream {spec.stream}", created
        yield f"from the file of the stream {spec.stream}", spec.maintenance
    elif spec is not None and role == "dead_letters":
        yield f"from maintenance.dead_letters of the stream {spec.stream}", spec.maintenance.dead_letters
    if (entry := entries.get(name)) is not None:
        yield _called(entry), entry


def _target_at_creation(spec: StreamSpec) -> Policy | None:
    """The size of files that the stream's file asks of its writers holds for compaction, too."""
    try:
        target = parse_size(f"{spec.table.properties[TARGET_PROPERTY]}B")
    except (KeyError, ValueError):
        return None
    return Policy(compact=Compact().model_copy(update={"target": target}))


def _namespace(name: str) -> str:
    return name.rpartition(".")[0]


def _called(entry: TablePolicy) -> str:
    return f"from the entry '{entry.name}' of maintenance.tables in the settings"


def _origin(layers: list[tuple[str, Policy]], place: Location) -> str:
    return next((called for called, layer in reversed(layers) if is_given(layer, place)), "built in")
