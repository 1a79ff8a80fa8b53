"""Maintained tables and their policies, merged from frazil's defaults, the settings and the stream's file.

Later layers override earlier ones key by key: defaults, `maintenance` of the settings, the settings' entry for a
namespace, the stream's file, the settings' entry for the table.
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
# Roles of a stream's targets, by the names used here; tables of rows first.
_ROLES: dict[Role, TargetRole] = {"sink": "rows", "dead_letters": "dead_letters"}


@dataclass(frozen=True, slots=True)
class MaintainedTable:
    """A table that frazil maintains.

    Attributes:
        name: `namespace.table`.
        policy: Policy with all layers merged.
        stream: Stream that writes the table.
        role: Role of the table; `other` is a table that only the settings name.
        problem: Why the table is not maintained: the merged policy contradicts itself, or the settings name
            `namespace.*` and the namespace cannot be listed.
        fix: Next command.
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
            FrazilError: The policy has a problem.
        """
        if self.problem is not None:
            raise FrazilError(self.problem, fix=self.fix)
        return self.policy


def namespaces_to_list(settings: Settings) -> tuple[str, ...]:
    """Return the namespaces whose tables the settings name together: `lake.raw` for `lake.raw.*`."""
    named = (table.name for table in settings.maintenance.tables)
    return tuple(sorted(name.removesuffix(_ALL) for name in named if name.endswith(_ALL)))


def maintained_tables(
    settings: Settings, specs: Sequence[StreamSpec], listed: Iterable[str] = ()
) -> list[MaintainedTable]:
    """Returns every table that frazil maintains, once: of streams, the ledger, then further ones in the settings.

    Tables whose policy is disabled are included, so that they can be reported.

    Args:
        settings: Settings of the deployment.
        specs: Streams of the deployment.
        listed: Tables in `namespaces_to_list`, as `namespace.table`; other tables are ignored.
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
    """Returns one table by its name, even if it is not maintained.

    A table that neither a stream nor the settings name has the policy of all tables, because the user named it.
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
    """Yield the layers of a table's policy, the lowest first, each with its name in messages."""
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
    """Return a policy with the file size that the stream's file sets for its writers; None if it sets none."""
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
