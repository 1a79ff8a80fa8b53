"""Coordinates of all JVM artifacts in `coordinates.toml`, and the versions of Java and PySpark they need."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeAlias

ArtifactSet: TypeAlias = Literal[
    "spark", "postgresql", "aws", "broker", "connect", "registry", "transforms", "rest_catalog", "debezium"
]

PYSPARK_MINIMUM = (4, 1, 4)
PYSPARK_BELOW = (4, 2)
JAVA_VERSIONS = (17, 21)


@dataclass(frozen=True, slots=True)
class Coordinate:
    """One module in the Maven layout.

    Args:
        organisation: Maven's group id.
        name: Maven's artifact id, including the Scala version if there is one.
        version: The exact version; never a range.
        why: What needs it, and why this version.
        transitive: Whether to resolve its dependencies as well. Only files listed in `artifacts.sha256` are accepted,
            so nothing unknown can come in.
        classifier: Classifier of the file to fetch, if that is not the module's jar.
        packaging: Type and extension of that file.
        with_jar: Whether to fetch the module's jar beside that file.
    """

    organisation: str
    name: str
    version: str
    why: str
    transitive: bool = False
    classifier: str | None = None
    packaging: str = "jar"
    with_jar: bool = False

    @property
    def needs_pom(self) -> bool:
        """Whether the module's POM is needed to resolve it."""
        return self.transitive or self.classifier is None

    @property
    def filename(self) -> str:
        """The file's name in the set's folder."""
        classifier = f"-{self.classifier}" if self.classifier else ""
        return f"{self.name}-{self.version}{classifier}.{self.packaging}"

    def __str__(self) -> str:
        return f"{self.organisation}:{self.name}:{self.version}"


@cache
def artifact_sets() -> dict[ArtifactSet, tuple[Coordinate, ...]]:
    """Return the modules of each set."""
    with Path(__file__).with_name("coordinates.toml").open("rb") as file:
        listed: dict[ArtifactSet, list[dict[str, Any]]] = tomllib.load(file)  # pyright: ignore[reportAssignmentType]
    return {name: tuple(_coordinate(**module) for module in modules) for name, modules in listed.items()}


def _coordinate(module: str, **more: Any) -> Coordinate:
    organisation, name, version = module.split(":")
    return Coordinate(organisation, name, version, **more)


# The other sets are fetched when they are needed.
FETCHED_AT_SETUP: tuple[ArtifactSet, ...] = ("spark", "broker")
