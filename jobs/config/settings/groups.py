"""Driver groups: the group of each stream, and streams that must not share one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from jobs.config.documents.secrets import Secret, secrets_in
from jobs.config.services.trigger import OWN

if TYPE_CHECKING:
    from jobs.config.settings.settings import Settings
    from jobs.config.stream.models import StreamSpec


def group_of(spec: StreamSpec, settings: Settings) -> str | None:
    """Return the group whose driver runs a stream; None if the stream has its own driver, or needs none."""
    if not spec.continuous:
        return None
    name = spec.group or settings.groups.default
    return None if name == OWN else name


def mixed_groups(specs: Iterable[StreamSpec], settings: Settings) -> Iterator[tuple[StreamSpec, str]]:
    """Yield streams that must not be in their group, each with a sentence that says why.

    A group is one process, in which code for one stream could read the secrets of all. So the files of all its streams
    have to name the same secrets, beside those of the settings. Streams that differ from the most common set are
    refused; of equally common sets, that of the first stream by id counts.
    """
    groups: dict[str, list[tuple[StreamSpec, frozenset[Secret]]]] = {}
    for spec in sorted(specs, key=lambda each: each.stream):
        if (group := group_of(spec, settings)) is not None:
            groups.setdefault(group, []).append((spec, frozenset(secrets_in(spec))))
    for group, members in groups.items():
        counted = Counter(secrets for _, secrets in members)
        other, measure = max(members, key=lambda each: counted[each[1]])
        for spec, own in members:
            if own == measure:
                continue
            names = ", ".join(sorted(str(each) for each in measure ^ own))
            yield (
                spec,
                f"group {group} is one process, in which every stream could read the secrets of all others; "
                f"{names} is named by only one of {other.stream} and {spec.stream}",
            )
