"""The schema registry as a Dagster resource."""

from typing import TYPE_CHECKING

import dagster as dg

from resources.deployment_resource import DeploymentResource

if TYPE_CHECKING:
    from jobs.registry.client import RegistryClient


class RegistryResource(dg.ConfigurableResource):
    """The registry that `registry` in the settings names: schemas by id, subjects and their versions."""

    deployment: dg.ResourceDependency[DeploymentResource]

    def quick(self) -> "RegistryClient":
        """A connection that gives up within seconds, with its secrets resolved now.

        Raises:
            FrazilError: The settings name none, it is local and does not run, or a secret is not set.
        """
        # Imported here: a code location without a registry should not wait for it.
        from jobs.registry.client import quick_registry

        return quick_registry(self.deployment.settings().registry)
