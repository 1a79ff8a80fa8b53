"""The supervisor itself as an asset: the reconcile sensor reports it while it ticks, so that its silence is noticed."""

from __future__ import annotations

from datetime import timedelta

import dagster as dg

SUPERVISOR_KEY = dg.AssetKey(["frazil", "supervisor"])


def supervisor_asset() -> dg.AssetSpec:
    """The external asset that turns stale when nobody supervises the streams."""
    return dg.AssetSpec(
        SUPERVISOR_KEY,
        description=(
            "The sensor `frazil_reconcile`, which keeps the streams as they are wanted. Reported every two minutes, "
            "and at once when a stream comes to need somebody: `all_streams` below is a table of all streams, what "
            "needs a hand first. Its times are how long before `as_of` something was: when its state began (`since`), "
            "its newest commit, and what its table is complete through; `letters` are the dead letters that wait. "
            "If it turns stale, no driver that has failed is started again and no check is up to date; drivers that "
            "run go on, and their keepers start those that are killed. Look at the sensor's newest tick, and at "
            "Dagster's daemon."
        ),
        group_name="supervisor",
        kinds={"dagster"},
        freshness_policy=dg.FreshnessPolicy.time_window(
            fail_window=timedelta(minutes=10), warn_window=timedelta(minutes=5)
        ),
    )
