"""The Iceberg catalog as a Dagster resource."""

import dagster as dg
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from resources.deployment_resource import DeploymentResource


class CatalogResource(dg.ConfigurableResource):
    """The catalog that `catalog` in the settings names, through PyIceberg: no JVM."""

    deployment: dg.ResourceDependency[DeploymentResource]

    def catalog(self) -> Catalog:
        """A connection, with its secrets resolved now.

        Raises:
            FrazilError: It cannot be reached, or a secret is not set.
        """
        # Imported here: it brings half of what a driver needs, which a code location should not wait for.
        from jobs.catalog import connect_catalog

        return connect_catalog(self.deployment.settings())

    def quick(self) -> Catalog:
        """A connection that gives up within seconds.

        Raises:
            NoCatalogYet: The embedded catalog has not been made: no stream has run.
            FrazilError: It cannot be reached, or a secret is not set.
        """
        from jobs.catalog import quick_catalog

        return quick_catalog(self.deployment.settings())

    def table(self, name: str) -> Table:
        """A table as it is now.

        Args:
            name: Its full name, such as `orders.payments`.
        """
        return self.catalog().load_table(name)
