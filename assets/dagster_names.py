"""Names of a stream in Dagster: asset keys, op, group, pool and owners."""

from __future__ import annotations

import re

import dagster as dg

from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec


def table_key(settings: Settings, table: str) -> dg.AssetKey:
    """The asset key of a table: its path in the catalog, the catalog's name first."""
    return dg.AssetKey([settings.catalog.name, *table.split(".")])


def target_keys(settings: Settings, spec: StreamSpec) -> list[dg.AssetKey]:
    """The keys of a stream's targets, in their order."""
    return [table_key(settings, target.name) for target in spec.targets]


def topic_keys(spec: StreamSpec) -> list[dg.AssetKey]:
    """The keys of the topics that a stream reads; one for all that match, if it reads by a pattern."""
    if spec.source.topics_pattern is not None:
        return [dg.AssetKey(["kafka", dagster_safe(spec.source.topics_pattern)])]
    return [dg.AssetKey(["kafka", topic]) for topic in spec.source.topics or ()]


def dagster_safe(text: str) -> str:
    """The text as a safe name for Dagster: characters other than letters, digits and `_.-` become one `_`."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", text).strip("_") or "topics"


def op_name(spec: StreamSpec) -> str:
    """Name of the op of a stream's one-off run; `-` is not allowed there."""
    return "drain_" + spec.stream.replace("-", "__")


def group_name(spec: StreamSpec) -> str:
    """The name of a stream's group of assets, so that its topic, table and dead letters stand together."""
    return spec.stream.replace("-", "_")


def pool(spec: StreamSpec) -> str:
    """Name of the Dagster pool that allows one run at a time for a stream; a second one waits."""
    return f"frazil.{spec.stream}"


def owners(spec: StreamSpec) -> list[str]:
    """The stream's owner if Dagster accepts it: an e-mail address or `team:name`; else empty."""
    owner = spec.owner or ""
    known = re.fullmatch(r"team:[A-Za-z0-9_-]+|[^@\s]+@[^@\s]+\.[^@\s]+", owner)
    return [owner] if known else []
