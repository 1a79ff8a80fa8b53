"""Coordinates of every JVM artifact, its version, and why this one; nothing else in the repository names a version.

The bytes behind the names are fixed by `artifacts.sha256`. After a change here run
`python -m jobs.install.artifacts --write-checksums`, and say in the commit what made the change necessary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

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
        name: Maven's artifact id, with the Scala version where it has one.
        version: The exact version; never a range.
        why: What needs it, and why this version.
        transitive: Whether what it depends on is resolved as well. Only the file names in `artifacts.sha256` are
            accepted in the end, so this cannot bring in anything unseen.
        classifier: Which of the module's files, where it is not its jar.
        packaging: Of that file: its type and its ending.
        with_jar: Whether the module's jar is fetched beside that file.
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
        """Whether it cannot be resolved without the module's description."""
        return self.transitive or self.classifier is None

    @property
    def filename(self) -> str:
        """The file's name in the set's folder."""
        classifier = f"-{self.classifier}" if self.classifier else ""
        return f"{self.name}-{self.version}{classifier}.{self.packaging}"

    def __str__(self) -> str:
        return f"{self.organisation}:{self.name}:{self.version}"


# Not transitive: the rest of what these ask for (Hadoop's client, Scala, SLF4J, lz4, snappy, zstd, jsr305) comes with
# PySpark, and a second copy on the class path is 60 MB at best and a version conflict at worst.
SPARK: tuple[Coordinate, ...] = (
    Coordinate(
        "org.apache.iceberg",
        "iceberg-spark-runtime-4.1_2.13",
        "1.12.0",
        "Reading, MERGE and the maintenance procedures; from 1.11 on a MERGE can carry snapshot properties. It must "
        "name PySpark's own minor version (4.1) and Scala version (2.13).",
    ),
    Coordinate(
        "org.apache.spark",
        "spark-sql-kafka-0-10_2.13",
        "4.1.1",
        "Spark's Kafka source. 4.1.1 on PySpark 4.1.4: the later patch releases were published without the token "
        "provider that they ask for.",
    ),
    Coordinate(
        "org.apache.spark",
        "spark-token-provider-kafka-0-10_2.13",
        "4.1.1",
        "The Kafka source loads it on start, with or without tokens; the version is the source's.",
    ),
    Coordinate(
        "org.apache.kafka",
        "kafka-clients",
        "3.9.1",
        "The version that the Kafka source 4.1.1 was built with; it talks to brokers from 2.1 to 4.x.",
    ),
    Coordinate(
        "org.apache.commons",
        "commons-pool2",
        "2.12.1",
        "The Kafka source's pool of consumers; PySpark carries only commons-pool 1.",
    ),
    Coordinate(
        "org.xerial",
        "sqlite-jdbc",
        "3.53.2.1",
        "Spark reads and merges into tables of the embedded SQLite catalog through Iceberg's JDBC catalog.",
    ),
)

# Beside the set `spark`, for a session that works on tables of a catalog in PostgreSQL.
POSTGRESQL: tuple[Coordinate, ...] = (
    Coordinate(
        "org.postgresql",
        "postgresql",
        "42.7.14",
        "Iceberg's JDBC catalog connects to PostgreSQL with it; it runs on Java 8 and later.",
    ),
)

# Beside the set `spark`, for a session that works on tables in S3, or of a catalog in Glue.
AWS: tuple[Coordinate, ...] = (
    Coordinate(
        "org.apache.iceberg",
        "iceberg-aws-bundle",
        "1.12.0",
        "AWS's client, without which Iceberg's S3FileIO and GlueCatalog do not load; the runtime's version.",
    ),
)

# The REST catalog that tests start: Iceberg's own, over JDBC. Nothing that frazil runs on.
REST_CATALOG: tuple[Coordinate, ...] = (
    Coordinate(
        "org.apache.iceberg",
        "iceberg-open-api",
        "1.11.0",
        "What hands out credentials, as catalogs do. The last release on Maven; nothing it needs is named there.",
        classifier="test-fixtures",
    ),
    Coordinate(
        "org.apache.iceberg",
        "iceberg-core",
        "1.11.0",
        "The servlet, and what answers for a catalog, are among the tests of this module.",
        classifier="tests",
        with_jar=True,
    ),
    Coordinate("org.apache.iceberg", "iceberg-aws", "1.11.0", "S3FileIO, and iceberg-core with it.", transitive=True),
    Coordinate("org.apache.hadoop", "hadoop-client-api", "3.4.1", "The server asks for its configuration, and files."),
    Coordinate("org.apache.hadoop", "hadoop-client-runtime", "3.4.1", "What hadoop-client-api needs, relocated."),
    Coordinate("org.eclipse.jetty.ee10", "jetty-ee10-servlet", "12.1.5", "The server's own.", transitive=True),
    Coordinate(
        "software.amazon.awssdk",
        "url-connection-client",
        "2.54.17",
        "How S3FileIO of 1.11 speaks HTTP; of the same release as the client in the set `aws`, which has a later one.",
    ),
    Coordinate("dev.failsafe", "failsafe", "3.3.2", "S3FileIO opens a stream again with it."),
    Coordinate("org.xerial", "sqlite-jdbc", "3.53.2.1", "The catalog behind it, as in the set `spark`."),
    Coordinate("org.postgresql", "postgresql", "42.7.14", "The catalog behind it, as in the set `postgresql`."),
    Coordinate("org.slf4j", "slf4j-simple", "2.0.17", "The server's log; of the version that Iceberg brings."),
)

# Transitive: the broker is some forty jars that belong to one release, and nothing else is on its class path.
BROKER: tuple[Coordinate, ...] = (
    Coordinate(
        "org.apache.kafka",
        "kafka_2.13",
        "4.3.1",
        "The local broker (KRaft, one node). 4.4.0 was published without two of its dependencies.",
        transitive=True,
    ),
    Coordinate(
        "org.apache.logging.log4j",
        "log4j-slf4j-impl",
        "2.25.4",
        "Without an SLF4J 1 binding the broker is silent and broker.log empty; it brings log4j-core.",
        transitive=True,
    ),
)

# What `make bench` runs beside frazil: a Connect worker with the Iceberg sink and all that it needs.
CONNECT: tuple[Coordinate, ...] = (
    Coordinate("org.apache.kafka", "connect-runtime", "4.3.1", "The worker, of the broker's release.", transitive=True),
    Coordinate(
        "org.apache.iceberg",
        "iceberg-kafka-connect",
        "1.12.0",
        "The sink. Its full distribution is not on Maven, so the file formats and Hadoop's client are named here.",
        transitive=True,
    ),
    Coordinate("org.apache.iceberg", "iceberg-parquet", "1.12.0", "The sink's version.", transitive=True),
    Coordinate(
        "org.apache.iceberg",
        "iceberg-orc",
        "1.12.0",
        "The sink's version; it registers all file formats at once and fails where one is missing.",
        transitive=True,
    ),
    Coordinate("org.apache.hadoop", "hadoop-client-api", "3.4.1", "Iceberg's Parquet writer asks for it."),
    Coordinate("org.apache.hadoop", "hadoop-client-runtime", "3.4.1", "What hadoop-client-api needs, relocated."),
    Coordinate("org.xerial", "sqlite-jdbc", "3.53.2.1", "The catalog, as in the set `spark`."),
    Coordinate(
        "org.apache.logging.log4j",
        "log4j-slf4j2-impl",
        "2.25.4",
        "The worker's log, of which the commits are read; Iceberg brings SLF4J 2.",
        transitive=True,
    ),
    Coordinate(
        "io.apicurio",
        "apicurio-registry-utils-converter",
        "2.6.13.Final",
        "The sink's converter of Avro, with schemas of the local registry. Later lines were published without all that "
        "they depend on.",
        transitive=True,
    ),
)

# What the tables of `tests/smt` are made with: a worker with every single-message transform that frazil takes by name.
_DEBEZIUM = ("api", "config", "connect-plugins", "connector-common", "util")
TRANSFORMS: tuple[Coordinate, ...] = (
    Coordinate("org.apache.kafka", "connect-runtime", "4.3.1", "The worker, and Kafka's transforms.", transitive=True),
    Coordinate("org.apache.iceberg", "iceberg-kafka-connect-transforms", "1.12.0", "The sink's.", transitive=True),
    *(
        Coordinate(
            "io.debezium", f"debezium-{name}", "3.7.0.Final", "Debezium's. Ivy cannot read what its modules need."
        )
        for name in _DEBEZIUM
    ),
    Coordinate("org.apache.logging.log4j", "log4j-slf4j2-impl", "2.25.4", "The worker's log.", transitive=True),
)

# The source of changes that tests and `bench.mirror` start: a worker, and beside its class path the connector, which is
# one archive with all its jars.
DEBEZIUM: tuple[Coordinate, ...] = (
    Coordinate("org.apache.kafka", "connect-runtime", "4.3.1", "The worker, of the broker's release.", transitive=True),
    Coordinate("org.apache.logging.log4j", "log4j-slf4j2-impl", "2.25.4", "The worker's log.", transitive=True),
    Coordinate(
        "io.debezium",
        "debezium-connector-postgres",
        "3.7.0.Final",
        "Changes of PostgreSQL, as most of those who run Debezium have them. It runs on Java 17.",
        classifier="plugin",
        packaging="tar.gz",
    ),
)

# A schema registry with Confluent's API, for the demo and the tests: one archive with all its jars.
REGISTRY: tuple[Coordinate, ...] = (
    Coordinate(
        "io.apicurio",
        "apicurio-registry-app",
        "3.0.9",
        "The local registry. The last line that runs on Java 17; later ones need 21.",
        classifier="all",
        packaging="tar.gz",
    ),
)

SETS: dict[ArtifactSet, tuple[Coordinate, ...]] = {
    "spark": SPARK,
    "postgresql": POSTGRESQL,
    "aws": AWS,
    "broker": BROKER,
    "connect": CONNECT,
    "registry": REGISTRY,
    "transforms": TRANSFORMS,
    "rest_catalog": REST_CATALOG,
    "debezium": DEBEZIUM,
}
# The others are fetched by whatever needs them.
FETCHED_AT_SETUP: tuple[ArtifactSet, ...] = ("spark", "broker")
