"""Mirrors of tables that values name, in Dagster: one asset behind that of those tables, with the same partitions."""

from __future__ import annotations

from collections.abc import Iterator

import dagster as dg

from assets import dagster_names
from assets.mirrors import mirror_key
from assets.named_tables import named_tables_key, named_tables_of
from jobs.spec.mirror import Mirror
from jobs.spec.models import StreamSpec
from jobs.spec.settings import Settings
from jobs.spec.targets import VALUE


def named_mirrors(spec: StreamSpec) -> tuple[Mirror, ...]:
    """The mirrors of a stream's file that are made for each table that a value names; none of a stream without such."""
    if spec.route is None or spec.route.to is None:
        return ()
    return tuple(each for each in spec.mirrors if each.is_pattern)


def named_mirrors_assets(spec: StreamSpec, settings: Settings) -> Iterator[dg.AssetSpec]:
    """The asset of each of them, called as the file calls it."""
    tables = named_tables_key(spec, settings)
    for mirror in named_mirrors(spec):
        assert tables is not None and spec.route is not None
        yield dg.AssetSpec(
            mirror_key(settings, mirror),
            deps=[tables],
            partitions_def=named_tables_of(spec),
            description=f"What the source of stream `{spec.stream}` is, made of the changes in its changelogs "
            f"`{spec.route.to}`: a table `{mirror.table}` for each. Each is a partition, told of by the sensor "
            "`frazil_mirrors` when something was merged into it, and when it is not current. Each table's own page is "
            f"the asset of its name in the catalog of assets: put the changelog's name where `{{table}}` stands, "
            f"which has its value where `{VALUE}` stands in its own.",
            group_name=dagster_names.group_name(spec),
            owners=dagster_names.owners(spec),
            kinds={"spark", "iceberg", "table"},
        )
