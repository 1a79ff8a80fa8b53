"""A deployment whose tables have data files in their metadata only: all that a plan looks at."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dagster as dg
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from jobs.clients.catalog.catalog import connect_catalog
from jobs.config.settings.loading import load_stream
from jobs.config.settings.settings import Settings
from jobs.streaming.driver.opening.opening import ensure_tables
from orchestration.jobs.maintain.jobs import maintain_job, maintain_run_config
from orchestration.jobs.maintain.ops import HANDED_ON, MaintainConfig
from resources.deployment import Deployment
from resources.deployment_resource import DeploymentResource
from resources.services import CatalogResource, SparkResource
from tests.unit.maintenance.metadata_tables import MB, append, file_of
from tests.unit.orchestration.deployments import deployment_in

SINK, DEAD, OTHER = "orders.payments", "orders.payments_dead", "lake.events"
_DAY = 20_000


class CountingSpark(SparkResource):
    """Counts how often a session is asked for; there is none to give unless Java is there."""

    def get_session(self, work: str = "") -> Any:
        with self.tally.open("a") as tally:
            tally.write(".")
        return super().get_session()

    @property
    def tally(self) -> Path:
        """A file, since Dagster works with copies of its resources."""
        return self.deployment.deployment().home / "asked"

    @property
    def asked(self) -> int:
        return len(self.tally.read_text()) if self.tally.exists() else 0


class Tables:
    """The stream `payments` with its table and its dead letters, and a table that is nobody's."""

    def __init__(self, home: Path) -> None:
        self.home: Path = deployment_in(home, "payments")
        # A partition that is still written to may have to wait; here none is.
        self.in_settings("")
        self.spec_file: Path = home / "streams" / "payments.yaml"
        self.catalog: Catalog = connect_catalog(self.settings)
        ensure_tables(load_stream(self.spec_file), self.catalog)

    @property
    def deployment(self) -> Deployment:
        return Deployment.at(self.home)

    @property
    def settings(self) -> Settings:
        return self.deployment.prepared_settings()

    def close(self) -> None:
        self.catalog.close()

    def in_settings(self, entries: str) -> None:
        """Lay entries of `maintenance.tables` over the policies."""
        text = f"maintenance: {{compact: {{cold_after: 1ms}}, tables: [{entries}]}}\n"
        (self.home / "frazil.yaml").write_text(text)

    def make_other(self) -> Table:
        self.catalog.create_namespace("lake")
        return self.catalog.create_table(OTHER, self.catalog.load_table(SINK).schema())

    def add(self, count: int, *, table: str = SINK, size: int = MB, commits: int = 1) -> None:
        """Data files of one day; small ones unless said otherwise."""
        loaded = self.catalog.load_table(table)
        partition = (_DAY,) if loaded.spec().fields else ()
        for _ in range(commits):
            append(loaded, [file_of(size, *partition) for _ in range(count)])

    def break_manifest(self, table: str = SINK) -> None:
        """Make the manifests of a table's head unreadable, so that nobody can tell what it consists of."""
        loaded = self.catalog.load_table(table)
        head = loaded.current_snapshot()
        assert head is not None
        for manifest in head.manifests(loaded.io):
            Path(manifest.manifest_path.removeprefix("file://")).write_bytes(b"nothing")

    def run(
        self, instance: dg.DagsterInstance, steps: Sequence[str] | None = None, **config: Any
    ) -> tuple[Any, CountingSpark]:
        """The job on these tables, or only some of its steps, and the Spark that it had."""
        paths = DeploymentResource.of(self.deployment)
        spark = CountingSpark(deployment=paths)
        result = maintain_job.execute_in_process(
            run_config=maintain_run_config(MaintainConfig(**{"by": "jo", **config})),
            instance=instance,
            resources={
                "deployment": paths,
                "catalog": CatalogResource(deployment=paths),
                "spark": spark,
                HANDED_ON: dg.mem_io_manager,
            },
            op_selection=steps,
            raise_on_error=False,
        )
        return result, spark
