"""Publishing write-audit-publish streams: one run judges what has landed, and publishes or quarantines it."""

# No `from __future__ import annotations` here: Dagster looks at the parameters' types as they are.

from collections.abc import Sequence
from typing import Any

import dagster as dg

from assets.published_check import PUBLISHED
from orchestration.jobs.runs import BY_TAG, REASON_TAG

JOB = "frazil_publish"
PUBLISHED_TAG = "frazil/published"
"""The stream that a run publishes. It acts on no driver, so the supervisor looks at another tag."""


# Dagster does not export the type of what `define_asset_job` returns.
def publish_job(tables: Sequence[dg.AssetKey]) -> Any | None:
    """Job that publishes write-audit-publish streams; a run for one stream selects its check. None without any."""
    if not tables:
        return None
    return dg.define_asset_job(
        JOB,
        selection=dg.AssetSelection.checks(*(dg.AssetCheckKey(key, PUBLISHED) for key in tables)),
        description="Check what streams with `publish` have landed, and publish it to main or quarantine it.",
    )


def publish_run(stream: str, table: dg.AssetKey, run_key: str, reason: str, by: str) -> dg.RunRequest:
    """The request for a run that publishes a stream.

    Args:
        run_key: Key that no earlier run has.
    """
    return dg.RunRequest(
        run_key=run_key,
        job_name=JOB,
        asset_check_keys=[dg.AssetCheckKey(table, PUBLISHED)],
        tags={PUBLISHED_TAG: stream, REASON_TAG: reason[:200], BY_TAG: by},
    )
