"""Spark as a Dagster resource: started when it is first asked for, ended with the run."""

from typing import TYPE_CHECKING

import dagster as dg
from pydantic import Field, PrivateAttr

from jobs.install.preflight import preflight
from jobs.spark.end import end_spark
from jobs.spark.session import Workload, apply_secrets, prepare_environment, spark_conf
from jobs.spark.start import SessionOnDemand
from jobs.system.signals import deferred_signals
from resources.deployment_resource import DeploymentResource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkResource(dg.ConfigurableResource):
    """The Spark session that `spark` in the settings describes, through dagster-pyspark's lazy resource.

    A run that needs no session starts no JVM. The JVM ends with the run, on whatever way the run ends.
    """

    deployment: dg.ResourceDependency[DeploymentResource]
    app_name: str = Field(default="frazil", description="What Spark's UI and its cluster manager call the application.")

    _sessions: SessionOnDemand | None = PrivateAttr(default=None)

    def get_session(self, work: Workload = "batches") -> "SparkSession":
        """The session; started by the first call, which takes some seconds, and again if its JVM has ended since.

        Args:
            work: What it is for; only the first call's counts.

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

        # Made here and not as a nested resource: its configuration needs the jars, which loading must not fetch.
        # It also undoes that PySpark takes Ctrl-C over; it is Dagster who knows what Terminate means.
        with deferred_signals():
            session = LazyPySparkResource(spark_config=conf).spark_session
        apply_secrets(session, settings)
        return session

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
        """End the session and its JVM, also one whose start was interrupted."""
        self._sessions = None
        end_spark()
