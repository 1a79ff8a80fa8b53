"""Kafka as a Dagster resource."""

import dagster as dg

from jobs.kafka.metadata import KafkaLog, quick_kafka
from resources.deployment_resource import DeploymentResource


class KafkaResource(dg.ConfigurableResource):
    """The brokers that `kafka` in the settings names, to look at: topics, partitions, offsets. Joins no group."""

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
