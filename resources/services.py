"""Kafka, the schema registry, the Iceberg catalog and Spark as Dagster resources."""

from typing import TYPE_CHECKING

import dagster as dg
from pydantic import Field, PrivateAttr
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from jobs.base.system.signals import deferred_signals
from jobs.clients.install.preflight import preflight
from jobs.clients.kafka.metadata import KafkaLog, quick_kafka
from jobs.clients.spark.end import end_spark
from jobs.clients.spark.session import (
    Workload,
    apply_secrets,
    prepare_environment,
    spark_conf,
)
from jobs.clients.spark.start import SessionOnDemand
from resources.deployment_resource import DeploymentResource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from jobs.clients.registry.client import RegistryClient


class KafkaResource(dg.ConfigurableResource):
    """Read-only view of the brokers in `kafka` of the settings: topics, partitions, offsets. Joins no group."""

    deployment: dg.ResourceDependency[DeploymentResource]

    def log(self) -> KafkaLog:
        """A connection; every question it is asked has the settings' time-out.

        Raises:
            FrazilError: The local broker is not running, or a secret is not set.
        """
        return KafkaLog(self.deployment.settings().kafka)

    def quick(self) -> KafkaLog:
        """A connection that gives up within seconds.

        Raises:
            FrazilError: The local broker is not running, or a secret is not set.
        """
        return quick_kafka(self.deployment.settings().kafka)


class RegistryResource(dg.ConfigurableResource):
    """Schema registry in `registry` of the settings: schemas by id, subjects and their versions."""

    deployment: dg.ResourceDependency[DeploymentResource]

    def quick(self) -> "RegistryClient":
        """Return a connection that gives up within seconds, with its secrets resolved now.

        Raises:
            FrazilError: The settings name no registry, the local registry does not run, or a secret is not set.
        """
        # Imported here: a code location without a registry should not wait for it.
        from jobs.clients.registry.client import quick_registry

        return quick_registry(self.deployment.settings().registry)


class CatalogResource(dg.ConfigurableResource):
    """Iceberg catalog in `catalog` of the settings, through PyIceberg and without a JVM."""

    deployment: dg.ResourceDependency[DeploymentResource]

    def catalog(self) -> Catalog:
        """Return a connection, with its secrets resolved now.

        Raises:
            FrazilError: The catalog cannot be reached, or a secret is not set.
        """
        # Imported here: it imports half of a driver's modules, and a code location should load fast.
        from jobs.clients.catalog.catalog import connect_catalog

        return connect_catalog(self.deployment.settings())

    def quick(self) -> Catalog:
        """A connection that gives up within seconds.

        Raises:
            NoCatalogYet: The embedded catalog does not exist, because no stream has run.
            FrazilError: The catalog cannot be reached, or a secret is not set.
        """
        from jobs.clients.catalog.catalog import quick_catalog

        return quick_catalog(self.deployment.settings())

    def table(self, name: str) -> Table:
        """A table as it is now.

        Args:
            name: Its full name, such as `orders.payments`.
        """
        return self.catalog().load_table(name)


class SparkResource(dg.ConfigurableResource):
    """Spark session of `spark` in the settings, through dagster-pyspark's lazy resource.

    A run that needs no session starts no JVM. The JVM ends with the run, however the run ends.
    """

    deployment: dg.ResourceDependency[DeploymentResource]
    app_name: str = Field(default="frazil", description="Name of the application in Spark's UI and cluster manager.")

    _sessions: SessionOnDemand | None = PrivateAttr(default=None)

    def get_session(self, work: Workload = "batches") -> "SparkSession":
        """Return the session. The first call starts it within seconds; a call after its JVM has ended starts a new one.

        Args:
            work: Purpose of the session; only the first call's value counts.

        Raises:
            FrazilError: Java, PySpark or a jar is missing or has the wrong version, or a secret is not set.
        """
        if self._sessions is None:
            self._sessions = SessionOnDemand(lambda: self._started(work))
        return self._sessions.get()

    def _started(self, work: Workload) -> "SparkSession":
        preflight()
        settings = self.deployment.settings()
        conf = spark_conf(settings, self.app_name, work=work)
        prepare_environment(settings)
        from dagster_pyspark import LazyPySparkResource

        # No nested resource: its configuration needs the jars, and loading must not fetch them. The block also undoes
        # PySpark's handler of Ctrl-C, because Dagster handles Terminate.
        with deferred_signals():
            session = LazyPySparkResource(spark_config=conf).spark_session
        apply_secrets(session, settings)
        return session

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
        """End the session and its JVM, even if its start was interrupted."""
        self._sessions = None
        end_spark()
