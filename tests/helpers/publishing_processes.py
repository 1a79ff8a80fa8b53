"""Publishing and copying a branch, as functions that a process of its own runs; see `forked`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq

from jobs.clients.catalog.catalog import connect_catalog
from jobs.config.settings.loading import load_stream
from jobs.config.settings.settings import Settings
from jobs.quality.publishing.gate import Verdict
from jobs.quality.publishing.gated import publish_if_fit
from jobs.quality.publishing.interval import Interval
from jobs.quality.publishing.remake import remake


def judge_and_publish(home: str, bad: Sequence[int]) -> None:
    """Publish by a contract that refuses these ids, as a run does."""

    def judge(interval: Interval) -> Verdict:
        paths = [each.file_path.removeprefix("file://") for each in interval.files]
        ids = [each for path in paths for each in pq.read_table(path, columns=["id"]).column("id").to_pylist()]
        found = sorted(set(bad).intersection(ids))
        return Verdict(not found, tuple(f"id {each} is not accepted" for each in found), "one", len(ids))

    settings = Settings.embedded(Path(home))
    with connect_catalog(settings) as catalog:
        done = publish_if_fit(load_stream(Path(home) / "streams/payments.yaml"), settings, catalog, "x", judge, "one")
    print(done.became)


def remake_branch(home: str) -> None:
    """Maintain a branch that has grown, as maintenance does."""
    spec = load_stream(Path(home) / "streams/payments.yaml")
    with connect_catalog(Settings.embedded(Path(home))) as catalog:
        remake(catalog, spec.table.name, [spec], "ingest", needed=lambda snapshot, stamp: False)
