"""Iceberg's REST catalog for tests: its servlet over a catalog in SQLite, on the loopback, in a JVM of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobs.clients.install.artifacts import resolve_jars
from tests.helpers.small_jvm import small_jvm
from tests.helpers.waiting import wait_for


@dataclass(frozen=True)
class RestServer:
    """Address of the server.

    Attributes:
        port: Port on 127.0.0.1.
    """

    port: int

    @property
    def uri(self) -> str:
        """The URI of the catalog."""
        return f"http://127.0.0.1:{self.port}"


@contextlib.contextmanager
def rest_server(folder: Path, properties: Mapping[str, str]) -> Iterator[RestServer]:
    """Run the server until the end of the block. It authenticates nobody.

    Args:
        folder: Folder for its database.
        properties: Properties of the catalog behind it, such as `warehouse`; clients that load a table get those of S3.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with small_jvm([*resolve_jars("rest_catalog"), *resolve_jars("aws")], folder / "rest.log") as gateway:
        given = {
            "uri": f"jdbc:sqlite:{folder}/rest.db?journal_mode=WAL&busy_timeout=30000",
            "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
            "jdbc.schema-version": "V1",
            "include-credentials": "true",
            **properties,
        }
        listening = _started(gateway.jvm, given).getConnectors()[0]
        wait_for(lambda: listening.getLocalPort() > 0, "the REST catalog to listen", 30)
        yield RestServer(listening.getLocalPort())


def _started(jvm: Any, properties: Mapping[str, str]) -> Any:
    """The server; its own `main` would listen on all interfaces."""
    iceberg, ee10 = jvm.org.apache.iceberg, jvm.org.eclipse.jetty.ee10.servlet
    hadoop = jvm.org.apache.hadoop.conf.Configuration()
    catalog = iceberg.CatalogUtil.buildIcebergCatalog("rest_backend", dict(properties), hadoop)
    context = _new(jvm, "org.apache.iceberg.rest.RESTCatalogServer$CatalogContext", catalog, dict(properties))
    adapter = _new(jvm, "org.apache.iceberg.rest.RESTServerCatalogAdapter", context)
    handler = ee10.ServletContextHandler()
    handler.addServlet(ee10.ServletHolder(iceberg.rest.RESTCatalogServlet(adapter)), "/*")
    server = jvm.org.eclipse.jetty.server.Server(jvm.java.net.InetSocketAddress("127.0.0.1", 0))
    server.setHandler(handler)
    server.start()
    return server


def _new(jvm: Any, name: str, *arguments: object) -> Any:
    """An instance of a class that is not public."""
    constructor = jvm.java.lang.Class.forName(name).getDeclaredConstructors()[0]
    constructor.setAccessible(True)
    given = jvm.java.util.ArrayList()
    for each in arguments:
        given.add(each)
    return constructor.newInstance(given.toArray())
