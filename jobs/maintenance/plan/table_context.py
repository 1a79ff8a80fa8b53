"""Table context: catalog, settings, policy and Spark for every step of a table's maintenance."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.table import Table

from jobs.base.errors import FrazilError, first_line
from jobs.base.system.deadline import DeadlineError, within
from jobs.clients.spark.end import jvm_is_gone
from jobs.config.redaction import redacted
from jobs.config.services.maintenance_policy import Policy
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.maintenance.plan.iceberg_procedures import Procedures

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# Loading neglected metadata may take a while, but a hanging catalog must not hold up the other tables.
LOAD_SECONDS = 30.0


def utc_now() -> datetime:
    """The present instant."""
    return datetime.now(UTC)


@dataclass(slots=True)
class TableContext:
    """A table under maintenance; Spark starts when a step first needs it.

    Attributes:
        specs: All streams of the deployment.
        uuid: Uuid of the measured table; empty before.
        spec_id: Partition spec at the measurement.
        created_at: Creation time, as far as known.
        mixed_specs: Whether it had files of another spec, which a step may rewrite along.
        jvm_is_gone: Whether Spark's JVM has ended since its start.
        open_procedures: Returns Iceberg's procedures for a table on a session.
        load_seconds: Longest time for the catalog to load it, seconds.
    """

    catalog: Catalog
    settings: Settings
    specs: Sequence[StreamSpec]
    name: str
    policy: Policy
    spark: Callable[[], SparkSession]
    now: Callable[[], datetime] = utc_now
    uuid: str = ""
    spec_id: int | None = None
    mixed_specs: bool = False
    created_at: datetime | None = None
    jvm_is_gone: Callable[[], bool] = jvm_is_gone
    open_procedures: Callable[[SparkSession, Settings, str], Procedures] = Procedures
    load_seconds: float = LOAD_SECONDS
    _procedures: Procedures | None = field(default=None, init=False)

    def load(self) -> Table:
        """The present table.

        Raises:
            FrazilError: The catalog does not answer in time, or the table does not exist, is not the measured one, or
                has an unknown format.
        """
        try:
            catalog = f"catalog {self.settings.catalog.name}"
            table = within(self.load_seconds, catalog, lambda: self.catalog.load_table(self.name))
        except (NoSuchTableError, NoSuchNamespaceError):
            raise FrazilError(
                f"table {self.name} is not in the catalog {self.settings.catalog.name}.",
                fix="correct the name, or take it out of maintenance.tables in frazil.yaml",
            ) from None
        except DeadlineError as late:
            raise FrazilError(f"table {self.name}: {late.message}.", fix=self._next_command()) from None
        except FrazilError:
            raise
        except Exception as problem:
            # Not chained, as the cause would show what is removed here.
            raise self._failed(problem) from None
        if self.uuid and str(table.metadata.table_uuid) != self.uuid:
            raise FrazilError(
                f"table {self.name} was dropped and created again while it was maintained.",
                fix=f"frazil maintain {self.name}",
            )
        return table

    def procedures(self) -> Procedures:
        """Iceberg's procedures on the table; starts Spark at first, and again after its JVM has ended."""
        if self._procedures is None or self.jvm_is_gone():
            self._procedures = self.open_procedures(self.spark(), self.settings, self.name)
        return self._procedures

    def _failed(self, problem: Exception) -> FrazilError:
        said = f"{type(problem).__name__}: {redacted(self.settings, first_line(problem, 'no reason given'))}"
        if "format_version" in str(problem) or "format version" in str(problem):
            return FrazilError(
                f"table {self.name} is of a format version that this version of frazil does not know: {said}",
                fix=f"set enabled: false for {self.name} in maintenance.tables of frazil.yaml",
            )
        if isinstance(problem, FileNotFoundError):
            return FrazilError(
                f"table {self.name}: the metadata that the catalog names are not there: {said}",
                fix="restore that file, or drop the table",
            )
        return FrazilError(
            f"table {self.name}: catalog {self.settings.catalog.name} failed: {said}",
            fix=self._next_command(),
        )

    def _next_command(self) -> str:
        return f"`frazil validate`, which asks the catalog; then frazil maintain {self.name}"


def refuse_without_gc(table: Table, name: str) -> None:
    """Raise unless the table's owner lets files be deleted.

    Raises:
        FrazilError: `gc.enabled` is false.
    """
    if table.metadata.properties.get("gc.enabled", "true").lower() == "false":
        raise FrazilError(
            f"table {name} has gc.enabled=false: its files are deleted by other means. Nothing was deleted.",
            fix=f"set expire.enabled and orphans.enabled to false for {name}, or gc.enabled to true in the table",
        )
