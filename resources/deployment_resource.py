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
    """Paths of the streams and the settings. It holds no secret, and nothing is resolved at load time."""

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
        """Return a stream's spec as its file is now."""
        return self.deployment().stream(name)

    def current(self, spec: StreamSpec) -> StreamSpec:
        """Return a stream as its file is now; if the file is invalid, `spec` unchanged."""
        try:
            return self.stream(spec.stream)
        except SpecError:
            return spec
