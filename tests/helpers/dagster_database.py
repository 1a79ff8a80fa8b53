"""Databases for Dagster on the tests' PostgreSQL, and the part of `dagster.yaml` that names one."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import sql

from tests.helpers.database_server import PASSWORD, USER, DatabaseServer

PASSWORD_VARIABLE = "DAGSTER_PG_PASSWORD"


def dagster_storage(server: DatabaseServer, database: str) -> tuple[dict[str, Any], str]:
    """A new database: the part of `dagster.yaml`, and the value of `PASSWORD_VARIABLE`, which it names."""
    with psycopg.connect(server.url, password=PASSWORD, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(database)))
    # Of its own accord SQLAlchemy takes psycopg 3 from 2.1 on, which Dagster's client does not speak to.
    address = {
        "scheme": "postgresql+psycopg2",
        "hostname": "127.0.0.1",
        "port": server.port,
        "username": USER,
        "db_name": database,
    }
    return {"storage": {"postgres": {"postgres_db": {**address, "password": {"env": PASSWORD_VARIABLE}}}}}, PASSWORD
