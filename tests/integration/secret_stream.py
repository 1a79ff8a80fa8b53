"""A stream of which everything asks for another secret, and nobody may do more than the docs grant."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import yaml
from confluent_kafka import Producer
from psycopg import sql

from tests.helpers.catalogs import bucket_folder, objects_properties
from tests.helpers.database_server import PASSWORD, USER, DatabaseServer
from tests.helpers.guarded_broker import GuardedBroker, Rule
from tests.helpers.object_server import SECRET, ObjectServer
from tests.helpers.registry_server import RegistryServer, basic
from tests.integration.pipeline import ROOT, SPARK_CONF, Pipeline

_PAGES = ("secure-kafka.md", "least-privilege.md")
PAGE = "\n".join((ROOT / "docs" / "how-to" / name).read_text() for name in _PAGES)
STREAM, LETTERS, ROLE = "payments", "payments.letters", "frazil_app"
# What a translation into JAAS has to escape.
ESCAPED = "p'a\\ss=w;\"rd"
SCHEMA = '{"type": "record", "name": "Payment", "fields": [{"name": "id", "type": "string"}]}'
_KINDS = {"topic": "topic", "group": "group", "transactional-id": "transaction"}


def documented_rules() -> Iterator[Rule]:
    """The rules for brokers that the page names."""
    for line in re.findall(r"^--allow-principal .+$", PAGE, re.MULTILINE):
        user, *operations = re.findall(r"(?:User:|--operation )(\w+)", line)
        (kind, name), *_ = re.findall(r"--(topic|group|transactional-id) (\S+)", line)
        for each in operations:
            # As the client names them: DescribeConfigs is DESCRIBE_CONFIGS.
            yield user, re.sub(r"(?<=[a-z])(?=[A-Z])", "_", each).upper(), f"{_KINDS[kind]}:{name}"


def documented_grants() -> list[str]:
    """The statements for databases that the page names: of state and catalog, of Dagster."""
    return re.findall(r"^```sql\n(.+?)^```", PAGE, re.MULTILINE | re.DOTALL)


@dataclass
class SecretStream:
    """The deployment, with what it asks.

    Attributes:
        mounted: The folder of the secrets in files.
        values: Every secret that was ever used, by name.
        present: Those that hold now.
    """

    home: Path
    broker: GuardedBroker
    database: DatabaseServer
    objects: ObjectServer
    registry: RegistryServer
    mounted: Path
    values: dict[str, str] = field(default_factory=dict)
    present: dict[str, str] = field(default_factory=dict)
    folder: str = field(default_factory=bucket_folder)

    def __post_init__(self) -> None:
        self.mounted.mkdir()
        for name in ("lake", "dagster"):
            self.as_owner("postgres", f"CREATE DATABASE secret_{name}")
        for name in ("reader", "admin", "registry", "database"):
            self.change(name, make=name == "database")
        grants, of_dagster = documented_grants()
        made = grants.replace("SECRET", self.present["database"])
        self.as_owner("secret_lake", *made.split(";\n"))
        self._make_dagster(of_dagster)
        self.broker.topic(STREAM)
        self.broker.allow(documented_rules())
        self.registry.schemas[1] = SCHEMA
        self.registry.authorization = lambda: basic("frazil", self.present["registry"])
        self.values["store"] = SECRET
        self.pipeline: Pipeline = Pipeline(self.home, self.broker.open_address, STREAM)
        self._write()

    def change(self, name: str, *, make: bool = False) -> None:
        """Change a secret where it is checked, and then in its file."""
        value = searched = secrets.token_hex(16)
        if name == "reader":
            # The part that is searched for is the same under every escape.
            value = ESCAPED + searched
        self.values[f"{name} {len(self.values)}"], self.present[name] = searched, value
        if name in ("reader", "admin"):
            self.broker.user(name, value)
        elif name == "database" and not make:
            role = sql.Identifier(ROLE)
            self.as_owner("postgres", sql.SQL("ALTER ROLE {} PASSWORD {}").format(role, sql.Literal(value)))
            self.as_owner(
                "postgres", f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{ROLE}'"
            )
        (new := self.mounted / f"{name}.new").write_text(f"{value}\n")
        new.rename(self.mounted / name)

    def as_owner(self, database: str, *statements: Any) -> None:
        """Carry out statements as whoever owns the server."""
        with psycopg.connect(self.database.url_of(database), password=PASSWORD, autocommit=True) as connection:
            for statement in statements:
                if isinstance(statement, sql.Composed) or statement.strip():
                    connection.execute(statement)

    def produce(self, count: int) -> None:
        """So many records, and one that names no schema."""
        producer = Producer({"bootstrap.servers": self.broker.open_address})
        for number in range(count):
            text = f"p-{number}".encode()
            producer.produce(STREAM, b"\0\0\0\0\1" + bytes([2 * len(text)]) + text)
        producer.produce(STREAM, b"damaged")
        assert producer.flush(120) == 0

    def _dagster(self, user: str, password: Any) -> dict[str, Any]:
        place = {"hostname": "127.0.0.1", "port": self.database.port, "db_name": "secret_dagster"}
        login = {"scheme": "postgresql+psycopg2", "username": user, "password": password}
        return {"storage": {"postgres": {"postgres_db": place | login}}, "telemetry": {"enabled": False}}

    def _make_dagster(self, grants: str) -> None:
        import dagster as dg

        owner = self.home / "owner"
        owner.mkdir(parents=True)
        (owner / "dagster.yaml").write_text(yaml.safe_dump(self._dagster(USER, PASSWORD)))
        with dg.DagsterInstance.from_config(str(owner)):
            pass
        (owner / "dagster.yaml").unlink()
        self.as_owner("secret_dagster", *grants.split(";\n"))
        own = self.home / ".frazil" / "dagster"
        own.mkdir(parents=True)
        (own / "dagster.yaml").write_text(yaml.safe_dump(self._dagster(ROLE, {"env": "SECRET_OF_DAGSTER"})))

    def _write(self) -> None:
        scram = {"protocol": "SASL_SSL", "mechanism": "SCRAM-SHA-512", "ca": str(self.broker.tls.ca)}
        at = f"127.0.0.1:{self.database.port}/secret_lake"

        def login(user: str) -> dict[str, Any]:
            return scram | {"user": user, "password": f"${{file:{self.mounted / user}}}"}

        password = f"${{file:{self.mounted / 'database'}}}"
        of_catalog = {"type": "sql", "uri": f"postgresql+psycopg://{ROLE}@{at}", "password": password}
        settings = {
            "kafka": {
                "bootstrap_servers": self.broker.address,
                "security": login("reader"),
                "admin": {"security": login("admin")},
                "request_timeout": "10s",
            },
            "registry": {
                "url": self.registry.url,
                "basic": {"user": "frazil", "password": f"${{file:{self.mounted / 'registry'}}}"},
            },
            "catalog": {
                "name": "lake",
                "properties": {**of_catalog, "warehouse": self.folder, **objects_properties(self.objects)},
            },
            "state": {"store": f"postgresql://{ROLE}@{at}", "properties": {"password": password}},
            "spark": {"master": "local[2]", "driver_memory": "600m", "conf": SPARK_CONF},
            "lease_ttl": "10s",
        }
        (self.home / "frazil.yaml").write_text(yaml.safe_dump(settings))
        self.pipeline.write_spec(
            decode={"value": "avro", "schema": "registry"},
            table={"name": self.pipeline.table_name},
            source={"topics": [STREAM], "group": f"lag-{STREAM}"},
            errors={"dead_letters": {"topic": {"name": LETTERS, "create": True, "replication_factor": 1}}},
            trigger={"every": "1s"},
        )
        os.environ["SECRET_OF_DAGSTER"] = self.present["database"]
