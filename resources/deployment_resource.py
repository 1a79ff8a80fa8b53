"""The deployment as a Dagster resource: two paths, from which the others read what they need at run time."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
from pydantic import Field

from jobs.config.documents.validation import SpecError
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from resources.deployment import Deployment


class DeploymentResource(dg.ConfigurableResource):
    """Where the streams and the settings are. Holds paths only: no secret, and nothing resolved at load time."""

    home: str = Field(description="The deployment's folder, which holds streams/ and .frazil/.")
    settings_file: str | None = Field(
        default=None,
        description="The settings file; without it frazil.yaml in the home folder, or the embedded default.",
    )

    @staticmethod
    def of(deployment: Deployment) -> DeploymentResource:
        """The resource of a deployment."""
        settings = deployment.settings_file
        return DeploymentResource(home=str(deployment.home), settings_file=str(settings) if settings else None)

    def deployment(self) -> Deployment:
        """The deployment."""
        return Deployment(Path(self.home), Path(self.settings_file) if self.settings_file else None)

    def settings(self) -> Settings:
        """The settings as they are now; secrets stay references until a client needs them."""
        return self.deployment().prepared_settings()

    def stream(self, name: str) -> StreamSpec:
        """A stream's spec as it is now."""
        return self.deployment().stream(name)

    def current(self, spec: StreamSpec) -> StreamSpec:
        """A stream as its file says now; if its file broke, as it was launched."""
        try:
            return self.stream(spec.stream)
        except SpecError:
            return spec
